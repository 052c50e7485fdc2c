"""A process that is forked from one with open services must not use them: servers for Python web applications fork."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from feedstore.app import config as configuration
from tests.cli.command import DEADLINE_S, Cli

_WEB_TIER = """
import json, os, sys
from pathlib import Path
from feedstore.app.catalogs import open_catalog
from feedstore.app.config import load
from feedstore.app.services import open_service, open_services
from feedstore.domain import Pin, user

config = load(Path(sys.argv[1]), {})
with open_service(config) as feeds, open_services(config) as services, open_catalog(config, "pins") as pins:
    calls = {
        "page": lambda: feeds.page(1),
        "pins_page": lambda: services.feeds.pins_page(1),
        "presence": lambda: feeds.presence(1, 7),
        "follow": lambda: feeds.follow(1, user(2)),
        "following": lambda: feeds.following(1),
        "place": lambda: services.boards.reorder_board_pin(9, 7, to="top"),
        "board": lambda: services.boards.page(9),
        "catalog": lambda: pins.begin([b"12345678"]),
    }

    def told():
        found = {}
        for name, call in calls.items():
            try:
                call()
                found[name] = ""
            except Exception as error:
                found[name] = f"{type(error).__name__}: {error}"
        return found

    feeds.save_pin(Pin(7, 2, 9, 1_000))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, json.dumps(told()).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as said:
        print(json.dumps([json.loads(said.read()), told()]))
    os.waitpid(child, 0)
"""


@pytest.mark.processes
def test_a_forked_process_is_told_to_open_its_own(tmp_path: Path):
    """It has no threads that read watermarks, and SQLite files, sockets and locks would be those of its parent too."""
    cli = Cli(tmp_path / "home")
    cli("init")
    config = cli.home / configuration.FILE_NAME
    config.write_text(config.read_text() + '\n[catalogs.pins]\nbuild = "6h"\n')
    cli.work()
    ran = subprocess.run(
        [sys.executable, "-c", _WEB_TIER, str(cli.home)],
        check=True,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    forked, first = json.loads(ran.stdout)
    assert set(first.values()) == {""}
    for name, error in forked.items():
        assert "UnavailableError" in error, name
        assert "open it in each process, after the fork only" in error, name
