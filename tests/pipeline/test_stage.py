"""A stage on a queue in memory, with a clock that moves only when it is moved."""

import random
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.metering import UNCOUNTED, Meter
from feedstore.widecolumn import RefusedError, UnavailableError
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.slots import EachAlone
from workers.pipeline.burials import TooManyDeadLettersError
from workers.pipeline.lots import MAX_LOTS
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import ENOUGH_BYTES, SILENT_S, Begun, Stage
from workers.pipeline.ticks import Tick
from workers.queue.port import (
    Consumer,
    DamagedQueueError,
    Malformed,
    MalformedError,
    Message,
    PositionLostError,
    QueueUnavailableError,
    Topic,
    lag_of,
)


def decode(value: bytes) -> list[str | Tick | Malformed]:
    if value.startswith(b"bad"):
        raise MalformedError("not_json", f"cannot read {value!r}")
    if value.startswith(b"fault"):
        raise IndexError("of the decoder")
    return [_body(body) for body in value.decode().split("+") if body]


def _body(body: str) -> str | Tick | Malformed:
    if body.startswith("newer"):
        return Malformed(body.encode(), "malformed", f"no such kind: {body}")
    return Tick(int(body[5:]), 0, 1) if body.startswith("tick ") else body


TOPIC: Topic[str | Tick | Malformed] = Topic("tests", durable=True, decode=decode)


@dataclass
class Bench:
    """done: what was handled, in order. ticks: likewise. fails: what handling raises, asked for each call."""

    policy: RetryPolicy = field(default_factory=RetryPolicy)
    fails: Callable[[Sequence[str]], Exception | None] = lambda bodies: None
    now_s: float = 0.0
    done: list[str] = field(default_factory=list)
    calls: list[list[str]] = field(default_factory=list)
    ticks: list[int] = field(default_factory=list)
    tick_fails: Exception | None = None
    tick_calls: int = 0
    commits: list[dict[int, int]] = field(default_factory=list)
    given_up: set[int] = field(default_factory=set)
    """Partitions that another member reads."""

    def __post_init__(self) -> None:
        self.queue = MemoryQueue({TOPIC: 1}, lambda: 1_000)
        self.dead = MemoryDeadLetters()
        self.stage: Stage[str] = self.restarted()

    def restarted(self, *, patience_s: float = 0, meter: Meter = UNCOUNTED, **options: Any) -> Stage[str]:
        """options: those of the specification."""
        options = {"slots": EachAlone()} | options
        return Stage(
            StageSpec(group="group", topic=TOPIC, encode=str.encode, handle=self.handle, ticks=self.tick, **options),
            _Noting(self.queue.consumer(TOPIC, "group"), self.commits, self.given_up),
            self.dead,
            self.policy,
            random.Random(1),
            lambda: self.now_s,
            lambda: 7,
            patience_s,
            meter,
        )

    def reopen(self, **options: Any) -> None:
        """The stage is closed, and there is a new one."""
        self.stage.close()
        self.stage = self.restarted(**options)

    def handle(self, bodies: Sequence[str]) -> None:
        self.calls.append(list(bodies))
        if error := self.fails(bodies):
            raise error
        self.done += bodies

    def tick(self, ticks: Sequence[tuple[int, Tick]]) -> None:
        self.tick_calls += 1
        if self.tick_fails is not None:
            raise self.tick_fails
        self.ticks += [tick.settled_ms for _, tick in ticks]

    def publish(self, *values: str) -> None:
        self.queue.publish(TOPIC, [value.encode() for value in values])

    def lag(self) -> int:
        return lag_of(self.queue, TOPIC, "group")

    def run(self, seconds: float = 1_000.0) -> None:
        """Steps until nothing is left, moving the clock."""
        until_s = self.now_s + seconds
        while (self.stage.step() or not self.stage.idle()) and self.now_s <= until_s:
            self.now_s += 0.05

    def letters(self) -> list[tuple[str, bytes]]:
        return [(letter.reason, letter.value) for letter in self.dead.letters(0, 1_000)]


class _Noting:
    def __init__(self, consumer: Consumer, commits: list[dict[int, int]], given_up: set[int]) -> None:
        self._consumer = consumer
        self._commits = commits
        self._given_up = given_up

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        return self._consumer.poll(limit, timeout_s)

    def commit(self, positions: Mapping[int, int]) -> None:
        self._consumer.commit(positions)
        self._commits.append(dict(positions))

    def held(self) -> frozenset[int]:
        return self._consumer.held() - self._given_up

    def keep_alive(self) -> None:
        self._consumer.keep_alive()

    def close(self) -> None:
        self._consumer.close()


def test_messages_are_handled_together_and_committed_after() -> None:
    bench = Bench()
    bench.publish("1", "2", "3")

    assert bench.stage.step()

    assert bench.calls == [["1", "2", "3"]]
    assert bench.lag() == 0
    assert not bench.stage.step()


