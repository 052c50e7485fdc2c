"""The relays: one for each shard of the follow store, and what sends the ticks."""

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import structlog

from feedstore.domain import Follow, Followed, RecordedAction, user
from feedstore.follows.port import FollowStoreUnavailableError, OutboxRow, Request, actions_in
from feedstore.follows.shard import Shard
from feedstore.follows.store import FollowStore
from tests.follows.memory_follows import open_in_memory
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from workers.following.messages import Task, decode_actions, encode_action, wrap_actions
from workers.following.topics import ACTIONS, TOPICS
from workers.pipeline.relay import Relay, Ticker
from workers.pipeline.ticks import Tick
from workers.queue.port import MAX_MESSAGE_BYTES, Consumer, Malformed, MalformedError, QueueUnavailableError, Topic

NOW_MS = 1_700_000_000_000
TIME_OUT_S = 20.0


class Clock:
    """All time of a test. Calls that take long move it."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s

    def ms(self) -> int:
        return NOW_MS + int(self.s * 1_000)


class Shaky:
    """A shard that may be away: its calls take `takes_s`, and then say so. Or its disk is full, and it can be read. Or
    the answer of a mark is lost.
    """

    def __init__(self, shard: Any, clock: Clock) -> None:
        self._shard = shard
        self._clock = clock
        self.takes_s: float | None = None
        self.is_full = False
        self.loses_an_answer = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._shard, name)

        def shaky(*args: Any, **named: Any) -> Any:
            self.calls += 1
            if self.is_full and name == "mark_relayed":
                raise FollowStoreUnavailableError("shard: its disk is full")
            if self.loses_an_answer and name == "mark_relayed":
                self.loses_an_answer = False
                call(*args, **named)
                raise FollowStoreUnavailableError("shard: lost while it committed, with an unknown outcome")
            if self.takes_s is None or name == "close":
                return call(*args, **named)
            self._clock.s += self.takes_s
            raise FollowStoreUnavailableError("shard: away")

        return shaky


class ShakyQueue(MemoryQueue):
    """A queue that may be away."""

    is_away = False

    def publish_each(self, topic: Topic[object], values: Mapping[int, Sequence[bytes]]) -> None:
        if self.is_away:
            raise QueueUnavailableError("queue: away")
        super().publish_each(topic, values)


class Bench:
    """Three shards, a queue, and the loops that relay."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.shards = [Shaky(self.replica(), self.clock) for _ in range(3)]
        self.follows = FollowStore(self.shards)  # type: ignore[arg-type]
        self.queue = ShakyQueue(dict.fromkeys(TOPICS, 1), self.clock.ms)
        self.dead = MemoryDeadLetters()
        self.relays = [
            Relay(self.follows, shard, self.queue, ACTIONS, self.dead, self.clock, lambda: 1, wrap_actions)
            for shard in range(3)
        ]
        self.ticker = Ticker(self.follows.settled_ms, self.queue, ACTIONS, self.clock, encode_action)
        self.consumer: Consumer = self.queue.consumer(ACTIONS, "expander")

    def replica(self) -> Shard:
        """A new shard, in the place of one of these."""
        shard: Shard = open_in_memory(self.clock.ms)._shards[0]
        return shard

    def follow(self, followers: range) -> set[RecordedAction]:
        answers = self.follows.record([Request(Follow(each, user(1_000))) for each in followers])
        assert all(isinstance(answer, Followed) for answer in answers)
        return set(answers)  # type: ignore[arg-type]

    def of_shard(self, shard: int) -> set[RecordedAction]:
        return set(actions_in(self.follows.unrelayed(10_000, shard)))

    def relayed(self) -> list[Task | Tick]:
        return [body for message in self.consumer.poll(10_000, 0) for body in decode_actions(message.value)]

    def run(self, rounds: int = 3) -> None:
        for _ in range(rounds):
            for loop in (*self.relays, self.ticker):
                loop.step()
            self.clock.s += 1.0


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.follows.close()


def tasks(messages: Iterable[object]) -> set[RecordedAction]:
    return {each.action for each in messages if isinstance(each, Task)}


