"""Every order in which the deliveries of up to six actions can land: always the feed of the sequential model.

One follower, two followees that overlap (a user and one of that user's boards), more pins than a trim keeps, cap 2 and
slack 1. Each scenario is a past, which has landed, and up to six actions on top of it. All orders of expanding their
tasks are tried, then all orders of their deliveries, each with every message delivered twice and with trims in the
gaps; in `make test` one order in 47 (tests/effort.py).
"""

import itertools
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Self

import pytest

from feedstore.boards import Boards
from feedstore.domain import Action, DeletePin, Entry, Follow, Pin, RecordedAction, SavePin, Unfollow, board, user
from feedstore.following import Limits, feed_table
from feedstore.follows.port import Request, actions_in
from feedstore.follows.store import FollowStore
from feedstore.widecolumn.progress import Progress, progress_table
from tests.effort import EVERY
from tests.simulation.bag import Bag, Group
from tests.simulation.memory_shard import MemoryShard
from tests.simulation.model import Model
from tests.simulation.reading import page
from tests.widecolumn.memory_store import MemoryStore
from workers.boards import Respacing
from workers.following import Expander, Writer
from workers.following.messages import Task

READER, OWNER, BOARD, OTHER_BOARD = 1, 11, 21, 22
CAP, SLACK = 2, 1
NOW_MS = 10_000_000_000
DAY_MS = 86_400_000
LIMITS = Limits(CAP, SLACK, action_age_ms=10_000, delivery_age_ms=5_000, purge_window_ms=21_000, chunk=2)

F_USER, F_BOARD = Follow(READER, user(OWNER)), Follow(READER, board(BOARD))
U_USER, U_BOARD = Unfollow(READER, user(OWNER)), Unfollow(READER, board(BOARD))


def pin(number: int, on: int) -> SavePin:
    return SavePin(Pin(number, OWNER, on, NOW_MS - DAY_MS + number))


# Four on each board: whatever is followed, the feed is overfilled.
PINS = [pin(number, BOARD if number % 2 else OTHER_BOARD) for number in range(1, 9)]
NEW_ON_BOARD, NEW_ELSEWHERE = pin(21, BOARD), pin(22, OTHER_BOARD)


class Pipeline:
    """The real handlers on one cluster, and one task or delivery at a time."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.shard = MemoryShard(lambda: self.now_ms)
        self.follows = FollowStore([self.shard], clock=lambda: self.now_ms / 1_000)
        self.bag = Bag(Random(0), 1, 1, ["a"])
        self.feeds = MemoryStore(feed_table(CAP, SLACK, LIMITS.purge_window_ms))
        self.progress = MemoryStore(progress_table(LIMITS.purge_window_ms))
        self.expander = Expander(self.follows, self.bag, LIMITS, Respacing(Boards(self.follows), lambda: 0.0).respace)
        self.writer = Writer("a", self.feeds, Progress(self.progress), self.follows, self.bag, LIMITS)
        self.model = Model(CAP)

    def begin(self, past: Sequence[Action], *, pins_are_old: bool) -> Self:
        """Lets a past land."""
        self.now_ms = NOW_MS - (100_000 if pins_are_old else 0)
        self.record(PINS)
        self.drain()
        self.now_ms = NOW_MS
        self.record(past)
        self.drain()
        self.feeds.sweep(self.now_ms)
        return self

    def stored(self) -> bytes:
        """All that is stored: pipelines that resume it share what came before, and hardly take time to be made."""
        of_shard = {name: value for name, value in vars(self.shard).items() if name != "_clock"}
        return pickle.dumps((of_shard, self.feeds._rows, self.progress._rows, self.model))

    def resumed(self, stored: bytes) -> Self:
        of_shard, self.feeds._rows, self.progress._rows, self.model = pickle.loads(stored)
        vars(self.shard).update(of_shard)
        return self

    def record(self, actions: Sequence[Action]) -> list[RecordedAction]:
        """All at the same millisecond, where the store's clock lets them."""
        recorded: list[RecordedAction] = []
        for answer in self.follows.record([Request(action) for action in actions]):
            assert not isinstance(answer, Exception)
            self.model.record(answer)
            recorded.append(answer)
        return recorded

    def relay(self) -> None:
        rows = self.follows.unrelayed(100)
        for number, action in enumerate(actions_in(rows), 10**6 + len(self.bag.expander.undone[0])):
            self.bag.expander.undone[0][number] = Task(action)
        self.follows.mark_relayed(rows)

    def deliveries(self) -> list[object]:
        group: Group = self.bag.writers["a"]
        messages = list(group.undone[0].values())
        group.undone[0].clear()
        return messages

    def drain(self) -> None:
        """Whatever is left, first come, first served."""
        while True:
            self.relay()
            tasks = list(self.bag.expander.undone[0].values())
            self.bag.expander.undone[0].clear()
            messages = self.deliveries()
            if not tasks and not messages:
                return
            for task in tasks:
                self.expander.expand([task])
            for message in messages:
                self.writer.write([message])

    def feed(self) -> list[Entry]:
        return page(self.feeds, READER, CAP, None, CAP).entries

    def settle(self, *, deletions: bool) -> None:
        """To the end; a feed that deletions may have cut short is walked, and asks for its refill (rule 9)."""
        self.drain()
        if deletions and len(self.feed()) < CAP:
            self.follows.ask_refill([READER], None, 0)
            self.drain()

    def check(self, story: object) -> None:
        assert self.feed() == self.model.feed(READER), story


