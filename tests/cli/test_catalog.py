"""catalog, on a home with a worker."""

import json
import random
import re
import shlex
import shutil
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from feedstore.app.catalogs import open_store
from feedstore.catalog.posting import AHEAD_MAX_MS
from tests.cli.command import Cli, eventually

BEFORE = 1_341_100_000_000
_SMALL_PARTS = """
import resource
from feedstore.catalog.rocksdb import generations
from workers.cli import main
generations._LOOK_EVERY_RECORDS = 1
generations.write.__defaults__ = (1,)
resource.setrlimit(resource.RLIMIT_NOFILE, (128, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
main()
"""
"""feedctl as in a shell in which few files may be open; the files of generations are small."""


@pytest.fixture
def home(cli: Cli) -> Cli:
    cli.add("[catalogs.pins]\n[catalogs.ads]\n")
    for pin in range(1, 6):
        cli("save-pin", pin, "--owner", 2, "--board", 9)
    return cli


def generations(cli: Cli, name: str = "pins", cluster: str = "a") -> list[dict[str, object]]:
    lines = [json.loads(line) for line in cli("catalog", "list", name, "--json").stdout.splitlines()]
    [found] = [line["generations"] for line in lines if line["cluster"] == cluster]
    return list(found)


def current(cli: Cli, cluster: str = "a") -> list[object]:
    return [each["id"] for each in generations(cli, cluster=cluster) if each["current"]]


def verified(cli: Cli) -> dict[str, int]:
    """How many pins were compared in each cluster, all of them the same in the catalog."""
    said = cli("catalog", "verify", "pins").stderr
    assert len(re.findall("no difference", said)) == 2
    return {cluster: int(count) for cluster, count in re.findall(r"^(\w+): (\d+) pins? compared", said, re.MULTILINE)}


def test_a_worker_builds_the_catalog_of_pins_and_keeps_it_fresh(home: Cli) -> None:
    worker = home.spawn("work")
    try:
        eventually(lambda: all(len(current(home, each)) == 1 for each in "ab"), "generations are in use")
        home("save-pin", 6, "--owner", 2, "--board", 9)
        home("delete-pin", 1)
        eventually(lambda: "owner 2, board 9" in home("catalog", "get", "pins", 6, code=None).stdout, "a new pin")
        eventually(lambda: "deleted" in home("catalog", "get", "pins", 1).stdout, "a deleted pin")
        eventually(lambda: verified(home) == {"a": 6, "b": 6}, "all pins can be compared")

        [first] = current(home)
        home("catalog", "build", "pins")
        assert current(home) != [first]
        home("catalog", "rollback", "pins")
        assert current(home) == [first]
        assert "owner 2" in home("catalog", "get", "pins", 6).stdout, "a rollback keeps the updates"
        assert "there is no generation before" in home("catalog", "rollback", "pins", code=1).stderr
        assert home("catalog", "collect", "pins", code=3).stderr, "the worker does that"
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def test_a_generation_that_was_lost_or_damaged_is_replaced_by_a_build(home: Cli) -> None:
    """There is none before it that could be used."""
    home("catalog", "build", "pins", "--cluster", "a")
    [lost] = current(home)
    directory = home.home / "data" / "a.catalog" / "pins"
    shutil.rmtree(directory / f"gen-{lost}")
    home("catalog", "build", "pins", "--cluster", "a")
    [damaged] = current(home)
    (directory / f"gen-{damaged}" / "generation.json").write_text("{")
    told = home("catalog", "build", "pins", "--cluster", "a", code=3).stderr
    assert "roll back, or use another generation; if there is none, build or load with --force" in told
    home("catalog", "build", "pins", "--cluster", "a", "--force")
    assert "owner 2" in home("catalog", "get", "pins", 1).stdout


