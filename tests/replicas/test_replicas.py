"""Reads of two clusters, whatever one of them does: raises, hangs, comes back, comes back far behind."""

import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from feedstore.clocks import APART_MAX_MS
from feedstore.domain import Entry
from feedstore.following import FEEDS, Page, columns, row_key, trusted_watermark
from feedstore.following.pages import FeedPages
from feedstore.replicas.attempts import Attempt, InPlace, OnThreads
from feedstore.replicas.breaker import FAILURES, OPEN_S_MAX
from feedstore.replicas.health import LAGGING_MS
from feedstore.replicas.hedging import HEDGE_S_MAX, HEDGE_S_MIN
from feedstore.replicas.replicas import DeadlineExceededError, Replica, Replicas, ReplicaSource
from feedstore.replicas.watermarks import Watermarks
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import MARK_MAX_MS, PROGRESS, Progress, Through, progress_table
from tests.replicas.fakes import CAP, LONG_S, NOW_MS, USER, FakeStore, Pair, newest, replica, until
from tests.widecolumn.memory_store import MemoryStore

ROW = row_key(USER)


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


@pytest.fixture
def pages(pair: Pair) -> FeedPages:
    return FeedPages(pair.replicas, CAP)


@pytest.fixture
def timed() -> Iterator[Pair]:
    """The same with a clock that goes."""
    pair = Pair(clock=time.monotonic)
    yield pair
    pair.close()


@pytest.fixture
def timed_pages(timed: Pair) -> FeedPages:
    return FeedPages(timed.replicas, CAP)


def breakers(pair: Pair) -> dict[str, str]:
    return {each.name: each.breaker for each in pair.replicas.status()}


def wait_closed(pair: Pair, pages: FeedPages, name: str) -> None:
    """Reads until the breaker of a cluster that is well again has found it out."""

    def closed() -> bool:
        pair.now_s += OPEN_S_MAX
        pages.page(USER, 1)
        return breakers(pair)[name] == "closed"

    until(closed, f"{name} is asked again")


# Whatever one cluster does
# --------------------------------------------------------------------------------------------------------------------


def test_the_preferred_cluster_serves_where_all_is_well(pair: Pair, pages: FeedPages):
    pair.fill(range(1, 9))
    page = pages.page(USER, 3)
    assert (page.entries, page.served_by) == (newest(range(6, 9)), "a")
    assert pair.b.asked == 0


def test_no_page_fails_while_one_cluster_raises(pair: Pair, pages: FeedPages):
    pair.fill(range(1, 9))
    pair.a.fails = True
    for _ in range(50):
        page = pages.page(USER, 3)
        assert (page.entries, page.served_by) == (newest(range(6, 9)), "b")
    assert breakers(pair) == {"a": "open", "b": "closed"}
    assert pair.a.asked < 50, "it is left alone"
    assert pair.replicas.counters().failovers == FAILURES


def test_no_page_fails_while_one_cluster_hangs(timed: Pair, timed_pages: FeedPages):
    timed.fill(range(1, 9))
    timed.a.gate.clear()
    for _ in range(50):
        page = timed_pages.page(USER, 3)
        assert (page.entries, page.served_by) == (newest(range(6, 9)), "b")
    assert breakers(timed)["a"] != "closed"
    assert FAILURES <= timed.replicas.counters().hedges < 50, "then no read waits for it any more"


@pytest.mark.parametrize(("b_lags", "delay_s"), [(False, HEDGE_S_MIN), (True, HEDGE_S_MAX)])
def test_a_hedge_is_sent_after_its_delay_and_not_before(pair: Pair, pages: FeedPages, b_lags: bool, delay_s: float):
    pair.fill(range(1, 9))
    pair.replicas.set_watermark("a", NOW_MS)
    pair.replicas.set_watermark("b", None if b_lags else NOW_MS)
    for _ in range(50):
        pages.page(USER, 3)
    pair.a.gate.clear()
    got: list[Page] = []
    reader = threading.Thread(target=lambda: got.append(pages.page(USER, 3)))
    reader.start()
    until(lambda: pair.a.asked == 51, "a is asked")
    pair.now_s += 0.9 * delay_s
    reader.join(0.1)
    assert (got, pair.b.asked) == ([], 0)
    pair.now_s += 0.2 * delay_s
    reader.join(LONG_S)
    assert [page.served_by for page in got] == ["b"]
    assert pair.replicas.counters().hedges == 1


