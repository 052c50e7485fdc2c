"""The clock of a process is off, or that of a home was 400 days ahead for one action, and is right again."""

import errno
import json
import shutil
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from feedstore import durable
from feedstore.app import config as configuration
from feedstore.app import wiring as feedstore_wiring
from feedstore.app.catalogs import open_store
from feedstore.clocks import HomeClock, wall_ms
from feedstore.domain import Pin, SavePin
from feedstore.follows.port import Request
from tests.cli.command import Cli
from workers.app import wiring
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.queue.port import Topic, lag_of

JUMP_MS = 400 * 86_400_000


@pytest.fixture
def jumped(filled: Cli) -> Cli:
    with filled.ports(clock=lambda: wall_ms() + JUMP_MS) as ports:
        ports.follows.record([Request(SavePin(Pin(50, 2, 20, 2_000)))])
    return filled


def test_rule_11_housekeeping_drops_nothing_that_somebody_has_to_read(
    jumped: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumped("save-pin", 51, "--owner", 2, "--board", 20, "--created-ms", 2_001)
    config = configuration.load(jumped.home, {})
    with jumped.ports() as ports:
        for relay in wiring.relays(ports, config):
            relay.step()
        housekeeper = wiring.housekeeper(ports, config)
        now_s = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now_s + 1e6)
        housekeeper.forget()
    monkeypatch.undo()

    jumped.work()

    assert jumped.feed(1)[:2] == [51, 50]


def test_rule_10_what_is_not_known_is_not_said(jumped: Cli) -> None:
    jumped.work()
    # Nothing is written any more: however long this lasts, the watermark is ahead of the clock.
    assert jumped.json("feed", 1)["behind_ms"] is None
    status = jumped.json("status", code=1)
    assert [each["behind_ms"] for each in status["clusters"].values()] == [None, None]
    assert "unknown" in jumped("status", code=1).stdout


def test_a_clock_that_is_far_ahead_is_reported(jumped: Cli) -> None:
    [ahead_ms] = jumped.json("status", code=1)["clocks_ahead_ms"].values()
    assert JUMP_MS - 600_000 < ahead_ms <= JUMP_MS
    assert "problem   the clock of shard 0 is 400" in jumped("status", code=1).stdout


def test_clocks_that_are_right_are_not_mentioned(filled: Cli) -> None:
    assert filled.json("status")["clocks_ahead_ms"] == {}
    assert "problem" not in filled("status").stdout


@pytest.mark.processes
def test_verify_ends(jumped: Cli) -> None:
    with jumped.worker():
        for pin in range(100, 120):
            jumped("save-pin", pin, "--owner", 2, "--board", 20, "--created-ms", pin)
        assert "no difference" in jumped("verify", "--wait", 60).stderr


# A process whose clock is off
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3])
def sharded(cli: Cli, request: pytest.FixtureRequest) -> Cli:
    cli.set("shards", "[" + ", ".join(f'"sqlite:data/follows-{n}.db"' for n in range(request.param)) + "]")
    wiring.create(configuration.load(cli.home, {}))
    return cli


