"""Updates of a catalog that is loaded from files, on a home with a worker."""

import json
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from feedstore.app import config as configuration
from feedstore.app.catalogs import open_catalog, open_catalogs
from feedstore.catalog.port import MAX_RECORD_BYTES
from feedstore.clocks import wall_ms
from tests.catalog.memory_catalog import MemoryCatalog
from tests.cli.command import DEADLINE_S, Cli, eventually
from tests.http.http_servers import feedctl_serve
from tests.queue.memory_queue import MemoryQueue, MemoryTail
from workers.app import wiring
from workers.app.catalogs import listening
from workers.catalog.messages import Change, Posted, encode_update
from workers.catalog.topics import UPDATES
from workers.catalog.updater import updater_group
from workers.queue.embedded import stored_partitions
from workers.queue.port import Message, Topic, lag_of

BEFORE = 1_341_100_000_000
"""The as_of of what is loaded: years ago, and yet the updates of today are all there are."""


@pytest.fixture
def home(cli: Cli) -> Cli:
    """One that was made before it had the catalog `ads`."""
    with_ads(cli)
    return cli


def with_ads(cli: Cli, more: str = "") -> None:
    cli.add(f"[catalogs.ads]\n{more}")


def load(cli: Cli, records: dict[str, Any], as_of_ms: int = BEFORE) -> None:
    file = cli.home / "ads.jsonl"
    file.write_text("".join(json.dumps({"key": key, "record": record}) + "\n" for key, record in records.items()))
    cli("catalog", "load", "ads", file, "--as-of", as_of_ms, "--force")


def update(cli: Cli, *lines: dict[str, Any]) -> str:
    text = "".join(json.dumps(each) + "\n" for each in lines)
    return cli("catalog", "update", "ads", "-", stdin=text).stderr


def now_ms(cli: Cli) -> int:
    with cli.ports() as ports:
        return ports.clock()


def said(cli: Cli, key: str) -> list[Any]:
    """What each cluster says of a key."""
    lines = cli("catalog", "get", "ads", key, "--json", code=None).stdout.splitlines()
    return [json.loads(line)["record"] for line in lines]


def deltas(cli: Cli) -> list[dict[str, int]]:
    return [json.loads(line)["delta"] for line in cli("catalog", "list", "ads", "--json").stdout.splitlines()]


def test_updates_are_in_every_cluster_once_a_worker_is_idle(home: Cli) -> None:
    load(home, {"a": 1, "b": 2, "c": 3})
    now = now_ms(home)
    posted = update(
        home,
        {"key": "a", "time_ms": now, "record": {"bid": 7}},
        {"key": "b", "time_ms": now, "deleted": True},
        {"key": "d", "time_ms": now, "base64": "IngiCg=="},
        {"key": "c", "time_ms": BEFORE, "record": "older than the batch"},
    )
    assert posted == "4 updates posted\n"
    home.work()
    assert [said(home, key) for key in "abcd"] == [['{"bid":7}'] * 2, [None] * 2, ["3"] * 2, ['"x"\n'] * 2]


@pytest.mark.processes
def test_work_until_idle_ends_without_a_catalog_that_is_damaged(home: Cli) -> None:
    load(home, {"a": 1})
    home.work()
    (home.home / "data" / "a.catalog" / "ads" / "delta" / "CURRENT").unlink()
    update(home, {"key": "a", "time_ms": now_ms(home), "record": 2})
    home("save-pin", 5, "--owner", 2, "--board", 9)

    ended = home.process("--log-level", "error", "work", "--until-idle", "--wait", "100ms", code=3)

    assert "everything else has landed" in ended.stderr
    assert "catalog ads of cluster a does not answer" in ended.stderr
    assert json.loads(home("catalog", "get", "ads", "a", "--json", code=None).stdout.splitlines()[-1])["record"] == "2"


def test_the_newest_wins_and_of_equals_the_deletion_whatever_the_order(home: Cli) -> None:
    load(home, {})
    now = now_ms(home)
    update(home, {"key": "a", "time_ms": now, "record": "new"}, {"key": "a", "time_ms": now - 1, "record": "old"})
    update(home, {"key": "b", "time_ms": now, "deleted": True}, {"key": "b", "time_ms": now, "record": "equal"})
    home.work()
    update(home, {"key": "a", "time_ms": now - 1, "record": "old"})
    home.work()
    assert [said(home, key) for key in "ab"] == [['"new"'] * 2, [None] * 2]


