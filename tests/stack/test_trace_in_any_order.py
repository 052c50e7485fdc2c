"""A trace through outbox, Kafka, expander and writers into both HBase clusters: they show byte for byte what an
embedded home shows, whatever the order and the number of deliveries (rule 1).
"""

import json
import random
from pathlib import Path

import pytest

from deploy.local import Stack
from feedstore.follows.port import actions_in
from tests.stack import homes, traces
from tests.stack.own_home import own_home
from workers.following.messages import Task, encode_action
from workers.following.topics import ACTIONS

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("trace"), pytest.mark.timeout(600)]


def test_an_embedded_home_holds_what_the_actions_say(trace: list[bytes], embedded: bytes) -> None:
    kinds = {json.loads(line)["type"] for line in trace}
    assert {"follow", "unfollow", "save_pin"} <= kinds
    homes.assert_same(embedded, traces.model(trace, cap=1_000), "the embedded home")
    assert embedded.count(b"\n") > 100


def test_both_clusters_and_an_embedded_home_export_the_same_bytes(
    stack: Stack, path: Path, trace: list[bytes], embedded: bytes
) -> None:
    with own_home(stack, path) as cli, homes.telling(stack):
        homes.replay(cli, trace)
        assert "still behind" in cli("verify", "--wait", 0, code=3).stderr
        cli.process("work", "--until-idle")

        homes.check(cli, embedded)


def test_rule_1_every_task_twice_and_in_any_order_gives_the_same_bytes(
    stack: Stack, path: Path, trace: list[bytes], embedded: bytes
) -> None:
    seed = 4
    with own_home(stack, path) as cli, homes.telling(stack):
        homes.replay(cli, trace)
        with cli.ports() as ports:
            rows = ports.follows.unrelayed(len(trace) + 1)
            assert sum(row.number for row in rows) == len(trace)
            tasks = [encode_action(Task(action)) for action in actions_in(rows)] * 2
            random.Random(seed).shuffle(tasks)
            for start in range(0, len(tasks), 1_000):
                ports.queue.publish(ACTIONS, tasks[start : start + 1_000])
            for start in range(0, len(rows), 1_000):
                ports.follows.mark_relayed(rows[start : start + 1_000])
            assert not ports.follows.backlog().rows
        cli.process("work", "--until-idle")

        homes.check(cli, embedded)