def test_a_lost_queue_is_no_gap_for_pins(home: Cli) -> None:
    """`reindex` relays all actions again, so the delta lacks nothing, and no build is needed."""

    def floors() -> list[int]:
        lines = home("catalog", "list", "pins", "--json").stdout.splitlines()
        return [json.loads(line)["delta"]["floor_ms"] for line in lines]

    home.work()
    before = floors()
    home("save-pin", 6, "--owner", 2, "--board", 9)
    (home.home / "data" / "queue.db").unlink()
    home("reindex")
    home.work()
    assert floors() == before


def test_a_verify_that_has_compared_nothing_fails(home: Cli) -> None:
    home("catalog", "build", "pins")
    for pin in range(1, 6):
        home("delete-pin", pin)
    told = home("catalog", "verify", "pins", code=3).stderr
    assert "a: 0 pins compared" in told
    assert "5 not compared, because they changed after 20" in told
    assert "b: nothing was compared: all pins changed after the last update of the catalog" in told


def test_a_verify_compares_the_clusters_that_answer(home: Cli) -> None:
    home.work()
    home("catalog", "build", "pins")
    (home.home / "data" / "a.catalog" / "pins" / "CURRENT").write_text("{")
    told = home("catalog", "verify", "pins", code=3).stderr
    assert "b: 5 pins compared, no difference" in told
    assert "CURRENT is damaged" in told


def test_a_verify_says_that_there_are_no_pins(cli: Cli) -> None:
    cli.add("[catalogs.pins]\n")
    cli("catalog", "build", "pins")
    assert "a: nothing was compared: the follow store has no pins" in cli("catalog", "verify", "pins", code=3).stderr


def test_a_cluster_that_another_process_builds_is_left_to_it(home: Cli) -> None:
    config = configuration.load(home.home, {})
    with open_store(config, "pins", "a") as store, store.building("process 4711 on feed-3"):
        told = home("catalog", "build", "pins", code=3).stderr
    assert "a: not built: process 4711 on feed-3 is building it, since 20" in told
    assert "b: generation" in told
    assert (len(current(home, "a")), len(current(home, "b"))) == (0, 1)
    home("catalog", "build", "pins")
    assert len(current(home, "a")) == 1


def test_a_batch_that_is_older_than_the_one_in_use_needs_force(home: Cli, tmp_path: Path):
    file = tmp_path / "ads.jsonl"
    file.write_text('{"key": "a", "record": "late"}\n')
    home("catalog", "load", "ads", file, "--as-of", BEFORE + 1)
    home("catalog", "load", "ads", file, "--as-of", BEFORE + 1)
    file.write_text('{"key": "a", "record": "early"}\n')
    told = home("catalog", "load", "ads", file, "--as-of", BEFORE, code=1).stderr
    assert f"is as of {BEFORE + 1}, which is later" in told
    assert "--force" in told
    assert "late" in home("catalog", "get", "ads", "a").stdout
    home("catalog", "load", "ads", file, "--as-of", BEFORE, "--force")
    assert "early" in home("catalog", "get", "ads", "a").stdout


def load_ads(home: Cli, record: object, as_of_ms: int, *words: object, code: int = 0) -> str:
    file = home.home / "ads.jsonl"
    file.write_text(json.dumps({"key": "a", "record": record}) + "\n")
    return home("catalog", "load", "ads", file, "--as-of", as_of_ms, *words, code=code).stderr


def damage(home: Cli, cluster: str) -> None:
    """The catalog `ads` of a cluster does not answer any more."""
    (home.home / "data" / f"{cluster}.catalog" / "ads" / "CURRENT").write_text("{")


def ads(home: Cli) -> dict[str, object]:
    """The record that each cluster says; None: it does not answer."""
    lines = map(json.loads, home("catalog", "get", "ads", "a", "--json", code=None).stdout.splitlines())
    return {each["cluster"]: json.loads(each["record"]) if "record" in each else None for each in lines}