@dataclass(frozen=True)
class Scenario:
    name: str
    past: tuple[Action, ...]
    actions: tuple[Action, ...]

    @property
    def deletions(self) -> bool:
        return any(isinstance(action, DeletePin) for action in self.actions)


SCENARIOS = [
    Scenario(
        "rule_1_two_refollows_of_one_user", (F_USER,), (U_USER, F_USER, U_USER, F_USER, NEW_ON_BOARD, NEW_ELSEWHERE)
    ),
    Scenario("rule_1_the_last_word_is_an_unfollow", (), (F_USER, U_USER, F_USER, U_USER, NEW_ON_BOARD, U_USER)),
    Scenario("rule_2_one_clock_for_both_edges", (F_USER,), (F_BOARD, U_USER, U_BOARD, F_BOARD, NEW_ON_BOARD, F_USER)),
    Scenario(
        "rule_3_the_later_of_two_edges", (F_USER, F_BOARD), (U_BOARD, F_BOARD, U_USER, NEW_ON_BOARD, F_USER, U_USER)
    ),
    Scenario(
        "rule_4_saves_between_follows", (), (NEW_ELSEWHERE, F_BOARD, NEW_ON_BOARD, F_USER, pin(23, BOARD), U_USER)
    ),
    Scenario("rule_5_the_board_stays", (F_USER,), (F_BOARD, U_USER, NEW_ON_BOARD, NEW_ELSEWHERE, F_USER, U_USER)),
    Scenario("rule_5_the_user_stays", (F_BOARD,), (F_USER, U_BOARD, NEW_ON_BOARD, F_BOARD, U_BOARD, NEW_ELSEWHERE)),
    Scenario("rule_6_both_unfollowed", (F_USER, F_BOARD), (U_USER, NEW_ON_BOARD, U_BOARD, F_BOARD, U_BOARD, U_USER)),
    Scenario("rule_6_the_board_before_the_user", (F_USER,), (F_BOARD, U_BOARD, U_USER, F_USER, U_USER)),
    Scenario(
        "rule_7_a_deletion_and_its_save", (F_USER,), (NEW_ON_BOARD, DeletePin(21), U_USER, F_USER, F_BOARD, U_USER)
    ),
    Scenario("rule_7_a_deletion_before_a_follow", (), (DeletePin(8), F_USER, U_USER, F_BOARD, F_USER, U_BOARD)),
    Scenario(
        "rule_9_deletions_beyond_the_slack",
        (F_USER,),
        (DeletePin(8), DeletePin(7), DeletePin(6), DeletePin(5), U_BOARD, F_USER),
    ),
    Scenario("rule_9_a_purge_uncovers_what_was_trimmed", (F_USER, F_BOARD), (U_USER, DeletePin(7), F_USER, U_USER)),
]


def orders(scenario: Scenario) -> Iterable[tuple[int, ...]]:
    """Those of its actions, by their numbers: all of them with SIMULATION=full."""
    return itertools.islice(itertools.permutations(range(len(scenario.actions))), 0, None, EVERY)


@pytest.mark.parametrize("pins_are_old", [False, True], ids=["within_W", "beyond_W"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_every_order_of_expansion(scenario: Scenario, pins_are_old: bool):
    """Each task is expanded, its deliveries land at once, and then the next one; a sweep in every second gap, and the
    first task comes once more at the end.
    """
    past = Pipeline().begin(scenario.past, pins_are_old=pins_are_old).stored()
    for order in orders(scenario):
        pipeline = Pipeline().resumed(past)
        recorded = pipeline.record(scenario.actions)
        pipeline.follows.mark_relayed(pipeline.follows.unrelayed(100))
        for step, number in enumerate((*order, order[0])):
            pipeline.expander.expand([Task(recorded[number])])
            for message in pipeline.deliveries():
                pipeline.writer.write([message])
            if step % 2 == order[0] % 2:
                pipeline.feeds.sweep(pipeline.now_ms)
        pipeline.settle(deletions=scenario.deletions)
        pipeline.check([scenario.actions[number] for number in order])


@pytest.mark.parametrize("pins_are_old", [False, True], ids=["within_W", "beyond_W"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda each: each.name)
def test_every_order_of_delivery(scenario: Scenario, pins_are_old: bool):
    """Tasks are expanded as they were recorded, one after the other, before anything lands. Their deliveries land in
    every order, by task; each of them lands twice, the second time after its neighbour, and a sweep runs in between.
    """
    expanded = Pipeline().begin(scenario.past, pins_are_old=pins_are_old)
    published: list[list[object]] = []
    for action in scenario.actions:
        [recorded] = expanded.record([action])
        expanded.follows.mark_relayed(expanded.follows.unrelayed(100))
        expanded.expander.expand([Task(recorded)])
        published.append(expanded.deliveries())
    stored = expanded.stored()
    for order in orders(scenario):
        pipeline = Pipeline().resumed(stored)
        for step, number in enumerate(order):
            for message in published[number]:
                pipeline.writer.write([message])
            if step:
                for message in reversed(published[order[step - 1]]):
                    pipeline.writer.write([message])
            if (step + order[0]) % 2:
                pipeline.feeds.sweep(pipeline.now_ms)
        pipeline.settle(deletions=scenario.deletions)
        pipeline.check([scenario.actions[number] for number in order])