@pytest.mark.parametrize("takes_s", [0.0, TIME_OUT_S], ids=["refuses", "hangs"])
def test_rule_12_a_shard_that_is_away_holds_its_own_rows_only(bench: Bench, takes_s: float) -> None:
    recorded = bench.follow(range(1, 100))
    held = bench.of_shard(1)
    bench.shards[1].takes_s = takes_s

    bench.run()

    assert held
    assert tasks(bench.relayed()) == recorded - held
    bench.shards[1].takes_s = None
    bench.run()
    assert tasks(bench.relayed()) == held


def test_rule_12_a_shard_that_hangs_costs_the_relays_of_the_others_nothing(bench: Bench) -> None:
    bench.follow(range(1, 100))
    bench.shards[1].takes_s = TIME_OUT_S
    calls = bench.shards[1].calls

    assert bench.relays[0].step()
    assert bench.relays[2].step()

    assert bench.shards[1].calls == calls


def test_rule_12_what_cannot_be_marked_is_not_published_again_and_again(bench: Bench) -> None:
    """It would fill the queue, and expanders would have no room left for the actions of other shards."""
    before = bench.follow(range(1, 20))
    bench.shards[0].is_full = True
    bench.run(100)
    after = bench.follow(range(20, 40))
    bench.run(100)
    bench.shards[0].is_full = False
    bench.run()

    published = [each.action for each in bench.relayed() if isinstance(each, Task)]
    assert len(published) == len(before | after)
    assert set(published) == before | after
    assert bench.follows.backlog().actions == 0


def test_a_row_that_took_the_place_of_one_that_was_published_is_published_too(bench: Bench) -> None:
    """A shard whose disk was full is brought back from a copy, which lacks the last rows: it gives their ids again."""
    lost, kept = bench.follow(range(1, 2)), []
    bench.shards[0].is_full = bench.shards[1].is_full = bench.shards[2].is_full = True
    bench.run()
    (number,) = (shard for shard in range(3) if bench.of_shard(shard))
    unrelayed = bench.follows.unrelayed

    def after_the_copy(limit: int, shard: int | None = None) -> list[OutboxRow]:
        rows = unrelayed(limit, shard)
        kept.extend(row._replace(body=row.body.replace(b'"follower":1,', b'"follower":2,')) for row in rows)
        return kept[-len(rows) :] if rows else []

    bench.follows.unrelayed = after_the_copy  # type: ignore[method-assign]
    bench.shards[number].is_full = False
    bench.run()
    (first, second) = (each.action for each in bench.relayed() if isinstance(each, Task))
    assert {first} == lost
    assert isinstance(second, Followed)
    assert second.follower == 2


