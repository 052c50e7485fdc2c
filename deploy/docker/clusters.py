"""The Docker clusters of one home: started, asked, and taken away again."""

import datetime as dt
import json
import os
import secrets
import time
import urllib.parse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deploy.docker import engine, image, names, roles
from deploy.local import probes
from deploy.local.errors import StackError
from deploy.local.home import password, write
from deploy.local.ports import LOOPBACK
from deploy.local.programs import PROJECT, run
from deploy.local.servers import Say

COMPOSE_FILE = PROJECT / "deploy" / "docker" / "compose.yml"
HOME_LABEL = "feedstore.home"
SITES = "FEED_CLUSTER_SITES"
"""The environment variable: `tuned`, or `defaults` for servers with Hadoop's and HBase's own settings."""
READY_S = 420.0
"""How long everything together may take to become ready, on two cores that have other things to do."""

_ASK_S = 1.0
_ANSWER_S = 20.0
_CHECK_S = 60.0
_SAY_AGAIN_S = 20.0
_AT_ONCE = 4
_SHOWN_LINES = 40
_STOP_S = 3
_WORKER_STABLE_S = 5.0
_TOO_OFTEN = 8
"""A server that has ended this many times while `up` waited for it will not start. The engine waits longer before each
restart: in all, that is half a minute."""

State = Literal["ready", "not ready", "stopped"]


@dataclass(frozen=True)
class ContainerStatus:
    """The status of one container. detail: why it is not ready. restarts: since it was made."""

    name: str
    state: State
    detail: str
    restarts: int
    memory_bytes: int


@dataclass(frozen=True)
class _Container:
    """A container that runs, or has ended and waits until the engine starts it again: longer each time, up to a minute.
    age_s: since it was started last.
    """

    restarts: int
    age_s: float
    is_restarting: bool = False