def _act(cli: Cli, pin: int) -> None:
    lines = []
    for user in range(1, 9):
        lines.append({"type": "follow", "ts": 1, "follower": user, "user": 100 + user})
        lines.append({"type": "save_pin", "ts": pin, "pin": 10 * pin + user, "owner": 100 + user, "board": 200 + user})
    cli("replay", "-", stdin="".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize("off_ms", [-JUMP_MS, -60_000, 60_000, JUMP_MS])
def test_rule_10_no_shard_steps_with_the_clock_of_one_process(
    sharded: Cli, monkeypatch: pytest.MonkeyPatch, off_ms: int
) -> None:
    _act(sharded, 1)
    with monkeypatch.context() as wrong:
        wrong.setattr(feedstore_wiring, "wall_ms", lambda: wall_ms() + off_ms)
        _act(sharded, 2)
        sharded.work()
        with sharded.ports() as ports:
            times = [ports.follows.now(shard) for shard in range(ports.follows.shards())]
            times += [ports.follows.settled_ms(), ports.clock()]
            assert all(abs(each - wall_ms()) < 20_000 for each in times)
    _act(sharded, 3)
    sharded.work()

    assert [sharded.feed(user) for user in range(1, 9)] == [[30 + n, 20 + n, 10 + n] for n in range(1, 9)]
    found = sharded.json("status", code=1)
    assert {each["offset_ms"] // 1_000 for each in found["clocks_off"]} <= {off_ms // 1_000, off_ms // 1_000 - 1}
    assert all(each["behind_ms"] < 20_000 for each in found["clusters"].values())
    assert found["clocks_ahead_ms"] == {}
    assert "pid" in sharded("status", code=1).stdout


@pytest.mark.parametrize("sharded", [3], indirect=True)
@pytest.mark.parametrize("words", [["rebuild", 1], ["rebuild", "--all", "--cluster", "b"], ["repair"]])
def test_nobody_waits_until_all_shards_are_as_far_as_one_that_is_ahead(sharded: Cli, words: list[object]) -> None:
    _act(sharded, 1)
    sharded.work()
    with sharded.ports(clock=lambda: wall_ms() + JUMP_MS) as ports:
        ports.follows.record([Request(SavePin(Pin(50, 102, 202, 2_000)))])
    sharded.work()

    said = sharded(*words, code=1).stderr

    assert "is 400.0 d ahead of that of another shard" in said
    assert sharded.hint("clock set") in said
    sharded("clock", "set")
    sharded(*words)
    assert "no difference" in sharded("verify").stderr


@pytest.mark.parametrize("sharded", [3], indirect=True)
@pytest.mark.parametrize("damage", ["gone", "torn"])
def test_a_cluster_that_is_lost_while_a_shard_is_ahead_is_made_anew(sharded: Cli, damage: str) -> None:
    """Rebuild needs clocks that agree, and clock set needs no lost cluster."""
    _act(sharded, 1)
    with sharded.ports(clock=lambda: wall_ms() + JUMP_MS) as ports:
        ports.follows.record([Request(SavePin(Pin(50, 102, 202, 2_000)))])
    sharded.work()
    cluster = sharded.home / "data" / "b"
    if damage == "gone":
        shutil.rmtree(cluster)
    else:
        (cluster / "CURRENT").unlink()
    assert sharded.hint("clock set") in sharded("rebuild", "--all", "--cluster", "b", code=1).stderr
    assert cluster.exists() == (damage == "torn"), "nothing was done"

    said = sharded("clock", "set").stderr

    assert f"cluster b is gone or damaged, and was left out: {sharded.hint('rebuild --all --cluster b')}" in said
    sharded("rebuild", "--all", "--cluster", "b")
    assert sharded.export("a") == sharded.export("b")
    assert "no difference" in sharded("verify").stderr


@pytest.mark.parametrize("off_ms", [-JUMP_MS, JUMP_MS])
def test_rule_11_housekeeping_with_a_clock_that_is_off_drops_nothing(
    filled: Cli, monkeypatch: pytest.MonkeyPatch, off_ms: int
) -> None:
    with filled.ports(access="write") as ports:
        ports.dead.bury(ACTIONS, "expander", "malformed", "", ports.clock(), b"?")
        held = [ports.queue.earliest(ACTIONS), ports.queue.earliest(DELIVERIES)]
    monkeypatch.setattr(feedstore_wiring, "wall_ms", lambda: wall_ms() + off_ms)
    with filled.ports(access="write") as ports:
        filled.work()  # what is published by this clock is kept as well
        housekeeper = wiring.housekeeper(ports, configuration.load(filled.home, {}))
        housekeeper.forget()
        assert [ports.queue.earliest(ACTIONS), ports.queue.earliest(DELIVERIES)] == held
        assert ports.dead.count() == 1
        assert ports.follows.counts().edges_active == 2


def test_a_home_of_an_earlier_program_has_no_anchor_and_gets_one(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    (filled.home / feedstore_wiring.CLOCK_NAME).unlink()
    filled("save-pin", 60, "--owner", 2, "--board", 20)
    monkeypatch.setattr(feedstore_wiring, "wall_ms", lambda: wall_ms() + JUMP_MS)
    with filled.ports() as ports:
        assert isinstance(ports.clock, HomeClock)
        assert abs(ports.follows.now() - wall_ms()) < 20_000


def test_a_home_on_servers_goes_by_their_clocks(filled: Cli) -> None:
    text = configuration.DEFAULT.replace("embedded:data/queue.db", "kafka://host:9092")
    for name in "ab":
        text = text.replace(f"rocksdb:data/{name}", f"hbase://host-{name}:9091/feed")
    text = text.replace("sqlite:data/follows.db", "mysql://feed@host/follows")
    assert feedstore_wiring.home_clock(configuration.parse(filled.home, text, {})) is None


# A home that is brought back
# --------------------------------------------------------------------------------------------------------------------


def test_a_shard_that_was_ahead_is_brought_back(jumped: Cli) -> None:
    jumped("unfollow", 1, "--user", 2)
    jumped.work()
    jumped("follow", 1, "--user", 2)  # waits in the outbox, with a time that is ahead
    assert "ahead" in jumped("clock", "show").stdout
    assert jumped.json("clock", "show")["shards_ahead_ms"]["0"] > JUMP_MS - 600_000

    done = jumped.json("clock", "set")

    assert done["shards"]["0"] > JUMP_MS - 600_000
    assert done["clusters"] == ["a", "b"]
    assert "not known yet" in jumped("status").stdout
    jumped("save-pin", 51, "--owner", 2, "--board", 20)
    jumped.work()
    status = jumped.json("status")
    assert status["clocks_ahead_ms"] == {}
    assert all(0 <= each["behind_ms"] < 60_000 for each in status["clusters"].values())
    assert jumped.feed(1)[:2] == [51, 50]
    jumped("unfollow", 1, "--user", 2)
    jumped.work()
    assert jumped.feed(1) == [6], "what is done later wins, whatever the clock was"
    jumped("follow", 1, "--user", 2)
    jumped.work()
    assert jumped.feed(1)[:2] == [51, 50]
    jumped("verify")
    assert jumped.json("clock", "set") == {"shards": {}, "clusters": []}


def test_a_catalog_that_was_ahead_hides_nothing_and_is_built_again(filled: Cli, tmp_path: Path) -> None:
    filled.add("[catalogs.pins]\n[catalogs.ads]\n")
    filled("save-pin", 49, "--owner", 2, "--board", 20)
    filled.work()
    with filled.ports(clock=lambda: wall_ms() + JUMP_MS) as ports:
        ports.follows.record([Request(SavePin(Pin(50, 2, 20, 2_000)))])
    filled.work()
    filled("catalog", "build", "pins")
    batch = tmp_path / "ads.jsonl"
    batch.write_text('{"key": "a", "record": "now"}\n')
    filled("catalog", "load", "ads", batch, "--as-of", wall_ms())

    said = filled("clock", "set").stderr

    assert [f"catalog {each} was ahead" in said for each in ("pins of cluster a", "pins of cluster b")] == [True, True]
    assert "catalog ads" not in said
    filled("save-pin", 51, "--owner", 2, "--board", 20)
    filled("delete-pin", 49)
    filled.work()
    filled("catalog", "build", "pins")
    filled("save-pin", 52, "--owner", 2, "--board", 20)
    filled.work()
    assert "no difference" in filled("catalog", "verify", "pins").stderr
    assert "owner 2" in filled("catalog", "get", "pins", 52).stdout
    assert "deleted" in filled("catalog", "get", "pins", 49).stdout
    assert "catalog" not in filled("clock", "set").stderr


def test_a_pin_that_was_saved_by_a_clock_ahead_is_deleted_in_the_catalog_too(filled: Cli) -> None:
    filled.add("[catalogs.pins]\n")
    filled.work()
    with filled.ports(clock=lambda: wall_ms() + JUMP_MS) as ports:
        ports.follows.record([Request(SavePin(Pin(50, 2, 20, 2_000)))])  # waits in the outbox, with that time
    filled("clock", "set")
    filled.work()
    filled("catalog", "build", "pins")
    filled("delete-pin", 50)
    filled.work()
    for _ in range(2):
        assert "deleted" in filled("catalog", "get", "pins", 50).stdout
        filled("catalog", "build", "pins")
    assert "no difference" in filled("catalog", "verify", "pins").stderr


def test_a_catalog_of_another_source_that_was_ahead_is_left_and_named(filled: Cli) -> None:
    filled.add("[catalogs.ads]\n")
    config = configuration.load(filled.home, {})
    with open_store(config, "ads", "a") as store:
        store.note_known(wall_ms() + JUMP_MS)

    said = filled("clock", "set").stderr

    assert "catalog ads of cluster a is ahead, too: it hides updates, and takes no batch" in said
    assert f"remove {filled.home / 'data' / 'a.catalog' / 'ads'}, and build or load it again" in said
    assert "cluster b" not in said


def test_a_catalog_that_is_damaged_keeps_no_shard_ahead(jumped: Cli) -> None:
    jumped.add("[catalogs.pins]\n[catalogs.ads]\n")
    config = configuration.load(jumped.home, {})
    for name in config.catalogs:
        with open_store(config, name, "a") as store:
            store.note_known(1)
        (jumped.home / "data" / "a.catalog" / name / "delta" / "CURRENT").write_text("garbage")

    said = jumped("clock", "set").stderr

    for name in config.catalogs:
        assert f"catalog {name} of cluster a could not be looked at, and may be ahead" in said
        assert (jumped.home / "data" / "a.catalog" / name).exists(), "it may be well"
    assert jumped.json("clock", "show")["shards_ahead_ms"] == {}


def test_a_catalog_that_is_ahead_and_cannot_be_removed_keeps_no_shard_ahead(
    jumped: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumped.add("[catalogs.pins]\n")
    with open_store(configuration.load(jumped.home, {}), "pins", "a") as store:
        store.note_known(2**50)
    monkeypatch.setattr(durable, "remove_tree", mock.Mock(side_effect=OSError(errno.EBUSY, "it is a mount point")))
    said = jumped("clock", "set").stderr
    assert "catalog pins of cluster a is ahead, too" in said
    assert f"remove {jumped.home / 'data' / 'a.catalog' / 'pins'}" in said
    assert jumped.json("clock", "show")["shards_ahead_ms"] == {}


@pytest.mark.parametrize(("topic", "group"), [(ACTIONS, "expander"), (DELIVERIES, "writer-b"), (RETRIES, "retries-a")])
def test_nothing_is_brought_back_under_a_process_that_still_works_elsewhere(
    jumped: Cli, monkeypatch: pytest.MonkeyPatch, topic: Topic[object], group: str
) -> None:
    """A process on another machine holds no home. A writer would note its holds where no look reads them any more."""
    jumped.work()
    with jumped.ports(access="write") as ports:
        live = ports.queue.consumer(topic, group)
        with monkeypatch.context() as patch:
            patch.setattr(wiring, "open_ports", lambda *_, **__: replace(ports, opened=ExitStack()))
            said = jumped("clock", "set", code=3).stderr
        live.close()

    assert f"live consumer of {group}; close it first; nothing was brought back" in said
    assert jumped.json("clock", "show")["shards_ahead_ms"]["0"] > JUMP_MS - 600_000
    assert jumped.json("clock", "set")["clusters"] == ["a", "b"]


def test_what_was_on_its_way_from_a_clock_that_was_ahead_lands_and_holds_nothing_up(jumped: Cli) -> None:
    # Tasks, deliveries and ticks of that time are in the queue when the shard is brought back.
    config = configuration.load(jumped.home, {})
    jumped("unfollow", 1, "--user", 2)
    jumped("follow", 1, "--user", 2)
    with jumped.ports(access="write") as ports:
        for relay in wiring.relays(ports, config):
            relay.step()
        wiring.ticker(ports, config).tick()
        with closing(wiring.expander(ports, config)) as expander:
            while lag_of(ports.queue, ACTIONS, "expander"):
                expander.step()
        assert lag_of(ports.queue, DELIVERIES, "writer-a")
    jumped("clock", "set")
    jumped.work()

    assert jumped.feed(1)[0] == 50
    assert all(0 <= each["behind_ms"] < 60_000 for each in jumped.json("status")["clusters"].values())
    jumped("verify")


def test_a_clock_that_is_right_is_shown(filled: Cli) -> None:
    shown = filled.json("clock", "show")
    assert abs(shown["now_ms"] - wall_ms()) < 60_000
    assert (shown["off"], shown["shards_ahead_ms"]) == ([], {})
    assert filled("clock", "show").stdout.startswith("time ")


@pytest.mark.parametrize("off_ms", [-3_600_000, 3_600_000])
def test_a_home_whose_time_is_wrong_says_so_and_is_set(filled: Cli, off_ms: int) -> None:
    """As if the first process after the boot had had another clock than this machine has now."""
    file = filled.home / feedstore_wiring.CLOCK_NAME
    anchor = json.loads(file.read_text())
    file.write_text(json.dumps(anchor | {"booted_ms": anchor["booted_ms"] + off_ms}))

    [shown] = [line for line in filled("clock", "show").stdout.splitlines() if line.startswith("off ")]
    assert f"this machine's clock is 3,600 s {'behind' if off_ms > 0 else 'ahead of'} the home's time" in shown
    assert filled.hint("clock set") in shown
    assert "clock show" not in shown
    assert filled("clock", "show").stdout.count("3,600 s") == 1, "a command that has ended is nothing to mend"
    said = filled("status", code=1).stdout
    assert said.count("problem") == 1
    assert f"problem   {shown.removeprefix('off').strip()}" in said
    filled("check", code=2)

    filled("clock", "set")
    assert not [line for line in filled("clock", "show").stdout.splitlines() if line.startswith(("off ", "ahead "))]
    filled.work()
    assert "problem" not in filled("status").stdout
    filled("check")
    filled("verify")