def test_the_next_messages_are_polled_while_the_handler_works() -> None:
    polled = threading.Event()

    def handled(bodies: Sequence[str]) -> None:
        assert "1" not in bodies or polled.wait(60)

    bench = Bench(fails=handled)
    bench.reopen(batch=2)
    bench.publish("1", "2", "3", "4")
    poll = bench.stage._consumer.poll

    def noted(limit: int, timeout_s: float) -> list[Message]:
        messages = poll(limit, timeout_s)
        if any(message.value == b"4" for message in messages):
            polled.set()
        return messages

    bench.stage._consumer.poll = noted  # type: ignore[method-assign]
    bench.run()

    assert bench.calls == [["1", "2"], ["3", "4"]]
    assert bench.letters() == []


def test_rule_11_what_was_polled_ahead_is_not_committed() -> None:
    bench = Bench()
    bench.reopen(batch=2)
    bench.publish("1", "2", "3", "tick 100", "4")

    bench.stage.step()
    assert bench.commits == [{0: 2}]
    assert bench.ticks == []

    bench.reopen(batch=2)
    bench.run()
    assert bench.done == ["1", "2", "3", "4"]
    assert bench.ticks == [100]
    assert bench.lag() == 0


@pytest.mark.parametrize("error", [QueueUnavailableError("away"), PositionLostError("gone"), DamagedQueueError("gone")])
def test_a_queue_that_fails_while_the_handler_works_does_not_cost_its_work(error: Exception) -> None:
    bench = Bench()
    bench.reopen(batch=2)
    bench.publish("1", "2", "3", "4")
    poll = bench.stage._consumer.poll
    polls = 0

    def failing(limit: int, timeout_s: float) -> list[Message]:
        nonlocal polls
        polls += 1
        if polls > 1:
            raise error
        return poll(limit, timeout_s)

    bench.stage._consumer.poll = failing  # type: ignore[method-assign]
    assert bench.stage.step()
    assert bench.commits == [{0: 2}]

    if not isinstance(error, QueueUnavailableError):
        with pytest.raises(type(error), match="gone"):
            bench.stage.step()
    else:
        assert not bench.stage.step()
        bench.stage._consumer.poll = poll  # type: ignore[method-assign]
        bench.now_s += 60
        bench.run()
        assert bench.done == ["1", "2", "3", "4"]


def test_what_breaks_while_the_handler_works_is_no_fault_of_its_messages() -> None:
    bench = Bench()
    bench.reopen(batch=2)
    bench.publish("1", "2", "3", "4")
    poll = bench.stage._consumer.poll

    def breaking(limit: int, timeout_s: float) -> list[Message]:
        if bench.stage._lots:
            raise AssertionError("broken")
        return poll(limit, timeout_s)

    bench.stage._consumer.poll = breaking  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="broken"):
        bench.stage.step()
    assert bench.done == ["1", "2"]
    assert bench.commits == []
    assert bench.letters() == []


def test_rule_11_nothing_is_committed_before_its_effect() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away"))
    bench.publish("1", "2")

    bench.stage.step()

    assert bench.lag() == 2
    assert bench.commits == []


@pytest.mark.parametrize(
    "error", [UnavailableError("away"), FollowStoreUnavailableError("away"), QueueUnavailableError("away")]
)
def test_rule_12_what_is_unavailable_is_waited_for_and_never_given_up(error: Exception) -> None:
    bench = Bench(RetryPolicy(attempts=2), fails=lambda bodies: error if bench.now_s < 600 else None)
    bench.publish("1", "2", "3")

    bench.run(500)
    assert bench.lag() == 3
    assert bench.letters() == []

    bench.run()
    assert sorted(bench.done) == ["1", "2", "3"]
    assert bench.lag() == 0


def test_rule_12_messages_behind_an_unavailable_row_get_done() -> None:
    """What fails together is tried in halves after a while, so that one dead region delays only its own rows."""
    bench = Bench(fails=lambda bodies: UnavailableError("dead region") if "5" in bodies else None)
    bench.publish(*map(str, range(10)))

    bench.run(300)

    assert sorted(bench.done) == sorted(set(map(str, range(10))) - {"5"})
    assert bench.lag() == 10  # it is one lot: a position past what is not done would lose it


def test_where_nothing_can_be_done_messages_stay_together() -> None:
    """A cluster that comes back gets batches, not thousands of single messages."""
    bench = Bench(fails=lambda bodies: UnavailableError("away") if bench.now_s < 300 else None)
    bench.publish(*map(str, range(100)))
    bench.run(300)
    bench.calls.clear()

    bench.run()

    assert len(bench.calls) == 2, "one slice, and as soon as that is done all others"
    assert len(bench.done) == 100


def test_an_outage_is_no_fault_of_a_message() -> None:
    """Only failures of its own count towards giving a message up."""
    faults = iter([ValueError("once")])
    bench = Bench(
        RetryPolicy(attempts=2),
        fails=lambda bodies: UnavailableError("away") if bench.now_s < 300 else next(faults, None),
    )
    bench.publish("1")

    bench.run()

    assert bench.done == ["1"]
    assert bench.letters() == []


