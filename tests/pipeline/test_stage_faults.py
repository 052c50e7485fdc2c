"""Whatever raises, and however long it takes: what a stage has taken is always in exactly one place.

One seed decides what fails, when, and for how long. Time passes in the calls.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from feedstore.widecolumn import RefusedError, UnavailableError
from tests.effort import part
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from workers.pipeline.burials import Corpses
from workers.pipeline.lots import Item, Lots, _merged
from workers.pipeline.outages import Isolation, Outage, Slots
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.pipeline.ticks import Tick
from workers.pipeline.turns import Turns
from workers.queue.port import Consumer, MalformedError, Message, QueueUnavailableError, Topic, lag_of

pytestmark = pytest.mark.long

PARTITIONS = 3
Body = tuple[int, ...]
"""Numbers; each is a row in the slot `number % 32`."""


class RowSlots:
    """divides: whether messages can be."""

    count = 32

    def __init__(self, *, divides: bool) -> None:
        self._divides = divides

    def needed(self, body: Body) -> frozenset[int]:
        return frozenset(number % 32 for number in body)

    def divided(self, body: Body, slots: frozenset[int]) -> tuple[Body, Body] | None:
        if not self._divides:
            return None
        inside = tuple(number for number in body if number % 32 in slots)
        return inside, tuple(number for number in body if number not in inside)

    def halved(self, body: Body) -> tuple[Body, Body] | None:
        middle = len(body) // 2 if body[0] % 3 else 0
        return (body[:middle], body[middle:]) if middle else None


def decode(value: bytes) -> list[Body | Tick]:
    if value.startswith(b"tick "):
        return [Tick(int(value[5:]), 0, 1)]
    if value.startswith(b"bad"):
        raise MalformedError("not_json", "bad")
    return [tuple(map(int, body.split(b","))) for body in value.split(b"+")]


def encode(body: Body) -> bytes:
    return b",".join(b"%d" % row for row in body)


TOPIC: Topic[Body | Tick] = Topic("tests", durable=True, decode=decode)


def items_of(stage: Stage[Any]) -> Iterator[Item[Any]]:
    yield from (corpse.item for corpse in stage._burials.waiting)
    yield from stage._turns or ()
    for work in (*stage._ready, *stage._later, *stage._failed, *stage._outages):
        if isinstance(work, Corpses):
            yield from (corpse.item for corpse in work.corpses)
        elif isinstance(work, Isolation):
            yield from work.items()
        else:
            yield from work.items


def check(stage: Stage[Any]) -> None:
    """Each lot that waits has exactly so many items in one place or another."""
    items = list(items_of(stage))
    assert len({id(item) for item in items}) == len(items)
    found = Counter(id(_merged(item.lot)) for item in items)
    assert found == {id(lot): lot.waiting for lot in stage._lots if lot.waiting}
    assert stage._lots.items == len(items)
    assert stage._lots.size == sum(taken.size for taken in {id(item.taken): item.taken for item in items}.values())
    slots = [slot for outage in stage._outages for slot in outage.slots]
    assert sorted(slots) == sorted(stage._outages._by_slot), "each slot has one outage at most"
    assert all(outage is stage._outages.whole or outage.slots for outage in stage._outages)


class Chaos:
    """Everything that a stage calls. healthy: nothing fails any more. options: of the stage, instead of random ones."""

    def __init__(self, seed: int, slots: Slots[Body], **options: Any) -> None:
        self.rng = random.Random(seed)
        self.handler_rng = random.Random(seed + 1)  # the handler has a thread of its own
        self.begin_rng = random.Random(seed + 2)  # so has what is begun
        self.now_s = 0.0
        self.healthy = False
        self.away: set[int] = set()
        self.queue = MemoryQueue({TOPIC: PARTITIONS}, lambda: 1_000)
        self.dead = MemoryDeadLetters()
        self.done: set[int] = set()
        self.parked: set[int] = set()
        self.ticked = 0
        self.published: list[Body] = []
        self.settled: dict[int, int] = {}
        self.slots = slots
        self.poison = self.rng.randrange(2, 60)
        self.often = self.rng.choice((0.0, 0.02, 0.3))
        self.took_s = self.rng.choice((0.0, 0.02, 1.5, 30.0))
        in_flight = self.rng.choice((8, 30, 200))
        parks = self.rng.random() < 0.5
        batch = self.rng.choice((1, 5, 20))
        spec: StageSpec[Body] = StageSpec(
            group="group",
            topic=TOPIC,
            encode=encode,
            handle=self.handle,
            begin=self.begin,
            ticks=self.tick,
            turns=Turns(lambda body: body[0] % 3, 2, 3) if seed % 2 else None,
            slots=slots,
            **{"park": self.park if parks else None, "batch": batch, "in_flight": in_flight} | options,
        )
        self.stage: Stage[Body] = Stage(
            spec,
            Failing(self, self.queue.consumer(TOPIC, "group")),
            Burying(self),
            RetryPolicy(dead_in_a_row=10_000),
            random.Random(seed),
            lambda: self.now_s,
            lambda: 7,
            patience_s=0,
        )

    def maybe(self, error: Callable[[str], Exception], rng: random.Random | None = None) -> None:
        rng = rng or self.rng
        if not self.healthy and rng.random() < self.often:
            self.now_s += rng.random() * self.took_s
            raise error("away")

    def publish(self) -> None:
        for _ in range(self.rng.randrange(6)):
            bodies = [
                tuple(self.rng.sample(range(10_000), self.rng.choice((1, 1, 4, 12))))
                for _ in range(self.rng.choice((1, 1, 1, 3)))
            ]
            self.published += bodies
            self.queue.publish(TOPIC, [b"+".join(map(encode, bodies))])
        if self.rng.random() < 0.2:
            self.queue.publish(TOPIC, [b"bad %d" % self.rng.randrange(3)])
        if self.rng.random() < 0.3:
            # Everything published so far lies before it, in its partition.
            for partition in range(PARTITIONS):
                self.queue.publish(TOPIC, [b"tick %d" % (len(self.published) + 1)], partition)

    def handle(self, bodies: Sequence[Body]) -> None:
        self.maybe(UnavailableError, self.handler_rng)
        rows = [row for body in bodies for row in body]
        self.done |= {row for row in rows if self.handler_rng.random() < 0.5 and row % 32 not in self.away}
        if any(row % 32 in self.away for row in rows):
            self.now_s += self.handler_rng.random() * self.took_s
            raise UnavailableError("a region is away")
        if any(row % 997 == self.poison for row in rows):
            raise RefusedError("poison") if self.poison % 2 else ValueError("poison")
        self.done |= set(rows)

    def begin(self, bodies: Sequence[Body]) -> None:
        if not self.healthy and self.begin_rng.random() < 0.5:
            raise UnavailableError("away") if self.begin_rng.random() < 0.5 else ValueError("not begun")

    def park(self, bodies: Sequence[Body], wait_s: float) -> list[bool]:
        assert 0 <= wait_s <= 30
        self.maybe(QueueUnavailableError)
        taken = [self.healthy or self.rng.random() < 0.8 for _ in bodies]
        self.parked |= {row for body, took in zip(bodies, taken, strict=True) if took for row in body}
        return taken

    def tick(self, ticks: Sequence[tuple[int, Tick]]) -> None:
        self.maybe(UnavailableError)
        for partition, tick in ticks:
            self.settled[partition] = max(tick.settled_ms, self.settled.get(partition, 0))

    def answered(self) -> set[int]:
        """Rows that are done, parked or in the dead letters."""
        letters = [letter.value for letter in self.dead.letters(0, 10_000)]
        bodies = [body for value in letters if not value.startswith(b"bad") for body in decode(value)]
        buried = {row for body in bodies if not isinstance(body, Tick) for row in body}
        return self.done | self.parked | buried

    def step(self) -> None:
        self.stage.step()
        check(self.stage)
        if len(self.settled) == PARTITIONS:
            before = min(self.settled.values()) - 1
            assert {row for body in self.published[:before] for row in body} <= self.answered(), "rule 10"
        self.now_s += 0.05


class Failing:
    def __init__(self, chaos: Chaos, consumer: Consumer) -> None:
        self._chaos = chaos
        self._consumer = consumer

    def poll(self, limit: int, timeout_s: float) -> list[Message]:
        self._chaos.maybe(QueueUnavailableError)
        return self._consumer.poll(limit, timeout_s)

    def commit(self, positions: Mapping[int, int]) -> None:
        self._chaos.maybe(QueueUnavailableError)
        self._consumer.commit(positions)
        self._chaos.maybe(QueueUnavailableError)

    def held(self) -> frozenset[int]:
        return self._consumer.held()

    def keep_alive(self) -> None:
        self._chaos.maybe(QueueUnavailableError)

    def close(self) -> None:
        self._consumer.close()


class Burying(MemoryDeadLetters):
    def __init__(self, chaos: Chaos) -> None:
        super().__init__()
        self._chaos = chaos
        chaos.dead = self

    def bury(self, topic: Topic[object], group: str, reason: str, detail: str, died_ms: int, value: bytes) -> None:
        self._chaos.maybe(QueueUnavailableError)
        super().bury(topic, group, reason, detail, died_ms, value)


@pytest.mark.parametrize("divides", [False, True], ids=["whole messages", "messages that can be divided"])
@pytest.mark.parametrize("seed", range(part(50)))
def test_rule_11_whatever_fails_nothing_is_forgotten_or_kept_twice(seed: int, divides: bool) -> None:
    chaos = Chaos(seed, RowSlots(divides=divides))
    for turn in range(120):
        if turn % 40 == 0:
            chaos.away = set(chaos.rng.sample(range(32), chaos.rng.choice((0, 1, 2, 10, 32))))
        chaos.publish()
        chaos.step()
    chaos.healthy, chaos.away = True, set()
    until_s = chaos.now_s + 1_200  # six times what the slowest of these takes
    while lag_of(chaos.queue, TOPIC, "group"):
        assert chaos.now_s < until_s, f"{lag_of(chaos.queue, TOPIC, 'group')} messages are not done"
        chaos.step()

    assert chaos.stage.idle()
    assert not list(items_of(chaos.stage))
    assert {row for body in chaos.published for row in body} <= chaos.answered()


def _done_with_its_first_body(self: Lots, item: Item[Any]) -> None:
    REAL_DONE(self, item)
    item.lot.waiting = 0


def _forgotten_part(self: Lots, item: Item[Any], body: Body) -> Item[Any]:
    part = REAL_PART(self, item, body)
    part.lot.waiting -= 1
    return part


REAL_DONE, REAL_PART = Lots.done, Lots.part


@pytest.mark.parametrize(
    ("name", "other"),
    [("done", _done_with_its_first_body), ("part", _forgotten_part)],
    ids=["a lot is done with the first of its bodies", "a part is not waited for"],
)
def test_rule_11_the_chaos_finds_a_message_that_is_committed_too_early(
    name: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a row that is in no place when all is committed: counting items is left out."""
    monkeypatch.setattr(Lots, name, other)
    monkeypatch.setattr(sys.modules[__name__], "check", lambda stage: None)

    def every_seed() -> None:
        for seed in range(20):
            test_rule_11_whatever_fails_nothing_is_forgotten_or_kept_twice(seed, divides=True)

    with pytest.raises(AssertionError):
        every_seed()