def test_a_cluster_that_is_away_keeps_no_other_from_a_load_and_a_rollback(home: Cli) -> None:
    for number in range(3):
        load_ads(home, number, BEFORE + number)
    first = generations(home, "ads")[0]["id"]
    damage(home, "a")
    told = load_ads(home, 3, BEFORE + 3, code=3)
    assert "a: not loaded: " in told
    assert "CURRENT is damaged" in told
    assert ads(home) == {"a": None, "b": 3}
    told = home("catalog", "rollback", "ads", code=3).stderr
    assert "a: not rolled back: " in told
    assert "repeat it with --cluster a" in told, "in b it would go back once more"
    assert ads(home) == {"a": None, "b": 2}
    home("catalog", "get", "ads", "a")
    assert "b: no record" in home("catalog", "get", "ads", "other", code=3).stdout, "a may have one"
    home("catalog", "use", "ads", first)
    assert ads(home) == {"a": 0, "b": 0}, "it is used again, and so mended"


def test_a_generation_of_one_cluster_is_used_there_whichever_it_is(home: Cli) -> None:
    for cluster in "ab":
        load_ads(home, cluster, BEFORE, "--cluster", cluster)
        load_ads(home, f"{cluster} again", BEFORE + 1, "--cluster", cluster)
    for cluster, other in ("ab", "ba"):
        [first, _] = generations(home, "ads", cluster)
        told = home("catalog", "use", "ads", first["id"], code=1).stderr
        assert f"{cluster}: generation {first['id']} is in use" in told
        assert f"{other}: not changed: " in told
    assert ads(home) == {"a": "a", "b": "b"}


def test_a_catalog_is_loaded_from_a_file_swapped_and_collected(home: Cli, tmp_path: Path) -> None:
    file = tmp_path / "ads.jsonl"
    file.write_text('{"key":"b","record":{"budget":5}}\n{"key":"a","record":"x"}\n')
    assert "2 records" in home("catalog", "load", "ads", file, "--as-of", BEFORE).stderr
    assert home("catalog", "get", "ads", "b").stdout.startswith('a: {"budget":5}  (generation 1341100000000-')
    assert "no record" in home("catalog", "get", "ads", "c", code=1).stdout
    file.write_text('{"key":"a","record":"y"}\n')
    assert "--force" in home("catalog", "load", "ads", file, "--as-of", BEFORE + 1, code=1).stderr
    home("catalog", "load", "ads", file, "--as-of", BEFORE + 1, "--force")
    assert home("catalog", "get", "ads", "a").stdout.startswith('a: "y"')
    first, second = (str(each["id"]) for each in generations(home, "ads"))
    home("catalog", "use", "ads", first)
    assert home("catalog", "get", "ads", "a").stdout.startswith('a: "x"')
    home("catalog", "use", "ads", second)
    home("catalog", "collect", "ads", "--keep", 1)
    assert [each["id"] for each in generations(home, "ads")] == [second]
    assert "no generation" in home("catalog", "use", "ads", first, code=1).stderr