def test_rule_12_a_poison_message_that_met_an_outage_is_given_up_all_the_same() -> None:
    def fails(bodies: Sequence[str]) -> Exception | None:
        return UnavailableError("away") if len(bench.calls) % 2 else ValueError("poison")

    bench = Bench(RetryPolicy(attempts=3), fails=fails)
    bench.publish("1")

    bench.run()

    assert bench.letters() == [("failed", b"1")]
    assert bench.lag() == 0


def test_rule_12_later_messages_do_not_wait_for_a_failure_before_them() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "1" in bodies else None)
    bench.publish("1")
    bench.stage.step()
    bench.publish("2")

    bench.run(5)

    assert bench.done == ["2"]
    assert bench.lag() == 2


def test_rule_12_one_poison_message_is_found_in_its_batch_and_buried() -> None:
    bench = Bench(RetryPolicy(attempts=3), fails=lambda bodies: ValueError("poison") if "13" in bodies else None)
    bench.publish(*map(str, range(100)))

    bench.run()

    assert sorted(bench.done, key=int) == [str(n) for n in range(100) if n != 13]
    assert bench.letters() == [("failed", b"13")]
    assert "poison" in bench.dead.letters(0, 1)[0].detail
    assert "Traceback" in bench.dead.letters(0, 1)[0].detail
    assert bench.lag() == 0
    assert bench.calls.count(["13"]) == 3


def test_what_a_store_refuses_for_ever_is_buried_at_once() -> None:
    bench = Bench(fails=lambda bodies: RefusedError("too wide") if "1" in bodies else None)
    bench.publish("1", "2")

    bench.run(0)

    assert bench.letters() == [("refused", b"1")]
    assert bench.done == ["2"]


def test_rule_11_a_message_is_done_once_all_of_its_bodies_are() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "2" in bodies and bench.now_s < 300 else None)
    bench.publish("1+2+3", "4")

    bench.run(200)
    assert sorted(bench.done) == ["1", "3", "4"]
    assert bench.lag() == 2

    bench.run()
    assert sorted(bench.done) == ["1", "2", "3", "4"]
    assert bench.lag() == 0


def test_rule_12_of_a_message_with_several_bodies_the_bad_one_is_buried_alone() -> None:
    bench = Bench(RetryPolicy(attempts=3), fails=lambda bodies: ValueError("poison") if "2" in bodies else None)
    bench.publish("1+2+3", "4")

    bench.run()

    assert sorted(bench.done) == ["1", "3", "4"]
    assert bench.letters() == [("failed", b"2")], "sent again, it does the others no second time"
    assert bench.lag() == 0


def test_a_message_of_several_bodies_that_cannot_be_read_is_buried_as_it_is() -> None:
    bench = Bench()
    bench.publish("bad 1+2")

    bench.run()

    assert bench.done == []
    assert bench.letters() == [("not_json", b"bad 1+2")]


def test_rule_12_of_a_message_with_several_bodies_the_one_that_cannot_be_read_is_buried_alone() -> None:
    bench = Bench()
    bench.publish("1+newer a+2+newer b", "3+tick 9", "newer c+newer d")

    bench.run()

    assert sorted(bench.done) == ["1", "2", "3"]
    assert sorted(bench.letters()) == [("malformed", b"newer %c" % each) for each in b"abcd"]
    assert bench.lag() == 0


def test_rule_12_many_bodies_that_cannot_be_read_stop_the_worker_only_if_none_can() -> None:
    bench = Bench(RetryPolicy(dead_in_a_row=5))
    bench.publish("+".join(f"newer {number}+{number}" for number in range(20)))
    bench.run()
    assert len(bench.letters()) == len(bench.done) == 20
    bench.publish("+".join(f"newer {number}" for number in range(20, 40)))
    with pytest.raises(TooManyDeadLettersError):
        bench.run()
    assert len(bench.letters()) == 24, "the last of the first message was one in a row"


def test_a_message_without_bodies_is_done() -> None:
    bench = Bench()
    bench.publish("", "1")

    bench.run()

    assert bench.done == ["1"]
    assert bench.lag() == 0


def test_no_more_bodies_are_handled_at_once_than_the_batch() -> None:
    bench = Bench()
    bench.reopen(batch=4)
    bench.publish("+".join(map(str, range(10))), "10+11")

    bench.run()

    assert bench.calls[:3] == [["0", "1", "2", "3"], ["4", "5", "6", "7"], ["8", "9", "10", "11"]]
    assert bench.lag() == 0


def test_rule_10_a_tick_among_bodies_waits_for_all_of_its_message() -> None:
    bench = Bench(fails=lambda bodies: ValueError("poison") if "2" in bodies and bench.now_s < 3 else None)
    bench.publish("1+tick 5+2")

    bench.run(2)
    assert bench.ticks == []

    bench.run()
    assert bench.ticks == [5]
    assert bench.letters() == []


