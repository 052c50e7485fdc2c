"""One walk that several loads share: how far it reads ahead of a load that takes nothing yet."""

import threading
from collections.abc import Iterable, Iterator

import pytest

from feedstore.catalog.port import Generation
from tests.catalog.memory_catalog import MemoryCatalog
from workers.catalog import side_by_side
from workers.catalog.side_by_side import AHEAD_MAX, AT_ONCE, Entry

ENTRIES = 2 * AHEAD_MAX * AT_ONCE
ENTRY_BYTES = 10
WITHIN_S = 60.0


class Walk:
    """Counts the entries that were read of it. most: as many as may wait. is_ahead: so many were read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.read = 0
        self.is_ahead = threading.Event()

    def __iter__(self) -> Iterator[Entry]:
        for number in range(ENTRIES):
            self.read += 1
            if self.read == self._most:
                self.is_ahead.set()
            yield number.to_bytes(ENTRY_BYTES, "big"), b""


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


@pytest.mark.parametrize(
    ("groups", "ahead_bytes"), [(AHEAD_MAX, 1 << 30), (4, 4 * AT_ONCE * ENTRY_BYTES)], ids=["entries", "bytes"]
)
def test_the_walk_reads_while_a_table_is_made_and_no_further_than_its_bound(
    groups: int, ahead_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(side_by_side, "AHEAD_BYTES", ahead_bytes)
    most = groups * AT_ONCE
    walk = Walk(most)
    slow, quick = MakesItsTable(walk), MemoryCatalog()
    made = side_by_side.load({"slow": slow, "quick": quick}, 1, walk).done
    assert slow.was_ahead
    assert most <= slow.read_before <= most + AT_ONCE, "one more block may be in hand"
    assert {name: each.records for name, each in made.items()} == {"slow": ENTRIES, "quick": ENTRIES}


def test_where_no_thread_can_be_had_the_loads_that_have_begun_end(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refused(thread: threading.Thread) -> None:
        if thread.name.startswith("catalog-load_1"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refused)
    begun, never = MemoryCatalog(), MemoryCatalog()
    with pytest.raises(RuntimeError, match="can't start new thread"):
        side_by_side.load({"a": begun, "b": never}, 1, [(b"key", b"record")])
    assert (begun.generations(), never.generations()) == ([], [])
