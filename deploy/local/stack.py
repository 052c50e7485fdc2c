"""The stack: all servers of one home, started, stopped, killed and asked by name."""

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deploy.local import hbase, kafka, logs, mariadb, ports, processes, prometheus
from deploy.local.errors import NotReadyError, StackError
from deploy.local.home import Home, Ports, write
from deploy.local.servers import Say, Server

CLUSTERS = ("a", "b")

READY_S = 240.0
"""How long all servers together may take to become ready, on a machine that has other things to do."""

REVIVE_S = 30.0
"""How long a server that ran before may leave requests unanswered before it is ended and started again. A garbage
collection or a recovery is over by then. A server that was still starting loses that time."""

_ASK_S = 0.2
_PATH = re.compile(r"[\w/.+@-]+", re.ASCII)
_SHOWN_LINES = 40

_WANTED_PORTS: dict[str, tuple[str, ...]] = {
    kafka.NAME: kafka.PORTS,
    mariadb.NAME: mariadb.PORTS,
    prometheus.NAME: prometheus.PORTS,
    **{hbase.cluster_name(cluster): hbase.CLUSTER_PORTS for cluster in CLUSTERS},
    **{hbase.gateway_name(cluster): hbase.GATEWAY_PORTS for cluster in CLUSTERS},
}