def test_a_body_that_waits_counts_and_keeps_its_part_of_the_bytes_of_its_message() -> None:
    """A hundred messages of which one action each waits for a shard would stop an expander, and take 32 MB."""
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "2" in bodies and bench.now_s < 300 else None)
    bench.publish("1+2+3")

    bench.run(200)
    assert (bench.stage._lots.items, bench.stage._lots.size) == (1, 2)
    (waiting,) = [item for group in (*bench.stage._failed, *bench.stage._outages) for item in group.items]
    assert waiting.taken.value is None

    bench.run()
    assert (bench.stage._lots.items, bench.stage._lots.size) == (0, 0)


class ByDashes(EachAlone):
    """All bodies need one slot. One such as 1-2-3 does what 1 and 2-3 do."""

    count = 16

    def needed(self, body: str) -> frozenset[int]:
        return frozenset((7,))

    def halved(self, body: str) -> tuple[str, str] | None:
        first, _, rest = body.partition("-")
        return (first, rest) if rest else None


def test_rule_12_a_body_that_cannot_be_done_is_tried_in_halves_and_only_the_least_part_is_buried() -> None:
    bench = Bench(RetryPolicy(attempts=3), fails=lambda bodies: ValueError() if "3" in "-".join(bodies) else None)
    bench.reopen(slots=ByDashes())
    bench.publish("1-2-3-4", "5")

    bench.run()

    assert sorted(bench.done) == ["1", "2", "4", "5"]
    assert bench.letters() == [("failed", b"3")]
    assert bench.calls.count(["3"]) == 3
    assert bench.lag() == 0


def test_a_body_is_not_halved_for_what_is_unavailable() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if bench.now_s < 100 else None)
    bench.reopen(slots=ByDashes())
    bench.publish("1-2", "3")

    bench.run()

    assert sorted(bench.done) == ["1-2", "3"]


def test_rule_12_a_body_whose_slot_is_away_in_part_is_probed_in_halves() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "2" in "-".join(bodies) else None)
    bench.reopen(slots=ByDashes())
    bench.publish("1-2-3")

    bench.run(600)

    assert sorted(bench.done) == ["1", "3"]
    assert bench.lag() == 1


def test_what_cannot_be_read_is_buried_and_the_rest_done() -> None:
    bench = Bench()
    bench.publish("1", "bad", "2")

    bench.stage.step()

    assert bench.letters() == [("not_json", b"bad")]
    assert bench.done == ["1", "2"]
    assert bench.lag() == 0


def test_rule_12_a_message_that_a_fault_of_its_decoder_meets_is_buried_and_the_rest_done() -> None:
    """Else it would end every process that reads its topic, again and again."""
    bench = Bench()
    bench.publish("1", "fault", "2")

    bench.run()

    assert bench.letters() == [("malformed", b"fault")]
    assert bench.done == ["1", "2"]
    assert bench.lag() == 0


def test_rule_11_a_letter_that_cannot_be_kept_holds_the_commit() -> None:
    bench = Bench()
    bury, bench.dead.bury = bench.dead.bury, _unavailable  # type: ignore[method-assign]
    bench.publish("bad", "1")

    bench.run(10)
    assert bench.done == ["1"]
    assert bench.lag() == 2

    bench.dead.bury = bury  # type: ignore[method-assign]
    bench.run()
    assert bench.letters() == [("not_json", b"bad")]
    assert bench.lag() == 0


def _unavailable(*_: object) -> None:
    raise QueueUnavailableError("full")


def test_rule_12_too_many_in_a_row_stop_the_stage_instead_of_draining_the_queue() -> None:
    bench = Bench(RetryPolicy(dead_in_a_row=10))
    bench.reopen(batch=5)
    bench.publish(*[f"bad {n}" for n in range(1_000)])

    with pytest.raises(TooManyDeadLettersError, match="10 messages in a row"):
        bench.run()

    assert bench.dead.count() == 10
    assert bench.lag() == 990


@pytest.mark.parametrize("batch", [5, 7, 1_000])
def test_no_more_are_buried_than_the_limit_says(batch: int) -> None:
    bench = Bench(RetryPolicy(dead_in_a_row=10))
    bench.reopen(batch=batch)
    bench.publish(*[f"bad {n}" for n in range(1_000)])

    with pytest.raises(TooManyDeadLettersError):
        bench.run()

    assert bench.dead.count() == 10


@pytest.mark.parametrize("batch", [1, 10, 1_000])
def test_good_messages_between_the_bad_ones_keep_it_running(batch: int) -> None:
    bench = Bench(RetryPolicy(dead_in_a_row=10))
    bench.reopen(batch=batch)
    bench.publish(*[f"bad {n}" if n % 2 else str(n) for n in range(200)])

    bench.run()

    assert bench.dead.count() == len(bench.done) == 100


def test_commits_are_contiguous() -> None:
    """A lot that is done waits for those before it: a position says that everything before it is done."""
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "1" in bodies and bench.now_s < 50 else None)
    for value in ("0", "1", "2", "3"):
        bench.publish(value)
        bench.stage.step()

    assert bench.commits == [{0: 1}]
    assert bench.lag() == 3
    bench.run()
    assert bench.commits[-1] == {0: 4}
    assert [position for commit in bench.commits for position in commit.values()] == sorted(
        position for commit in bench.commits for position in commit.values()
    )


