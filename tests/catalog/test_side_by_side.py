"""One walk that several loads share: how far it reads ahead of a load that takes nothing yet."""

import threading
from collections.abc import Iterable, Iterator

from feedstore.catalog.port import Generation
from tests.catalog.memory_catalog import MemoryCatalog
from workers.catalog import side_by_side
from workers.catalog.side_by_side import AHEAD_MAX, AT_ONCE, Entry

READ_AHEAD = AHEAD_MAX * AT_ONCE
ENTRIES = 2 * READ_AHEAD
WITHIN_S = 60.0


class Walk:
    """Counts the entries that were read of it. is_ahead: as many were read as may wait."""

    def __init__(self) -> None:
        self.read = 0
        self.is_ahead = threading.Event()

    def __iter__(self) -> Iterator[Entry]:
        for number in range(ENTRIES):
            self.read += 1
            if self.read == READ_AHEAD:
                self.is_ahead.set()
            yield number.to_bytes(4, "big"), b"record"


class MakesItsTable(MemoryCatalog):
    """Takes its first entry when the walk is as far ahead as it may be, as if its table had been made until then."""

    def __init__(self, walk: Walk) -> None:
        super().__init__()
        self._walk = walk
        self.was_ahead = False
        self.read_before = 0

    def load(self, as_of_ms: int, records: Iterable[tuple[bytes, bytes]]) -> Generation:
        self.was_ahead = self._walk.is_ahead.wait(WITHIN_S)
        self.read_before = self._walk.read
        return super().load(as_of_ms, records)


def test_the_walk_reads_while_a_table_is_made_and_no_further_than_its_bound() -> None:
    walk = Walk()
    slow, quick = MakesItsTable(walk), MemoryCatalog()
    made = side_by_side.load({"slow": slow, "quick": quick}, 1, walk)
    assert slow.was_ahead
    assert READ_AHEAD <= slow.read_before <= READ_AHEAD + AT_ONCE, "one more block may be in hand"
    assert {name: each.records for name, each in made.items() if isinstance(each, Generation)} == {
        "slow": ENTRIES,
        "quick": ENTRIES,
    }