def test_a_poll_ahead_and_a_queue_that_is_away_afterwards_cost_nothing() -> None:
    """The broker goes while something is polled ahead: it is handled, and committed once the broker is back."""
    chaos = Chaos(1, RowSlots(divides=False), batch=5)
    chaos.often, chaos.poison = 0.0, -1
    stage = chaos.stage
    for row in range(20):
        chaos.queue.publish(TOPIC, [b"%d" % row], 0)
    stage.step()
    assert lag_of(chaos.queue, TOPIC, "group") == 15
    assert stage._lots.items == 5, "polled ahead"

    chaos.often = 1.0
    for method in ("poll", "commit", "keep_alive"):
        with pytest.raises(QueueUnavailableError):
            getattr(stage._consumer, method)(*{"poll": (1, 0), "commit": ({},), "keep_alive": ()}[method])
    for _ in range(50):
        stage.step()
        check(stage)
        chaos.now_s += 0.1

    chaos.often = 0.0
    for _ in range(2_000):
        stage.step()
        check(stage)
        chaos.now_s += 0.1
    assert chaos.done == set(range(20))
    assert lag_of(chaos.queue, TOPIC, "group") == 0


def test_an_outage_is_known_by_its_slots() -> None:
    chaos = Chaos(2, RowSlots(divides=True))
    chaos.often, chaos.poison, chaos.took_s = 0.0, -1, 0.0
    chaos.away = {8, 9}
    chaos.queue.publish(TOPIC, [b"%d" % row for row in range(320)])
    for _ in range(600):
        chaos.step()
    [*outages] = chaos.stage._outages
    assert {slot for outage in outages for slot in outage.slots} == {8, 9}
    assert all(isinstance(outage, Outage) for outage in outages)


