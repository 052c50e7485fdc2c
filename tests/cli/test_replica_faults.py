"""A replica that lacks what it said that it had: put back from a copy, damaged, emptied, or another one altogether."""

import errno
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest
from rocksdict import AccessType, Rdict

from feedstore.app import config as configuration
from feedstore.following import FEEDS, feed_table
from feedstore.following.witnesses import ROWS
from feedstore.widecolumn import DeleteColumns, UnavailableError
from feedstore.widecolumn.progress import Progress, progress_table
from feedstore.widecolumn.rocksdb import files as rocksdb_files
from feedstore.widecolumn.rocksdb.cluster import RocksCluster
from tests.cli.command import Cli
from tests.cli.steps import land, relay_all
from workers.app import until, wiring
from workers.app.rebuild import needs_new
from workers.following.applied import NUMBERS
from workers.following.groups import EXPANDER
from workers.following.topics import ACTIONS, DELIVERIES
from workers.following.verify import Verifier
from workers.queue.port import lag_of

HEALS = "rebuild --all --cluster b"


def data(cli: Cli, cluster: str = "b") -> Path:
    return cli.home / "data" / cluster


def put_back(copy: Path, there: Path) -> None:
    shutil.rmtree(there)
    shutil.copytree(copy, there)


def error_of(cli: Cli, cluster: str = "b") -> str:
    """What status says of a cluster that needs a look."""
    status = cli.json("status", code=1)
    return str(status["clusters"][cluster]["error"])


def test_a_replica_that_was_put_back_from_a_copy_says_so_and_catches_up_by_itself(filled: Cli, tmp_path: Path) -> None:
    """Its groups have committed what it lacks."""
    shutil.copytree(data(filled), tmp_path / "copy")
    filled("follow", 9, "--user", 2)
    filled("unfollow", 1, "--board", 31)
    filled.work()
    put_back(tmp_path / "copy", data(filled))

    assert error_of(filled).startswith("cluster b is older than what its writers have committed")
    assert filled.hint("work") in filled("verify", code=3).stderr

    filled.work()
    assert filled.export("b") == filled.export("a")
    assert "no difference" in filled("verify").stderr
    assert filled.json("status")["clusters"]["b"]["error"] is None


def test_a_cluster_that_cannot_be_looked_at_is_not_taken_for_one_that_is_gone(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(path))

    with filled.ports() as ports, monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", refuse)
        with pytest.raises(UnavailableError, match="Too many open files"):
            needs_new(ports, configuration.load(filled.home, {}), "b")
    assert "no difference" in filled("verify").stderr


@pytest.mark.processes
def test_work_until_idle_ends_without_a_cluster_that_is_gone(filled: Cli, tmp_path: Path) -> None:
    data(filled).rename(tmp_path / "away")
    filled("save-pin", 61, "--owner", 2, "--board", 20)

    ended = filled.process("--log-level", "error", "work", "--until-idle", "--wait", "100ms", code=3)

    assert "everything else has landed" in ended.stderr.splitlines()[-1]
    assert filled.hint(HEALS) in ended.stderr.splitlines()[-1]
    assert filled.feed(1)[0] == 61
    (tmp_path / "away").rename(data(filled))
    filled.process("--log-level", "error", "work", "--until-idle", "--wait", "100ms")
    assert filled.export("b") == filled.export("a")


def test_ticks_do_not_prolong_the_wait_for_a_cluster_that_is_gone(filled: Cli, tmp_path: Path) -> None:
    data(filled).rename(tmp_path / "away")
    filled("save-pin", 61, "--owner", 2, "--board", 20)
    config = configuration.load(filled.home, {})
    now_s = [0.0]
    relay_all(filled)
    with filled.ports(access="write") as ports:
        land(filled, ports, "a")
        ticker = wiring.ticker(ports, config)
        end = until.Idle(ports, config, lambda: ["a", "b"], 60.0, lambda: now_s[0])
        for now_s[0] in (0.0, 30.0, 59.0):
            assert not end()
            ticker.tick()
            assert not end(), "a tick is work, too"
            land(filled, ports, "a")
        assert not end.away
        now_s[0] = 60.0
        for _ in range(3):  # it gives the cluster up, then ticks for the last time, then looks for that tick
            end()
            land(filled, ports, "a")
        assert (end.yes, list(end.away)) == (True, ["b"])


def test_a_cluster_that_is_gone_is_given_up_although_a_tick_is_on_its_way_at_every_look(
    filled: Cli, tmp_path: Path
) -> None:
    data(filled).rename(tmp_path / "away")
    config = configuration.load(filled.home, {})
    now_s, paused = [0.0], [False]
    with filled.ports(access="write") as ports:

        def pause() -> bool:
            paused[0] = True
            return True

        end = until.Idle(
            ports,
            config,
            lambda: ["a", "b"],
            2.0,
            lambda: now_s[0],
            pause=pause,
            resume=lambda: paused.__setitem__(0, False),
        )
        ticker = wiring.ticker(ports, config)
        while not end.yes and now_s[0] < 60:
            if not paused[0]:
                ticker.tick()
            end()
            land(filled, ports, "a")
            now_s[0] += 0.5
    assert (end.yes, list(end.away)) == (True, ["b"])


