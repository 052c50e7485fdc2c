"""Pages: cursors, the cap across pages, failover."""

import pytest

from feedstore.domain import Entry
from feedstore.following import FEEDS, Page, feed_table, mutations
from feedstore.following.pages import FeedPages
from feedstore.replicas.attempts import InPlace
from feedstore.replicas.replicas import Replica, Replicas, ReplicaSource
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import PROGRESS, progress_table
from tests.widecolumn.memory_store import MemoryStore

WINDOW_MS = 1_000_000
USER = 7


def replica(name: str, cap: int = 10, slack: int = 3) -> Replica:
    return Replica(
        name, {FEEDS: MemoryStore(feed_table(cap, slack, WINDOW_MS)), PROGRESS: MemoryStore(progress_table(WINDOW_MS))}
    )


def fill(target: Replica, pins: range, ts: int = 100) -> None:
    target.tables[FEEDS].apply([mutations.put([(USER, ts)], [(pin, 1_000 + pin) for pin in pins])])


def newest(pins: range) -> list[Entry]:
    return [Entry(pin, 1_000 + pin) for pin in reversed(pins)]


def walk(reader: FeedPages, limit: int) -> list[Page]:
    pages = [reader.page(USER, limit)]
    while pages[-1].cursor is not None:
        pages.append(reader.page(USER, limit, pages[-1].cursor))
    return pages


@pytest.fixture
def a() -> Replica:
    return replica("a")


@pytest.fixture
def b() -> Replica:
    return replica("b")


@pytest.fixture
def reader(a: Replica, b: Replica) -> FeedPages:
    return FeedPages(
        Replicas([ReplicaSource(each, InPlace()) for each in (a, b)], lambda: 5_000, 60.0, lambda: 0.0), 10
    )


@pytest.mark.parametrize("limit", range(1, 13))
@pytest.mark.parametrize("entries", [0, 1, 9, 10, 11, 30])
def test_a_walk_shows_the_newest_cap_entries_once_each(a: Replica, reader: FeedPages, entries: int, limit: int):
    fill(a, range(1, entries + 1))
    pages = walk(reader, limit)
    assert [entry for page in pages for entry in page.entries] == newest(range(1, entries + 1))[:10]
    assert all(len(page.entries) == limit for page in pages[:-1])
    assert len(pages) == max(1, -(-min(entries, 10) // limit)), "a full page may be the last"
    assert pages[-1].returned == min(entries, 10)


def test_rule_10_pages_neither_repeat_nor_skip_while_the_feed_grows(a: Replica, reader: FeedPages):
    fill(a, range(1, 9))
    seen = reader.page(USER, 2)
    entries = seen.entries
    for pin in (20, 21, 22):
        fill(a, range(pin, pin + 1))
        assert seen.cursor is not None
        seen = reader.page(USER, 2, seen.cursor)
        entries = entries + seen.entries
    assert entries == newest(range(1, 9))


def test_a_cursor_stays_good_across_the_switch(a: Replica, b: Replica, reader: FeedPages):
    for target in (a, b):
        fill(target, range(1, 9))
    first = reader.page(USER, 3)
    a.tables[FEEDS].close()
    second = reader.page(USER, 3, first.cursor)
    assert (first.served_by, second.served_by) == ("a", "b")
    assert first.entries + second.entries == newest(range(3, 9))


def test_where_no_replica_answers_the_error_names_each_once(
    a: Replica, b: Replica, reader: FeedPages, monkeypatch: pytest.MonkeyPatch
):
    """A cluster may name itself in its errors."""
    for each in (a, b):

        def away(*_: object, name: str = each.name) -> None:
            raise UnavailableError(f"cluster {name}: 127.0.0.1:1: no answer")

        monkeypatch.setattr(each.tables[FEEDS], "read", away)
    said = "no cluster answered: a: 127.0.0.1:1: no answer; b: 127.0.0.1:1: no answer"
    with pytest.raises(UnavailableError, match=f"^{said}$"):
        reader.page(USER, 2)