class Clusters:
    """home: the directory with secrets and `places.json`.

    There is one on an engine: names and addresses of the containers are fixed. Each carries its home as a label, and
    those of another home are left alone.
    """

    def __init__(self, home: Path, say: Say) -> None:
        self.home = home.resolve()
        self._say = say
        self._places = self.home / "places.json"
        self._token = self.home / "token"

    def up(self, deadline_s: float = READY_S) -> None:
        """Builds the image, starts the containers that do not run, makes topics, tables and databases, and returns when
        everything answers. A container that runs as it would be started now is left alone.

        Raises:
            StackError: the clusters of another home are there, or data that they left; something could not be made, or
                did not answer in time. The message ends with the end of its log then, and the containers that were
                started keep running.
        """
        settings = roles.settings_named(os.environ.get(SITES) or "tuned")
        if not engine.Engine(self.home).answers():
            raise StackError("no Docker engine answers: `make docker-ready` starts one, or says why it cannot")
        self.refuse_those_of_another_home()
        self._write_secrets()
        image.build(self._say)
        # It takes minutes, in which another home may have started its own.
        self.refuse_those_of_another_home()
        began = time.monotonic()
        self._say(f"starting servers, with {settings} settings")
        self._compose("up", "--detach", "--no-build", *names.SERVERS, failed="the servers could not be started")
        self._wait(names.SERVERS, began, deadline_s)
        self._set_up()
        self._say("starting workers and web")
        self._compose("up", "--detach", "--no-build", *names.CLIENTS, failed="the workers could not be started")
        self._wait(names.CLIENTS, began, deadline_s)
        self._say(f"everything answers after {time.monotonic() - began:.0f} s: http://{_web_place()}")
        self._say(f"Prometheus, with the alert rules: http://{LOOPBACK}:{names.PROMETHEUS_LOOPBACK_PORT}")

    def down(self) -> None:
        """Takes everything away: containers, networks, data, secrets. The image stays. May be repeated.

        Raises StackError: the engine does not do it or does not answer, or the clusters are those of another home.
        """
        files = [path for path in (self._places, self._token, self._secret) if path.exists()]
        if engine.Engine(self.home).answers():
            self.refuse_those_of_another_home()
            # Before the data that knows it: the next `up` asks for a token only if there is none here.
            self._token.unlink(missing_ok=True)
            # The services do not include the profile `setup`, but an interrupted set-up may have left its container.
            self._compose(
                "--profile", "setup", "down", "--volumes", "--remove-orphans", "--timeout", str(_STOP_S),
                failed="the clusters could not be taken away",
            )  # fmt: skip
            self._say("down: containers, networks and volumes are gone")
        elif files:
            # An engine that was stopped keeps containers and volumes, and a later `up` needs their secrets.
            raise StackError(
                "no engine answers, and one that was stopped keeps the clusters' containers and data: "
                "`make docker-ready` starts it, then they can be taken away. If that engine is gone for good, remove "
                f"{self.home}"
            )
        else:
            self._say("no engine answers, and nothing was started from here")
        for path in files:
            path.unlink(missing_ok=True)

    def status(self) -> list[ContainerStatus]:
        """The status of every container. Those that run are asked."""
        found = self._inspected((*names.SERVERS, *names.CLIENTS))
        memory = self._memory()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            details = list(pool.map(self._detail, found, found.values()))
        return [
            ContainerStatus(
                name,
                "stopped" if container is None else "not ready" if detail else "ready",
                detail,
                0 if container is None else container.restarts,
                memory.get(name, 0),
            )
            for (name, container), detail in zip(found.items(), details, strict=True)
        ]

    def unwatched(self) -> list[str]:
        """The targets that Prometheus does not see: a line for each that it could not scrape, or has not yet, and one
        if it has no rules. Empty if everything is watched.
        """
        try:
            targets = _asked("targets?state=active")["activeTargets"]
            groups = _asked("rules?type=alert")["groups"]
        except (OSError, ValueError, KeyError) as error:
            return [f"{names.PROMETHEUS}: {error}"]
        found = [
            f"{each['scrapeUrl']}: {each['lastError'] or each['health']}" for each in targets if each["health"] != "up"
        ]
        return found + ([] if groups else [f"{names.PROMETHEUS}: it has no rules"])

    def unchanged(self, metrics: Sequence[str]) -> list[str]:
        """Those of these metrics whose values did not change in the last hour, as Prometheus saw them. All of them if
        it does not answer.
        """
        left = []
        for name in metrics:
            change = f"max_over_time({name}[1h]) - min_over_time({name}[1h]) > 0"
            try:
                changed = _asked(f"query?{urllib.parse.urlencode({'query': change})}")["result"]
            except (OSError, ValueError, KeyError):
                changed = []
            if not changed:
                left.append(name)
        return left

    def refuse_those_of_another_home(self) -> None:
        """Raises StackError: there are such clusters, or they left data; the message says how to take them away."""
        words = (
            "--filter", f"label=com.docker.compose.project={names.PROJECT_NAME}",
            "--format", f'{{{{.Label "{HOME_LABEL}"}}}}',
        )  # fmt: skip
        failed = "the engine cannot be asked"
        said = run("docker", "ps", "--all", "--no-trunc", *words, failed=failed)
        said += run("docker", "volume", "ls", *words, failed=failed)
        # The engine prints an empty line for a container that was started before the label existed.
        if others := sorted(set(filter(None, said.splitlines())) - {str(self.home)}):
            raise StackError(
                f"the clusters on this engine are those of {others[0]}, and there can be one: names and addresses are "
                f"fixed. `python -m deploy.docker down --home {others[0]}` takes them away, with their data; "
                f"`make test-docker FEED_TEST_CLUSTER={others[0]}` tests them where they are"
            )

    @property
    def _secret(self) -> Path:
        return self.home / "secrets" / "mariadb.password"

    def _write_secrets(self) -> None:
        """The directory is for its owner only. The file in it may be read by all, because the container's user has
        another id; no other user can reach it.
        """
        self._secret.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.home.chmod(0o700)
        self._secret.parent.chmod(0o700)
        password(self._secret, mode=0o444)
        write(self._places, json.dumps(self._loopback_places(), indent=2) + "\n", 0o600)

    def _loopback_places(self) -> dict[str, object]:
        """Where the servers are for this machine, as `feedctl init --stack docker` reads it."""

        def gateways(cluster: str) -> list[str]:
            return [f"{LOOPBACK}:{names.loopback_port(cluster, number)}" for number in names.GATEWAYS]

        return {
            "clusters": {cluster: {"thrift2": gateways(cluster)} for cluster in names.CLUSTERS},
            "database": f"{LOOPBACK}:{names.MARIADB_LOOPBACK_PORT}",
            "password_file": str(self._secret),
            "kafka": f"{LOOPBACK}:{names.KAFKA_LOOPBACK_PORT}",
        }

    def _set_up(self) -> None:
        self._say("making topics, tables and databases")
        # An interrupted `up` may have left its container.
        run(
            "docker", "container", "prune", "--force",
            "--filter", f"label=com.docker.compose.project={names.PROJECT_NAME}",
            "--filter", "label=com.docker.compose.service=setup",
            failed="what an earlier set-up left could not be removed",
        )  # fmt: skip
        # Each attempt gives the token another name: a token that an interrupted `up` made and did not write down here
        # is not known.
        wanted = () if self._token.exists() else (f"cluster-up-{secrets.token_hex(4)}",)
        said = self._compose(
            "run", "--rm", "-T", "setup", "setup", *wanted, failed="topics, tables and databases could not be made"
        )
        if not wanted:
            return
        token = next((line.strip() for line in said.splitlines() if line.startswith("feed_")), None)
        if token is None:
            raise StackError(f"the set-up printed no token for the web:\n{said}")
        if self._inspected((names.WEB,))[names.WEB] is not None:
            # It may have started before there was a file of tokens.
            run("docker", "restart", names.container(names.WEB), failed="the web could not be started again")
        write(self._token, f"{token}\n", 0o600)
        self._say(f"the web's token is in {self._token}")

    def _wait(self, wanted: Sequence[str], began: float, deadline_s: float) -> None:
        waiting = list(wanted)
        said_at = time.monotonic()
        restarts: dict[str, int] = {}  # as many as when it was first seen
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            while True:
                found = self._inspected(waiting)
                details = dict(zip(found, pool.map(self._detail, found, found.values()), strict=True))
                for name in [name for name in waiting if not details[name]]:
                    waiting.remove(name)
                    self._say(f"{name}: ready ({time.monotonic() - began:.0f} s)")
                    said_at = time.monotonic()
                if not waiting:
                    return
                for name in waiting:
                    container = found[name]
                    # A worker ends, and is started again, until the stores that it works on are there.
                    if container is None or name in names.WORKERS:
                        continue
                    ends = container.restarts - restarts.setdefault(name, container.restarts)
                    if ends >= _TOO_OFTEN:
                        raise StackError(self._with_log(name, f"it ended {ends} times, each time at its start"))
                if time.monotonic() - began > deadline_s:
                    raise StackError(
                        self._with_log(waiting[0], f"not ready after {deadline_s:.0f} s: {details[waiting[0]]}")
                    )
                if time.monotonic() - said_at > _SAY_AGAIN_S:
                    self._say(f"waiting for {waiting[0]}: {details[waiting[0]]}" + f" (and {len(waiting) - 1} more)")
                    said_at = time.monotonic()
                time.sleep(_ASK_S)

    def _detail(self, name: str, container: _Container | None) -> str:
        """Why a container is not ready; empty if it is. container: None if it does not run."""
        if container is None:
            return "it does not run"
        if container.is_restarting:
            return "it ended, and is started again soon"
        if name == names.WEB:
            return _web_detail()
        if name in names.WORKERS:
            # Workers answer no requests. A worker that cannot work ends, and is started again a moment later.
            return "" if container.age_s > _WORKER_STABLE_S else "it has just been started"
        return run_check(names.container(name))

    def _inspected(self, wanted: Sequence[str]) -> dict[str, _Container | None]:
        """The state of each container, as the engine has it; None if it does not run."""
        said = run(
            "docker", "ps", "--no-trunc", "--filter", f"label=com.docker.compose.project={names.PROJECT_NAME}",
            "--format", "{{.Names}}", failed="the engine cannot be asked",
        )  # fmt: skip
        running = set(said.split())
        asked = [names.container(name) for name in wanted if names.container(name) in running]
        states: dict[str, _Container] = {}
        if asked:
            for each in json.loads(run("docker", "inspect", *asked, failed="the engine cannot be asked")):
                state = each["State"]
                age_s = time.time() - _seconds(state["StartedAt"])
                is_restarting = state["Status"] == "restarting"
                states[each["Name"].lstrip("/")] = _Container(int(each["RestartCount"]), age_s, is_restarting)
        return {name: states.get(names.container(name)) for name in wanted}

    def _memory(self) -> dict[str, int]:
        said = run(
            "docker", "stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}", failed="the engine cannot be asked"
        )
        memory = {}
        for line in said.splitlines():
            name, used, *_ = line.split()
            memory[name.removeprefix(f"{names.PROJECT_NAME}-")] = _bytes(used)
        return memory

    def log(self, name: str, lines: int) -> str:
        """The end of a container's log, or why it cannot be read."""
        words = ("sh", "-c", f'docker logs --tail {lines} "$0" 2>&1', names.container(name))
        try:
            return run(*words, failed="no log")
        except StackError as error:
            return str(error)

    def _with_log(self, name: str, what: str) -> str:
        log = self.log(name, _SHOWN_LINES)
        return f"{name}: {what}. The end of its log (docker logs {names.container(name)}):\n{log}"

    def _compose(self, *words: str, failed: str) -> str:
        return run(
            *engine.compose(), "--project-name", names.PROJECT_NAME, "--file", COMPOSE_FILE, *words,
            failed=failed, env={"FEED_CLUSTER_HOME": str(self.home)},
        )  # fmt: skip