class ShardSlots(RowSlots):
    """Three slots, of which a message may need all; it cannot be divided by them."""

    count = 3

    def __init__(self) -> None:
        super().__init__(divides=False)

    def needed(self, body: Body) -> frozenset[int]:
        return frozenset(number % 3 for number in body)

    def halved(self, body: Body) -> tuple[Body, Body] | None:
        return (body[:1], body[1:]) if len(body) > 1 else None


def without_shard_1(chaos: Chaos, fails_s: float) -> None:
    """The handler fails, after so long, if one of the messages needs shard 1."""

    def handle(bodies: Sequence[Body]) -> None:
        if any(row % 3 == 1 for body in bodies for row in body):
            chaos.now_s += fails_s
            raise UnavailableError("a shard is away")
        chaos.done |= {row for body in bodies for row in body}

    chaos.stage._spec = replace(chaos.stage._spec, handle=handle)


@pytest.mark.parametrize("seed", range(5))
def test_rule_12_messages_that_need_several_slots_do_not_make_one_look_like_all(seed: int) -> None:
    chaos = Chaos(seed, ShardSlots(), in_flight=1_000, park=None)
    chaos.often, chaos.poison, chaos.took_s = 0.0, -1, 0.02

    without_shard_1(chaos, fails_s=0.02)
    bodies = [tuple(chaos.rng.sample(range(10_000), chaos.rng.choice((1, 2, 3)))) for _ in range(300)]
    chaos.queue.publish(TOPIC, [b",".join(b"%d" % row for row in body) for body in bodies])
    for _ in range(1_000):
        chaos.step()
    good = {row for body in bodies for row in body if all(each % 3 != 1 for each in body)}
    assert good <= chaos.done


