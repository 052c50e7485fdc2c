"""The queue is lost at a random moment: reindex makes a new one, and no feed lacks anything.

REINDEX_ROUNDS=200 pytest tests/cli/test_reindex.py runs more random rounds than a suite has time for.
"""

import json
import os
import random
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, cast

import pytest

from feedstore.app import config as configuration
from feedstore.clocks import wall_ms
from feedstore.follows.port import RelayedAgain
from feedstore.follows.store import FollowStore
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import UnavailableError, WideColumnStore
from feedstore.widecolumn.progress import PROGRESS, Progress
from tests.cli.command import Cli
from tests.cli.steps import expand_all, land, relay_all
from workers.app import wiring
from workers.following import landed
from workers.following.applied import NUMBERS, note_new_queue
from workers.following.groups import EXPANDER
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.queue.embedded import EmbeddedQueue
from workers.queue.port import PositionLostError, Topic

ROUNDS = int(os.environ.get("REINDEX_ROUNDS", "3"))
USERS, FOLLOWEES = range(1, 6), range(11, 17)


class Model:
    """What every feed must be, from the actions alone."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._edges: dict[tuple[int, str, int], bool] = {}
        self._pins: dict[int, tuple[int, int, int]] = {}
        self._deleted: set[int] = set()

    def actions(self, count: int) -> Iterator[dict[str, object]]:
        for _ in range(count):
            yield self._action()

    def _action(self) -> dict[str, object]:
        rng = self._rng
        chosen = rng.random()
        if chosen < 0.5:
            owner, pin = rng.choice(FOLLOWEES), len(self._pins) + 1
            board = owner * 10 + rng.randrange(2)
            created_ms = 1_000 + rng.randrange(500)
            self._pins[pin] = (owner, board, created_ms)
            return {"type": "save_pin", "ts": created_ms, "pin": pin, "owner": owner, "board": board}
        if chosen < 0.6 and len(self._deleted) < len(self._pins):
            pin = rng.choice([pin for pin in self._pins if pin not in self._deleted])
            self._deleted.add(pin)
            return {"type": "delete_pin", "ts": 1, "pin": pin}
        owner = rng.choice(FOLLOWEES)
        kind, followee = rng.choice([("user", owner), ("board", owner * 10), ("board", owner * 10 + 1)])
        follower, follows = rng.choice(USERS), chosen < 0.85
        self._edges[follower, kind, followee] = follows
        return {"type": "follow" if follows else "unfollow", "ts": 1, "follower": follower, kind: followee}

    def feeds(self) -> dict[int, list[int]]:
        """The pins of each feed that has any, in its order."""
        found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for follower in USERS:
            for pin, (owner, board, created_ms) in self._pins.items():
                covered = self._edges.get((follower, "user", owner)) or self._edges.get((follower, "board", board))
                if covered and pin not in self._deleted:
                    found[follower].append((-created_ms, pin))
        return {user: [pin for _, pin in sorted(pins)] for user, pins in found.items()}


def _record(cli: Cli, model: Model, count: int) -> None:
    cli("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in model.actions(count)))


def _lose_long_after(cli: Cli) -> None:
    """Everything that was relayed has expired, and b has waited for something all the time."""
    with cli.ports(access="write") as ports:
        while ports.follows.expire(-1_000, 1_000):
            pass
        Progress(ports.replicas["b"].progress).hold([(1, 2**62)])
    _lose(cli)


def _lose(cli: Cli) -> None:
    for path in (cli.home / "data").glob("queue.db*"):
        path.unlink()


def _feeds(cli: Cli, cluster: str) -> dict[int, list[int]]:
    return {user: [pin for pin, _ in entries] for user, entries in cli.export(cluster).items() if entries}


def _work_for_a_while(ports: Ports, config: configuration.Config, rng: random.Random) -> None:
    """Some steps of each loop of a worker, in any order, and then no more."""
    loops = [
        *wiring.relays(ports, config),
        wiring.expander(ports, config),
        *(loop for name in rng.sample(["a", "b"], rng.randrange(3)) for loop in wiring.writing(ports, config, name)),
    ]
    for _ in range(rng.randrange(40)):
        rng.choice(loops).step()
    for loop in loops:
        loop.close()


def _right(cli: Cli, model: Model) -> None:
    assert _feeds(cli, "a") == _feeds(cli, "b") == model.feeds()
    assert "no difference" in cli("verify").stderr
    assert cli.json("status")["idle"]


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_what_was_in_the_queue_comes_back(cli: Cli, seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    model = Model(rng)
    config = configuration.load(cli.home, {})
    for _ in range(rng.randrange(1, 4)):
        _record(cli, model, rng.randrange(1, 60))
        with cli.ports(access="write") as ports:
            _work_for_a_while(ports, config, rng)
    _lose(cli)
    for words in (["status"], ["work", "--until-idle"], ["dead", "list"], ["verify"], ["rebuild", 1]):
        assert cli.hint("reindex") in cli(*words, code=2).stderr, words

    cli("reindex")

    _record(cli, model, rng.randrange(20))
    cli.work()
    _right(cli, model)
    assert "nothing was changed" in cli("reindex").stderr


def test_a_watermark_claims_nothing_that_has_not_landed_again(cli: Cli) -> None:
    model = Model(random.Random(1))
    _record(cli, model, 40)
    cli.work()
    with cli.ports() as ports:
        before = Progress(ports.replicas["a"].progress).watermark()
    _record(cli, model, 40)
    relay_all(cli)
    _lose(cli)
    cli("reindex")

    with cli.ports(access="write") as ports:
        wiring.ticker(ports, configuration.load(cli.home, {})).tick()
        land(cli, ports, "a")
        # Nothing was relayed yet.
        assert before is not None
        assert (Progress(ports.replicas["a"].progress).watermark() or 0) <= before

    cli.work()
    _right(cli, model)


def test_what_was_parked_keeps_no_watermark_back(cli: Cli) -> None:
    model = Model(random.Random(2))
    _record(cli, model, 30)
    cli.work()
    with cli.ports(access="write") as ports:
        Progress(ports.replicas["b"].progress).park([wall_ms()], {(NUMBERS[RETRIES], 0): 1_000})
    _lose(cli)

    cli("reindex")

    cli.work()  # ends only when the watermarks have moved on
    _right(cli, model)


def test_a_cluster_that_is_put_back_is_noticed_in_the_new_queue_too(cli: Cli, tmp_path: Path) -> None:
    model = Model(random.Random(7))
    _record(cli, model, 40)
    cli.work()
    with cli.ports(access="write") as ports:
        for replica in ports.replicas.values():
            # As after a year, of which the outbox keeps days.
            note_new_queue(Progress(replica.progress), 1, 1_000_000)
    _lose(cli)
    cli("reindex")
    shutil.copytree(cli.home / "data" / "b", tmp_path / "b")
    cli.work()
    _record(cli, model, 20)
    cli.work()
    shutil.rmtree(cli.home / "data" / "b")
    shutil.copytree(tmp_path / "b", cli.home / "data" / "b")

    assert "cluster b is older than what its writers have committed" in cli("status", code=1).stdout

    cli.work()
    _right(cli, model)


def _die_after(owner: type, step: str, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reindex that is killed once a step is done."""
    done = getattr(owner, step)

    def dies(*arguments: object, **named: object) -> None:
        done(*arguments, **named)
        raise UnavailableError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(owner, step, dies)
        cli("reindex", code=3)