def test_a_batch_of_the_future_is_refused_before_anything_is_written(home: Cli, tmp_path: Path) -> None:
    """As of in microseconds, say: it would hide each update, and no batch of the right time could be loaded again."""
    file = tmp_path / "ads.jsonl"
    file.write_text('{"key":"a","record":1}\n')
    with home.ports() as ports:
        now_ms = ports.clock()
    for as_of_ms in (now_ms * 1_000, now_ms + AHEAD_MAX_MS + 60_000):
        told = home("catalog", "load", "ads", file, "--as-of", as_of_ms, "--force", code=1).stderr
        assert "expected ms since 1970, at most 2 minutes ahead" in told
        assert generations(home, "ads") == []
    told = home("catalog", "load", "ads", file, "--as-of", now_ms // 1_000, "--force", code=1).stderr
    assert "this looks like seconds" in told
    assert generations(home, "ads") == []
    home("catalog", "load", "ads", file, "--as-of", now_ms)
    assert len(generations(home, "ads")) == 1


def test_what_cannot_be_is_said(home: Cli, tmp_path: Path) -> None:
    assert "no generation" in home("catalog", "get", "pins", 5, code=1).stdout
    assert "there are: pins, ads" in home("catalog", "list", "pines", code=2).stderr
    assert "there are: a, b" in home("catalog", "build", "pins", "--cluster", "c", code=2).stderr
    assert "catalog load ads" in home("catalog", "build", "ads", code=2).stderr
    assert "no catalog 'nope'; there are: " in home("catalog", "build", "nope", code=2).stderr
    (tmp_path / "pins.jsonl").write_text('{"key":"a","record":1}\n')
    told = home("catalog", "load", "pins", tmp_path / "pins.jsonl", "--as-of", BEFORE, code=2).stderr
    assert home.hint("catalog build pins") in told
    assert generations(home) == []
    assert "expected an id" in home("catalog", "get", "pins", "x", code=2).stderr
    assert "text that can be encoded as UTF-8" in home("catalog", "get", "ads", "\udcff", code=2).stderr
    assert "follow store" in home("catalog", "verify", "ads", code=2).stderr
    (tmp_path / "ads.csv").touch()
    assert ".jsonl" in home("catalog", "load", "ads", tmp_path / "ads.csv", "--as-of", 5, code=1).stderr


def test_a_catalog_that_is_empty_is_not_rolled_back_later_either(home: Cli) -> None:
    told = home("catalog", "rollback", "ads", code=1).stderr
    assert "a: not rolled back: " in told
    assert "load one" in told
    assert "repeat it" not in told


def test_a_home_without_catalogs_says_how_to_get_one(cli: Cli) -> None:
    assert "add [catalogs.pins]" in cli("catalog", "list").stderr
    assert "add [catalogs.pins]" in cli("catalog", "build", "pins", code=2).stderr


def followed(home: Cli, said: str, cluster: str) -> None:
    """Runs the command that a message names, as one copies it."""
    [command] = re.findall(rf"{re.escape(home.hint('catalog '))}([^;:()]+)", said)
    home("catalog", *shlex.split(command.replace("NAME", cluster)))


@pytest.mark.parametrize("name", ["pins", "ads"])
def test_a_catalog_of_which_it_is_not_known_what_is_in_use_is_mended_as_the_message_says(home: Cli, name: str) -> None:
    home.work()
    fill: tuple[object, ...] = ("build", "pins")
    if name == "ads":
        load_ads(home, 1, BEFORE)
        fill = ("load", "ads", home.home / "ads.jsonl", "--as-of", BEFORE + 1)
    else:
        home("catalog", *fill)
    (home.home / "data" / "a.catalog" / name / "CURRENT").write_text("{")
    said = home("catalog", *fill, code=3).stderr
    assert "; repeat it with --cluster a" in said

    followed(home, said, "a")

    home("catalog", *fill, "--cluster", "a")
    assert generations(home, name)[-1]["current"]
    home("catalog", "collect", name)


def test_status_shows_how_much_the_updaters_of_each_catalog_have_left(home: Cli) -> None:
    home.work()
    groups = home.json("status")["groups"]
    assert {name: lag for name, lag in groups.items() if name.startswith("catalog")} == {
        f"catalog-{name}-{cluster}": 0 for name in ("ads", "pins") for cluster in "ab"
    }


@pytest.mark.processes
def test_work_until_idle_ends_without_a_catalog_of_pins_that_is_damaged(home: Cli) -> None:
    home.work()
    (home.home / "data" / "a.catalog" / "pins" / "delta" / "CURRENT").unlink()
    home("save-pin", 6, "--owner", 2, "--board", 9)

    ended = home.process("--log-level", "error", "work", "--until-idle", "--wait", "100ms", code=3)

    assert "catalog pins of cluster a does not answer" in ended.stderr


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        ("CURRENT", "use a generation again: "),
        ("delta/CURRENT", "move this directory away"),
        ("gen-*/CURRENT", "roll back, or use another generation"),
    ],
)
def test_status_names_a_catalog_that_is_damaged_and_what_to_do(home: Cli, lost: str, said: str) -> None:
    home.work()
    home("catalog", "build", "pins")
    assert home.json("status")["problems"] == [], "a catalog that is still empty is none"
    (file,) = (home.home / "data" / "a.catalog" / "pins").glob(lost)
    file.write_text("{") if lost == "CURRENT" else file.unlink()
    [problem] = home.json("status", code=1)["problems"]
    assert problem.startswith("the catalog pins in cluster a does not answer: ")
    assert said in problem
    assert list(home.json("status", code=1)["away"]) == ["catalog_pins_a"]
    assert said in home("top", "--once", code=1).stdout