def test_rule_10_a_tick_waits_for_everything_before_it() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "1" in bodies and bench.now_s < 50 else None)
    bench.publish("1", "tick 100")
    bench.stage.step()
    bench.publish("2", "tick 200")

    bench.run(20)
    assert bench.done == ["2"]
    assert bench.ticks == []

    bench.run()
    assert bench.ticks == [200], "the newest says all that the others do"


def test_of_ticks_that_can_be_noted_at_once_the_newest_is() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "1" in bodies and bench.now_s < 50 else None)
    for message in ("1", "tick 100", "2", "tick 200", "tick 300"):
        bench.publish(message)
        bench.stage.step()
    bench.run()
    assert (bench.ticks, bench.tick_calls) == ([300], 1)
    assert bench.lag() == 0


def test_what_stands_before_a_tick_that_cannot_be_noted_is_committed() -> None:
    bench = Bench(
        fails=lambda bodies: UnavailableError("away") if "1" in bodies and bench.now_s < 50 else None,
        tick_fails=UnavailableError("away"),
    )
    for message in ("1", "2", "tick 100", "3"):
        bench.publish(message)
        bench.stage.step()
    bench.run()
    assert bench.done == ["2", "3", "1"]
    assert bench.lag() == 2


def test_rule_10_dead_letters_do_not_hold_ticks() -> None:
    bench = Bench()
    bench.publish("bad", "tick 100")

    bench.stage.step()

    assert bench.ticks == [100]
    assert bench.dead.count() == 1


def test_a_tick_that_cannot_be_noted_comes_again_and_is_not_committed() -> None:
    bench = Bench(tick_fails=UnavailableError("away"))
    bench.publish("1", "tick 100")

    bench.stage.step()
    assert bench.lag() == 2

    bench.tick_fails = None
    bench.run()
    assert bench.ticks == [100]
    assert bench.lag() == 0


def test_a_tick_that_cannot_be_noted_is_tried_ever_more_rarely() -> None:
    bench = Bench(tick_fails=UnavailableError("away"))
    bench.publish("tick 100")

    bench.run(600)

    assert bench.ticks == []
    assert 600 / bench.policy.longest_s < bench.tick_calls < 100


def test_what_was_not_committed_comes_again_to_the_next() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "1" in bodies else None)
    bench.publish("1", "2")
    bench.stage.step()
    bench.stage.close()
    bench.fails = lambda bodies: None
    bench.stage = bench.restarted()

    bench.run()

    assert bench.done == ["2", "1", "2"]
    assert bench.lag() == 0


@pytest.mark.parametrize(("bound", "polled"), [({"in_flight": 30}, 30), ({"in_flight_bytes": 5_000}, 50)])
def test_what_waits_is_bounded(bound: dict[str, int], polled: int) -> None:
    bench = Bench()
    bench.reopen(batch=10, due_ms=lambda _: 2**62, **bound)
    bench.publish(*[str(n).zfill(100) for n in range(1_000)])
    poll, seen = bench.stage._consumer.poll, 0

    def counted(limit: int, timeout_s: float) -> list[Message]:
        nonlocal seen
        messages = poll(limit, timeout_s)
        seen += len(messages)
        return messages

    bench.stage._consumer.poll = counted  # type: ignore[method-assign]
    for _ in range(100):
        bench.stage.step()
    assert seen == polled


def test_a_stage_without_room_stays_in_its_group() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away"))
    bench.reopen(in_flight=3)
    bench.publish(*map(str, range(10)))
    alive = 0

    def keep_alive() -> None:
        nonlocal alive
        alive += 1

    bench.stage._consumer.keep_alive = keep_alive  # type: ignore[method-assign]
    for _ in range(200):
        bench.stage.step()
        bench.now_s += 0.05
    assert alive > 100


class NumberSlots(EachAlone):
    """A number needs the slot of the same number."""

    count = 1_000

    def needed(self, body: str) -> frozenset[int]:
        return frozenset((int(body),))


def test_a_stage_stays_in_its_group_while_its_handler_works() -> None:
    alive = threading.Event()
    bench = Bench(fails=lambda bodies: None if alive.wait(60) else AssertionError("the queue heard nothing"))
    bench.stage._consumer.keep_alive = alive.set  # type: ignore[method-assign]
    bench.publish("1")
    bench.stage.step()
    assert bench.done == ["1"]


@pytest.mark.parametrize("error", [QueueUnavailableError("away"), PositionLostError("gone")])
def test_a_queue_that_does_not_hear_that_it_lives_costs_no_work(error: Exception) -> None:
    asked = threading.Event()
    bench = Bench(fails=lambda bodies: None if asked.wait(60) else AssertionError("not asked"))

    def keep_alive() -> None:
        asked.set()
        raise error

    bench.stage._consumer.keep_alive = keep_alive  # type: ignore[method-assign]
    bench.publish("1")
    bench.stage.step()
    assert (bench.done, bench.lag()) == (["1"], 0)


