"""Definitions of metrics: name, kind, labels with all of their values, meaning, and the file that counts it.

Names never change. A gauge says how something is now; if that is unknown, it has no sample, and never an old one.
"""

import re
from dataclasses import dataclass
from types import ModuleType
from typing import Final, Literal

Kind = Literal["counter", "gauge", "histogram", "summary"]
Program = Literal["serve", "work", "relay", "expand", "write"]
"""The commands that serve metrics. `work` does the work of `relay`, `expand` and `write` together; so does `serve` if
it is the worker of a home in files.
"""

WORKERS: Final[tuple[Program, ...]] = ("work", "relay", "expand", "write")
EVERY: Final[tuple[Program, ...]] = ("serve", *WORKERS)
WRITES: Final[tuple[Program, ...]] = ("work", "write")

_NAME: Final = re.compile(r"feed_[a-z][a-z0-9_]*[a-z0-9]")

SHORT: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Bounds of buckets for one call or one batch, in seconds."""

DECADES: Final = (
    *(0.01, 0.0133, 0.0178, 0.0237, 0.0316, 0.0422, 0.0562, 0.075),
    *(0.1, 0.133, 0.178, 0.237, 0.316, 0.422, 0.562, 0.75),
    *(1.0, 1.33, 1.78, 2.37, 3.16, 4.22, 5.62, 7.5),
    *(10.0, 13.3, 17.8, 23.7, 31.6, 42.2, 56.2, 75.0),
    *(100.0, 178.0, 316.0, 562.0, 1_000.0, 3_600.0, 21_600.0, 86_400.0),
)
"""Bounds of buckets, in seconds, for durations that are milliseconds on a good day and days after a long outage. There
are eight buckets a decade up to 100 s, so that a quantile between two bounds is off by a few per cent.
"""


@dataclass(frozen=True)
class Label:
    """values: all possible values. of: if the code does not know them, what bounds them."""

    name: str
    values: tuple[str, ...] = ()
    of: str = ""

    def __post_init__(self) -> None:
        if bool(self.values) == bool(self.of):
            raise ValueError(f"label {self.name}: either its values, or what bounds them")


@dataclass(frozen=True, eq=False)
class Definition:
    """A metric.

    help: its meaning, in a sentence. where: the file that counts it. by: the programs that serve it. buckets: the
    bounds, if it is a histogram.
    """

    name: str
    kind: Kind
    help: str
    where: str
    by: tuple[Program, ...]
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ValueError(f"{self.name}: not the name of a metric")
        if (self.kind == "counter") != self.name.endswith("_total"):
            raise ValueError(f"{self.name}: the name of a counter, and of nothing else, ends in _total")
        if (self.kind == "histogram") != bool(self.buckets):
            raise ValueError(f"{self.name}: a histogram, and nothing else, has buckets")

    @property
    def label_names(self) -> list[str]:
        return [label.name for label in self.labels]

    @property
    def unit(self) -> str:
        """The unit of its values; empty if they have none."""
        stem = self.name.removesuffix("_total")
        return next((unit for unit in ("seconds", "bytes", "bits") if stem.endswith(f"_{unit}")), "")


@dataclass(frozen=True)
class Counted:
    """Makes the definitions of the metrics that one file counts. where: the file. by: the programs that serve them."""

    where: str
    by: tuple[Program, ...]

    def counter(self, name: str, says: str, *labels: Label) -> Definition:
        return Definition(name, "counter", says, self.where, self.by, labels)

    def gauge(self, name: str, says: str, *labels: Label) -> Definition:
        return Definition(name, "gauge", says, self.where, self.by, labels)

    def histogram(self, name: str, says: str, *labels: Label, buckets: tuple[float, ...]) -> Definition:
        return Definition(name, "histogram", says, self.where, self.by, labels, buckets)

    def summary(self, name: str, says: str, *labels: Label) -> Definition:
        return Definition(name, "summary", says, self.where, self.by, labels)


def definitions_of(module: ModuleType) -> tuple[Definition, ...]:
    """Every metric that a module defines, in its order."""
    return tuple(each for each in vars(module).values() if isinstance(each, Definition))


CLUSTER: Final = Label("cluster", of="the clusters of `feed.toml`")
GROUP: Final = Label(
    "group", of="the consumer groups: `expander`, `writer-CLUSTER`, `retries-CLUSTER`, `catalog-CATALOG-CLUSTER`"
)
LOOP: Final = Label("loop", of="the loops of the workers: the groups, `relay-SHARD`, `ticker`, `housekeeper`, ...")
PARTITION: Final = Label("partition", of="the partitions of a topic")
SHARD: Final = Label("shard", of="the shards of the follow store")
