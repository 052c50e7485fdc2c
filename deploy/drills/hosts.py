"""The hosts of the Docker clusters, as a drill sees and breaks them. Needs the extra `drills`."""

import contextlib
import datetime as dt
import functools
import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, TypeVar

from deploy.docker import names

LABEL = "feedstore.drillable"
HELPER_LABEL = "feedstore.drill"
"""The label of the containers that drills run next to a host for a moment: by it, one that was left behind is found."""

LINES_MAX = 20_000
"""The most lines that are read of one host's log: its last ones."""

_CLUSTER, _ROLE = "feedstore.cluster", "feedstore.role"
_WITH_REGIONS = ("host", "standby")
_WITHOUT_SERVERS = "feedctl"
_GRACE_S = 20
_HELPER_S = 30
# The folder of the control groups that limit disks: a part of them in version 1, all of them in version 2.
_DISK_GROUPS = "/sys/fs/cgroup/blkio" if Path("/sys/fs/cgroup/blkio").is_dir() else "/sys/fs/cgroup"
_AGENT = resources.files("deploy.drills").joinpath("container_agent.py").read_text("utf-8")


class NotDrillableError(Exception):
    """There is nothing here that may be broken on purpose; the message says what is missing."""


class HostError(Exception):
    """A host could not be broken, mended or asked; the message says how."""


class NotHealedError(Exception):
    """A host that was broken could not be brought back, and stays broken; the message says which one."""


@dataclass(frozen=True)
class Host:
    """name: as HBase knows it. cluster: empty outside the zones. ports: where it is published on this machine. role:
    what runs on it (deploy/docker/roles.py), or `feedctl`. addresses: its own, by the name of the network.
    """

    name: str
    cluster: str
    role: str
    is_running: bool
    ports: frozenset[int] = frozenset()
    addresses: Mapping[str, str] = field(default_factory=dict)

    @property
    def holds_regions(self) -> bool:
        return self.role in _WITH_REGIONS

    @property
    def has_servers(self) -> bool:
        """Whether its servers can be asked whether they are ready; those of a worker cannot."""
        return self.role != _WITHOUT_SERVERS


class LogLine(NamedTuple):
    """A line of a host's log. at: when the engine had it, in seconds of the wall clock."""

    host: str
    at: float
    text: str


@dataclass(frozen=True)
class HostState:
    """ages_s: of each server that runs on a host, in s. peers: addresses of those connected to its master."""

    ages_s: Mapping[str, float]
    peers: frozenset[str]


P = ParamSpec("P")
R = TypeVar("R")


def _translated(call: Callable[P, R]) -> Callable[P, R]:
    """Raises the engine's errors, and those of the connection to it, as HostError."""

    @functools.wraps(call)
    def translated(*words: P.args, **options: P.kwargs) -> R:
        from docker.errors import DockerException  # noqa: PLC0415 - an extra
        from requests import RequestException  # noqa: PLC0415 - the extra brings it

        try:
            return call(*words, **options)
        except (DockerException, RequestException) as error:
            raise HostError(f"the engine does not do it: {error}") from error

    return translated


