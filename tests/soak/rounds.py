"""Which faults come together, drawn from a seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from tests.soak.processes import PROCESSES
from tests.soak.servers import BROKERS

SERVERS: Final = (*BROKERS, "mariadb", "cluster-a", "cluster-b", "hbase-a", "thrift2-a", "thrift2-b")
"""What a fault of a server names: a broker, a server of the local stack, or all of a cluster. One at a time is away, so
that a reader always has a cluster that answers, and every partition a leader.
"""
_SERVERS_S: Final = (3.0, 20.0)
_PROCESSES_S: Final = (0.0, 12.0)
_PROCESSES_AT_ONCE: Final = 2
_QUIET: Final = 0.25
"""So often no server has a fault."""


@dataclass(frozen=True)
class Fault:
    """lasts_s: after so long what was killed is started again, and what was suspended is resumed."""

    of: Literal["server", "process"]
    name: str
    how: Literal["kill", "suspend"]
    lasts_s: float

    def __str__(self) -> str:
        return f"{self.name} {'killed' if self.how == 'kill' else 'suspended'} for {self.lasts_s:.0f} s"


def rounds(rng: Random) -> Iterator[Sequence[Fault]]:
    """The faults of each round, without end. They begin together."""
    while True:
        found: list[Fault] = []
        if rng.random() >= _QUIET:
            found.append(_fault(rng, "server", rng.choice(SERVERS), _SERVERS_S))
        names = rng.sample(PROCESSES, rng.randint(0 if found else 1, _PROCESSES_AT_ONCE))
        found += [_fault(rng, "process", name, _PROCESSES_S) for name in names]
        yield found


def _fault(rng: Random, of: Literal["server", "process"], name: str, lasts_s: tuple[float, float]) -> Fault:
    return Fault(of, name, rng.choice(("kill", "suspend")), rng.uniform(*lasts_s))