def test_a_new_batch_and_a_rollback_keep_the_updates_that_are_later(home: Cli) -> None:
    load(home, {"a": "first", "b": "first"})
    now = now_ms(home)
    early = {"key": "b", "time_ms": BEFORE + 5, "record": "early"}
    update(home, {"key": "a", "time_ms": now, "record": "update"}, early)
    home.work()
    load(home, {"a": "second", "b": "second"}, BEFORE + 10)
    assert [said(home, key) for key in "ab"] == [['"update"'] * 2, ['"second"'] * 2]
    home("catalog", "rollback", "ads")
    assert [said(home, key) for key in "ab"] == [['"update"'] * 2, ['"early"'] * 2]


def test_a_delta_that_lost_nothing_takes_batches_of_any_age_and_what_it_knows_advances(home: Cli) -> None:
    load(home, {"a": 1}, BEFORE)
    home.work()
    first = deltas(home)
    assert all(each["floor_ms"] <= 1 for each in first)
    load(home, {"a": 2}, BEFORE + 1)
    home.work()
    assert all(now["known_ms"] > before["known_ms"] > BEFORE for now, before in zip(deltas(home), first, strict=True))
    home("catalog", "collect", "ads", "--keep", 1)
    home("catalog", "verify", "ads", code=2)


def test_bad_messages_become_dead_letters_and_hold_up_nothing(home: Cli) -> None:
    load(home, {})
    now = now_ms(home)
    with home.ports() as ports:
        ports.queue.publish(UPDATES, [b'{"v":1,"body":{"type":"updates","catalog":"ads","updates":[["",1,null]]}}'])
        ports.queue.publish(UPDATES, [encode_update(Posted("gone", [Change(b"a", now, b"other")]))])
    update(home, {"key": "a", "time_ms": now, "record": 5})
    home.work()
    assert said(home, "a") == ["5"] * 2
    listed = [json.loads(line) for line in home("dead", "list", "--json").stdout.splitlines()]
    # Each cluster has its own group: either may be first.
    assert sorted((each["topic"], each["group"], each["reason"]) for each in listed) == [
        ("feed.updates", "catalog-ads-a", "malformed"),
        ("feed.updates", "catalog-ads-b", "malformed"),
    ]
    assert "kept: malformed" in home("dead", "retry", "--all", code=1).stderr
    good = encode_update(Posted("ads", [Change(b"b", now, b"6")]))
    with home.ports() as ports:
        ports.dead.bury(UPDATES, "catalog-ads-a", "failed", "it was a full moon", 1, good)
    letter = [json.loads(line)["id"] for line in home("dead", "list", "--json").stdout.splitlines()][-1]
    assert "1 sent again" in home("dead", "retry", letter).stderr
    home("dead", "drop", "--all")
    home.work()
    assert said(home, "b") == ["6"] * 2


def test_status_lists_what_the_updaters_have_left_to_do(home: Cli) -> None:
    home.work()
    update(home, {"key": "a", "time_ms": now_ms(home), "record": 1})
    groups = home.json("status")["groups"]
    assert {name: lag for name, lag in groups.items() if name.startswith("catalog")} == {
        "catalog-ads-a": 1,
        "catalog-ads-b": 1,
    }
    assert "catalog-ads-a 1" in home("status").stdout
    home.work()
    assert home.json("status")["idle"]


def test_top_knows_the_pace_of_the_updaters(home: Cli) -> None:
    home.work()
    lines = [line.split() for line in home("top", "--once", "--every", "10ms").stdout.splitlines()]
    assert [words for words in lines if words[:1] == ["catalog-ads-a"]] == [["catalog-ads-a", "0", "0"]]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"key":"","time_ms":1,"record":1}', "key: expected text of 1 to 256 characters, got ''"),
        ('{"key":"a","record":1}', "time_ms"),
        ('{"key":"a","time_ms":0,"record":1}', "time_ms: expected a time in ms since 1970, from 1 to 2^53-1, got 0"),
        ('{"key":"a","time_ms":1}', "expected one of"),
        ('{"key":"a","time_ms":1,"record":1,"deleted":true}', "expected one of"),
        ('{"key":"a","time_ms":1,"records":1}', "records"),
        (f'{{"key":"a","time_ms":1,"record":"{"x" * MAX_RECORD_BYTES}"}}', "at most 65536 bytes"),
        ('{"key":"a","time_ms":9000000000000,"record":1}', "at most 2 minutes ahead"),
        ("nonsense", "malformed"),
    ],
)
def test_a_line_that_is_no_update_is_named(home: Cli, line: str, why: str) -> None:
    good = '{"key":"a","time_ms":1,"record":1}'
    told = home("catalog", "update", "ads", "-", stdin=f"{good}\n\n{line}\n", code=1).stderr
    assert "stdin:3: " in told
    assert why in told


