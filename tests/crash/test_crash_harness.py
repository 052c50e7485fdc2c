"""The drills' own test: what they look for, they find."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from feedstore.app import wiring as feedstore_wiring
from feedstore.app.clusters import place
from feedstore.clocks import wall_ms
from feedstore.following import FEEDS, mutations
from tests.crash import harness
from tests.crash.points import POINTS, Trip
from tests.crash.victim import Spec, acknowledged
from workers.app import wiring


@pytest.fixture
def done(tmp_path: Path) -> Spec:
    """A home in which everything has landed."""
    home = harness.make_home(tmp_path / "home")
    lines = harness.some_actions(seed=5, first=100, count=24, now_ms=wall_ms())
    spec = Spec(str(home), str(tmp_path / "acks"), lines, together=24)
    harness.recover(spec)
    return spec


def test_what_landed_is_clean(done: Spec) -> None:
    assert acknowledged(Path(done.acks)) == list(range(24))
    assert harness.check(Path(done.home), done.actions).clean


@pytest.mark.parametrize("replica", ["a", "b"])
def test_one_removed_cell_is_noticed(done: Spec, replica: str) -> None:
    home = Path(done.home)
    config = harness.config_of(home)
    user, [entry, *_] = next(iter(harness.model(done.actions, config.limits.cap).items()))
    with closing(wiring.open_ports(config, "write")) as ports:
        ports.replicas[replica].tables[FEEDS].apply([mutations.remove([(user, wall_ms())], [entry])])

    verdict = harness.check(home, done.actions)

    assert verdict.lost == {"a": 0, "b": 0} | {replica: 1}
    assert verdict.divergent


@pytest.mark.parametrize("replica", ["a", "b"])
def test_one_entry_too_many_is_noticed(done: Spec, replica: str) -> None:
    home = Path(done.home)
    with closing(wiring.open_ports(harness.config_of(home), "write")) as ports:
        ports.replicas[replica].tables[FEEDS].apply([mutations.put([(99, wall_ms())], [(7, 7)])])

    verdict = harness.check(home, done.actions)

    assert verdict.phantom == {"a": 0, "b": 0} | {replica: 1}
    assert verdict.divergent


def test_one_lost_action_is_noticed(done: Spec) -> None:
    home = Path(done.home)
    created_ms = wall_ms()
    lost = [
        {"type": "follow", "follower": 77, "kind": "user", "id": 2},
        {"type": "save", "pin": 9_999, "owner": 2, "board": 21, "created_ms": created_ms},
    ]
    harness.record_at(home, lost, wall_ms, first_key=len(done.actions))
    path = harness.config_of(home).path(harness.config_of(home).shards[0])
    with closing(sqlite3.connect(path)) as connection, connection:
        # The pin's task never reaches the queue.
        connection.execute("DELETE FROM outbox_unrelayed WHERE id = (SELECT max(id) FROM outbox_unrelayed)")
    with Path(done.acks).open("a") as acks:
        acks.write("".join(f"ack {len(done.actions) + number}\n" for number in range(len(lost))))
    spec = replace(done, actions=[*done.actions, *lost])
    harness.recover(spec)

    verdict = harness.check(home, spec.actions)

    assert min(verdict.lost.values()) >= 1
    assert verdict.lost["a"] == verdict.lost["b"]


def test_a_cluster_that_was_emptied_is_noticed(done: Spec) -> None:
    home = Path(done.home)
    config = harness.config_of(home)
    place(config, "b").remove()
    feedstore_wiring.create_cluster(config, "b")

    verdict = harness.check(home, done.actions)

    assert verdict.lost["b"] == sum(map(len, harness.model(done.actions, config.limits.cap).values())) > 0
    assert verdict.lost["a"] == 0


def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no such point"):
        Trip("follows.recrod:before", 1, print)
    assert len(set(POINTS)) == len(POINTS)