@pytest.mark.processes
def test_a_replica_that_is_older_than_its_queue_is_refused_until_it_is_rebuilt(filled: Cli, tmp_path: Path) -> None:
    shutil.copytree(data(filled), tmp_path / "copy")
    filled("follow", 9, "--user", 2)
    filled.work()
    with filled.ports(access="write") as ports:
        assert ports.queue.expire(-1, {ACTIONS: [EXPANDER]}) > 0  # a tick may have come since
    put_back(tmp_path / "copy", data(filled))

    assert HEALS in error_of(filled)
    assert HEALS in filled("verify", code=1).stdout
    assert HEALS in filled.process("--log-level", "critical", "work", "--until-idle", code=1).stderr
    assert 9 not in filled.export("b")

    filled.process("rebuild", "--all", "--cluster", "b")
    assert "no difference" in filled("verify").stderr
    assert filled.export("b") == filled.export("a")
    assert filled.json("status")["clusters"]["b"]["error"] is None


@pytest.mark.parametrize("fault", ["missing", "cut", "flipped"])
def test_a_damaged_file_is_named_pages_fail_over_and_a_rebuild_heals_it(filled: Cli, fault: str) -> None:
    config = configuration.load(filled.home, {})
    filled("trim")  # what is in the log is a file then
    with filled.ports(access="write") as ports:
        ports.replicas["a"].tables[FEEDS].sweep(1)
    cluster = Rdict(str(data(filled, "a")), access_type=AccessType.read_only(False))
    files = {each["name"].lstrip("/"): each["size"] for each in cluster.live_files()}
    cluster.close()
    before = filled.feed(1)
    assert files
    assert config.clusters[0].name == "a"
    for name in files:
        file = data(filled, "a") / name
        content = bytearray(file.read_bytes())
        if fault == "missing":
            file.unlink()
        elif fault == "cut":
            file.write_bytes(content[: len(content) // 2])
        else:
            content[: len(content) // 3] = bytes(each ^ 0xFF for each in content[: len(content) // 3])
            file.write_bytes(content)

    page = filled.json("feed", 1, "--limit", 1000)

    assert [pin for pin, _ in page["entries"]] == before
    assert page["served_by"] == "b"
    if fault == "missing":
        for words in (["export", "--cluster", "a"], ["trim"], ["rewind", "--cluster", "a", "--by", "1h"]):
            assert filled.hint("rebuild --all --cluster a") in filled(*words, code=2).stderr, words
        assert "back to" in filled("rewind", "--cluster", "b", "--by", "1h").stdout
    assert "damaged" in filled("export", "--cluster", "a", code=None).stderr
    assert "feedctl rebuild --all --cluster a" in error_of(filled, "a")
    assert "damaged" in error_of(filled, "a")
    assert "a  damaged" in filled("verify", code=1).stdout
    planned = filled("repair", "--dry-run", code=1).stdout
    assert "a  damaged: " in planned
    assert "user 0" not in planned

    filled("rebuild", "--all", "--cluster", "a")
    assert "no difference" in filled("verify").stderr
    assert filled.json("status")["clusters"]["a"]["error"] is None


def test_a_cluster_behind_a_link_is_made_again_behind_it(filled: Cli, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    data(filled).rename(disk / "b")
    data(filled).symlink_to(disk / "b")
    for _ in range(2):
        (disk / "b" / "CURRENT").unlink()

        filled("rebuild", "--all", "--cluster", "b")

        assert data(filled).readlink() == disk / "b"
        assert [each.name for each in disk.iterdir()] == ["b"]
        assert [each.name for each in data(filled).parent.glob("b.*")] == []
        assert "no difference" in filled("verify").stderr


def test_a_cluster_that_is_a_mount_point_says_so_before_anything_is_removed(
    filled: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda path: path == data(filled).resolve())
    said = f"{data(filled)} is a mount point, which cannot be replaced by a new cluster: name a directory in it"
    assert said in filled("check", code=2).stdout
    (data(filled) / "CURRENT").unlink()
    before = sorted(data(filled).iterdir())

    assert said in filled("rebuild", "--all", "--cluster", "b", code=2).stderr

    assert sorted(data(filled).iterdir()) == before


def empty_feeds(cli: Cli, cluster: str) -> None:
    """Takes every row of the feeds' table away, as a truncation does, and leaves the table of the progress."""
    with cli.ports(access="write") as ports:
        feeds = ports.replicas[cluster].tables[FEEDS]
        rows = [(row, columns) for row, columns in feeds.scan()]
        for row, columns in rows:
            newest = max(cell.timestamp for cell in feeds.cells(row))
            feeds.apply([DeleteColumns([(row, newest)], columns)])


@pytest.mark.processes
def test_feeds_that_were_emptied_next_to_their_progress_are_noticed(filled: Cli) -> None:
    before = filled.feed(1)
    empty_feeds(filled, "a")

    page = filled.json("feed", 1, "--limit", 1000)

    assert [pin for pin, _ in page["entries"]] == before
    assert page["served_by"] == "b"
    assert "feedctl rebuild --all --cluster a" in error_of(filled, "a")
    assert FEEDS in error_of(filled, "a")
    assert filled.hint("rebuild") in filled.process("--log-level", "critical", "work", "--until-idle", code=1).stderr

    filled.process("rebuild", "--all", "--cluster", "a")
    assert filled.export("a") == filled.export("b")
    assert "no difference" in filled("verify").stderr


def test_a_cluster_under_another_name_is_refused(filled: Cli) -> None:
    put_back(data(filled, "a"), data(filled, "b"))

    assert "this is cluster a, and feed.toml calls it b" in error_of(filled)
    assert filled.json("feed", 1)["served_by"] == "a"
    assert "cluster a" in filled("export", "--cluster", "b", code=None).stderr

    filled("rebuild", "--all", "--cluster", "b")
    assert "no difference" in filled("verify").stderr
    assert filled.export("b") == filled.export("a")


@pytest.mark.parametrize(
    ("a", "b", "are_one"),
    [
        ("hbase://x:1,y:1/n", "hbase://y:1/n?connections=2", True),
        ("hbase://x:1/n", "hbase://x:1/m", False),
        ("hbase://x:1/", "hbase://X:1/default", True),
        ("hbase://x:1/", "hbase://y:1/", False),
    ],
)
def test_two_clusters_with_the_tables_of_one_are_refused(tmp_path: Path, a: str, b: str, *, are_one: bool) -> None:
    text = configuration.DEFAULT.replace("rocksdb:data/a", a).replace("rocksdb:data/b", b)
    if are_one:
        with pytest.raises(configuration.ConfigError, match="are in one place"):
            configuration.parse(tmp_path, text, {})
    else:
        configuration.parse(tmp_path, text, {})


def test_a_home_of_an_earlier_version_goes_on(filled: Cli) -> None:
    """It has noted no name, no positions and no witnesses."""
    for cluster in ("a", "b"):
        opened = RocksCluster.open(data(filled, cluster), [progress_table(1), feed_table(1, 1, 1)])
        families = opened._files.families
        for family, kinds in ((families["progress"], b"anc"), (families[FEEDS], bytes(row[0] for row in ROWS))):
            for kind in kinds:
                row = bytes([kind]) + bytes(8)
                keys = rocksdb_files.take(opened.path, family, row, 1_000)
                for key in keys:
                    if key.startswith(row):
                        family.delete(key)
        opened.close()
        assert filled.json("status")["clusters"][cluster]["error"] is None

    filled("save-pin", 50, "--owner", 2, "--board", 20)
    filled.work()

    assert "no difference" in filled("verify").stderr
    with filled.ports() as ports:
        assert lag_of(ports.queue, DELIVERIES, "writer-b") == 0


ONLY_A = ["--cluster", "a"]


@pytest.mark.parametrize(
    "words",
    [
        ["verify"],
        ["verify", "--users", "1,404"],
        ["repair", "--dry-run"],
        ["repair"],
        ["rebuild", "1"],
        ["rebuild", "--all"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("gone", ["away", "lost deliveries"])
def test_while_a_cluster_is_gone_the_other_one_is_checked_and_mended_alone(
    filled: Cli, tmp_path: Path, words: list[object], gone: str
) -> None:
    """The other one serves all pages meanwhile."""
    if gone == "away":
        data(filled).rename(tmp_path / "away")
    else:
        with filled.ports(access="write") as ports:
            Progress(ports.replicas["b"].progress).note_applied({(NUMBERS[DELIVERIES], 0): 10**6})

    filled(*words, *ONLY_A)

    assert "cluster b" in str(filled.json("status", code=1)["problems"])


def test_a_command_that_needs_both_clusters_says_how_to_ask_one(filled: Cli, tmp_path: Path) -> None:
    data(filled).rename(tmp_path / "away")

    for command in ("verify", "repair"):
        said = filled(command, code=3).stderr
        assert f"to leave out what does not answer: {filled.hint(command)} --cluster NAME" in said


def test_a_verify_of_one_cluster_says_how_it_continues(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(Verifier, "look", interrupted)
    said = filled("verify", "--users", "1", *ONLY_A, code=130).stderr
    assert f"continue with: {filled.hint('verify --cluster a --users 1')}" in said