def test_what_takes_no_updates_is_said(home: Cli, tmp_path: Path) -> None:
    home.add("[catalogs.pins]\n")
    assert "saved and deleted pins update it" in home("catalog", "update", "pins", "-", code=1).stderr
    assert "there are: ads, pins" in home("catalog", "update", "offers", "-", code=2).stderr
    assert "feedctl catalog update ads changes.jsonl" in home("catalog", "update", "--help").stdout


def test_a_lost_queue_may_have_held_updates(home: Cli) -> None:
    load(home, {"a": 1})
    home.work()
    (home.home / "data" / "queue.db").unlink()
    home("reindex")
    home.work()
    assert all(each["floor_ms"] > BEFORE for each in deltas(home))
    listed = home("catalog", "list", "ads").stdout
    assert listed.count(" d ago") == 2, "each is as far as its batch of years ago, whatever has come since"
    file = home.home / "ads.jsonl"
    told = home("catalog", "load", "ads", file, "--as-of", now_ms(home) - 1_000, code=1).stderr
    assert "may be missing" in told


# Homes that need none of it
# --------------------------------------------------------------------------------------------------------------------


def topics(cli: Cli) -> set[str]:
    return set(stored_partitions(cli.home / "data" / "queue.db"))


def test_a_home_with_pins_only_has_no_topic_of_updates(cli: Cli) -> None:
    cli.add("[catalogs.pins]\n")
    cli.work()
    assert topics(cli) == {"feed.actions", "feed.deliveries", "feed.retries"}
    assert not any("ads" in group for group in cli.json("status")["groups"])


def test_a_home_that_had_such_a_catalog_and_has_it_no_more_works(home: Cli) -> None:
    load(home, {})
    update(home, {"key": "a", "time_ms": now_ms(home), "record": 1})
    home.work()
    home.change("[catalogs.ads]\n", "")
    assert "feed.updates" in topics(home)
    home.work()
    wiring.create(configuration.load(home.home, {}))


# Web processes
# --------------------------------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_an_update_replaces_what_two_web_processes_hold(cli: Cli) -> None:
    with_ads(cli, 'ttl = "1h"\n')
    load(cli, {"a": 1, "b": 2})

    def got(address: str) -> Any:
        answer = httpx.post(f"{address}/v1/catalogs/ads/get", json={"keys": ["a", "b"]}, timeout=60)
        return answer.json()["records"] if answer.status_code == 200 else None

    with feedctl_serve(cli) as (_, working), feedctl_serve(cli) as (_, serving):
        both = (working, serving)
        eventually(lambda: [got(each) for each in both] == [{"a": 1, "b": 2}] * 2, "both hold them")
        now = now_ms(cli)
        lines = [{"key": "a", "time_ms": now, "record": [5]}, {"key": "b", "time_ms": now, "deleted": True}]
        answer = httpx.post(f"{serving}/v1/catalogs/ads/updates", json={"updates": lines}, timeout=60)
        assert (answer.status_code, answer.json()) == (200, {"catalog": "ads", "updates": 2})
        eventually(lambda: [got(each) for each in both] == [{"a": [5]}] * 2, "both have heard of it")
        eventually(lambda: said(cli, "a") == ["[5]"] * 2, "and both clusters have it")
        groups = {each["group"]: each["topic"] for each in httpx.get(f"{serving}/v1/status").json()["groups"]}
        assert (groups["catalog-ads-a"], groups["catalog-ads-b"]) == ("feed.updates", "feed.updates")
        eventually(
            lambda: "feed_catalog_heard_behind_seconds" in httpx.get(f"{serving}/metrics").text, "what is heard is said"
        )


