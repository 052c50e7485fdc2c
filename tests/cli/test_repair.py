"""verify, rebuild, and a cluster that lost its deliveries or everything."""

import itertools
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest

from feedstore.app import config as configuration
from feedstore.boards import Boards
from feedstore.domain import Pin, SavePin
from feedstore.following import FEEDS, mutations
from feedstore.follows.port import Request, actions_in
from feedstore.widecolumn.progress import Progress
from tests.cli.command import Cli, writer_pid
from tests.cli.steps import expand_all, relay_all
from workers.app import home, until, wiring
from workers.app import rebuild as rebuilding
from workers.boards import Respacing
from workers.cli.output import note
from workers.following import Expander
from workers.following.applied import note_all
from workers.following.groups import EXPANDER, writer_group
from workers.following.messages import Task
from workers.following.ports import Ports
from workers.following.rewind import rewind
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.pipeline.relay import Ticker
from workers.pipeline.stage import Stage
from workers.queue.port import GroupBusyError, lag_of

DAMAGE = [("differs", 5), ("extra", 7), ("masked", 5), ("masked", 6)]


def damage(cli: Cli, cluster: str) -> None:
    """Takes pin 6 away from user 1, gives them pin 7, and gives pin 5 another time."""
    with cli.ports(access="write") as ports:
        now_ms = ports.follows.now()
        ports.replicas[cluster].tables[FEEDS].apply(
            [
                mutations.remove([(1, now_ms)], [(6, 1_010), (5, 1_005)]),
                mutations.put([(1, now_ms)], [(7, 1_020), (5, 999)]),
            ]
        )


@pytest.mark.parametrize("words", [["--users", "1"], ["--users", "1,404"], ["--sample", "5"]])
def test_the_entries_of_single_users_are_counted(filled: Cli, words: list[object]) -> None:
    damage(filled, "b")
    assert filled.json("verify", *words, code=1)["entries"] == 6


def test_verify_is_clean_where_all_is_well(filled: Cli) -> None:
    assert json.loads(filled("verify", "--json").stdout) == {"users": 1, "entries": 6, "differences": 0, "suspects": 0}
    assert "1 user, 6 entries compared: no difference" in filled("verify").stderr


def test_a_worker_that_has_stopped_is_named_to_those_who_wait_for_it(filled: Cli) -> None:
    """As `serve` whose worker met too many dead letters: its process holds the home and does no work."""
    filled("follow", 8, "--user", 2)
    with home.worker_lock(filled.home) as lock:
        home.note_stopped(lock, "100 dead letters in a row")
        asked = filled("rebuild", 1, code=3).stderr
        waited = filled("verify", "--wait", "0", code=3).stderr

    assert f"requested, but the worker (pid {os.getpid()}) has stopped: 100 dead letters in a row" in asked
    assert "the worker has stopped: 100 dead letters in a row" in waited


@pytest.mark.parametrize("cluster", ["a", "b"])
def test_verify_names_each_difference(filled: Cli, cluster: str) -> None:
    damage(filled, cluster)

    lines = [json.loads(line) for line in filled("verify", "--json", code=1).stdout.splitlines()]

    assert sorted((line["kind"], line["pin"]) for line in lines[:-1]) == DAMAGE
    assert {(line["user"], line["cluster"]) for line in lines[:-1]} == {(1, cluster)}
    assert lines[-1]["differences"] == 4
    human = filled("verify", code=1)
    assert len(human.stdout.splitlines()) == 4
    assert "4 differences" in human.stderr
    assert "user 1 never followed user 3 or board 30" in human.stdout


def test_verify_finds_feeds_of_users_that_nobody_knows(filled: Cli) -> None:
    with filled.ports(access="write") as ports:
        ports.replicas["b"].tables[FEEDS].apply([mutations.put([(404, 1)], [(6, 1_010)])])

    assert "user 404" in filled("verify", code=1).stdout


@pytest.mark.parametrize("said", ["2m", "500ms", "120", "1.5", "0"])
def test_verify_is_told_how_long_to_wait_as_a_duration_or_in_seconds(filled: Cli, said: str) -> None:
    assert "no difference" in filled("verify", "--wait", said).stderr