def test_a_commit_that_fails_is_made_again() -> None:
    bench = Bench()
    bench.publish("1", "tick 100")
    commit = bench.stage._consumer.commit

    def away(positions: Mapping[int, int]) -> None:
        raise QueueUnavailableError("away")

    bench.stage._consumer.commit = away  # type: ignore[method-assign]
    bench.stage.step()
    assert (bench.done, bench.ticks, bench.lag()) == (["1"], [100], 2)
    assert not bench.stage.idle()

    bench.stage._consumer.commit = commit  # type: ignore[method-assign]
    bench.now_s += 60
    bench.stage.step()
    assert (bench.done, bench.ticks, bench.lag()) == (["1"], [100], 0)
    assert bench.stage.idle()


def test_ticks_behind_a_message_that_waits_for_a_day_are_not_kept() -> None:
    """Sixteen partitions of sixteen sources: memory is that of the newest tick of each."""
    bench = Bench(fails=lambda bodies: UnavailableError("away") if "1" in bodies else None)
    bench.publish("1")
    bench.stage.step()
    sizes: list[tuple[int, int]] = []
    for second in range(1, 2_001):
        bench.publish(f"tick {second}", str(second + 1))
        bench.stage.step()
        bench.now_s += 43
        lots = list(bench.stage._lots)
        sizes.append((len(lots), sum(len(lot.ticks) + len(lot.spans) for lot in lots)))
    assert bench.now_s >= 86_000
    assert sizes[-1] == sizes[10]
    assert sizes[-1][1] <= 4
    bench.fails = lambda bodies: None
    bench.run()
    assert (bench.ticks, bench.lag()) == ([2_000], 0)


def test_many_lots_that_wait_are_merged_and_committed_together() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("away") if bench.now_s < 100 else None)
    bench.reopen(batch=2)
    for number in range(0, 600, 2):
        bench.publish(f"tick {number + 1}", str(number + 1))
        bench.stage.step()
        bench.now_s += 0.05
        assert len(bench.stage._lots) <= 2 * MAX_LOTS
    assert bench.ticks == []
    bench.run(200)
    assert bench.lag() == 0
    assert bench.ticks[-1] == 599
    assert sorted(map(int, bench.done)) == list(range(1, 601, 2))


def test_rule_12_the_oldest_is_parked_if_half_of_the_room_is_taken_and_later_messages_get_done() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("dead region") if any(int(b) < 62 for b in bodies) else None)
    parked: list[str] = []

    def park(bodies: Sequence[str], wait_s: float) -> list[bool]:
        assert 0 <= wait_s <= 30
        parked.extend(bodies)
        return [True] * len(bodies)

    bench.reopen(batch=2, in_flight=24, park=park, slots=NumberSlots())
    # One of the dead region for each of another one.
    for low, high in zip(range(50, 62), range(500, 512), strict=True):
        bench.publish(str(high), str(low))

    bench.run(20)

    assert sorted(bench.done, key=int) == [str(n) for n in range(500, 512)]
    assert sorted(parked, key=int) == [str(n) for n in range(50, 50 + len(parked))], "the oldest"
    assert len(parked) <= 2, "until half of the room is free"


def test_rule_12_what_waits_for_an_outage_that_lasts_is_parked_though_there_is_room() -> None:
    bench = Bench(fails=lambda bodies: UnavailableError("dead region") if "5" in bodies else None)
    parked: list[str] = []

    def park(bodies: Sequence[str], wait_s: float) -> list[bool]:
        parked.extend(bodies)
        return [True] * len(bodies)

    bench.reopen(park=park, slots=NumberSlots())
    bench.publish("5", "100", "200")

    bench.run(25)
    assert (sorted(bench.done), parked, bench.lag()) == (["100", "200"], [], 3)
    bench.run(10)
    assert (parked, bench.lag()) == (["5"], 0)


@pytest.mark.parametrize("error", [None, UnavailableError("away"), ValueError("a bug")])
def test_what_cannot_be_parked_waits_as_before_and_is_asked_ever_more_rarely(error: Exception | None) -> None:
    away = lambda bodies: bench.now_s < 300 and any(int(each) < 62 for each in bodies)  # noqa: E731
    bench = Bench(fails=lambda bodies: UnavailableError("away") if away(bodies) else None)
    asked = 0

    def park(bodies: Sequence[str], wait_s: float) -> list[bool]:
        nonlocal asked
        asked += 1
        if error is not None:
            raise error
        return [False] * len(bodies)

    bench.reopen(in_flight=10, park=park, slots=NumberSlots())
    bench.publish("500")
    bench.publish(*map(str, range(50, 60)))
    bench.publish("600")

    bench.run(290)
    assert 8 < asked < 60
    assert bench.lag() == 12

    bench.run()
    assert sorted(bench.done, key=int) == [*map(str, range(50, 60)), "500", "600"]
    assert bench.lag() == 0


