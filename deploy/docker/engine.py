"""The Docker engine: used if one answers, started if none does, and stopped again only if it was started here."""

import os
from dataclasses import dataclass
from pathlib import Path

from deploy.local import logs, processes
from deploy.local.errors import StackError
from deploy.local.programs import PROJECT, EndedError, run, succeeds
from deploy.local.servers import Say
from deploy.local.waiting import becomes

DRIVERS = ("overlay2", "fuse-overlayfs", "vfs")
"""In the order in which they are tried: the last works everywhere, and copies the whole image for every container."""

CANNOT_BE_HERE = 4
"""The exit status of `install` if it may not install anything."""

_READY_S = 240.0
"""How long a dockerd that runs may take to answer: it starts the containers that ran before a power cut first."""

_TRY_S = 60.0
_STOP_S = 60.0
_ASK_S = 0.3
_SHOWN_LINES = 12


class NoEngineError(StackError):
    """This machine runs no engine, and none can be started on it by this user; or its engine runs no containers."""


def install(*programs: str) -> None:
    """Installs what is missing of engine and Compose, and of these programs.

    Raises:
        NoEngineError: some are missing, and nothing may be installed here.
        StackError: they could not be installed.
    """
    failed = "what is needed is not there"
    try:
        run(PROJECT / "deploy" / "docker" / "install", *programs, failed=failed, is_shown=True)
    except EndedError as error:
        if error.status == CANNOT_BE_HERE:
            raise NoEngineError(f"{failed}, and cannot be installed here (see above)") from error
        raise


def try_out(base: str) -> None:
    """Runs a container that does nothing, with a limit on memory, as those of the clusters have. An engine may answer
    although it can run no container, for example inside another container.

    Raises NoEngineError: it does not run.
    """
    words = ("--rm", "--memory", "64m", "--cap-drop", "ALL", "--read-only", base, "true")
    try:
        run(
            "docker",
            "run",
            *words,
            failed="the engine answers, but a container that does nothing does not run on it",
            timeout_s=_TRY_S,
        )
    except EndedError as error:
        raise NoEngineError(str(error)) from error


@dataclass(frozen=True)
class Engine:
    """home: the directory of the Docker clusters; an engine that was started here has its files in `engine/`."""

    home: Path

    @property
    def _folder(self) -> Path:
        return self.home / "engine"

    @property
    def _pid_file(self) -> Path:
        return self._folder / "dockerd.pid"

    @property
    def _log(self) -> Path:
        return self._folder / "dockerd.log"

    @property
    def _mark(self) -> str:
        return f"--label=feedstore.home={self.home}"

    def answers(self) -> bool:
        """Whether there is an engine, and this user may use it."""
        return succeeds("docker", "version", "--format", "{{.Server.Version}}")

    def is_ours(self) -> bool:
        return processes.find(self._pid_file, self._mark) is not None

    def ensure(self, say: Say) -> None:
        """Starts an engine if none answers.

        Raises:
            NoEngineError: none can be started here; the message says why, as far as that can be seen.
            StackError: one is there, and does not answer. If it was started here, it is left running.
        """
        if self.answers():
            say(f"engine: {self._version()}")
            return
        if "DOCKER_HOST" in os.environ:
            raise StackError(f"no engine answers at DOCKER_HOST={os.environ['DOCKER_HOST']}; start it, or unset that")
        if os.geteuid() != 0:
            raise NoEngineError(
                "no Docker engine answers, and only root can start one: `sudo systemctl start docker`, or run this as "
                "root; if one runs, this user must be in its group (docker)"
            )
        if self.is_ours():
            raise StackError(
                f"the engine that was started here does not answer; the end of {self._log}:\n{self._said()}"
            )
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        tried = []
        for driver in DRIVERS:
            say(f"engine: starting dockerd with the storage driver {driver}")
            if self._starts(driver):
                say(f"engine: {self._version()}; `make docker-stop` stops it")
                return
            tried.append(f"--storage-driver={driver}:\n{self._said()}")
            self.stop(lambda _: None)
        raise NoEngineError(
            "dockerd does not start here. It needs root, cgroups that can be written (mount them, or run the "
            "surrounding container with --privileged) and a kernel with network namespaces and NAT. What it said:\n"
            + "\n".join(tried)
        )

    def stop(self, say: Say) -> bool:
        """Stops an engine that was started here, and with it its containers; leaves any other engine alone. Returns
        whether there was one.

        Raises StackError: it does not end.
        """
        pid = processes.find(self._pid_file, self._mark)
        held = None if pid is None else processes.hold(pid, self._mark)
        if held is None:
            return False
        with held:
            held.ask_to_end()
            if not held.wait_gone(_STOP_S):
                held.kill()
        self._pid_file.unlink(missing_ok=True)
        say("engine: stopped")
        return True

    def _starts(self, driver: str) -> bool:
        """Whether an engine with this storage driver answers; if not, it has ended.

        Raises StackError: it runs, and does not answer yet. Another driver in its place would show none of the
            containers and images that it has.
        """
        # None of ours runs. A killed one has left its process id, and dockerd does not start if a process has it.
        lock = self._folder / "dockerd.lock"
        lock.unlink(missing_ok=True)
        argv = ("dockerd", f"--storage-driver={driver}", self._mark, "--pidfile", str(lock))
        pid = processes.spawn(processes.Command(argv, self._mark), self._log, self._pid_file)
        becomes(lambda: not processes.is_ours(pid, self._mark) or self.answers(), _READY_S, _ASK_S)
        if not processes.is_ours(pid, self._mark):
            return False
        if not self.answers():
            raise StackError(
                f"dockerd does not answer yet, after {_READY_S:.0f} s, and continues: `make docker-ready` again looks "
                f"whether it does, and `make docker-stop` ends it. The end of {self._log}:\n{self._said()}"
            )
        return True

    def _said(self) -> str:
        lines = logs.tail(self._log, 200).splitlines()
        telling = [line for line in lines if "level=error" in line or "level=fatal" in line or "failed" in line]
        return "\n".join((telling or lines)[-_SHOWN_LINES:])

    def _version(self) -> str:
        said = run("docker", "info", "--format", "{{.ServerVersion}}, storage {{.Driver}}, cgroups {{.CgroupVersion}}",
                   failed="the engine cannot be asked")  # fmt: skip
        return said.strip()


def compose() -> tuple[str, ...]:
    """How Compose is called here: version 2 as a part of docker, or else Debian's docker-compose.

    Raises StackError: there is neither.
    """
    if succeeds("docker", "compose", "version"):
        return ("docker", "compose")
    if succeeds("docker-compose", "version"):
        return ("docker-compose",)
    raise StackError("there is neither `docker compose` nor docker-compose: `make docker-ready` installs one")
