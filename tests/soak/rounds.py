"""Which faults come together, drawn from a seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from tests.soak import database, regions
from tests.soak.gates import MANNERS
from tests.soak.processes import PROCESSES
from tests.soak.servers import BROKERS

Of = Literal["server", "process", "gate", "database", "regions"]

_STOPS: Final = ("kill", "suspend")
CLUSTERS: Final = ("cluster-a", "cluster-b", "hbase-a")
"""What takes a whole cluster away."""
SERVERS: Final = (*BROKERS, database.NAME, *CLUSTERS, "thrift2-a", "thrift2-b")
"""What a fault of a server names: a broker, a server of the local stack, or all of a cluster. One at a time is away, so
that a reader always has a cluster that answers, and every partition a leader.
"""
WAYS: Final[Mapping[Of, Mapping[str, Sequence[str]]]] = {
    "server": dict.fromkeys(SERVERS, _STOPS),
    "process": dict.fromkeys(PROCESSES, _STOPS),
    "gate": MANNERS,
    "database": {database.NAME: database.WAYS},
    "regions": dict.fromkeys(regions.NAMES, regions.WAYS),
}
"""What a fault can name, and how each of these fails."""
AROUND: Final[tuple[Of, ...]] = ("server", "server", "gate", "gate", "database", "regions")
"""What may happen around the processes, as often as it is here. One of them at a time."""
_AROUND_S: Final = (3.0, 20.0)
_PROCESSES_S: Final = (0.0, 12.0)
_PROCESSES_AT_ONCE: Final = 2
_QUIET: Final = 0.25
"""So often there is only something wrong with processes."""


@dataclass(frozen=True)
class Fault:
    """lasts_s: after so long what was killed is started again, and all else is as it was."""

    of: Of
    name: str
    how: str
    lasts_s: float

    def __str__(self) -> str:
        return f"{self.name}: {self.how} for {self.lasts_s:.0f} s"

    @property
    def takes_a_cluster(self) -> bool:
        """Whether one cluster alone serves meanwhile."""
        return self.of == "server" and self.name in CLUSTERS


def rounds(rng: Random, around: Sequence[Of] = AROUND) -> Iterator[Sequence[Fault]]:
    """The faults of each round, without end. They begin together."""
    while True:
        found: list[Fault] = []
        if rng.random() >= _QUIET:
            of = rng.choice(around)
            found.append(_fault(rng, of, rng.choice(list(WAYS[of])), _AROUND_S))
        names = rng.sample(PROCESSES, rng.randint(0 if found else 1, _PROCESSES_AT_ONCE))
        found += [_fault(rng, "process", name, _PROCESSES_S) for name in names]
        yield found


def _fault(rng: Random, of: Of, name: str, lasts_s: tuple[float, float]) -> Fault:
    return Fault(of, name, rng.choice(WAYS[of][name]), rng.uniform(*lasts_s))