NAMES = tuple(_WANTED_PORTS)
"""Every server, in an order in which each follows those that it needs."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    f"cluster-{cluster}": (hbase.cluster_name(cluster), hbase.gateway_name(cluster)) for cluster in CLUSTERS
}
"""Names for several servers."""

State = Literal["ready", "not ready", "suspended", "stopped"]


@dataclass(frozen=True)
class ServerStatus:
    """The status of a server. detail: why it is not ready; pid: None if it is stopped."""

    name: str
    state: State
    pid: int | None
    ports: Mapping[str, int]
    resident_bytes: int
    log: Path
    detail: str


class Stack:
    """The servers of one home. Two homes have nothing in common but the jars.

    Every method takes names of servers or of GROUPS, and all servers if none is named. Methods that change something
    hold the home's lock, so that they and the command line may be used side by side. All of them may be repeated.
    """

    def __init__(self, home: Path, say: Say = lambda _: None) -> None:
        """Opens a home; the first time, makes it and chooses its ports. Starts nothing.

        Raises StackError: the home cannot be used.
        """
        self._home = Home(home.resolve())
        self._say = say
        if not _PATH.fullmatch(str(self._home.root)):
            raise StackError(
                f"{self._home.root}: letters, digits and /._+@- only: class paths and lists have no escapes"
            )
        try:
            self._home.create()
            # A command that only looks must not wait for a start that takes minutes.
            if not self._home.is_complete(_WANTED_PORTS):
                with self._home.lock(self._say):
                    self._home.ports(_WANTED_PORTS)
                    self._home.password()
            self._ports = self._home.ports(_WANTED_PORTS)
            self._write_places()
        except OSError as error:
            raise StackError(f"{home}: {error.strerror or error}") from error
        self._servers = {server.name: server for server in _servers(self._home, self._ports)}

    def _write_places(self) -> None:
        """The directory may have been moved since, or a port changed by hand."""
        path, text = self._home.places, json.dumps(_places(self._home, self._ports), indent=2) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            with self._home.lock(self._say):
                write(path, text, mode=0o600)

    @property
    def home(self) -> Path:
        return self._home.root

    @property
    def password_file(self) -> Path:
        """Where the password of the user `feed` is, for the databases."""
        return self._home.password_file

    def port(self, name: str, purpose: str = "client") -> int:
        """Where a server listens, whether it runs or not."""
        return self._ports[name][purpose]

    def log(self, name: str) -> Path:
        """The output of a server, in all its lives."""
        return self._home.log(name)

    def pid(self, name: str) -> int | None:
        """The process of a server; None if it is stopped."""
        server = self._servers[name]
        return processes.find(self._home.pid_file(name), server.mark)

    def outdated(self, *names: str) -> list[str]:
        """The servers that run, and would be started otherwise now: with other jars, for example."""
        running = {name: pid for name in expand(names) if (pid := self.pid(name)) is not None}
        return [
            name
            for name, pid in running.items()
            if processes.arguments(pid) not in ([], list(self._servers[name].command().argv))
        ]

    def up(self, *names: str, deadline_s: float = READY_S) -> None:
        """Starts the servers, and those they need, and returns when all of them answer. A server that runs and answers
        is left alone, and named if it is outdated. A suspended server is resumed. A server that does not answer for
        REVIVE_S is ended and started again, once: half of a process may have died.

        Raises:
            StackError: one cannot be started, ended, or did not answer in time; the message ends with the tail of its
                log. The others keep running.
        """
        with self._home.lock(self._say):
            wanted = self._with_needs(expand(names))
            for name in self.outdated(*wanted):
                self._say(f"{name}: runs as it was started before, and would be started otherwise now: stop it first")
            self._start(wanted, deadline_s)

    def start(self, *names: str, deadline_s: float = READY_S, wait: bool = True) -> None:
        """Starts just these servers, whether the servers that they need run or not. wait: until they answer.

        Raises StackError: as `up`.
        """
        with self._home.lock(self._say):
            if wait:
                self._start(expand(names), deadline_s)
                return
            for name in expand(names):
                if self.pid(name) is None:
                    self._spawn(self._servers[name])

    def stop(self, *names: str) -> None:
        """Asks the servers to end, first those that need others, and kills those that do not end in time.

        Raises StackError: one survived both.
        """
        with self._home.lock(self._say):
            remaining = [self._servers[name] for name in expand(names)]
            while remaining:
                needed = {need for server in remaining for need in server.needs}
                self._end([server for server in remaining if server.name not in needed])
                remaining = [server for server in remaining if server.name in needed]

    def kill(self, *names: str) -> None:
        """SIGKILL, all of them at once; returns when they are gone.

        Raises StackError: one does not go.
        """
        with self._home.lock(self._say):
            self._kill(expand(names))

    def suspend(self, *names: str) -> None:
        """SIGSTOP: they keep their connections and answer nothing."""
        with self._home.lock(self._say), self._held(expand(names)) as held:
            for server, process in held:
                process.suspend()
                self._say(f"{server.name}: suspended")

    def resume(self, *names: str) -> None:
        """SIGCONT."""
        with self._home.lock(self._say):
            self._resume(expand(names))

    def status(self, *names: str) -> list[ServerStatus]:
        """The status of every server. Those that run are asked, all at once."""
        with ThreadPoolExecutor(len(NAMES)) as pool:
            return list(pool.map(self._status, expand(names)))

    def _status(self, name: str) -> ServerStatus:
        server = self._servers[name]
        pid = self.pid(name)
        state: State = "stopped"
        detail = ""
        if pid is not None and processes.is_suspended(pid):
            state = "suspended"
        elif pid is not None:
            try:
                server.check()
                state = "ready"
            except NotReadyError as error:
                state, detail = "not ready", str(error)
        resident = 0 if pid is None else processes.resident_bytes(pid)
        return ServerStatus(name, state, pid, server.ports, resident, self._home.log(name), detail)

    def _with_needs(self, names: Sequence[str]) -> list[str]:
        wanted = set(names)
        for name in names:
            wanted.update(self._servers[name].needs)
        return [name for name in NAMES if name in wanted]

    def _start(self, names: Sequence[str], deadline_s: float) -> None:
        """Starts each when those of these servers that it needs are ready; waits for all."""
        self._prepare(names)
        began = time.monotonic()
        waiting = {name: self._servers[name] for name in names}
        reasons: dict[str, str] = {}
        # When each was asked first; None once this call has started it.
        asked_s: dict[str, float | None] = {}
        while True:
            # One that was suspended for long may answer first and end then. What needs it would wait in vain.
            needed = {need for server in waiting.values() for need in server.needs}
            for need in needed & asked_s.keys() - waiting.keys():
                if self.pid(need) is None:
                    waiting[need] = self._servers[need]
            for server in [one for one in waiting.values() if not any(need in waiting for need in one.needs)]:
                try:
                    self._advance(server, asked_s)
                except NotReadyError as error:
                    reasons[server.name] = str(error)
                else:
                    del waiting[server.name]
                    self._say(f"{server.name}: ready ({time.monotonic() - began:.1f} s)")
            if not waiting:
                return
            if time.monotonic() - began > deadline_s:
                late = next((name for name in waiting if name in reasons), next(iter(waiting)))
                why = reasons.get(late, "there was no time to start it")
                raise StackError(self._with_log(late, f"not ready after {deadline_s:.0f} s: {why}"))
            time.sleep(_ASK_S)

    def _prepare(self, names: Sequence[str]) -> None:
        """Of these servers those that do not run. Maven may take minutes to get what they need, at the first start."""
        for name in names:
            if self.pid(name) is None:
                self._servers[name].prepare(self._say)

    def _advance(self, server: Server, asked_s: dict[str, float | None]) -> None:
        """Asks the server; before that, starts it once if it does not run, or does not answer."""
        pid = self.pid(server.name)
        first_s = asked_s.setdefault(server.name, time.monotonic())
        if pid is None:
            if first_s is None:
                raise StackError(self._with_log(server.name, "ended before it was ready"))
            self._spawn(server)
            asked_s[server.name] = None
        elif first_s is not None and time.monotonic() - first_s > REVIVE_S:
            self._say(f"{server.name}: runs and has not answered for {REVIVE_S:.0f} s, starting it again")
            self._end([server])
            self._spawn(server)
            asked_s[server.name] = None
        elif processes.is_suspended(pid):
            self._resume([server.name])
        server.check()

    def _resume(self, names: Sequence[str]) -> None:
        with self._held(names) as held:
            for server, process in held:
                process.send(signal.SIGCONT)
                self._say(f"{server.name}: resumed")

    def _spawn(self, server: Server) -> None:
        server.prepare(self._say)
        for purpose, port in server.ports.items():
            if not ports.becomes_free(port):
                raise StackError(
                    f"{server.name}: its port {port} ({purpose}) is taken by a process that is not of this stack; "
                    f"end that, or change the port in {self._home.state}"
                )
        pid = processes.spawn(server.command(), self._home.log(server.name), self._home.pid_file(server.name))
        self._say(f"{server.name}: started, process {pid}")

    def _end(self, servers: Sequence[Server]) -> None:
        """Asks all of them first, so that they end at the same time."""
        with self._held([server.name for server in servers]) as held:
            began = time.monotonic()
            for _, process in held:
                process.ask_to_end()
            for server, process in held:
                if process.wait_gone(server.patience_s - (time.monotonic() - began)):
                    self._forget(server, "stopped")
                else:
                    process.kill()
                    self._forget(server, f"did not end in {server.patience_s:.0f} s, killed")

    def _kill(self, names: Sequence[str]) -> None:
        with self._held(names) as held:
            for _, process in held:
                process.send(signal.SIGKILL)
            for server, process in held:
                process.kill()
                self._forget(server, "killed")

    @contextlib.contextmanager
    def _held(self, names: Sequence[str]) -> Iterator[list[tuple[Server, processes.HeldProcess]]]:
        """Those of the servers that run."""
        with contextlib.ExitStack() as let_go:
            held: list[tuple[Server, processes.HeldProcess]] = []
            for name in names:
                pid = self.pid(name)
                process = None if pid is None else processes.hold(pid, self._servers[name].mark)
                if process is not None:
                    held.append((self._servers[name], let_go.enter_context(process)))
            yield held

    def _forget(self, server: Server, said: str) -> None:
        self._home.pid_file(server.name).unlink(missing_ok=True)
        self._say(f"{server.name}: {said}")

    def _with_log(self, name: str, what: str) -> str:
        log = self._home.log(name)
        return f"{name}: {what}. The end of {log}:\n{logs.tail(log, _SHOWN_LINES)}"


def expand(names: Iterable[str]) -> list[str]:
    """The servers that are meant, each once, in the order of NAMES; all if none is named.

    Raises StackError: there is no such server.
    """
    wanted: set[str] = set()
    for name in names:
        if name not in NAMES and name not in GROUPS:
            raise StackError(f"there is no server {name!r}; there are {', '.join((*NAMES, *GROUPS))}")
        wanted.update(GROUPS.get(name, (name,)))
    return [name for name in NAMES if name in wanted or not wanted]


def _places(home: Home, chosen: Ports) -> dict[str, object]:
    """Where the servers are, as `feedctl init --stack local` reads it."""

    def at(server: str, purpose: str = "client") -> str:
        return f"{ports.LOOPBACK}:{chosen[server][purpose]}"

    def gateways(cluster: str) -> dict[str, list[str] | str]:
        return {
            "thrift2": [at(hbase.gateway_name(cluster))],
            "zookeeper": at(hbase.cluster_name(cluster), "zookeeper"),
        }

    return {
        "clusters": {cluster: gateways(cluster) for cluster in CLUSTERS},
        "database": at(mariadb.NAME),
        "password_file": str(home.password_file),
        "kafka": at(kafka.NAME),
        "jars": ":".join(f"{home.root / folder}/*" for folder in (hbase.HBASE_JARS, hbase.TRIM_JARS)),
        "prometheus": at(prometheus.NAME),
        "targets": str(home.targets),
    }


def _servers(home: Home, chosen: Ports) -> Iterator[Server]:
    yield kafka.server(home, chosen[kafka.NAME])
    yield mariadb.server(home, chosen[mariadb.NAME])
    watched = {name: of["metrics"] for name, of in chosen.items() if "metrics" in of}
    yield prometheus.server(home, chosen[prometheus.NAME], watched)
    for cluster in CLUSTERS:
        of = chosen[hbase.cluster_name(cluster)]
        yield hbase.cluster(home, cluster, of)
        yield hbase.gateway(home, cluster, of["zookeeper"], chosen[hbase.gateway_name(cluster)])