def test_a_row_of_a_replica_that_takes_over_while_a_relay_publishes_is_published_too(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica lacks the last row of the primary, and gives its id again. That row must not be marked."""
    (lost,) = bench.follow(range(1, 2))
    number = next(shard for shard in range(3) if bench.of_shard(shard))
    publish = bench.queue.publish
    kept: set[RecordedAction] = set()

    def publish_slowly(topic: Topic[object], values: Sequence[bytes]) -> None:
        publish(topic, values)
        if not kept:
            bench.clock.s += 1.0
            bench.shards[number]._shard = bench.replica()
            kept.update(bench.follow(range(1, 2)))

    monkeypatch.setattr(bench.queue, "publish", publish_slowly)
    bench.run()
    assert tasks(bench.relayed()) == {lost, *kept}
    assert len(kept) == 1


@pytest.mark.parametrize("rounds", [1, 10], ids=["before the next look", "later"])
def test_rows_that_are_to_be_relayed_again_are_published_although_the_answer_of_their_mark_was_lost(
    bench: Bench, rounds: int
) -> None:
    recorded = bench.follow(range(1, 20))
    for shard in bench.shards:
        shard.loses_an_answer = True
    bench.run(rounds)
    assert tasks(bench.relayed()) == recorded
    assert not any(shard.loses_an_answer for shard in bench.shards)

    bench.follows.relay_again()
    bench.run(10)

    assert tasks(bench.relayed()) == recorded


def test_rule_10_no_tick_passes_while_a_shard_is_away(bench: Bench) -> None:
    bench.follow(range(1, 100))
    bench.shards[2].takes_s = 0.0
    bench.run()
    assert not [each for each in bench.relayed() if isinstance(each, Tick)]

    bench.shards[2].takes_s = None
    bench.run()
    messages = bench.relayed()
    assert isinstance(messages[-1], Tick)
    assert messages[-1].settled_ms > NOW_MS


def test_a_shard_that_is_away_is_asked_ever_more_rarely(bench: Bench) -> None:
    bench.shards[0].takes_s = 0.0
    before = bench.shards[0].calls
    for _ in range(10_000):
        bench.relays[0].step()
        bench.clock.s += 0.01
    assert 50 <= bench.shards[0].calls - before < 300


def test_ticks_go_once_in_a_while(bench: Bench) -> None:
    for _ in range(100):
        bench.ticker.step()
        bench.clock.s += 0.1
    assert 9 <= len(bench.relayed()) <= 11


def test_a_ticker_rests_until_it_is_due(bench: Bench) -> None:
    rests = []
    for _ in range(10):
        bench.ticker.step()
        rests.append(bench.ticker.rest_s)
        bench.clock.s += bench.ticker.rest_s
    assert rests == pytest.approx([1.0] * 10)
    assert len(bench.relayed()) == 10


def test_a_ticker_looks_again_soon_while_a_shard_is_away(bench: Bench) -> None:
    bench.shards[2].takes_s = 0.0
    bench.ticker.step()
    assert bench.ticker.rest_s < 0.1


# Several relays
# --------------------------------------------------------------------------------------------------------------------


class Claim:
    """What the follow store says to a relay that asks if it may relay a shard."""

    def __init__(self) -> None:
        self.mine = True
        self.is_away = False
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        if self.is_away:
            raise FollowStoreUnavailableError("shard: away")
        return self.mine


def test_what_a_relay_must_do_first_is_done_once_before_it_publishes_and_again_if_it_cannot_be_done_now(
    bench: Bench,
) -> None:
    answers = iter([False, True])
    published: list[int] = []

    def begin() -> None:
        published.append(bench.queue.ends(ACTIONS)[0])
        if not next(answers):
            raise QueueUnavailableError("not now")

    relay = Relay(bench.follows, 0, bench.queue, ACTIONS, bench.dead, bench.clock, lambda: 1, wrap_actions, begin=begin)
    assert not relay.step()
    assert published == [], "there is nothing to publish yet"
    for first in (1, 100):
        bench.follow(range(first, first + 99))
        held = bench.of_shard(0)
        assert held
        while bench.of_shard(0):
            relay.step()
            bench.clock.s += 1.0
        assert tasks(bench.relayed()) == held
    assert published == [0, 0]


def claiming(bench: Bench) -> tuple[Relay[Any], Claim]:
    """A relay of shard 0 that must ask before it relays."""
    may_relay = Claim()
    relay = Relay(
        bench.follows, 0, bench.queue, ACTIONS, bench.dead, bench.clock, lambda: 1, wrap_actions, may_relay=may_relay
    )
    return relay, may_relay


def test_a_relay_leaves_a_shard_to_the_one_that_has_it_and_takes_over(bench: Bench) -> None:
    relay, claim = claiming(bench)
    bench.follow(range(1, 100))
    held = bench.of_shard(0)
    claim.mine = False

    assert not relay.step()
    assert held
    assert bench.of_shard(0) == held
    assert bench.relayed() == []
    waiting_s = relay.rest_s

    claim.mine = True
    assert relay.step()
    assert tasks(bench.relayed()) == held
    assert relay.rest_s < waiting_s, "one that only waits asks more rarely"


def test_a_relay_says_once_that_another_one_has_its_shard_and_once_that_it_took_over(bench: Bench) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.INFO))
    relay, claim = claiming(bench)
    with structlog.testing.capture_logs() as logs:
        for claim.mine in (True, True, False, False, True, True):
            relay.step()
            bench.clock.s += 1.0

    assert [(line["event"], line["shard"]) for line in logs] == [("relay.waits", 0), ("relay.took_over", 0)]


def test_a_relay_that_has_nothing_to_relay_asks_once_a_second_and_always_before_it_publishes(bench: Bench) -> None:
    relay, claim = claiming(bench)
    for _ in range(100):
        relay.step()
        bench.clock.s += 0.05
    assert 5 <= claim.asked <= 6

    bench.follow(range(1, 100))
    asked = claim.asked
    claim.mine = False
    assert not relay.step()
    assert claim.asked == asked + 1, "it had the shard a moment ago, and may have lost it"
    assert bench.relayed() == []

    claim.mine = True
    assert relay.step()


def test_a_relay_that_cannot_ask_relays_nothing_and_asks_ever_more_rarely(bench: Bench) -> None:
    relay, claim = claiming(bench)
    bench.follow(range(1, 100))
    held = bench.of_shard(0)
    claim.is_away = True
    for _ in range(1_000):
        assert not relay.step()
        bench.clock.s += 0.01
    assert bench.of_shard(0) == held
    assert 5 <= claim.asked < 100

    claim.is_away = False
    bench.clock.s += 60.0
    assert relay.step()
    assert tasks(bench.relayed()) == held


def test_a_relay_that_lost_its_shard_while_the_queue_was_away_leaves_the_rows_to_the_other(bench: Bench) -> None:
    relay, claim = claiming(bench)
    bench.follow(range(1, 100))
    held = bench.of_shard(0)
    bench.queue.is_away = True
    assert not relay.step()

    bench.queue.is_away = False
    claim.mine = False
    bench.clock.s += 60.0
    assert not relay.step()
    assert bench.relayed() == []

    assert bench.relays[0].step()
    assert tasks(bench.relayed()) == held


# Rows of newer programs
# --------------------------------------------------------------------------------------------------------------------


def write_row(bench: Bench, body: bytes, shard: int = 0) -> None:
    """An outbox row that another version of this program recorded."""
    from feedstore.follows.shard import Changes, Wanted  # noqa: PLC0415 - only here rows are written by hand

    changes = Changes.none()
    changes.outbox.append(body)
    bench.shards[shard].transact(Wanted(), lambda _now_ms, _standing: (changes, None))


def test_a_row_of_a_newer_version_is_relayed_as_it_is(bench: Bench) -> None:
    newer = {"type": "board_merged", "board": 5, "into": 6, "committed_ms": NOW_MS}
    write_row(bench, json.dumps(newer).encode())
    recorded = bench.follow(range(1, 100))
    bench.run()

    values = [message.value for message in bench.consumer.poll(10_000, 0)]

    bodies = [body for value in values for body in decode_actions(value)]
    unread = [json.loads(body.value) for body in bodies if isinstance(body, Malformed)]
    assert tasks(body for body in bodies if not isinstance(body, Malformed)) == recorded
    assert len([value for value in values if b"tick" not in value]) == 3, "one message for each shard"
    # A newer expander reads it; one that does not know it keeps it as a dead letter, which can be sent again.
    assert unread == [{"v": 1, "body": {"type": "task", "action": newer}}]
    assert bench.follows.backlog().actions == 0
    assert bench.follows.settled_ms() == bench.clock.ms()


def test_a_row_that_is_damaged_is_relayed_as_it_is(bench: Bench) -> None:
    write_row(bench, b'{"type":')
    recorded = bench.follow(range(1, 4))
    bench.run()

    values = [message.value for message in bench.consumer.poll(10_000, 0)]

    with pytest.raises(MalformedError) as refused:
        [decode_actions(value) for value in values]
    assert refused.value.reason == "not_json"
    assert bench.follows.backlog().actions == 0
    assert len(values) >= len(recorded) + 1


def test_nothing_is_published_again_while_the_dead_letters_are_away(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = bench.follow(range(1, 20))
    write_row(bench, b'{"type":"%s"}' % (b"x" * MAX_MESSAGE_BYTES))

    def away(*_: object) -> None:
        raise QueueUnavailableError("dead letters: away")

    with monkeypatch.context() as patch:
        patch.setattr(bench.dead, "bury", away)
        bench.run(100)
    bench.run()

    published = [each.action for each in bench.relayed() if isinstance(each, Task)]
    assert len(published) == len(recorded)
    assert bench.dead.count() == 1
    assert bench.follows.backlog().actions == 0


def test_rule_12_a_row_that_no_queue_takes_is_a_dead_letter_and_holds_up_no_other(bench: Bench) -> None:
    before = bench.follow(range(1, 20))
    body = b'{"type":"%s"}' % (b"x" * MAX_MESSAGE_BYTES)
    write_row(bench, body)
    after = bench.follow(range(20, 40))
    bench.run()

    assert tasks(bench.relayed()) == before | after
    [letter] = bench.dead.letters(0, 10)
    assert (letter.topic, letter.group, letter.reason) == (ACTIONS.name, "relay-0", "oversized")
    assert "a row of shard 0's outbox" in letter.detail
    assert len(letter.value) == MAX_MESSAGE_BYTES
    assert bench.follows.backlog().actions == 0
