"""Who only reads and records does not pay for numpy: 0.1 s at the start, and 11 MB."""

import subprocess
import sys

import pytest

from tests.cli.command import Cli

SERVICES = """
import sys
from pathlib import Path
import feedstore.widecolumn.hbase
from feedstore.app import config as configuration, services
from feedstore.domain import Pin, user
with services.open_services(configuration.load(Path(sys.argv[1]), {})) as services:
    services.feeds.save_pin(Pin(101, owner=2, board=9, created_ms=1341100973000))
    services.feeds.follow(1, user(2))
    services.feeds.page(1)
print("numpy" in sys.modules)
"""
FEED = """
import sys
from workers.cli import main
sys.argv = ["feedctl", "--home", sys.argv[1], "feed", "1"]
try:
    main()
finally:
    print("numpy" in sys.modules)
"""


@pytest.mark.parametrize("program", [SERVICES, FEED])
def test_what_only_reads_does_not_load_numpy(cli: Cli, program: str) -> None:
    found = subprocess.run([sys.executable, "-c", program, str(cli.home)], capture_output=True, text=True, check=False)
    assert found.stdout.split()[-1:] == ["False"], found.stderr
