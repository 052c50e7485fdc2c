"""Actions that an expander has begun: they enter the indexes once, and all others before they are expanded."""

from collections.abc import Iterator
from typing import Any

import pytest

from feedstore.boards import Boards
from feedstore.domain import Edge, Follow, Pin, PinDeleted, PinSaved, SavePin, user
from feedstore.following import Limits
from feedstore.follows.port import FollowStoreUnavailableError, Request
from tests.follows.memory_follows import open_in_memory
from tests.queue.memory_queue import MemoryQueue
from workers.boards import Respacing
from workers.following import Expander
from workers.following.messages import Task
from workers.following.topics import TOPICS

NOW = 1_341_100_972_000
HOUR_MS = 3_600_000
LIMITS = Limits(100, 10, action_age_ms=HOUR_MS, delivery_age_ms=HOUR_MS, purge_window_ms=4 * HOUR_MS)


class Follows:
    """A follow store that says what was written into its indexes. away: writing fails."""

    def __init__(self) -> None:
        self.now_ms = NOW
        self._store = open_in_memory(lambda: self.now_ms)
        self.indexed: list[Edge | PinSaved | PinDeleted] = []
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def index(self, **rows: Any) -> None:
        if self.away:
            raise FollowStoreUnavailableError("away")
        self._store.index(**rows)
        self.indexed += [row for some in rows.values() for row in some]


@pytest.fixture
def follows() -> Iterator[Follows]:
    follows = Follows()
    yield follows
    follows.close()


def expander(follows: Any) -> Expander:
    queue = MemoryQueue(dict.fromkeys(TOPICS, 1), lambda: NOW)
    return Expander(follows, queue, LIMITS, Respacing(Boards(follows), lambda: 0.0).respace)


def tasks(follows: Follows) -> list[Task]:
    actions = [SavePin(Pin(number, 11, 21, NOW)) for number in range(1, 4)]
    recorded = follows.record([Request(action) for action in [*actions, Follow(1, user(11))]])
    return [Task(action) for action in recorded]


def test_what_is_begun_enters_the_indexes_once_and_the_rest_with_it(follows: Follows) -> None:
    some, every = expander(follows), tasks(follows)
    some.begin(every[:2])
    assert follows.indexed == [task.action for task in every[:2]]
    some.expand(every)
    assert follows.indexed[2:] == [every[3].action.edge(), every[2].action]


def test_what_comes_again_enters_the_indexes_again(follows: Follows) -> None:
    some, every = expander(follows), tasks(follows)
    some.begin(every)
    some.expand([*every])
    assert len(follows.indexed) == 4
    some.expand(every)
    assert len(follows.indexed) == 8


def test_what_could_not_be_begun_is_in_the_indexes_before_it_is_expanded(follows: Follows) -> None:
    some, every = expander(follows), tasks(follows)
    follows.away = True
    with pytest.raises(FollowStoreUnavailableError):
        some.begin(every)
    with pytest.raises(FollowStoreUnavailableError):
        some.expand(every)
    follows.away = False
    some.expand(every)
    assert len(follows.indexed) == 4


def test_rule_8_what_is_too_old_is_dated_again_and_not_begun(follows: Follows) -> None:
    some, every = expander(follows), tasks(follows)
    follows.now_ms += 2 * HOUR_MS
    some.begin(every)
    assert follows.indexed == []
    some.expand(every)
    assert [row.ts for row in follows.indexed if isinstance(row, Edge)] == [follows.now_ms], "its edge, dated again"
