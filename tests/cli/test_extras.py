"""What runs without the libraries of extras, and with those of `make demo` alone."""

import signal

import httpx
import pytest

from tests.cli.command import COMMAND_S, Cli
from tests.cli.extras import feedctl_with

pytestmark = pytest.mark.processes


def run(cli: Cli, program: str, *words: object) -> str:
    process = cli.interpreter(*words, program=program, text=True)
    stdout, stderr = process.communicate(timeout=COMMAND_S)
    assert process.returncode == 0, f"{words}: exit {process.returncode}\n{stdout}\n{stderr}"
    return str(stdout)


@pytest.fixture
def home(cli: Cli) -> Cli:
    cli.add("[catalogs.pins]\n[catalogs.ads]\n")
    return cli


def test_without_extras_help_names_every_command_and_a_home_with_catalogs_works(home: Cli):
    bare = feedctl_with()
    assert "catalog" in run(home, bare, "--help")
    home("follow", 1, "--user", 2)
    home("save-pin", 7, "--owner", 2, "--board", 3)
    run(home, bare, "work", "--until-idle")
    run(home, bare, "catalog", "build", "pins")
    assert "owner 2, board 3" in run(home, bare, "catalog", "get", "pins", 7)
    assert run(home, bare, "feed", 1).splitlines()


def test_the_extra_of_the_demo_serves_a_home_with_catalogs(home: Cli):
    process = home.interpreter("serve", "--port", 0, program=feedctl_with("http"), text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address, process.communicate(timeout=COMMAND_S)[1]
        catalogs = httpx.get(f"{address}/v1/catalogs").json()["catalogs"]
        assert {each["name"] for each in catalogs} == {"ads", "pins"}
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=COMMAND_S)
