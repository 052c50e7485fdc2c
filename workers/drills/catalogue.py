"""The drills that there are."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Drill:
    """what: what happens to the target. on_meta: whether that shall hold hbase:meta, where none is named."""

    name: str
    what: str
    on_meta: bool


_ALL = (
    Drill("kill-host", "SIGKILL to DataNode, region server and everything else of a host", on_meta=False),
    Drill("kill-host-with-meta", "the same on the host that holds hbase:meta", on_meta=True),
)
DRILLS = {drill.name: drill for drill in _ALL}