def _web_place() -> str:
    """Where compose.yml publishes the web. An empty variable is none there."""
    address = os.environ.get("FEED_WEB_ADDRESS") or LOOPBACK
    port = os.environ.get("FEED_WEB_PORT") or "18080"
    return f"{LOOPBACK if address == '0.0.0.0' else address}:{port}"  # noqa: S104 - nothing is bound here


def _web_detail() -> str:
    try:
        probes.http_answer(f"http://{_web_place()}/readyz", _ANSWER_S)
    except OSError as error:
        return f"/readyz: {error}"
    return ""


def _asked(question: str) -> Any:
    """The data of an answer of Prometheus' API."""
    url = f"http://{LOOPBACK}:{names.PROMETHEUS_LOOPBACK_PORT}/api/v1/{question}"
    return json.loads(probes.http_answer(url, _ANSWER_S))["data"]


def run_check(container: str) -> str:
    """Why the servers of a container are not ready, as one line; empty if they are."""
    words = ("docker", "exec", container, *names.CHECK)
    try:
        run(*words, failed="its check", timeout_s=_CHECK_S)
    except StackError as error:
        lines = [line for line in str(error).splitlines()[1:] if line.strip()]
        return "; ".join(lines) or str(error)
    return ""


def _seconds(moment: str) -> float:
    """A time of the engine in seconds since 1970. It has nanoseconds, which `datetime` does not take."""
    return dt.datetime.fromisoformat(moment[:19] + "+00:00").timestamp()


def _bytes(text: str) -> int:
    """A number of the engine with its unit. For a container that is ending it has `--`."""
    if text == "--":
        return 0
    units = {"B": 0, "KiB": 10, "MiB": 20, "GiB": 30}
    number = text.rstrip("BKMGi")
    return int(float(number) * (1 << units[text[len(number) :]]))