@pytest.mark.parametrize("step", ["hold", "lift_all", "note_applied", "relay_again", "create", "consumer"])
def test_reindex_that_dies_is_done_again(cli: Cli, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    model = Model(random.Random(3))
    _record(cli, model, 40)
    with cli.ports(access="write") as ports:
        _work_for_a_while(ports, configuration.load(cli.home, {}), random.Random(4))
    _lose(cli)
    owner = {
        "hold": Progress,
        "lift_all": Progress,
        "note_applied": Progress,
        "relay_again": FollowStore,
        "create": EmbeddedQueue,
        "consumer": EmbeddedQueue,
    }[step]
    _die_after(owner, step, cli, monkeypatch)

    cli("reindex")
    cli.work()
    _right(cli, model)


def test_a_cluster_that_lacks_more_than_the_outbox_keeps_is_made_anew(cli: Cli) -> None:
    model = Model(random.Random(5))
    _record(cli, model, 40)
    cli.work()
    _lose_long_after(cli)

    said = cli("reindex", code=1).stderr

    assert cli.hint("rebuild --all --cluster b") in said
    assert not (cli.home / "data" / "b").exists()
    assert (cli.home / "data" / "a").exists()
    cli("rebuild", "--all", "--cluster", "b")
    _right(cli, model)


def test_a_reindex_that_dies_after_it_removed_a_cluster_names_that_cluster_when_it_is_done_again(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    _record(cli, Model(random.Random(5)), 40)
    cli.work()
    _lose_long_after(cli)

    def dies(*_: object, **__: object) -> None:
        raise UnavailableError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(EmbeddedQueue, "create", dies)
        cli("reindex", code=3)
    assert not (cli.home / "data" / "b").exists()

    assert cli.hint("rebuild --all --cluster b") in cli("reindex", code=1).stderr


@pytest.mark.parametrize("damage", ["torn", "another's"])
def test_a_queue_and_a_cluster_that_are_lost_together_are_both_made_again(
    cli: Cli, tmp_path: Path, damage: str
) -> None:
    """As on a disk with bad blocks: rebuild needs a queue, and reindex does not touch what it cannot read."""
    model = Model(random.Random(8))
    _record(cli, model, 40)
    cli.work()
    cluster = cli.home / "data" / "b"
    if damage == "torn":
        (cluster / "CURRENT").unlink()
    else:
        shutil.rmtree(cluster)
        shutil.copytree(cli.home / "data" / "a", cluster)
    _lose(cli)
    assert cli.hint("reindex") in cli("rebuild", "--all", "--cluster", "b", code=2).stderr

    said = cli("reindex", code=2).stderr

    assert f"move the directory of cluster b away, then: {cli.hint('reindex')}" in said
    assert not (cli.home / "data" / "queue.db").exists()
    cluster.rename(tmp_path / "b")
    assert cli.hint("rebuild --all --cluster b") in cli("reindex", code=1).stderr
    cli("rebuild", "--all", "--cluster", "b")
    _right(cli, model)


def test_a_queue_of_fewer_partitions_than_the_lost_one_is_refused(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_QUEUE_PARTITIONS", "3")
    empty("init")
    empty("follow", 1, "--user", 2)
    empty.work()
    _lose(empty)
    monkeypatch.delenv("FEED_QUEUE_PARTITIONS")

    assert "set it to 3" in empty("reindex", code=2).stderr
    assert not (empty.home / "data" / "queue.db").exists()


@pytest.mark.processes
def test_a_queue_that_is_older_than_its_clusters_is_replaced_before_anything_is_rebuilt(
    cli: Cli, tmp_path: Path
) -> None:
    """Actions that the copy lacks count as relayed. Clusters that were rebuilt would lack those that were not expanded,
    and once enough has been expanded, nothing would show it any more.
    """
    queue = cli.home / "data" / "queue.db"
    model = Model(random.Random(10))
    _record(cli, model, 40)
    cli.work()
    shutil.copy(queue, tmp_path / "copy")
    _record(cli, model, 40)
    cli.work()
    _record(cli, model, 20)
    relay_all(cli)
    _lose(cli)
    shutil.copy(tmp_path / "copy", queue)

    then = f"move the file away, then: {cli.hint('reindex')}"
    for _ in range(2):  # it still shows after something has worked
        worked = cli.process("work", "--until-idle", code=1).stderr
        assert f"{queue}: older than cluster " in worked
        assert then in worked
    for words in (["rebuild", "--all"], ["rebuild", "--all", "--cluster", "b"], ["reindex"]):
        assert then in cli(*words, code=2).stderr, words
    assert f"problem   {queue}: older than cluster " in cli("status", code=1).stdout

    queue.rename(tmp_path / "queue.db")
    cli("reindex")
    cli.work()
    _right(cli, model)


def test_a_cluster_that_is_ahead_of_the_queue_by_itself_stops_no_other(cli: Cli) -> None:
    """It was away while a new queue was made, for example, and is behind in time."""
    model = Model(random.Random(11))
    _record(cli, model, 40)
    cli.work()
    with cli.ports(access="write") as ports:
        lone = Progress(ports.replicas["b"].progress)
        lone.hold([(wall_ms() - 60_000, 2**62)])
        note_new_queue(lone, 1, 1_000_000)
    _record(cli, model, 20)

    with cli.ports(access="write") as ports:
        relay_all(cli)
        land(cli, ports, "a")

    assert _feeds(cli, "a") == model.feeds()
    assert cli.hint("rebuild --all --cluster b") in cli("status", code=1).stdout


@pytest.mark.parametrize("command", ["check", "status", "work"])
def test_a_queue_that_is_not_where_queue_url_says_need_not_be_lost(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A second one would have no dead letters, and take what is relayed from the first one."""
    monkeypatch.setenv("FEED_QUEUE_URL", "embedded:data/other.db")
    said = cli(command, code=2)
    assert (
        "other.db: no such file: if queue.url is right, the queue is lost: make a new one" in said.stdout + said.stderr
    )


def _garbage(queue: Path) -> None:
    queue.write_bytes(b"no database" * 1_000)


def _of_another_program(queue: Path) -> None:
    with closing(sqlite3.connect(queue)) as file, file:
        file.execute("CREATE TABLE theirs (id INTEGER)")


def _emptied(queue: Path) -> None:
    queue.touch()


@pytest.mark.parametrize("becomes", [_garbage, _of_another_program, _emptied])
def test_a_file_that_is_no_queue_is_moved_away_as_the_message_says(
    cli: Cli, tmp_path: Path, becomes: Callable[[Path], None]
) -> None:
    model = Model(random.Random(9))
    _record(cli, model, 40)
    _lose(cli)
    queue = cli.home / "data" / "queue.db"
    becomes(queue)
    before = queue.read_bytes()
    for command in ("status", "verify", "work"):
        assert f"move the file away, then: {cli.hint('reindex')}" in cli(command, code=2).stderr
    if before:
        assert "move the file away" in cli("reindex", code=2).stderr
    assert queue.read_bytes() == before, "somebody may have to look at it"

    queue.rename(tmp_path / "queue.db")
    cli("reindex")

    cli.work()
    _right(cli, model)


def _damage_the_latest(topic: Topic[object], queue: Path) -> int:
    """Flips bits of a message as a disk may: SQLite has no checksums, and notices nothing. Returns the partition."""
    with closing(sqlite3.connect(queue)) as file, file:
        row, partition = file.execute(
            "SELECT b.rowid, p.partition FROM batches AS b JOIN partitions AS p ON p.id = b.partition_id"
            " WHERE p.topic = ? ORDER BY b.rowid DESC LIMIT 1",
            (topic.name,),
        ).fetchone()
        file.execute("UPDATE batches SET body = CAST(x'81' || substr(body, 2) AS BLOB) WHERE rowid = ?", (row,))
    return int(partition)


@pytest.mark.processes
@pytest.mark.parametrize("topic", [ACTIONS, DELIVERIES])
def test_a_message_that_is_damaged_ends_what_reads_it_and_is_named(
    cli: Cli, tmp_path: Path, topic: Topic[object]
) -> None:
    model = Model(random.Random(9))
    _record(cli, model, 40)
    (relay_all if topic is ACTIONS else expand_all)(cli)
    queue = cli.home / "data" / "queue.db"
    partition = _damage_the_latest(topic, queue)
    then = f"move the file away, then: {cli.hint('reindex')}"

    worked = cli.process("work", "--until-idle", code=1).stderr
    assert f"queue.db: {topic}/{partition} at" in worked
    assert then in worked
    assert "Traceback" not in worked
    [said] = [each for each in cli("status", code=1).stdout.splitlines() if "queue.db" in each]
    assert said.startswith("problem")
    assert then in said
    assert then in cli("reindex", code=2).stderr

    queue.rename(tmp_path / "queue.db")
    cli("reindex")
    cli.work()
    _right(cli, model)


def test_a_log_that_the_lost_queue_left_is_not_taken_for_the_new_ones(cli: Cli) -> None:
    with cli.ports() as ports:
        ports.queue.publish(ACTIONS, [b"old"])
        for name in ("queue.db-wal", "queue.db-shm"):
            shutil.copy(cli.home / "data" / name, cli.home / name)
    _lose(cli)
    for name in ("queue.db-wal", "queue.db-shm"):
        shutil.move(cli.home / name, cli.home / "data" / name)

    cli("reindex")

    assert cli.json("status")["groups"]["expander"] == 0


@pytest.mark.processes
def test_a_worker_that_is_killed_and_a_queue_that_is_lost_under_load(cli: Cli) -> None:
    model = Model(random.Random(6))
    with cli.worker() as worker:
        for _ in range(5):
            _record(cli, model, 100)
        worker.kill()
        worker.wait()
    _lose(cli)

    cli("reindex")
    cli.work()

    _right(cli, model)


# Actions that are lost while there is a queue
# --------------------------------------------------------------------------------------------------------------------


def _relayed(cli: Cli, seed: int) -> Model:
    """Records actions. Half of them have landed, and the others have been relayed alone."""
    model = Model(random.Random(seed))
    _record(cli, model, 40)
    cli.work()
    _record(cli, model, 40)
    relay_all(cli)
    return model


def _drop_actions(cli: Cli) -> None:
    """Drops the actions that no expander has read, as brokers do in the end."""
    with cli.ports(access="write") as ports:
        ports.queue.expire(-1, {topic: [group] for topic, group in landed.groups(ports) if topic != ACTIONS})


def _make_actions_again(cli: Cli) -> None:
    """Does what Kafka does to groups if their topic is removed: the new one is empty, and they have no positions."""
    _drop_actions(cli)
    with closing(sqlite3.connect(cli.home / "data" / "queue.db")) as file, file:
        file.execute("DELETE FROM positions WHERE consumer_group = ?", (EXPANDER,))


LOSSES = {"dropped": _drop_actions, "made again": _make_actions_again}


@pytest.mark.parametrize("loss", LOSSES)
def test_lost_actions_are_noticed_and_brought_back(cli: Cli, loss: str) -> None:
    model = _relayed(cli, 11)
    LOSSES[loss](cli)
    assert f"actions were lost before they were expanded: end all expanders, then: {cli.hint('reindex')}" in (
        cli("status", code=1).stdout
    )
    for words in (["work", "--until-idle"], ["rebuild", "--all"], ["rebuild", "--all", "--cluster", "b"]):
        assert cli.hint("reindex") in cli(*words, code=1).stderr, words
    shutil.rmtree(cli.home / "data" / "b")
    assert cli.hint("reindex") in cli("rebuild", "--all", "--cluster", "b", code=1).stderr

    assert "actions will be relayed again" in cli("reindex").stdout

    cli("rebuild", "--all", "--cluster", "b")
    _record(cli, model, 20)
    cli.work()
    _right(cli, model)
    assert "nothing was changed" in cli("reindex").stderr
    _right(cli, model)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_watermark_claims_actions_that_were_lost(cli: Cli, loss: str) -> None:
    """A tick was on its way when they were lost: it says that they were before it."""
    model = _relayed(cli, 12)
    config = configuration.load(cli.home, {})
    with cli.ports(access="write") as ports:
        LOSSES[loss](cli)
        wiring.ticker(ports, config).tick()
    with cli.ports() as ports:
        before = Progress(ports.replicas["a"].progress).watermark()
    cli("reindex")

    with cli.ports(access="write") as ports:
        land(cli, ports, "a")
        assert Progress(ports.replicas["a"].progress).watermark() == before

    cli.work()
    _right(cli, model)


@pytest.mark.parametrize(
    ("step", "loss"),
    [("relay_again", "dropped"), ("publish", "made again"), ("move", "dropped"), ("consumer", "made again")],
)
def test_a_reindex_of_lost_actions_that_dies_is_done_again(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, step: str, loss: str
) -> None:
    model = _relayed(cli, 13)
    LOSSES[loss](cli)
    owner = FollowStore if step == "relay_again" else EmbeddedQueue
    _die_after(owner, step, cli, monkeypatch)

    cli("reindex")
    cli.work()
    _right(cli, model)


def test_a_reindex_that_dies_once_nothing_shows_the_loss_any_more_leaves_nothing_to_do(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cluster has a watermark, and all rows are marked. Watermarks wait all the same for what is relayed again: a
    tick that is in front of it says that it was relayed.
    """
    model = Model(random.Random(16))
    _record(cli, model, 20)
    relay_all(cli)
    with closing(sqlite3.connect(cli.home / "data" / "queue.db")) as file, file:
        file.execute("DELETE FROM positions WHERE consumer_group = ?", (EXPANDER,))
    with cli.ports(access="write") as ports:
        wiring.ticker(ports, configuration.load(cli.home, {})).tick()
    _die_after(FollowStore, "relay_again", cli, monkeypatch)

    assert "nothing was changed" in cli("reindex").stderr
    with cli.ports(access="write") as ports:
        land(cli, ports, "a")
        assert Progress(ports.replicas["a"].progress).watermark() == landed.NOT_KNOWN_MS
    cli.work()
    _right(cli, model)


def test_a_reindex_says_how_much_is_relayed_again_whatever_a_relay_does_meanwhile(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker whose expander has ended continues to relay."""
    model = _relayed(cli, 15)
    _drop_actions(cli)
    marking = FollowStore.relay_again

    def marked(store: FollowStore, since_ms: int) -> RelayedAgain:
        again = marking(store, since_ms)
        assert store.backlog().actions == again.actions >= 40
        relay_all(cli)
        return again

    monkeypatch.setattr(FollowStore, "relay_again", marked)
    said = cli("reindex").stdout
    monkeypatch.undo()
    assert int(said.split()[0]) >= 40
    cli.work()
    _right(cli, model)


def test_lost_actions_that_the_outbox_does_not_keep_any_more_are_named(cli: Cli) -> None:
    """The records of the follow store still have them."""
    model = _relayed(cli, 14)
    _drop_actions(cli)
    with cli.ports(access="write") as ports:
        while ports.follows.expire(-1_000, 1_000):
            pass
        for replica in ports.replicas.values():
            Progress(replica.progress).hold([(1, ports.follows.now() + 1)])

    said = cli("reindex", code=1).stderr

    assert cli.hint("reconcile") in said
    cli.work()
    cli("reconcile")
    cli("repair")
    _right(cli, model)


@pytest.mark.parametrize(
    ("loss", "damage"),
    [("made again", "a gone, b damaged"), ("dropped", "both gone"), ("made again", "both damaged")],
)
def test_lost_actions_come_back_though_no_cluster_says_how_far_it_was(cli: Cli, loss: str, damage: str) -> None:
    """A cluster is not made again while actions are lost, so that they must not wait for one."""
    model = _relayed(cli, 16)
    LOSSES[loss](cli)
    for cluster in "ab":
        if damage == "both gone" or damage.startswith(f"{cluster} gone"):
            shutil.rmtree(cli.home / "data" / cluster)
        else:
            (cli.home / "data" / cluster / "CURRENT").unlink()
    assert cli.hint("reindex") in cli("rebuild", "--all", "--cluster", "a", code=1).stderr

    cli("reindex")

    for cluster in "ab":
        cli("rebuild", "--all", "--cluster", cluster)
    _right(cli, model)
    assert cli.json("status")["problems"] == []


@pytest.mark.parametrize("relayed", [False, True])
def test_actions_are_lost_if_something_was_relayed_and_their_group_has_no_position(cli: Cli, *, relayed: bool) -> None:
    """If nothing was, a group without positions is one that begins. No expander has ever read."""
    model = Model(random.Random(15))
    _record(cli, model, 20)
    if relayed:
        relay_all(cli)
    with closing(sqlite3.connect(cli.home / "data" / "queue.db")) as file, file:
        file.execute("DELETE FROM positions WHERE consumer_group = ?", (EXPANDER,))

    if relayed:
        assert cli.hint("reindex") in cli("status", code=1).stdout
        assert cli("reindex").stdout.startswith("20 actions will be relayed again")
        with cli.ports(access="write") as ports:
            land(cli, ports, "a")
        assert "a: its watermark is not known yet" in cli("status", code=None).stdout
    else:
        assert "nothing was changed" in cli("reindex").stderr
        assert cli.json("reindex") == {"again": 0, "gone": [], "unindexed_before_ms": None, "lacking": []}
    cli.work()
    _right(cli, model)


class _Away:
    """The notes of a cluster that does not answer."""

    def cells(self, *_: object) -> NoReturn:
        raise UnavailableError("away")


def test_an_expander_whose_group_has_no_position_waits_for_a_cluster_that_says_why(cli: Cli) -> None:
    cli.work()
    _make_actions_again(cli)
    config = configuration.load(cli.home, {})
    with cli.ports() as ports:
        away = {name: Replica(name, {PROGRESS: cast("WideColumnStore", _Away())}) for name in ports.replicas}
        with closing(wiring.expander(replace(ports, replicas=away), config)) as expander:
            assert not expander.step()
        one = away | {"b": ports.replicas["b"]}
        with (
            closing(wiring.expander(replace(ports, replicas=one), config)) as expander,
            pytest.raises(PositionLostError, match="reindex"),
        ):
            expander.step()
        assert ports.queue.positions(ACTIONS, EXPANDER) == {}
