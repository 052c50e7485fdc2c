"""The catalog of pins on two real clusters: built, updated by several workers, rolled back, and read while a cluster is
away.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from deploy.local import Stack
from feedstore.app.catalogs import open_catalog, place
from feedstore.app.config import FILE_NAME
from feedstore.catalog.pins import key_of
from feedstore.catalog.port import CatalogUnavailableError
from tests.cli.command import Cli
from tests.stack import homes
from tests.stack.homes import Part, eventually
from tests.stack.own_home import own_home

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(900)]

DEADLINE_S = 0.5


@pytest.fixture(scope="module")
def home(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Two of its workers write cluster a; the second one begins when there is a generation."""
    with own_home(stack, tmp_path_factory.mktemp("catalog") / "home") as cli:
        with (cli.home / FILE_NAME).open("a") as file:
            file.write("[catalogs.pins]\n")
        for pin in range(1, 6):
            cli("save-pin", pin, "--owner", 2, "--board", 9)
        parts, second = list(homes.parts_of(cli).values()), Part(cli, "writer-a-2", "write", "--cluster", "a")
        with homes.telling(stack, [*parts, second]), homes.running(parts):
            # While a table is made, its cluster does not answer yet.
            eventually(lambda: all(current(cli, each, code=None) for each in homes.CLUSTERS), "generations are in use")
            with homes.running([second]):
                eventually(lambda: second.gained() > 0, "both writers of a work")
                yield cli


def listed(cli: Cli, code: int | None = 0) -> dict[str, list[dict[str, object]]]:
    """By cluster, of those that answer. code: the exit status that is right; None: any."""
    lines = [json.loads(line) for line in cli("catalog", "list", "pins", "--json", code=code).stdout.splitlines()]
    return {line["cluster"]: line["generations"] for line in lines if "error" not in line}


def current(cli: Cli, cluster: str = "a", code: int | None = 0) -> list[object]:
    return [each["id"] for each in listed(cli, code).get(cluster, ()) if each["current"]]


def says(cli: Cli, pin: int, what: str) -> bool:
    """Of every cluster."""
    lines = cli("catalog", "get", "pins", pin, code=None).stdout.splitlines()
    return len(lines) == len(homes.CLUSTERS) and all(what in line for line in lines)


def compared(cli: Cli) -> int:
    """In which cluster how many pins were compared: the least. None of them differs."""
    said = cli("catalog", "verify", "pins").stderr
    counts = [int(count) for count in re.findall(r"(\d+) pins? compared, no difference", said)]
    assert len(counts) == len(homes.CLUSTERS)
    return min(counts)


def test_the_workers_build_the_catalog_and_keep_it_fresh(home: Cli) -> None:
    assert says(home, 5, "owner 2, board 9")
    for pin in range(6, 26):  # on every partition
        home("save-pin", pin, "--owner", 2, "--board", 9)
    home("delete-pin", 1)
    for pin in range(6, 26):
        eventually(lambda pin=pin: says(home, pin, "owner 2, board 9"), f"pin {pin}")
    eventually(lambda: says(home, 1, "deleted"), "a deleted pin")
    eventually(lambda: compared(home) == 25, "all pins can be compared")
    lines = [json.loads(line) for line in home("catalog", "list", "pins", "--json").stdout.splitlines()]
    before = {line["cluster"]: line["delta"]["known_ms"] for line in lines}

    def moves() -> bool:
        now = [json.loads(line) for line in home("catalog", "list", "pins", "--json").stdout.splitlines()]
        return all(line["delta"]["known_ms"] > before[line["cluster"]] for line in now)

    eventually(moves, "what is known moves in both clusters")


def test_a_build_is_used_and_a_rollback_keeps_the_updates(home: Cli) -> None:
    home("save-pin", 50, "--owner", 2, "--board", 9)
    eventually(lambda: says(home, 50, "owner 2"), "a pin is there")
    [first] = current(home)
    home("catalog", "build", "pins")
    [second] = current(home)
    assert second != first
    home("catalog", "rollback", "pins", "--cluster", "a")
    assert current(home) == [first]
    assert says(home, 50, "owner 2"), "a rollback keeps the updates"
    home("catalog", "use", "pins", second, "--cluster", "a")
    assert current(home) == [second]
    assert compared(home) >= 1
    home("catalog", "collect", "pins", "--keep", 1)
    assert [each["id"] for each in listed(home)["a"]] == [second]
    assert says(home, 50, "owner 2")


def test_the_other_cluster_answers_while_one_is_away(home: Cli, stack: Stack) -> None:
    config = homes.config_of(home)
    for away in homes.CLUSTERS:
        with open_catalog(config, "pins") as catalog, closing(place(config, "pins", away).reader()) as reader:
            stack.suspend(f"hbase-{away}")
            try:
                with pytest.raises(CatalogUnavailableError):
                    reader.fetch([key_of(5)], time.monotonic() + DEADLINE_S)
                got = catalog.begin([key_of(5)], time.monotonic() + 30).result()
            finally:
                stack.up()
        pin = got.records[key_of(5)]
        assert (pin.owner, pin.board) == (2, 9)
        assert got.behind_ms is not None
    home("save-pin", 60, "--owner", 2, "--board", 9)
    eventually(lambda: says(home, 60, "owner 2"), "both have what came since")
