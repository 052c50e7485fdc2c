"""A home without catalogs pays nothing for them."""

import subprocess
import sys
from pathlib import Path

from tests.cli.command import Cli

LOADED = """
import sys
from pathlib import Path
from feedstore.app import config as configuration, services
from workers.app import wiring as workers_wiring
from workers.cli import main
config = configuration.load(Path(sys.argv[1]), {})
with services.open_services(config) as services:
    services.feeds.pins_page(1)
ports = workers_wiring.open_ports(config, "write")
workers_wiring.worker(ports, config)
ports.close()
print(*sorted(name for name in sys.modules if ".catalog" in name or name == "cachebox"))
"""


def test_nothing_of_catalogs_is_loaded(cli: Cli) -> None:
    found = subprocess.run([sys.executable, "-c", LOADED, str(cli.home)], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["feedstore.catalog", "feedstore.catalog.settings"], "their section of feed.toml"
    assert not list(Path(cli.home).glob("data/*.catalog"))