def test_a_cluster_that_comes_back_is_asked_again(pair: Pair, pages: FeedPages):
    pair.fill(range(1, 9))
    pair.a.fails = True
    for _ in range(FAILURES):
        pages.page(USER, 3)
    pair.a.fails = False
    wait_closed(pair, pages, "a")
    assert pages.page(USER, 3).served_by == "a"
    assert pair.replicas.counters().probes >= 1


def test_no_page_waits_for_a_probe_and_a_cluster_that_hung_is_asked_again(timed: Pair, timed_pages: FeedPages):
    timed.fill(range(1, 9))
    timed.a.gate.clear()
    until(lambda: timed_pages.page(USER, 3).served_by == "b" and timed.replicas.counters().probes > 0, "a is probed")
    assert breakers(timed)["a"] == "half-open"
    for _ in range(20):
        assert timed_pages.page(USER, 3).served_by == "b"
    assert timed.replicas.counters().probes == 1, "one at a time"
    timed.a.gate.set()
    until(lambda: timed_pages.page(USER, 3).served_by == "a", "a is asked again")


def test_the_deadline_goes_down_to_the_store(pair: Pair, pages: FeedPages):
    deadline_s = pair.now_s + LONG_S
    pages.page(USER, 3, None, deadline_s)
    assert pair.a.deadlines == [deadline_s]


def test_where_all_clusters_hang_the_deadline_holds(timed: Pair, timed_pages: FeedPages):
    timed.hang()
    with pytest.raises(DeadlineExceededError):
        timed_pages.page(USER, 3, None, time.monotonic() + 0.2)


def test_a_deadline_that_has_passed_asks_nobody(timed: Pair, timed_pages: FeedPages):
    with pytest.raises(DeadlineExceededError):
        timed_pages.page(USER, 3, None, time.monotonic() - 1)
    assert (timed.a.asked, timed.b.asked) == (0, 0)


def test_where_one_cluster_raises_and_the_other_hangs_the_deadline_holds(timed: Pair, timed_pages: FeedPages):
    timed.a.fails = True
    timed.b.gate.clear()
    with pytest.raises(DeadlineExceededError, match="a: out of order"):
        timed_pages.page(USER, 3, None, time.monotonic() + 1)


def test_where_all_clusters_raise_the_error_names_each(pair: Pair, pages: FeedPages):
    pair.a.fails = pair.b.fails = True
    for _ in range(3 * FAILURES):
        with pytest.raises(UnavailableError, match=r"a: out of order; b: out of order|b: .*; a: "):
            pages.page(USER, 3)
    pair.b.fails = False
    assert pages.page(USER, 3).served_by == "b", "an open breaker is no reason to fail a page"


def test_reads_that_hang_do_not_pile_up():
    pair = Pair(at_most=2)
    pages = FeedPages(pair.replicas, CAP)
    pair.fill(range(1, 9))
    stuck = threading.Event()
    for name in ("a", "a", "b", "b"):
        attempt = Attempt(name, lambda: [b""] if stuck.wait(LONG_S) else [], lambda _: None, pair.clock)
        assert pair.replicas._sources[name].reads.start(attempt)
    for _ in range(20):
        with pytest.raises(UnavailableError, match="a: too many reads are under way; b: too many"):
            pages.page(USER, 3)
    assert (pair.a.asked, pair.b.asked) == (0, 0)
    stuck.set()
    until(lambda: _answers(pages), "there is room again")
    pair.close()