def test_a_queue_that_is_away_is_asked_ever_more_rarely() -> None:
    bench = Bench()
    polls = 0

    def poll(limit: int, timeout_s: float) -> list[Message]:
        nonlocal polls
        polls += 1
        raise QueueUnavailableError("away")

    bench.stage._consumer.poll = poll  # type: ignore[method-assign]
    for _ in range(6_000):
        assert not bench.stage.step()
        bench.now_s += 0.05

    assert 10 < polls < 60


def test_rule_8_a_lost_position_is_said_and_never_skipped() -> None:
    bench = Bench()
    bench.publish("1")
    bench.queue.expire(-1, {})

    with pytest.raises(PositionLostError, match="this group lost messages"):
        bench.stage.step()
    assert bench.done == []


def test_waits_grow_and_are_jittered() -> None:
    policy = RetryPolicy(first_s=0.1, longest_s=30.0)
    rng = random.Random(3)
    waits = {attempt: [policy.wait_s(attempt, rng) for _ in range(300)] for attempt in (1, 2, 5, 20, 10_000)}

    for attempt, found in waits.items():
        bound = min(30.0, 0.1 * 2 ** min(attempt - 1, 30))
        assert 0 <= min(found) < bound * 0.1
        assert bound * 0.9 < max(found) <= bound


class Arriving:
    """A consumer of a queue to which messages are published at their times; its waits move the clock."""

    def __init__(self, bench: Bench, arrivals: Sequence[tuple[float, str]]) -> None:
        self._bench = bench
        self._arrivals = list(arrivals)
        self._poll = bench.stage._consumer.poll
        bench.stage._consumer.poll = self.poll  # type: ignore[method-assign]

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        until_s = self._bench.now_s + timeout_s
        self._publish()
        while not (messages := self._poll(limit, 0)) and self._arrivals and self._arrivals[0][0] <= until_s:
            self._bench.now_s = self._arrivals[0][0]
            self._publish()
        if not messages:
            self._bench.now_s = until_s
        return messages

    def _publish(self) -> None:
        while self._arrivals and self._arrivals[0][0] <= self._bench.now_s:
            self._bench.publish(self._arrivals.pop(0)[1])


def gathering_bench(distance_s: float, arrivals: Sequence[tuple[float, str]]) -> tuple[Bench, list[float]]:
    """And the times at which its messages were handled."""
    bench = Bench()
    bench.reopen(gather_s=distance_s, patience_s=0.25)
    Arriving(bench, arrivals)
    times: list[float] = []

    def noted(bodies: Sequence[str]) -> None:
        times.append(round(bench.now_s, 6))

    bench.fails = noted
    return bench, times


def run_until(bench: Bench, end_s: float) -> None:
    while bench.now_s < end_s:
        before_s = bench.now_s
        bench.stage.step()
        if bench.now_s == before_s:
            bench.now_s += 0.001


def test_what_comes_after_a_silence_does_not_wait() -> None:
    bench, times = gathering_bench(0.05, [(0.1, "1"), (0.5, "2"), (0.9, "3")])
    run_until(bench, 2)
    assert bench.calls == [["1"], ["2"], ["3"]]
    assert times == [0.1, 0.5, 0.9]


def test_what_comes_soon_after_a_lot_is_done_together() -> None:
    bench, times = gathering_bench(0.05, [(0.1, "1"), (0.11, "2"), (0.12, "3"), (0.149, "4"), (0.151, "5")])
    run_until(bench, 1)
    assert bench.calls == [["1"], ["2", "3", "4"], ["5"]]
    assert times == [0.1, 0.15, 0.2], "the distance between the beginnings of two lots"


def test_nothing_waits_for_more_than_the_distance() -> None:
    arrivals = [(0.1 + 0.003 * number, str(number)) for number in range(200)]
    bench, times = gathering_bench(0.05, arrivals)
    run_until(bench, 2)
    handled = [time for time, call in zip(times, bench.calls, strict=True) for _ in call]
    assert bench.done == [str(number) for number in range(200)]
    assert all(0 <= round(at - came, 6) <= 0.05 for at, (came, _) in zip(handled, arrivals, strict=True))
    assert len(bench.calls) <= 0.6 / 0.05 + 2


def test_what_is_enough_does_not_wait() -> None:
    much = "x" * ENOUGH_BYTES
    bench, times = gathering_bench(0.05, [(0.1, "1"), (0.11, "2"), (0.12, much), (0.15, "3")])
    run_until(bench, 1)
    assert [[body[:1] for body in call] for call in bench.calls] == [["1"], ["2", "x"], ["3"]]
    assert times == [0.1, 0.12, 0.17]


def test_what_failed_waits_for_its_retry_alone() -> None:
    bench, times = gathering_bench(0.05, [(0.1, "1")])
    failed: list[str] = []

    def fails(bodies: Sequence[str]) -> Exception | None:
        times.append(bench.now_s)
        failed.extend(bodies)
        return UnavailableError("away") if len(failed) == 1 else None

    bench.fails = fails
    run_until(bench, 60)
    assert bench.done == ["1"]
    assert bench.lag() == 0