def test_a_catalog_that_has_lost_everything_but_what_named_it_is_filled_as_the_message_says(home: Cli) -> None:
    home.work()
    home("catalog", "build", "pins")
    place = home.home / "data" / "a.catalog" / "pins"
    (place / "CURRENT").write_text("{")
    for each in place.glob("gen-*"):
        shutil.rmtree(each)
    said = home("catalog", "build", "pins", "--cluster", "a", code=3).stderr
    assert f"{place / 'CURRENT'} is damaged" in said
    assert "remove it" in said

    (place / "CURRENT").unlink()
    followed(home, said, "a")

    assert verified(home) == {"a": 5, "b": 5}


def test_a_catalog_without_a_generation_in_use_is_filled_as_the_message_says(home: Cli) -> None:
    home.work()
    said = home("catalog", "get", "pins", "1", code=1).stdout.splitlines()[0]
    followed(home, said, "a")
    assert verified(home) == {"a": 5, "b": 5}


@pytest.mark.processes
def test_a_delta_that_is_damaged_is_made_again_as_the_message_says(home: Cli) -> None:
    """What was posted to it, and what pins became since the build, is in no generation."""
    home.work()
    home("catalog", "build", "pins")
    load_ads(home, "loaded", BEFORE)
    update = {"key": "a", "time_ms": BEFORE + 1, "record": "updated"}
    home("catalog", "update", "ads", "-", stdin=json.dumps(update) + "\n")
    home("save-pin", 6, "--owner", 2, "--board", 9)
    home.work()
    assert ads(home) == {"a": "updated", "b": "updated"}
    for name in ("pins", "ads"):
        delta = home.home / "data" / "a.catalog" / name / "delta"
        (delta / "CURRENT").unlink()
        said = home("catalog", "collect", name, code=3).stderr
        assert f"{delta}: damaged: " in said
        assert "move this directory away while no worker runs" in said
        delta.rename(home.home / f"{name}-away")

    with home.worker():
        eventually(lambda: ads(home) == {"a": "updated", "b": "updated"}, "the updates are read again")
        eventually(lambda: verified(home) == {"a": 6, "b": 6}, "the worker has built what no update tells")
    home("catalog", "collect", "ads")


@pytest.mark.processes
def test_a_generation_of_more_files_than_a_shell_may_open_is_loaded(home: Cli, tmp_path: Path) -> None:
    """A generation of 64 GiB has a thousand, and a shell may open as many; more is allowed to who asks."""
    file = tmp_path / "ads.jsonl"
    rng = random.Random(1)
    records = [{"key": f"{n:03}", "record": rng.randbytes(4_096).hex()} for n in range(300)]  # each fills a block
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    loading = home.spawn("catalog", "load", "ads", file, "--as-of", BEFORE, program=_SMALL_PARTS, text=True)
    _, said = loading.communicate(timeout=60)
    assert loading.returncode == 0, said
    assert len(list((home.home / "data" / "a.catalog" / "ads").glob("gen-*/*.sst"))) > 128
