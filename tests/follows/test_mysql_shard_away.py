"""Three shards on a real server, one of them behind a door that closes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import mysql_places
import pytest

from feedstore.domain import Follow, Followed, user
from feedstore.follows import mysql
from feedstore.follows.port import FollowStoreUnavailableError, Request, actions_in
from feedstore.follows.store import FollowStore
from tests.doors import Door
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from workers.following.messages import Task, decode_actions, encode_action, wrap_actions
from workers.following.topics import ACTIONS, TOPICS
from workers.pipeline.relay import Relay, Ticker
from workers.pipeline.ticks import Tick

pytestmark = [pytest.mark.stack, pytest.mark.usefixtures("mariadb")]

AWAY = 1
DEADLINE_S = 60.0


@pytest.fixture
def servers() -> Iterator[tuple[list[mysql.MySQLServer], Door]]:
    servers = mysql_places.fresh(3, "away")
    door = Door(servers[AWAY].host, servers[AWAY].port)
    servers[AWAY] = replace(servers[AWAY], port=door.port)
    yield servers, door
    door.end()


def eventually(holds: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_rule_12_others_go_on_without_a_shard_also_from_a_start(servers: tuple[list[mysql.MySQLServer], Door]):
    where, door = servers
    first = mysql.open_store(where)
    answers = first.record([Request(Follow(each, user(1_000_000))) for each in range(1, 61)])
    assert all(isinstance(answer, Followed) for answer in answers)
    held = set(actions_in(first.unrelayed(1_000, AWAY)))
    first.close()
    assert 5 < len(held) < 40
    door.becomes("refuse")

    store = mysql.open_store(where)
    try:
        rest(store, door, set(answers), held)
    finally:
        store.close()


def rest(store: FollowStore, door: Door, recorded: set[object], held: set[object]) -> None:
    queue = MemoryQueue(dict.fromkeys(TOPICS, 1), lambda: 1_000)
    consumer = queue.consumer(ACTIONS, "expander")
    loops = [
        *(
            Relay(store, shard, queue, ACTIONS, MemoryDeadLetters(), time.monotonic, lambda: 1, wrap_actions)
            for shard in range(3)
        ),
        Ticker(store.settled_ms, queue, ACTIONS, time.monotonic, encode_action),
    ]

    def relayed() -> tuple[set[object], bool]:
        for loop in loops:
            loop.step()
        bodies = [body for message in consumer.poll(1_000, 0) for body in decode_actions(message.value)]
        return {body.action for body in bodies if isinstance(body, Task)}, any(
            isinstance(each, Tick) for each in bodies
        )

    found: set[object] = set()

    def all_but_held() -> bool:
        tasks, ticked = relayed()
        assert not ticked
        found.update(tasks)
        return found == recorded - held

    eventually(all_but_held)
    earliest_ms, latest_ms = store.about_now()
    assert latest_ms - earliest_ms < DEADLINE_S * 1_000
    with pytest.raises(FollowStoreUnavailableError):
        store.backlog()

    door.becomes("open")
    eventually(lambda: store.about_now() and found.update(relayed()[0]) is None and found == recorded)
    eventually(lambda: relayed()[1])
    assert store.backlog().actions == 0
