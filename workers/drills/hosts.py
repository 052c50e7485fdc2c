"""The hosts of the Docker clusters, as a drill sees and breaks them. Needs the extra `drills`."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

LABEL = "feedstore.drillable"
_CLUSTER, _ROLE = "feedstore.cluster", "feedstore.role"
_WITH_REGIONS = ("host", "standby")


class NotDrillableError(Exception):
    """There is nothing here that may be broken on purpose; the message says what is missing."""


@dataclass(frozen=True)
class Host:
    """name: as HBase knows it. cluster: empty outside the zones. ports: where it is published on this machine."""

    name: str
    cluster: str
    holds_regions: bool
    is_running: bool
    ports: frozenset[int]


class LogLine(NamedTuple):
    """A line of a host's log. at: when the engine had it, in seconds of the wall clock."""

    host: str
    at: float
    text: str


class Hosts(Protocol):
    """What may be broken."""

    def all(self) -> list[Host]:
        """Every host that is marked, whether it runs or not."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL to everything on a host at once; it stays away."""
        ...

    def start(self, name: str) -> None:
        """Brings a host back, with its data. May be repeated."""
        ...


class DockerHosts:
    """Containers with the label LABEL, and no others."""

    def __init__(self, client: Any) -> None:
        self._client = client

    @classmethod
    def connect(cls) -> "DockerHosts":
        """Raises NotDrillableError: no engine answers."""
        import docker  # noqa: PLC0415 - an extra
        from docker.errors import DockerException  # noqa: PLC0415

        try:
            return cls(docker.from_env())
        except DockerException as error:
            raise NotDrillableError(f"no Docker engine answers: {error}; make docker-ready cluster-up") from error

    def all(self) -> list[Host]:
        containers = self._client.containers.list(all=True, filters={"label": f"{LABEL}=true"})
        return sorted((_host(each) for each in containers), key=lambda host: host.name)

    def kill(self, name: str) -> None:
        self._container(name).kill()

    def start(self, name: str) -> None:
        self._container(name).start()

    def _container(self, name: str) -> Any:
        # By the label again: a name that somebody else's container has is no permission.
        for each in self._client.containers.list(all=True, filters={"label": f"{LABEL}=true"}):
            if each.attrs["Config"]["Hostname"] == name:
                return each
        raise NotDrillableError(f"{name}: no container of this name carries the label {LABEL}=true")


def _host(container: Any) -> Host:
    labels = container.labels
    published = container.attrs["NetworkSettings"]["Ports"] or {}
    ports = frozenset(int(each["HostPort"]) for bound in published.values() for each in bound or ())
    return Host(
        name=container.attrs["Config"]["Hostname"],
        cluster=labels.get(_CLUSTER, ""),
        holds_regions=labels.get(_ROLE) in _WITH_REGIONS,
        is_running=container.status == "running",
        ports=ports,
    )