class Hosts:
    """The hosts that may be broken: containers with the label LABEL, and no others. A method that breaks one returns
    when that began, in s of `time.monotonic`.

    Every method but `all` raises NotDrillableError for a name that no marked host has, and HostError if it cannot be
    done.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    def connect(cls) -> "Hosts":
        """Raises NotDrillableError: no engine answers."""
        import docker  # noqa: PLC0415 - an extra
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            return cls(docker.from_env())
        except DockerException as error:
            raise NotDrillableError(f"no Docker engine answers: {error}; make docker-ready cluster-up") from error

    @_translated
    def all(self) -> list[Host]:
        """Every host that is marked, whether it runs or not."""
        return sorted((_host(each) for each in self._marked()), key=lambda host: host.name)

    @_translated
    def kill(self, name: str) -> float:
        """SIGKILL to everything on a host at once; it stays away."""
        container = self._container(name)
        began = time.monotonic()
        container.kill()
        return began

    @_translated
    def stop(self, name: str) -> float:
        """Asks everything on a host to end, and waits for that; it stays away."""
        container = self._container(name)
        began = time.monotonic()
        container.stop(timeout=_GRACE_S)
        return began

    @_translated
    def start(self, name: str) -> None:
        """Brings a host back, with its data. May be repeated."""
        self._container(name).start()

    @_translated
    def signal(self, name: str, servers: Collection[str], number: int) -> tuple[float, frozenset[str]]:
        """A signal to servers of a host. Returns also which of them were there."""
        before = time.monotonic()
        said = self._inside(name, "signal", str(number), *servers)
        return _moment(said, before), frozenset(said["reached"])

    @_translated
    def in_network(self, name: str, script: str) -> float:
        """Runs a script for `sh` in the network of a host that runs, with the right to change it."""
        container = self._container(name)
        return self._in_helper(
            container, "shell", script, network_mode=f"container:{container.id}", cap_add=["NET_ADMIN"]
        )

    @_translated
    def throttle(self, name: str, bytes_s: int) -> float:
        """Limits how much a host that runs may read from its disk, and write to it, in bytes a second each; 0: no
        limit. Gateways have no disk of their own.
        """
        container = self._container(name)
        return self._in_helper(
            container,
            "throttle",
            container.id,
            str(bytes_s),
            network_mode="none",
            volumes={_DISK_GROUPS: {"bind": _DISK_GROUPS.replace("/sys/fs", "/host", 1), "mode": "rw"}},
            volumes_from=[f"{container.id}:ro"],
        )

    @_translated
    def lacks(self, name: str) -> str:
        """Why the servers of a host are not ready, as one line; empty if they are."""
        code, output = self._container(name).exec_run([*names.CHECK])
        said = "; ".join(line for line in output.decode(errors="replace").splitlines() if line.strip())
        return "" if code == 0 else said or f"its check ended with status {code}"

    @_translated
    def state(self, name: str) -> HostState:
        said = self._inside(name, "state", str(names.MASTER_PORT))
        return HostState(said["ages_s"], frozenset(said["peers"]))

    @_translated
    def logs(self, name: str, since: float, until: float) -> list[LogLine]:
        """The lines that a host printed in a span, in s since 1970: the last LINES_MAX of them at most."""
        text = self._container(name).logs(since=since, until=until, timestamps=True, tail=LINES_MAX)
        return [line for each in text.decode(errors="replace").splitlines() if (line := _line(name, each))]

    @_translated
    def clean(self) -> None:
        """Removes the containers that an interrupted drill may have left next to the hosts."""
        for each in self._client.containers.list(all=True, filters={"label": HELPER_LABEL}):
            each.remove(force=True)

    def _marked(self) -> list[Any]:
        filters = {"label": f"{LABEL}=true"}
        found: list[Any] = self._client.containers.list(all=True, filters=filters, ignore_removed=True)
        return found

    def _container(self, name: str) -> Any:
        # The label is checked again: that a container has this name does not permit a drill to break it.
        for each in self._marked():
            if each.attrs["Config"]["Hostname"] == name:
                return each
        raise NotDrillableError(f"{name}: no container of this name carries the label {LABEL}=true")

    def _inside(self, name: str, *words: str) -> Any:
        code, (said, complained) = self._container(name).exec_run(["python3", "-c", _AGENT, *words], demux=True)
        if code != 0:
            raise HostError(f"{name}: {words[0]}: {(complained or said or b'').decode(errors='replace').strip()}")
        return _answer(said, f"{name}: {words[0]}")

    def _in_helper(self, container: Any, *words: str, **rights: Any) -> float:
        """Runs the agent in a container of its own, as root: the clusters' containers have no rights, and must have
        none.
        """
        before = time.monotonic()
        helper = self._client.containers.create(
            container.image.id,
            ["-c", _AGENT, *words],
            entrypoint=["python3"],
            user="0:0",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges:true"],
            read_only=True,
            tmpfs={"/run": ""},
            labels={HELPER_LABEL: "helper"},
            **rights,
        )
        try:
            helper.start()
            status = helper.wait(timeout=_HELPER_S)["StatusCode"]
            if status != 0:
                raise HostError(f"{words[0]}: {helper.logs(stdout=False).decode(errors='replace').strip()}")
            return _moment(_answer(helper.logs(stderr=False), words[0]), before)
        finally:
            helper.remove(force=True)


def _answer(said: bytes | None, asked: str) -> Any:
    """What the agent printed. On a busy machine the engine may lose the output of a program that has succeeded."""
    if not said:
        raise HostError(f"{asked}: it was done, and the engine has lost the answer")
    return json.loads(said)


def _moment(said: Any, before_s: float) -> float:
    """When it happened inside. An engine in a virtual machine has another clock; then, when it was asked for."""
    at_s = float(said["at_s"])
    return at_s if before_s <= at_s <= time.monotonic() else before_s


def _line(host: str, text: str) -> LogLine | None:
    """Parses a line of the engine: its time, a space, and the text that was printed."""
    moment, _, rest = text.partition(" ")
    whole, _, fraction = moment.rstrip("Z").partition(".")
    with contextlib.suppress(ValueError):
        at = dt.datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{fraction or 0}")
        return LogLine(host, at, rest)
    return None


def _host(container: Any) -> Host:
    labels, config = container.labels, container.attrs["Config"]
    networks = container.attrs["NetworkSettings"]
    published = networks["Ports"] or {}
    return Host(
        name=config["Hostname"],
        cluster=labels.get(_CLUSTER, ""),
        role=labels.get(_ROLE) or (config["Cmd"] or [""])[0],
        is_running=container.status == "running",
        ports=frozenset(int(each["HostPort"]) for bound in published.values() for each in bound or ()),
        addresses={name: each["IPAddress"] for name, each in networks["Networks"].items()},
    )