@pytest.mark.parametrize("seed", range(4))
def test_rule_12_messages_that_all_need_what_is_away_do_not_hold_others(seed: int) -> None:
    """As when the first polls bring the actions of one user, whose shard is away: the whole store seems to be."""
    chaos = Chaos(seed, ShardSlots(), in_flight=1_000, park=None)
    chaos.often, chaos.poison, chaos.took_s = 0.0, -1, 0.0

    without_shard_1(chaos, fails_s=0.0)
    away = [(1,), (0, 1), (1, 2)] * 20
    chaos.queue.publish(TOPIC, [b",".join(b"%d" % row for row in body) for body in away], 0)
    chaos.queue.publish(TOPIC, [b"%d" % row for row in range(3, 300)], 0)
    for _ in range(1_000):
        chaos.step()
    assert {row for row in range(3, 300) if row % 3 != 1} <= chaos.done


@pytest.mark.parametrize("took_s", [0.0, 0.1, 5.0])
def test_rule_12_dead_letters_that_are_away_delay_no_other_message(took_s: float) -> None:
    chaos = Chaos(4, RowSlots(divides=False), in_flight=10_000)
    chaos.often, chaos.poison = 0.0, -1

    def bury(*_: object) -> None:
        chaos.now_s += took_s
        raise QueueUnavailableError("away")

    chaos.dead.bury = bury  # type: ignore[method-assign]
    for number in range(2_000):
        chaos.queue.publish(TOPIC, [b"bad"] if number % 50 == 0 else [b"%d" % number])
    until_s = chaos.now_s + 250
    while len(chaos.done) < 1_960:
        assert chaos.now_s < until_s
        chaos.step()


def test_a_retry_is_no_larger_than_a_poll() -> None:
    chaos = Chaos(5, RowSlots(divides=False), batch=10, in_flight=10_000)
    chaos.often, chaos.poison, chaos.took_s = 0.0, -1, 0.0
    stage = chaos.stage
    calls: list[int] = []
    handle = stage._spec.handle

    def counted(bodies: Sequence[Body]) -> None:
        calls.append(len(bodies))
        handle(bodies)

    stage._spec = replace(stage._spec, handle=counted)
    chaos.away = set(range(16))
    chaos.queue.publish(TOPIC, [b"%d" % row for row in range(640)])
    for _ in range(500):
        chaos.step()
    chaos.away = set()
    for _ in range(500):
        chaos.step()
    assert chaos.done >= set(range(640))
    assert max(calls) <= 10
