"""A browser, and what it looks at."""

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver

from feedstore.domain import RESERVED_FROM
from tests.browser.chromium import chromium
from tests.browser.served import HOUR_MS, Served
from tests.browser.sight import Sight
from tests.cli.command import Cli

OLD = [str(pin) for pin in range(RESERVED_FROM - 1, RESERVED_FROM - 111, -1)]
"""The pins that user 1 is shown from user 2, newest first: no number of a browser holds them."""


@pytest.fixture(scope="session", autouse=True)
def _no_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("FEED_") or name.lower().endswith("_proxy"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    with chromium(tmp_path_factory.mktemp("chromium")) as driver:
        yield driver


@pytest.fixture
def driver(browser: WebDriver) -> Iterator[WebDriver]:
    """A tab of its own, as wide as a desk's, and nothing kept from the tab before."""
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.set_window_size(1440, 900)
    yield browser
    browser.close()
    browser.switch_to.window(first)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory, _no_environment: None) -> Cli:
    """A home whose watermarks move quickly. User 1 follows user 2, who saved OLD, an hour apart."""
    cli = Cli(tmp_path_factory.mktemp("template") / "home")
    cli("init")
    cli.set("tick", '"250ms"')
    now_ms = int(time.time() * 1_000)
    actions = [
        {"type": "follow", "ts": 1, "follower": 1, "user": 2},
        *(
            {"type": "save_pin", "ts": now_ms - (at + 1) * HOUR_MS, "pin": int(pin), "owner": 2, "board": 20 + at % 2}
            for at, pin in enumerate(OLD)
        ),
    ]
    cli("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in actions))
    cli.work()
    return cli


@pytest.fixture
def home(template: Cli, tmp_path: Path) -> Cli:
    shutil.copytree(template.home, tmp_path / "home")
    return Cli(tmp_path / "home")


@pytest.fixture
def served(home: Cli) -> Iterator[Served]:
    served = Served(home)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def sight(driver: WebDriver, served: Served) -> Sight:
    return Sight(driver, served.address)


LONG_BOARD = 39
LONG_PINS = 10_000
BOARDS = range(40, 60)
BOARD_PINS = 12


@pytest.fixture(scope="session")
def boards(template: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with many boards, for tests that change each another one. Pins are a ms apart: of board 40 they are 4001
    to 4012, the last one on top.
    """
    cli = Cli(tmp_path_factory.mktemp("boards") / "home")
    shutil.copytree(template.home, cli.home)
    now_ms = int(time.time() * 1_000) - HOUR_MS
    pins = [(100 * board + at, board, at) for board in BOARDS for at in range(1, BOARD_PINS + 1)]
    pins += [(1_000_000 + at, LONG_BOARD, at) for at in range(LONG_PINS)]
    actions = [
        {"type": "save_pin", "ts": now_ms + at, "pin": pin, "owner": 7, "board": board} for pin, board, at in pins
    ]
    cli("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in actions))
    cli.work()
    served = Served(cli)
    served.start()
    yield served
    served.stop()


@pytest.fixture
def board_sight(driver: WebDriver, boards: Served) -> Sight:
    return Sight(driver, boards.address)