def test_a_cluster_whose_probe_had_no_room_is_probed_again():
    pair = Pair(at_most=1)
    pages = FeedPages(pair.replicas, CAP)
    pair.fill(range(1, 9))
    pair.a.fails = True
    for _ in range(FAILURES):
        pages.page(USER, 3)
    pair.a.fails = False
    stuck = threading.Event()
    attempt = Attempt("a", lambda: [b""] if stuck.wait(LONG_S) else [], lambda _: None, pair.clock)
    assert pair.replicas._sources["a"].reads.start(attempt)
    pair.now_s += OPEN_S_MAX
    assert pages.page(USER, 3).served_by == "b"
    assert breakers(pair)["a"] == "open"
    stuck.set()
    wait_closed(pair, pages, "a")
    pair.close()


def _answers(pages: FeedPages) -> bool:
    try:
        return pages.page(USER, 3).entries == newest(range(6, 9))
    except UnavailableError:
        return False


def test_an_error_that_is_none_of_a_clusters_is_not_hidden(
    pair: Pair, pages: FeedPages, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> list[bytes]:
        raise ZeroDivisionError

    monkeypatch.setattr(pair.a, "read", broken)
    with pytest.raises(ZeroDivisionError):
        pages.page(USER, 3)


def test_many_threads_read_while_a_cluster_comes_and_goes(timed: Pair, timed_pages: FeedPages):
    timed.fill(range(1, 9))
    served: list[Page] = []
    errors: list[BaseException] = []

    def read() -> None:
        try:
            served.extend(timed_pages.page(USER, 3) for _ in range(100))
        except BaseException as error:  # noqa: BLE001  # shown by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(20):
        timed.a.fails = number % 2 == 0
        until(lambda number=number: len(served) > 20 * number or bool(errors), "pages are served")
    for thread in threads:
        thread.join()
    assert errors == []
    assert [page.entries for page in served] == 600 * [newest(range(6, 9))]


# Cursors across the switch
# --------------------------------------------------------------------------------------------------------------------


def test_a_walk_shows_each_entry_once_while_clusters_take_turns_and_the_feed_grows(pair: Pair, pages: FeedPages):
    pair.fill(range(1, 31))
    seen: list[Entry] = []
    servers: list[str] = []
    cursor: str | None = None
    for number in range(100):
        pair.a.fails = number % 3 == 1
        page = pages.page(USER, 4, cursor)
        seen += page.entries
        servers.append(page.served_by)
        pair.fill(range(1_000 + 2 * number, 1_002 + 2 * number))
        cursor = page.cursor
        if cursor is None:
            break
    assert seen == newest(range(1, 31))
    assert set(servers) == {"a", "b"}


def test_the_size_of_a_feed_is_what_a_walk_shows(pair: Pair, pages: FeedPages):
    assert pages.size(USER).entries == 0
    pair.fill(range(1, 31))
    assert pages.size(USER).entries == 30
    pair.fill(range(31, 101))
    assert pages.size(USER).entries == CAP
    pair.a.fails = True
    assert (pages.size(USER).entries, pages.size(USER).served_by) == (CAP, "b")


# How far they are
# --------------------------------------------------------------------------------------------------------------------


def test_rule_10_a_page_says_how_far_its_cluster_is_behind(pair: Pair, pages: FeedPages):
    assert pages.page(USER, 3).behind_ms is None
    pair.replicas.set_watermark("a", NOW_MS - 700)
    pair.replicas.set_watermark("b", NOW_MS - 300)
    assert pages.page(USER, 3).behind_ms == 700
    pair.a.fails = True
    assert pages.page(USER, 3).behind_ms == 300


def test_rule_10_a_page_says_how_far_its_cluster_is_behind_although_the_clock_of_its_reader_is_behind(
    pair: Pair, pages: FeedPages
):
    """As that of a virtual machine that was paused is for minutes."""
    pair.replicas.set_watermark("a", NOW_MS + 90_000)
    pair.replicas.set_watermark("b", NOW_MS + 10_000)
    assert pages.page(USER, 3).behind_ms == 0
    pair.a.fails = True
    page = pages.page(USER, 3)
    assert (page.served_by, page.behind_ms) == ("b", 80_000)
    pair.replicas.set_watermark("b", NOW_MS - 500)
    assert pages.page(USER, 3).behind_ms == 90_500
    pair.replicas.set_watermark("a", NOW_MS + APART_MAX_MS + 1)
    assert pages.page(USER, 3).behind_ms == 500, "such a clock was wrong itself"


@pytest.mark.parametrize("across_a_network", [True, False])
def test_rule_10_what_is_heard_of_while_a_row_is_read_does_not_count_for_it(across_a_network: bool):
    """A cluster that catches up lands a minute's work between two looks; a row that was read before shows none."""
    heard: list[Replicas] = []

    class CatchesUp(FakeStore):
        def read(self, *arguments: Any) -> list[bytes]:
            found = super().read(*arguments)
            heard[0].set_watermark("a", NOW_MS - 1)
            return found

    store = CatchesUp()
    reads = OnThreads("a", 8) if across_a_network else InPlace()
    replicas = Replicas([ReplicaSource(replica("a", store), reads)], lambda: NOW_MS, LONG_S, time.monotonic)
    heard.append(replicas)
    replicas.set_watermark("a", NOW_MS - 4_000)
    behind_ms = [FeedPages(replicas, CAP).page(USER, 3).behind_ms for _ in range(2)]
    assert behind_ms == [4_000, 1]
    replicas.close()


def test_a_cluster_that_came_back_with_nothing_waits_until_it_has_caught_up(pair: Pair, pages: FeedPages):
    pair.fill(range(1, 9), only="b")
    far = NOW_MS + 2 * LAGGING_MS
    pair.replicas.set_watermark("a", MARK_MAX_MS)  # as a cluster that is being rebuilt says
    pair.replicas.set_watermark("b", far)
    page = pages.page(USER, 3)
    assert (page.served_by, page.entries) == ("b", newest(range(6, 9)))
    pair.b.fails = True
    page = pages.page(USER, 3)
    assert (page.served_by, page.behind_ms) == ("a", None), "an old page is better than none; a mark is no time"
    assert [each.watermark_ms for each in pair.replicas.status()] == [None, far]
    pair.b.fails = False
    pair.replicas.set_watermark("a", far)
    wait_closed(pair, pages, "b")
    assert pages.page(USER, 3).served_by == "a"


def looks_at(stores: Mapping[str, MemoryStore]) -> dict[str, Callable[[], int | None]]:
    """stores: the progress of each cluster."""
    return {
        name: partial(trusted_watermark, Replica(name, {FEEDS: FakeStore(), PROGRESS: store}))
        for name, store in stores.items()
    }


def test_watermarks_are_looked_at_beside_the_pages():
    stores = {name: MemoryStore(progress_table(1_000)) for name in ("a", "b")}
    Progress(stores["a"]).advance({Through(0, 1, 1): 4_200})
    stores["b"].close()
    heard: list[tuple[str, int | None]] = []
    watching = Watermarks(
        looks_at(stores), lambda name, watermark_ms: heard.append((name, watermark_ms)), time.monotonic, every_s=0.001
    )
    watching.wait(LONG_S)
    assert heard[0] == ("a", 4_200)
    Progress(stores["a"]).advance({Through(0, 1, 1): 4_900})
    until(lambda: heard[-1] == ("a", 4_900), "the new watermark is heard of")
    assert {name for name, _ in heard} == {"a"}
    watching.close()


def test_a_fault_of_a_look_at_a_watermark_makes_it_unknown_until_the_next_look():
    answers = iter([4_200, ValueError("a fault of this program"), 4_300])
    heard: list[int | None] = []

    def look() -> int | None:
        answer = next(answers, 4_400)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    watching = Watermarks(
        {"a": look}, lambda _, watermark_ms: heard.append(watermark_ms), time.monotonic, every_s=0.001
    )
    until(lambda: 4_400 in heard, "it is looked at again")
    watching.close()
    assert heard[:3] == [4_200, None, 4_300]


def test_a_cluster_whose_watermark_cannot_be_read_holds_up_nobody():
    stuck = threading.Event()

    class Stuck(MemoryStore):
        def cells(self, row: bytes) -> list:
            assert stuck.wait(LONG_S)
            return super().cells(row)

    stores = {"a": Stuck(progress_table(1_000)), "b": MemoryStore(progress_table(1_000))}
    Progress(stores["b"]).hold([(1, 2)])
    heard = threading.Event()
    watching = Watermarks(looks_at(stores), lambda *_: heard.set(), time.monotonic, every_s=0.001)
    watching.wait(0.01)
    assert heard.wait(LONG_S)
    watching.close()
    stuck.set()


# In place
# --------------------------------------------------------------------------------------------------------------------


def in_files() -> Pair:
    return Pair(clock=time.monotonic, in_place=True)


def test_a_cluster_in_files_is_read_by_the_callers_own_thread(monkeypatch: pytest.MonkeyPatch):
    pair = in_files()
    readers: list[int] = []
    read = pair.a.read

    def noted(*arguments: object) -> list[bytes]:
        readers.append(threading.get_ident())
        return read(*arguments)

    monkeypatch.setattr(pair.a, "read", noted)
    pair.replicas.read(FEEDS, ROW, None, 3)
    assert readers == [threading.get_ident()]


def test_a_cluster_in_files_fails_over_opens_its_breaker_and_comes_back():
    pair = in_files()
    pair.a.fails = True
    for _ in range(3 * FAILURES):
        assert pair.replicas.read(FEEDS, ROW, None, 3).served_by == "b"
    assert pair.replicas.status()[0].breaker == "open"
    pair.a.fails = False
    until(lambda: pair.replicas.read(FEEDS, ROW, None, 3).served_by == "a", "a is asked again")
    assert [each.breaker for each in pair.replicas.status()] == ["closed", "closed"]


def test_failures_that_are_not_in_a_row_open_nothing():
    pair = in_files()
    for _ in range(3 * FAILURES):
        pair.a.fails = True
        assert pair.replicas.read(FEEDS, ROW, None, 3).served_by == "b"
        pair.a.fails = False
        assert pair.replicas.read(FEEDS, ROW, None, 3).served_by == "a"


# Threads
# --------------------------------------------------------------------------------------------------------------------


def test_a_cluster_that_hangs_hides_nothing_of_another_one(timed: Pair):
    timed.fill(range(1, 3))
    timed.a.gate.clear()
    [column] = columns([(1, 1_001)])
    held = timed.replicas.which_hold(FEEDS, row_key(USER), column, time.monotonic() + 1)
    assert held == {"a": None, "b": True}


def test_nothing_is_begun_once_it_is_closed():
    reads = OnThreads("a", 2)
    done = threading.Event()
    assert reads.start(Attempt("a", list, lambda _: done.set(), time.monotonic))
    assert done.wait(LONG_S)
    reads.close()
    reads.close()
    assert not reads.start(Attempt("a", list, lambda _: None, time.monotonic))
    until(lambda: not [each for each in threading.enumerate() if each.name == "read-a"], "its threads end")


def test_a_thread_that_waits_keeps_no_answer():
    """An answer of a catalog may have some MiB, and there are many threads."""

    class Answer: ...

    reads = OnThreads("a", 1)
    answers: SimpleQueue[weakref.ref[Answer]] = SimpleQueue()
    reads.start(Attempt("a", Answer, lambda attempt: answers.put(weakref.ref(attempt.answer)), time.monotonic))
    answer = answers.get(timeout=LONG_S)
    until(lambda: answer() is None, "the answer is gone")
    reads.close()


def test_where_no_thread_can_be_had_a_page_says_so_and_the_next_one_is_served(
    pair: Pair, pages: FeedPages, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(UnavailableError, match="a: too many reads"):
            pages.page(USER, 3)
    assert pages.page(USER, 3).served_by == "a"


def test_one_read_after_the_other_takes_one_thread(pair: Pair, pages: FeedPages):
    for _ in range(50):
        pages.page(USER, 3)
    assert pair.replicas._sources["a"].reads._threads == 1
