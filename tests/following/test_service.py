"""What a web tier calls, on an embedded home: pages, pins, actions, and who follows what."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest

from feedstore.app import config as configuration
from feedstore.app.services import open_service
from feedstore.catalog.port import CatalogUnavailableError
from feedstore.catalog.settings import CatalogSettings
from feedstore.domain import Follow, Followee, InvalidValueError, Pin, RefillAsked, SavePin, Unfollow, board, user
from feedstore.domain.cursors import MalformedCursorError
from feedstore.errors import ConfigError
from feedstore.following.refills import (
    ASKED_PER_S_MAX,
    BURST_S,
    LOOKED_UP_PER_S_MAX,
    REMEMBERED_MAX,
    WAITING_MAX,
    Refills,
)
from feedstore.following.relations import MAX_RELATIONS
from feedstore.following.service import MORE_READS_MAX, FeedService
from feedstore.follows.pin_source import FollowStorePins, Hydrated, PinSource
from feedstore.follows.port import ActionRefusedError, FollowStoreUnavailableError, Request, actions_in
from feedstore.follows.store import FollowStore
from feedstore.http.settings import HttpSettings
from feedstore.replicas.settings import ServingSettings
from feedstore.widecolumn import MAX_LIMIT, UnavailableError
from tests.follows.memory_follows import open_in_memory
from tests.replicas.fakes import CAP, NOW_MS, USER, Pair, until
from workers.app.home import create

OWNER, BOARD = 900, 901
HOUR_MS = 3_600_000


@pytest.fixture(params=[1, 3], ids=["1-shard", "3-shards"])
def follows(request: pytest.FixtureRequest) -> Iterator[FollowStore]:
    with contextlib.closing(open_in_memory(lambda: NOW_MS, request.param)) as store:
        yield store


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def service_on(pair: Pair, follows: FollowStore, pins: PinSource | None = None, cap: int = CAP) -> FeedService:
    return FeedService(
        pair.replicas,
        follows,
        pins or FollowStorePins(follows),
        cap=cap,
        refill_again_ms=HOUR_MS,
        within_s=60.0,
        clock=pair.clock,
        close=lambda: None,
    )


@pytest.fixture
def service(pair: Pair, follows: FollowStore) -> Iterator[FeedService]:
    with service_on(pair, follows) as service:
        yield service


def save(service: FeedService, pins: range) -> None:
    service.record([Request(SavePin(Pin(each, OWNER, BOARD, 1_000 + each))) for each in pins])


def walk(service: FeedService, limit: int) -> list[list[int]]:
    pages = []
    cursor: str | None = None
    while True:
        page = service.pins_page(USER, limit, cursor)
        pages.append([pin.pin for pin in page.pins])
        cursor = page.cursor
        if cursor is None:
            return pages


# Pages of pins
# --------------------------------------------------------------------------------------------------------------------


def test_a_page_holds_the_pins_themselves(service: FeedService, pair: Pair):
    pair.fill(range(1, 9))
    save(service, range(1, 9))
    page = service.pins_page(USER, 3)
    assert page.pins == [Pin(each, OWNER, BOARD, 1_000 + each) for each in (8, 7, 6)]
    assert page.served_by == "a"
    assert page.behind_ms is None


def test_deleted_pins_are_left_out_and_others_take_their_place(service: FeedService, pair: Pair):
    pair.fill(range(1, 21))
    save(service, range(1, 21))
    for gone in (20, 18, 17, 10):
        service.delete_pin(gone)
    assert walk(service, 5) == [[19, 16, 15, 14, 13], [12, 11, 9, 8, 7], [6, 5, 4, 3, 2], [1]]


@pytest.mark.parametrize("limit", range(1, 13))
def test_a_walk_shows_every_live_pin_once_whatever_is_gone(service: FeedService, pair: Pair, limit: int):
    pair.fill(range(1, 31))
    save(service, range(1, 31))
    gone = {1, 2, 3, 7, 11, 12, 13, 14, 15, 16, 17, 18, 22, 29, 30}
    for each in gone:
        service.delete_pin(each)
    pages = walk(service, limit)
    assert [pin for page in pages for pin in page] == [each for each in range(30, 0, -1) if each not in gone]


@pytest.mark.parametrize("limit", [3, 7, CAP])
def test_the_cap_counts_what_was_left_out_and_nothing_twice(service: FeedService, pair: Pair, limit: int):
    pair.fill(range(1, CAP + 21))
    save(service, range(1, CAP + 21))
    gone = set(range(1, CAP + 21, 4))
    for each in gone:
        service.delete_pin(each)
    reached = range(CAP + 20, 20, -1)
    assert [pin for page in walk(service, limit) for pin in page] == [each for each in reached if each not in gone]


def test_pins_without_a_record_are_left_out(service: FeedService, pair: Pair):
    pair.fill(range(1, 9))
    save(service, range(1, 5))
    assert walk(service, 3) == [[4, 3, 2], [1]]


def test_the_reads_of_one_page_are_bounded(service: FeedService, pair: Pair):
    pair.fill(range(1, 31))
    page = service.pins_page(USER, 5)
    assert page.pins == []
    assert page.cursor is not None, "a short page is no end"
    assert pair.a.asked == 1 + MORE_READS_MAX
    assert not any(walk(service, 5))


def reading_once(pair: Pair, *, b_fails: bool = False) -> Callable[..., list[bytes]]:
    """Reads of cluster a, which is away after the first one, as cluster b is if `b_fails`."""
    read = pair.a.read

    def reads(*arguments: object) -> list[bytes]:
        try:
            return read(*arguments)
        finally:
            pair.a.fails, pair.b.fails = True, b_fails

    return reads


def test_a_page_is_short_rather_than_failed_where_the_clusters_go_away_halfway(service: FeedService, pair: Pair):
    pair.fill(range(1, 21))
    save(service, range(1, 19))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair.a, "read", reading_once(pair, b_fails=True))
        page = service.pins_page(USER, 5)
    assert [pin.pin for pin in page.pins] == [18, 17, 16]
    pair.a.fails = pair.b.fails = False
    assert [pin.pin for pin in service.pins_page(USER, 5, page.cursor).pins] == [15, 14, 13, 12, 11]


def test_a_page_of_several_reads_says_the_worst_of_them(service: FeedService, pair: Pair):
    pair.replicas.set_watermark("a", NOW_MS - 70)
    pair.replicas.set_watermark("b", NOW_MS - 90)
    pair.fill(range(1, 21))
    save(service, range(1, 17))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair.a, "read", reading_once(pair))
        page = service.pins_page(USER, 5)
    assert [pin.pin for pin in page.pins] == [16, 15, 14, 13, 12]
    assert (page.served_by, page.behind_ms) == ("a", 90)


def test_a_size_of_several_reads_says_the_worst_of_them(follows: FollowStore, pair: Pair):
    pair.replicas.set_watermark("a", NOW_MS - 90)
    pair.replicas.set_watermark("b", NOW_MS - 70)
    pair.fill(range(1, MAX_LIMIT + 6))
    with pytest.MonkeyPatch.context() as patched, service_on(pair, follows, cap=2 * MAX_LIMIT) as service:
        patched.setattr(pair.a, "read", reading_once(pair))
        size = service.feed_size(USER)
    assert (size.entries, size.served_by, size.behind_ms) == (MAX_LIMIT + 5, "a", 90)


class Forgetful(FollowStorePins):
    """Cannot look up these pins now; 50 ms behind."""

    def __init__(self, follows: FollowStore, unknown: set[int]) -> None:
        super().__init__(follows)
        self.unknown = unknown

    def look_up(self, pins: Sequence[bytes], deadline_s: float) -> Hydrated:
        ids = [int.from_bytes(pin, "big") for pin in pins]
        if self.unknown.intersection(ids[:1]):
            raise CatalogUnavailableError("away")
        found = super().look_up(pins, deadline_s)
        known = next((place for place, pin in enumerate(ids) if pin in self.unknown), len(ids))
        return Hydrated(found.pins[:known], 50)


def test_a_page_ends_before_a_pin_that_cannot_be_looked_up(pair: Pair, follows: FollowStore):
    pair.fill(range(1, 21))
    source = Forgetful(follows, {15})
    with service_on(pair, follows, source) as service:
        save(service, range(1, 19))
        service.delete_pin(17)
        page = service.pins_page(USER, 10)
        assert [pin.pin for pin in page.pins] == [18, 16]
        assert page.behind_ms is None
        with pytest.raises(CatalogUnavailableError):
            service.pins_page(USER, 10, page.cursor)
        source.unknown = set()
        assert [pin.pin for pin in service.pins_page(USER, 3, page.cursor).pins] == [15, 14, 13]


def test_a_page_is_short_rather_than_failed_if_more_pins_cannot_be_looked_up(pair: Pair, follows: FollowStore):
    pair.fill(range(1, 21))
    source = Forgetful(follows, {15})
    with service_on(pair, follows, source) as service:
        save(service, range(1, 19))
        page = service.pins_page(USER, 5)  # two are gone: more are read, and the first of those is unknown
        assert [pin.pin for pin in page.pins] == [18, 17, 16]
        source.unknown = set()
        assert [pin.pin for pin in service.pins_page(USER, 3, page.cursor).pins] == [15, 14, 13]


def test_a_page_of_pins_is_as_far_behind_as_its_source(pair: Pair, follows: FollowStore):
    pair.fill(range(1, 4))
    with service_on(pair, follows, Forgetful(follows, set())) as service:
        save(service, range(1, 4))
        for ours, expected in ((40, 50), (60, 60)):
            pair.replicas.set_watermark("a", NOW_MS - ours)
            assert service.pins_page(USER, 3).behind_ms == expected


# Pages
# --------------------------------------------------------------------------------------------------------------------


def test_bad_requests_are_refused(service: FeedService):
    for limit in (0, -1, 1_001):
        with pytest.raises(InvalidValueError, match="limit: expected 1 to 1000"):
            service.page(USER, limit)
    with pytest.raises(InvalidValueError):
        service.page(0)
    with pytest.raises(MalformedCursorError):
        service.page(USER, 5, "nonsense")


def refilled(follows: FollowStore) -> list[int]:
    """Whose refills were asked for."""
    return [action.user for action in actions_in(follows.unrelayed(100_000)) if isinstance(action, RefillAsked)]


def follow_something(follows: FollowStore, users: Iterable[int]) -> None:
    follows.record([Request(Follow(each, board(BOARD))) for each in users])


def test_rule_9_a_walk_that_ends_below_the_cap_asks_for_a_refill_once(follows: FollowStore, pair: Pair):
    pair.fill(range(1, 9))
    follow_something(follows, [USER, 8])
    with service_on(pair, follows) as service:
        first = service.page(USER, 5)
        for _ in range(3):
            assert service.page(USER, 5, first.cursor).cursor is None
        service.page(8, 5)
    assert sorted(refilled(follows)) == [USER, 8]


def test_a_walk_of_who_follows_nothing_asks_for_nothing(follows: FollowStore, pair: Pair):
    follow_something(follows, [USER])
    follows.record([Request(Unfollow(USER, board(BOARD)))])
    with service_on(pair, follows) as service:
        service.page(USER)
        service.page(8)
    assert refilled(follows) == []


def test_refills_are_bounded_a_second_and_those_beyond_are_asked_for_by_later_walks(follows: FollowStore, pair: Pair):
    users = range(1, 201)
    follow_something(follows, users)
    with service_on(pair, follows) as service:
        for each in [*users, *users]:
            service.page(each)
    assert len(refilled(follows)) == int(ASKED_PER_S_MAX * BURST_S), "no time passes"
    with service_on(pair, follows) as service:

        def walk_all() -> bool:
            pair.now_s += BURST_S
            for each in users:
                service.page(each)
            return len(refilled(follows)) >= len(users)

        until(walk_all, "all are refilled")
    assert sorted(refilled(follows)) == list(users), "each of them once"


def test_lookups_of_those_who_follow_nothing_are_bounded_a_second(follows: FollowStore, pair: Pair):
    looked_up: list[int] = []

    class Counting(_Away):
        def following_after(self, follower: int, after: object, limit: int) -> list[int]:
            looked_up.append(follower)
            return []

    with service_on(pair, Counting(FollowStoreUnavailableError("away"))) as service:  # type: ignore[arg-type]
        for each in range(1, 2_001):
            service.page(each)
    assert looked_up == list(range(1, int(LOOKED_UP_PER_S_MAX * BURST_S) + 1)), "no time passes"


def test_what_refills_remember_is_bounded(follows: FollowStore):
    now_s = 0.0
    refills = Refills(follows, HOUR_MS, lambda: now_s)
    for each in range(1, REMEMBERED_MAX + 501):
        refills.ask(each)
        now_s += 0.1
        if not each % WAITING_MAX:
            until(lambda: not refills._waiting, "there is room")
    assert len(refills._done_s) == REMEMBERED_MAX
    refills.close()


def test_a_walk_that_ends_at_the_cap_asks_for_nothing(follows: FollowStore, pair: Pair):
    pair.fill(range(1, CAP + 9))
    with service_on(pair, follows) as service:
        page = service.page(USER, CAP)
        assert (page.returned, page.cursor) == (CAP, None)
    assert follows.unrelayed(10) == []


class _Away:
    """A follow store that cannot be asked for refills."""

    def __init__(self, error: Exception) -> None:
        self.asked = 0
        self.away = True
        self.error = error

    def following_after(self, follower: int, after: object, limit: int) -> list[int]:
        return [1]

    def ask_refill(self, users: list[int], cluster: str | None, within_ms: int) -> int:
        self.asked += 1
        if self.away:
            raise self.error
        return 1


@pytest.mark.parametrize("error", [FollowStoreUnavailableError("away"), ValueError("a fault of this program")])
def test_a_refill_that_could_not_be_recorded_is_asked_for_by_the_next_walk(error: Exception):
    follows = _Away(error)
    refills = Refills(follows, HOUR_MS, time.monotonic)  # type: ignore[arg-type]
    refills.ask(USER)
    until(lambda: not refills._done_s, "it is forgotten")
    follows.away = False
    refills.ask(USER)
    refills.ask(USER)
    refills.close()
    assert follows.asked == 2
    refills.ask(8)
    assert follows.asked == 2


def test_where_no_thread_can_be_had_a_refill_fails_no_page_and_is_asked_for_later(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []

    class Follows(_Away):
        def ask_refill(self, users: list[int], *_: object) -> int:
            asked.extend(users)
            return len(users)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    refills = Refills(Follows(ValueError()), HOUR_MS, time.monotonic)  # type: ignore[arg-type]
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        refills.ask(USER)
    refills.ask(8)
    refills.close()
    assert sorted(asked) == [USER, 8]


def test_a_page_does_not_wait_for_a_refill_to_be_recorded(pair: Pair):
    gate = threading.Event()

    class Stuck(_Away):
        def ask_refill(self, *_: object) -> int:
            assert gate.wait(60)
            return 1

    service = service_on(pair, Stuck(FollowStoreUnavailableError("away")))  # type: ignore[arg-type]
    assert service.page(USER).entries == []
    assert service.page(8).entries == []
    gate.set()
    service.close()


# Actions
# --------------------------------------------------------------------------------------------------------------------


def test_rule_11_the_four_actions_are_recorded_with_their_outbox_rows(service: FeedService, follows: FollowStore):
    followed = service.follow(1, user(2))
    unfollowed = service.unfollow(1, user(2))
    saved = service.save_pin(Pin(5, OWNER, BOARD, 1_000))
    deleted = service.delete_pin(5)
    assert unfollowed.ts > followed.ts
    rows = sorted(follows.unrelayed(10), key=lambda row: (row.shard, row.id))
    assert {type(each) for each in actions_in(rows)} == {type(each) for each in (followed, unfollowed, saved, deleted)}
    assert len(rows) == 4


@pytest.mark.parametrize(
    "act",
    [
        lambda service, key: service.follow(1, user(2), key),
        lambda service, key: service.unfollow(1, board(2), key),
        lambda service, key: service.save_pin(Pin(5, OWNER, BOARD, 1_000), key),
    ],
    ids=["follow", "unfollow", "save"],
)
def test_a_request_that_is_repeated_with_its_key_does_nothing_twice(
    service: FeedService, follows: FollowStore, act: Callable[[FeedService, str | None], object]
):
    first = act(service, "k1")
    assert act(service, "k1") == first
    assert len(follows.unrelayed(10)) == 1
    with pytest.raises(ActionRefusedError) as refused:
        service.follow(1, user(77), "k1")
    assert refused.value.reason == "key_reused"


def test_a_refusal_is_raised_and_repeated_under_its_key(service: FeedService):
    for _ in range(2):
        with pytest.raises(ActionRefusedError) as refused:
            service.delete_pin(5, "k1")
        assert refused.value.reason == "pin_unknown"
    service.save_pin(Pin(5, OWNER, BOARD, 1_000))
    with pytest.raises(ActionRefusedError) as refused:
        service.delete_pin(5, "k1")
    assert refused.value.reason == "pin_unknown", "the first answer is kept"
    with pytest.raises(InvalidValueError):
        service.follow(1, user(2), "")
    with pytest.raises(InvalidValueError):
        service.follow(1, user(1))


# Who follows what
# --------------------------------------------------------------------------------------------------------------------


def test_who_is_followed_is_seen_at_once(service: FeedService):
    assert not service.follows(1, user(2))
    edge = service.follow(1, user(2)).edge()
    service.follow(1, board(3))
    service.unfollow(1, board(3))
    assert service.follows(1, user(2))
    assert not service.follows(1, board(2))
    assert service.followed(1, [user(2), board(3), user(4)]) == {user(2): edge}


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 12, 13])
def test_what_a_user_follows_comes_in_pages(service: FeedService, limit: int):
    wanted = [*(board(each) for each in range(30, 35)), *(user(each) for each in range(20, 28))]
    for followee in [*wanted, board(99), user(21), user(99)]:
        service.follow(1, followee)
    for followee in (board(99), user(21), user(99)):
        service.unfollow(1, followee)
    wanted.remove(user(21))
    service.follow(5, user(77))
    found: list[Followee] = []
    cursor: str | None = None
    while True:
        page = service.following(1, limit, cursor)
        assert len(page.edges) <= limit
        found += [edge.followee for edge in page.edges]
        cursor = page.cursor
        if cursor is None:
            break
        assert len(page.edges) == limit
        service.follow(1, board(1))  # before the place where the next page begins
    assert found == wanted


@pytest.mark.parametrize("limit", [1, 3, 7, 100])
def test_who_follows_somebody_comes_in_pages(service: FeedService, follows: FollowStore, limit: int):
    recorded = follows.record([Request(Follow(each, user(2))) for each in range(10, 17)])
    follows.index(edges=[each.edge() for each in recorded])  # type: ignore[union-attr]
    follows.index(edges=[service.unfollow(12, user(2)).edge(), service.follow(50, board(2)).edge()])
    found: list[int] = []
    cursor: str | None = None
    while True:
        page = service.followers(user(2), limit, cursor)
        found += [each.follower for each in page.followers]
        cursor = page.cursor
        if cursor is None:
            break
    assert found == [10, 11, 13, 14, 15, 16]


def test_a_cursor_of_another_list_is_refused(service: FeedService, follows: FollowStore):
    recorded = [service.follow(1, user(2)), service.follow(1, user(3)), service.follow(4, user(2))]
    follows.index(edges=[each.edge() for each in recorded])
    following, followers = service.following(1, 1).cursor, service.followers(user(2), 1).cursor
    assert following is not None
    assert followers is not None
    for wrong in (following, followers, "nonsense", ""):
        with pytest.raises(MalformedCursorError):
            service.following(4, 1, wrong)
        with pytest.raises(MalformedCursorError):
            service.followers(board(2), 1, wrong)
        with pytest.raises(MalformedCursorError):
            service.page(USER, 1, wrong)
    for limit in (0, MAX_RELATIONS + 1):
        with pytest.raises(InvalidValueError):
            service.following(1, limit)
        with pytest.raises(InvalidValueError):
            service.followers(user(2), limit)


# A home
# --------------------------------------------------------------------------------------------------------------------


def test_a_service_is_made_from_a_configuration(tmp_path: Path):
    config = create(tmp_path / "home", {})
    service = open_service(config)
    service.follow(1, user(2))
    page = service.page(1)
    assert (page.entries, page.served_by) == ([], "a")
    assert [(each.name, each.breaker, each.is_lagging) for each in service.clusters()] == [
        ("a", "closed", False),
        ("b", "closed", False),
    ]
    assert service.feed_size(1).entries == 0
    service.close()
    service.close()
    with pytest.raises(UnavailableError):
        service.page(1)
    with pytest.raises(FollowStoreUnavailableError):
        service.follow(1, user(3))


def test_the_preferred_cluster_is_asked_first(tmp_path: Path):
    create(tmp_path / "home", {})
    config = configuration.load(tmp_path / "home", {"FEED_SERVING_PREFER": "b"})
    with open_service(config) as service:
        assert service.page(1).served_by == "b"
        assert [each.name for each in service.clusters()] == ["b", "a"]


def test_a_service_opens_and_answers_while_a_cluster_is_away(tmp_path: Path):
    config = create(tmp_path / "home", {})
    (tmp_path / "home" / "data" / "a").rename(tmp_path / "away")
    with open_service(config) as service:
        for _ in range(10):
            assert service.page(1).served_by == "b"
        assert service.clusters()[0].breaker == "open"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("FEED_SERVING_PREFER", "c", "serving.prefer: no cluster 'c'; there are: a, b"),
        ("FEED_SERVING_DEADLINE", "soon", "serving.deadline: expected a duration"),
        ("FEED_SERVING_READS_AT_ONCE", "0", "reads_at_once"),
        (
            "FEED_WORKER_TICK",
            "1h",
            "^the environment's FEED_WORKER_TICK: worker.tick: expected a duration of 5m at most",
        ),
        ("FEED_HTTP_PATIENCE", "30d", "http.patience: expected a duration of 1h at most, got '30d'"),
        ("FEED_WORKER_GATHER", "101ms", "worker.gather: expected a duration of 100ms at most"),
    ],
)
def test_a_configuration_that_cannot_be_is_refused(tmp_path: Path, name: str, value: str, said: str):
    with pytest.raises(ConfigError, match=said):
        configuration.parse(tmp_path, configuration.DEFAULT, {name: value})


WAITS = [
    (section, key.encode_name)
    for section, settings in {
        "limits": configuration._Limits,
        "serving": ServingSettings,
        "http": HttpSettings,
        "worker": configuration.WorkerSettings,
        "catalogs.ads": CatalogSettings,
    }.items()
    for key in msgspec.structs.fields(settings)
    if key.name.endswith("_ms") and not key.name.endswith(("_age_ms", "_window_ms"))
]


@pytest.mark.parametrize(("section", "key"), WAITS)
def test_every_wait_has_a_bound(tmp_path: Path, section: str, key: str):
    """One that is far too long looks like a process that hangs."""
    text, environ = configuration.DEFAULT, {f"FEED_{section}_{key}".upper(): "91d"}
    if section == "catalogs.ads":
        text, environ = f'{text}[{section}]\n{key} = "91d"\n', {}
    with pytest.raises(ConfigError, match=rf"{section}.{key}: expected a duration of \w+ at most, got '91d'"):
        configuration.parse(tmp_path, text, environ)
