"""Updates that are posted to a catalog on two real clusters: through Kafka, while a cluster is away, with killed
workers, and in a web process.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx
import pytest

from deploy.local import Stack
from feedstore.app.config import FILE_NAME
from tests.cli.command import Cli
from tests.http.http_servers import feedctl_serve
from tests.stack import homes
from tests.stack.homes import Part, eventually
from tests.stack.own_home import own_home
from workers.catalog.messages import Change, Posted, encode_update
from workers.catalog.topics import UPDATES

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

BEFORE = 1_341_100_000_000


class World(NamedTuple):
    """A home whose workers run, and the address of a server of it."""

    cli: Cli
    stack: Stack
    parts: list[Part]
    address: str


@pytest.fixture(scope="module")
def world(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two of its workers write cluster a. The home was made before it had the catalog."""
    with own_home(stack, tmp_path_factory.mktemp("updates") / "home") as cli:
        with (cli.home / FILE_NAME).open("a") as file:
            file.write('[catalogs.ads]\nttl = "1h"\n')
        told = cli("catalog", "update", "ads", "-", stdin="", code=None)
        assert told.exit_code != 0, "the topic is missing"
        eventually(lambda: cli("topics", "apply", code=None).exit_code == 0, "the topic is made")
        load(cli, {"a": 1, "b": 2}, BEFORE)
        parts = [*homes.parts_of(cli).values(), Part(cli, "writer-a-2", "write", "--cluster", "a")]
        with homes.telling(stack, parts), homes.running(parts), feedctl_serve(cli) as (_, address):
            eventually(lambda: all(each["known_ms"] > BEFORE for each in deltas(cli)), "what is known moves")
            yield World(cli, stack, parts, address)


def load(cli: Cli, records: dict[str, Any], as_of_ms: int) -> None:
    file = cli.home / "ads.jsonl"
    file.write_text("".join(json.dumps({"key": key, "record": record}) + "\n" for key, record in records.items()))
    cli("catalog", "load", "ads", file, "--as-of", as_of_ms, "--force")


def deltas(cli: Cli) -> list[dict[str, int]]:
    return [json.loads(line)["delta"] for line in cli("catalog", "list", "ads", "--json").stdout.splitlines()]


def now_ms(cli: Cli) -> int:
    with cli.ports() as ports:
        return ports.clock()


def post(world: World, *lines: dict[str, Any]) -> None:
    def posted() -> bool:
        answer = httpx.post(f"{world.address}/v1/catalogs/ads/updates", json={"updates": lines}, timeout=60)
        assert answer.status_code in (200, 503, 504), answer.text
        return answer.status_code == 200

    eventually(posted, "the updates are taken")


def held(world: World, *keys: str) -> Any:
    """What the web process says of them."""
    answer = httpx.post(f"{world.address}/v1/catalogs/ads/get", json={"keys": keys}, timeout=60)
    return answer.json()["records"] if answer.status_code == 200 else None


def said(world: World, key: str) -> list[Any]:
    """What each cluster says of a key."""
    lines = world.cli("catalog", "get", "ads", key, "--json", code=None).stdout.splitlines()
    return [json.loads(line)["record"] for line in lines if line.startswith("{")]


def test_updates_replace_what_a_web_process_holds_and_reach_both_clusters(world: World) -> None:
    assert all(each["floor_ms"] <= 1 for each in deltas(world.cli)), "nothing is missing: a batch of any age is fine"
    eventually(lambda: held(world, "a", "b") == {"a": 1, "b": 2}, "they are held")
    now = now_ms(world.cli)
    many = [{"key": f"k{number}", "time_ms": now, "record": number} for number in range(500)]  # on every partition
    post(world, {"key": "a", "time_ms": now, "record": [5]}, {"key": "b", "time_ms": now, "deleted": True}, *many)
    eventually(lambda: held(world, "a", "b") == {"a": [5]}, "the web process has heard of it")
    for key, record in (("a", "[5]"), ("b", None), ("k0", "0"), ("k499", "499")):
        eventually(lambda key=key, record=record: said(world, key) == [record] * 2, f"{key} is in both clusters")


def test_a_bad_message_is_buried_and_holds_up_nothing(world: World) -> None:
    now = now_ms(world.cli)
    with world.cli.ports() as ports:
        ports.queue.publish(UPDATES, [b"nonsense"])
        ports.queue.publish(UPDATES, [encode_update(Posted("gone", [Change(b"c", now, b"other")]))])
    world.cli("catalog", "update", "ads", "-", stdin=json.dumps({"key": "c", "time_ms": now, "record": 3}))
    eventually(lambda: said(world, "c") == ["3"] * 2, "what came after it has landed")

    def buried() -> set[str]:
        lines = world.cli("dead", "list", "--json").stdout.splitlines()
        return {each["group"] for each in map(json.loads, lines) if each["topic"] == UPDATES.name}

    eventually(lambda: buried() == {"catalog-ads-a", "catalog-ads-b"}, "each group has buried it")
    world.cli("dead", "drop", "--all")


def test_a_cluster_that_was_away_gets_what_it_missed_and_kills_lose_nothing(world: World) -> None:
    now = now_ms(world.cli)
    world.stack.suspend("hbase-a")
    try:
        lines = [{"key": f"away{number}", "time_ms": now, "record": number} for number in range(200)]
        post(world, *lines)
        eventually(lambda: held(world, "away0") == {"away0": 0}, "the other cluster answers")
        for part in world.parts:
            part.kill()
    finally:
        world.stack.up()
    for part in world.parts:
        part.remove()
        part.start()
    for number in (0, 99, 199):
        eventually(lambda number=number: said(world, f"away{number}") == [str(number)] * 2, f"away{number}")


def test_a_new_batch_and_a_rollback_keep_the_updates(world: World) -> None:
    now = now_ms(world.cli)
    early = {"key": "early", "time_ms": BEFORE + 5, "record": "early"}
    post(world, {"key": "a", "time_ms": now, "record": "update"}, early)
    eventually(lambda: said(world, "early") == ['"early"'] * 2, "updates are in")
    load(world.cli, {"a": "second", "early": "second"}, BEFORE + 10)
    assert [said(world, key) for key in ("a", "early")] == [['"update"'] * 2, ['"second"'] * 2]
    world.cli("catalog", "rollback", "ads")
    assert [said(world, key) for key in ("a", "early")] == [['"update"'] * 2, ['"early"'] * 2]


def test_status_names_the_groups(world: World) -> None:
    groups = world.cli.json("status", code=None)["groups"]
    assert {"catalog-ads-a", "catalog-ads-b"} <= groups.keys()