def test_a_queue_that_fails_while_a_stage_gathers_does_not_cost_what_has_come() -> None:
    bench, _ = gathering_bench(0.05, [(0.1, "1"), (0.11, "2"), (0.3, "3")])
    poll = bench.stage._consumer.poll

    def failing(limit: int, timeout_s: float) -> list[Message]:
        if bench.done == ["1"] and bench.now_s > 0.11 - 1e-9 and timeout_s < 0.05:
            bench.now_s += timeout_s
            raise QueueUnavailableError("away")
        return poll(limit, timeout_s)

    bench.stage._consumer.poll = failing  # type: ignore[method-assign]
    run_until(bench, 60)
    assert bench.done == ["1", "2", "3"]
    assert bench.lag() == 0


def test_a_tick_waits_for_what_came_before_it_and_no_longer() -> None:
    bench, _ = gathering_bench(0.05, [(0.1, "1"), (0.11, "2"), (0.12, "tick 7"), (0.13, "3")])
    run_until(bench, 1)
    assert bench.calls == [["1"], ["2", "3"]]
    assert bench.ticks == [7]
    bench, _ = gathering_bench(0.05, [(0.1, "1"), (0.11, "tick 7"), (0.4, "2")])
    while not bench.ticks:
        bench.stage.step()
    assert bench.now_s < 0.12, "nothing is waited for before a tick alone"


def test_what_was_polled_ahead_is_noted_once_a_poll_has_found_nothing() -> None:
    notes: list[Mapping[int, tuple[int, int]]] = []
    bench = Bench()
    bench.reopen(batch=1, note=notes.append)
    bench.publish("0")
    bench.stage.step()
    assert notes == [{0: (0, 1)}]

    bench.publish("1", "2")
    bench.stage.step()
    bench.stage.step()
    assert bench.done == ["0", "1", "2"]
    assert len(notes) == 1, "a note costs round trips, and more may follow"
    bench.stage.step()
    assert notes[1:] == [{0: (1, 3)}]
    assert bench.lag() == 0


def test_a_stage_looks_at_its_notes_before_it_tries_anything_after_a_silence() -> None:
    """It may have been suspended, and others may have changed what it goes by."""
    notes: list[Mapping[int, tuple[int, int]]] = []
    away: Exception | None = None

    def note(spans: Mapping[int, tuple[int, int]]) -> None:
        notes.append(spans)
        if away is not None:
            raise away

    bench = Bench()
    bench.reopen(note=note)
    bench.publish("0")
    bench.stage.step()
    assert notes == [{0: (0, 1)}]

    bench.now_s += SILENT_S
    bench.publish("1")
    bench.stage.step()
    assert (notes[1:], bench.done) == ([{}, {0: (1, 2)}], ["0", "1"])

    bench.now_s += SILENT_S
    bench.publish("2")
    away = KeyError("it is another one")
    with pytest.raises(KeyError):
        bench.stage.step()
    assert bench.done == ["0", "1"]

    away = UnavailableError("no region")
    bench.stage.step()
    assert bench.done == ["0", "1", "2"], "what can be done must not wait for its notes"


def test_a_poll_that_brings_nothing_does_not_say_that_the_queue_answers_again(
    logged: list[MutableMapping[str, Any]],
) -> None:
    """A client hears nothing while all of its brokers are away, and while there is nothing to hear."""
    bench = Bench()
    polled = bench.queue.consumer(TOPIC, "another").poll
    away = True

    def poll(limit: int, timeout_s: float) -> list[Message]:
        nonlocal away
        if away:
            away = False
            raise QueueUnavailableError("no broker answers")
        return polled(limit, timeout_s)

    bench.stage._consumer.poll = poll  # type: ignore[method-assign]

    def told() -> list[str]:
        return [each["event"] for each in logged]

    bench.run()
    bench.now_s += 60
    bench.run()
    assert told() == ["queue.unavailable"]
    bench.publish("a")
    bench.run()
    assert told() == ["queue.unavailable", "answers.again"]
    assert bench.done == ["a"]


class OlderError(Exception):
    pass


def test_a_loop_begins_again_if_its_stage_says_so_and_rests_while_its_beginning_cannot_be_found_out() -> None:
    now_s = 0.0
    called: list[str] = []
    errors = iter([QueueUnavailableError("away"), None, None])

    def begin() -> None:
        called.append("begin")
        if (error := next(errors)) is not None:
            raise error

    class Member:
        def step(self) -> bool:
            called.append("step")
            if called.count("step") == 1:
                raise OlderError
            return True

        def close(self) -> None:
            called.append("close")

    def make() -> Any:
        called.append("make")
        return Member()

    loop = Begun("group", begin, make, lambda: now_s, OlderError)
    assert [loop.step(), loop.step()] == [False, False]
    assert called == ["begin"]
    now_s += 60
    assert [loop.step(), loop.step(), loop.step()] == [True, True, True]
    loop.close()
    assert called[1:] == ["begin", "make", "step", "close", "begin", "make", "step", "step", "close"]