def test_a_ttl_that_is_shorter_than_the_time_between_ticks_does_not_end_hearing(cli: Cli) -> None:
    """The queue would be opened again all the time, and its tail would miss what is posted meanwhile."""
    cli.set("tick", '"1s"')
    with_ads(cli, 'ttl = "10ms"\n')
    config = configuration.load(cli.home, {})
    opened, polled = [], threading.Semaphore(0)

    class Tail(MemoryTail):
        def poll(self, limit: int, timeout_s: float) -> list[Message]:
            polled.release()
            return super().poll(limit, timeout_s)

    class Opened(MemoryQueue):
        def tail(self, topic: Topic[object]) -> MemoryTail:
            opened.append(topic)
            return Tail(self._state, topic, "a tail", [0])

    with (
        open_catalog(config, "ads") as catalog,
        listening(config, {"ads": catalog}, lambda: Opened({UPDATES: 1}, wall_ms), wall_ms),
    ):
        for _ in range(4):
            assert polled.acquire(timeout=DEADLINE_S)
    assert opened == [UPDATES]


def test_a_web_process_looks_at_the_clusters_before_it_holds_a_record(home: Cli) -> None:
    """Otherwise it would not notice a rollback that comes between its first record and its first look."""
    load(home, {"a": "loaded"})
    with open_catalogs(configuration.load(home.home, {})) as service:
        [state] = service.states()
        assert [facts is None for facts in state.facts.values()] == [False, False]


@pytest.mark.processes
def test_a_worker_that_is_made_again_on_the_same_ports_enters_updates_too(home: Cli) -> None:
    """As `feedctl serve` makes one after a failure."""
    load(home, {"a": "loaded"})
    config = configuration.load(home.home, {})
    groups = [updater_group("ads", each) for each in ("a", "b")]
    deadline_s = time.monotonic() + DEADLINE_S
    with home.ports(access="write") as ports:

        def is_over() -> bool:
            return not any(lag_of(ports.queue, UPDATES, each) for each in groups) or time.monotonic() > deadline_s

        for number in range(2):
            update(home, {"key": "a", "time_ms": ports.clock(), "record": number})
            wiring.worker(ports, config).run(is_over)
            assert said(home, "a") == [str(number)] * 2


@pytest.mark.processes
def test_a_delta_that_is_put_back_under_its_worker_gets_what_it_lacks(home: Cli) -> None:
    load(home, {"a": "loaded"})
    config = configuration.load(home.home, {})
    group = updater_group("ads", "a")
    store = MemoryCatalog()
    store.use(store.load(BEFORE, []).id)
    with home.ports(access="write") as ports:

        def has_all(known_ms: int) -> bool:
            return not lag_of(ports.queue, UPDATES, group) and store.delta().known_ms > known_ms

        def steps() -> Iterator[bool]:
            deadline_s = time.monotonic() + DEADLINE_S
            while not has_all(0):
                yield False
            copy = dict(store._updates), store._delta, dict(store._noted)
            update(home, {"key": "b", "time_ms": ports.clock(), "record": 1})
            while not (has_all(copy[1].known_ms) and b"b" in store._updates):
                yield False
            store._updates, store._delta, store._noted = copy
            while b"b" not in store._updates:
                yield time.monotonic() > deadline_s
            yield True

        ports.once(("ads", "a"), lambda: store)
        wiring.worker(ports, config).run(partial(next, steps()))
    assert store.fetch([b"b"]).records == {b"b": b"1"}


def test_a_worker_that_is_killed_loses_no_update(home: Cli) -> None:
    load(home, {})
    now = now_ms(home)
    for each in range(2):
        worker = home.spawn("work")
        try:
            update(home, *({"key": f"{each}-{n}", "time_ms": now, "record": n} for n in range(2_500)))
            eventually(lambda each=each: "0" in said(home, f"{each}-0"), "an update has landed")
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.communicate(timeout=60)
    eventually(lambda: home.json("status", code=None)["worker"] is None, "the worker's processes have ended")
    home.work()
    assert all(said(home, f"{each}-{n}") == [str(n)] * 2 for each in range(2) for n in (0, 999, 1_000, 2_499))
    assert [each["entries"] for each in deltas(home)] == [5_000] * 2


@pytest.mark.processes
def test_a_catalog_that_was_put_back_from_a_copy_gets_what_it_lacks(home: Cli) -> None:
    load(home, {})
    home.work()
    [directory] = (home.home / "data").glob("*a.catalog")
    shutil.copytree(directory, home.home / "copy")
    update(home, {"key": "a", "time_ms": now_ms(home), "record": 1})
    home.work()
    shutil.rmtree(directory)
    shutil.move(home.home / "copy", directory)
    assert said(home, "a") == [None, "1"]
    home.work()
    assert said(home, "a") == ["1", "1"]