@pytest.mark.parametrize("said", ["soon", "-1", "nan", "inf", "5x"])
def test_how_long_verify_waits_is_a_duration(filled: Cli, said: str) -> None:
    assert "expected a duration such as" in filled("verify", f"--wait={said}", code=2).stderr


def lose_deliveries(cli: Cli, cluster: str) -> None:
    """Expands what was recorded, and lets a cluster's group pass over the deliveries, and the cluster say that it has
    them: so would a writer that loses what it reads.
    """
    expand_all(cli)
    with cli.ports(access="write") as ports:
        consumer = ports.queue.consumer(DELIVERIES, writer_group(cluster))
        while messages := consumer.poll(100, 0):
            consumer.commit({message.partition: message.offset + 1 for message in messages})
        consumer.close()
        note_all(cluster, Progress(ports.replicas[cluster].progress), ports.queue)


def test_work_until_idle_leaves_no_tick_behind(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that stayed in the queue would look like work that waits. Here the ticker is in the middle of a step when
    everything has landed, and ticks once the expander has ended; one that is still there gets the tick.
    """
    landed, step, close = until.Idle.__call__, Ticker.step, Stage.close
    said, began, expander_ended = Event(), Event(), Event()
    sent = []

    def landed_in_the_middle_of_a_step(self: until.Idle) -> bool:
        yes = landed(self)
        if yes:
            said.set()
            assert began.wait(60)
        return yes

    def step_with_a_late_tick(self: Ticker) -> bool:
        if not said.is_set() or sent:
            return step(self)
        began.set()
        expander_ended.wait(2)
        sent.append(self.tick())
        return False

    def close_and_say_so(self: Stage[Task]) -> None:
        close(self)
        if self.name == EXPANDER:
            expander_ended.set()

    monkeypatch.setattr(until.Idle, "__call__", landed_in_the_middle_of_a_step)
    monkeypatch.setattr(Ticker, "step", step_with_a_late_tick)
    monkeypatch.setattr(Stage, "close", close_and_say_so)
    filled.work()

    assert sent
    assert "no difference" in filled("verify").stderr


def test_verify_waits_for_parts_of_a_worker_that_hold_no_home(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "is_embedded", lambda _: False)
    filled("follow", 9, "--user", 2)

    assert "still behind" in filled("verify", "--wait", 0, code=3).stderr

    lose_deliveries(filled, "b")
    filled.work()

    assert "5 differences" in filled("verify", code=1).stderr


@pytest.mark.parametrize("words", [[9, "--cluster", "b"], [9], ["--all"], ["--all", "--cluster", "b"]])
def test_rebuild_brings_back_what_is_missing(filled: Cli, words: list[object]) -> None:
    filled("follow", 9, "--user", 2)
    lose_deliveries(filled, "b")
    filled.work()
    assert "5 differences" in filled("verify", code=1).stderr

    filled("rebuild", *words)

    assert "no difference" in filled("verify").stderr
    assert filled.export("b") == filled.export("a")


@pytest.mark.parametrize("words", [[], [1, "--all"], [1, "--cluster", "c"]])
def test_rebuild_wants_somebody(filled: Cli, words: list[object]) -> None:
    filled("rebuild", *words, code=2)


@pytest.mark.parametrize("emptied", [True, False], ids=["emptied", "gone"])
def test_a_cluster_that_was_deleted_is_made_anew(filled: Cli, emptied: bool) -> None:
    """Also where what is queued for it would bring back entries whose markers are gone with the old cluster."""
    shutil.rmtree(filled.home / "data" / "b")
    if emptied:
        (filled.home / "data" / "b").mkdir()
    filled("unfollow", 1, "--board", 31)
    filled("save-pin", 51, "--owner", 2, "--board", 20, "--created-ms", 2_000)
    assert f"cluster b is gone, or lost deliveries: {filled.hint('rebuild --all --cluster b')} first" in (
        filled("rebuild", 1, code=3).stderr
    )

    filled("rebuild", "--all", "--cluster", "b")

    assert filled.export("b") == filled.export("a") == {1: [[51, 2_000], *([n, 1_000 + n] for n in (5, 4, 3, 2, 1))]}
    assert "no difference" in filled("verify").stderr
    status = filled.json("status")
    assert status["clusters"]["b"]["behind_ms"] < 600_000


def test_clusters_that_are_all_gone_are_made_anew_one_after_the_other(filled: Cli) -> None:
    before = filled.export("a")
    for name in "ab":
        shutil.rmtree(filled.home / "data" / name)

    filled("rebuild", "--all", "--cluster", "b")
    filled("rebuild", "--all", "--cluster", "a")

    assert filled.export("a") == filled.export("b") == before
    assert "no difference" in filled("verify").stderr


@pytest.mark.parametrize("asked", [False, True])
def test_an_interrupted_rebuild_says_to_do_it_again(filled: Cli, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    """Before its refills are asked for, no worker would make the cluster again, and none would fill it."""
    step = "workers.app.rebuild.ask_all" if asked else "workers.cli.rebuild.note"
    do = rebuilding.ask_all if asked else note

    def interrupted(*given: Any) -> Any:
        os.kill(os.getpid(), signal.SIGTERM)
        return do(*given)

    shutil.rmtree(filled.home / "data" / "b")
    with monkeypatch.context() as patch:
        patch.setattr(step, interrupted)
        said = filled("rebuild", "--all", "--cluster", "b", code=3).stderr.splitlines()[-1]

    assert said == f"Error: stopped: to finish, {filled.hint('rebuild --all --cluster b')}"
    filled("rebuild", "--all", "--cluster", "b")
    assert filled.export("a") == filled.export("b")


def test_a_trim_is_done_in_the_clusters_that_answer(filled: Cli) -> None:
    shutil.rmtree(filled.home / "data" / "a")

    said = filled("trim", code=3)

    assert "a: there is no cluster in this directory" in said.stderr
    assert said.stdout.startswith("b: ")


@pytest.mark.processes
def test_a_cluster_that_is_damaged_is_said_once(filled: Cli) -> None:
    (filled.home / "data" / "a" / "CURRENT").unlink()
    said = filled.process("work", "--until-idle", code=1).stderr.splitlines()[-1]
    assert said.count("cluster a is damaged") == 1


@pytest.mark.parametrize(
    ("file", "mended"),
    [
        ("queue.db", "move the file away, then: {reindex}"),
        ("follows.db", "bring it back from a copy"),
    ],
)
def test_a_file_that_is_no_database_any_more_is_a_fault_that_an_operator_mends(
    filled: Cli, file: str, mended: str
) -> None:
    """Not one that passes: exit code 2, not 3."""
    for each in (filled.home / "data").glob(f"{file}-*"):
        each.unlink()
    (filled.home / "data" / file).write_bytes(os.urandom(20_000))
    for words in (["status"], ["verify"], ["trim"], ["dead", "list"], ["clock", "show"]):
        said = filled(*words, code=2).stderr
        assert f"{file}: file is not a database: {mended.format(reindex=filled.hint('reindex'))}" in said, words


def save_pin(ports: Ports, pin: int) -> None:
    [saved] = ports.follows.record([Request(SavePin(Pin(pin, owner=2, board=20, created_ms=1_000 + pin)))])
    assert not isinstance(saved, Exception)


@contextmanager
def recording(cli: Cli) -> Iterator[None]:
    """Somebody saves pins all the time: something is always on its way."""
    ended = Event()

    def save() -> None:
        with cli.ports() as ports:
            for number in itertools.count(1_000):
                if ended.wait(0.01):
                    return
                save_pin(ports, number)

    thread = threading.Thread(target=save)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "refilled"])
def test_a_rebuild_ends_while_pins_are_saved_all_the_time(filled: Cli, gone: bool) -> None:
    if gone:
        shutil.rmtree(filled.home / "data" / "b")
    with recording(filled):
        filled("rebuild", "--all", "--cluster", "b")
    filled.work()
    assert filled.export("b") == filled.export("a")
    assert "no difference" in filled("verify").stderr


def test_what_was_recorded_before_is_expanded_whatever_comes_meanwhile(filled: Cli) -> None:
    config = configuration.load(filled.home, {})
    with filled.ports() as ports:
        save_pin(ports, 60)
        expanded = until.RecordedExpanded(ports)
        assert not expanded(), "it waits for the relay"
        relay_all(filled)
        assert not expanded(), "it waits for the expander"
        expander = wiring.expander(ports, config)
        save_pin(ports, 61)
        while lag_of(ports.queue, ACTIONS, EXPANDER):
            assert not expanded()
            expander.step()
        assert expanded()
        assert ports.follows.unrelayed(1), "what came meanwhile still waits"
        expander.close()


class Unpublished:
    """A queue for an expander that has not published yet."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def publish(self, _topic: str, values: list[bytes]) -> None:
        self.values += values


def test_rule_8_what_was_read_before_a_cluster_was_made_anew_is_late_there(filled: Cli) -> None:
    """On servers, expanders run elsewhere. One has read who follows the author of a pin; then the unfollow, whose
    purge is passed over; then it publishes.
    """
    filled("save-pin", 60, "--owner", 2, "--board", 20, "--created-ms", 2_000)
    elsewhere = Unpublished()
    with filled.ports() as ports:
        tasks = [Task(action) for action in actions_in(ports.follows.unrelayed(10))]
        limits, respacing = configuration.load(filled.home, {}).limits, Respacing(Boards(ports.follows), lambda: 0.0)
        Expander(ports.follows, elsewhere, limits, respacing.respace).expand(tasks)  # type: ignore[arg-type]
    assert elsewhere.values
    shutil.rmtree(filled.home / "data" / "b")
    filled("unfollow", 1, "--user", 2)
    filled("rebuild", "--all", "--cluster", "b")

    with filled.ports() as ports:
        ports.queue.publish(DELIVERIES, elsewhere.values)
    filled.work()

    assert filled.export("b") == filled.export("a") == {1: [[6, 1_010]]}
    assert "no difference" in filled("verify").stderr
    assert filled.json("status")["clusters"]["b"]["behind_ms"] < 600_000


@pytest.mark.processes
def test_rule_8_a_cluster_that_lost_deliveries_says_so_and_is_rebuilt(filled: Cli) -> None:
    filled("follow", 9, "--user", 2)
    config = configuration.load(filled.home, {})
    with filled.ports(access="write") as ports:
        # Everything is done but by b, and retention passes by what b has not read.
        worker = wiring.worker(ports, config, wiring.writing(ports, config, "a"))
        worker.run(until.Idle(ports, config, lambda: ["a"]))
        assert ports.queue.expire(-1, {ACTIONS: [EXPANDER]}) > 0  # a tick may have come since

    stderr = filled.process("--log-level", "critical", "work", "--until-idle", code=1).stderr
    assert "Error: cluster b lost deliveries: rebuild it" in stderr
    status = filled.json("status", code=1)
    assert status["clusters"]["b"]["error"].startswith("cluster b lost deliveries: rebuild it")
    assert 9 in filled.export("a")
    assert 9 not in filled.export("b")

    filled.process("rebuild", "--all", "--cluster", "b")
    assert filled.export("b") == filled.export("a")
    assert "no difference" in filled("verify").stderr
    filled.work()


@pytest.mark.processes
def test_a_cluster_is_not_made_anew_under_a_running_worker(filled: Cli) -> None:
    shutil.rmtree(filled.home / "data" / "b")
    with filled.worker() as worker:
        stderr = filled.process("rebuild", "--all", "--cluster", "b", code=3).stderr

        assert f"pid {worker.pid}" in stderr
        assert "stop it, then run this again" in stderr
    filled.process("rebuild", "--all", "--cluster", "b")
    assert "no difference" in filled("verify").stderr


@pytest.mark.processes
def test_verify_beside_a_worker_names_only_what_outlasts_the_watermarks(filled: Cli) -> None:
    damage(filled, "b")
    with filled.worker():
        for pin in range(100, 120):
            filled("save-pin", pin, "--owner", 2, "--board", 20, "--created-ms", pin)
        lines = [json.loads(line) for line in filled("verify", "--json", code=1).stdout.splitlines()]

    assert sorted((line["kind"], line["pin"]) for line in lines[:-1]) == DAMAGE


@pytest.mark.processes
def test_verify_gives_up_on_a_worker_that_does_not_get_on(filled: Cli) -> None:
    damage(filled, "b")
    with filled.worker() as worker:
        writer = writer_pid(worker.pid, "b")
        os.kill(writer, signal.SIGSTOP)
        try:
            filled("follow", 8, "--user", 2)
            stderr = filled("verify", "--wait", "0", code=3).stderr
        finally:
            os.kill(writer, signal.SIGCONT)

    assert "still behind" in stderr


def test_rule_10_a_cluster_that_lost_its_latest_writes_is_rewound(filled: Cli) -> None:
    """Its feeds lack what it says that it has applied; its groups have passed by what is missing."""
    filled("follow", 9, "--user", 2)
    filled("unfollow", 1, "--board", 31)
    lose_deliveries(filled, "b")
    filled.work()
    assert "differences" in filled("verify", code=1).stderr, "nothing brings it back by itself"

    said = filled.json("rewind", "--cluster", "b", "--by", "1h")

    assert said["again"]["writer-b"] > 0
    status = filled.json("status", code=None)
    assert status["clusters"]["b"]["behind_ms"] >= 3_600_000, "it does not claim what it has lost"
    assert status["clusters"]["a"]["behind_ms"] < 600_000
    assert status["groups"]["writer-a"] == 0
    filled.work()
    assert filled.export("b") == filled.export("a")
    assert "no difference" in filled("verify").stderr
    assert filled.json("status")["clusters"]["b"]["behind_ms"] < 600_000


def test_rewind_says_for_people_how_much_comes_again(filled: Cli) -> None:
    result = filled("rewind", "--cluster", "b", "--by", "1h")
    assert re.fullmatch(
        r"b: back to [-0-9: .]+ UTC: writer-b reads \d+ messages again, retries-b reads 0 messages again\n",
        result.stdout,
    )
    assert "start its writers" in result.stderr
    assert f"then {filled.hint('verify')} says if that was far enough" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--cluster", "b", "--by", "3d"], 1, "limits.action_age"),
        (["--cluster", "b", "--by", "soon"], 2, "expected a duration"),
        (["--cluster", "c", "--by", "1h"], 2, "no cluster 'c'"),
        (["--cluster", "b"], 2, "--by"),
        (["--by", "1h"], 2, "--cluster"),
    ],
)
def test_rewind_refuses_what_it_cannot_do(filled: Cli, words: list[str], code: int, said: str) -> None:
    before = filled.json("status")["clusters"]["b"]
    assert said in filled("rewind", *words, code=code).stderr
    assert filled.json("status")["clusters"]["b"]["behind_ms"] >= before["behind_ms"]
    assert filled.json("status")["groups"]["writer-b"] == 0


@pytest.mark.processes
def test_a_cluster_is_not_rewound_under_a_running_worker(filled: Cli) -> None:
    before = filled.json("status", code=None)["clusters"]["b"]["watermark_ms"]
    with filled.worker():
        refused = filled("rewind", "--cluster", "b", "--by", "1h", code=3).stderr
        assert "stop it, then run this again; nothing was moved" in refused
    assert filled.json("status", code=None)["clusters"]["b"]["watermark_ms"] >= before


def test_a_group_that_is_live_elsewhere_is_not_rewound_and_its_watermark_stays(filled: Cli) -> None:
    """A writer on another machine holds no home."""
    config = configuration.load(filled.home, {})
    with filled.ports(access="write") as ports:
        before = Progress(ports.replicas["b"].progress).watermark()
        live = ports.queue.consumer(RETRIES, wiring.retry_group("b"))
        with pytest.raises(GroupBusyError):
            rewind(ports, config.limits, "b", 3_600_000)
        live.close()
        assert Progress(ports.replicas["b"].progress).watermark() == before
