"""`python -m tests.browser.large_board`: a board of ten million pins, looked at in Chromium.

Makes the board in a home of its own, serves it, scrolls as far as the page goes, and drags pins across all of it.
Prints how long that took, what the page held, and how many requests each drag sent.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from bench.boards_made_up import Filling
from tests.browser.chromium import chromium
from tests.browser.served import Served
from tests.browser.sight import Sight
from tests.cli.command import Cli

KEPT = 100_000
"""How far the page goes, but for the rest of the page that was read last."""
PAGE_MAX = 500
CELLS_MAX = 150
_ORDER = (
    "return [...document.querySelectorAll('.cell')]"
    ".sort((one, other) => one.getAttribute('aria-posinset') - other.getAttribute('aria-posinset'))"
    ".map(cell => cell.dataset.pin)"
)
_REQUESTS = "return performance.getEntriesByType('resource').filter(each => each.name.endsWith('/place')).length"
_READS = "return performance.getEntriesByType('resource').filter(each => each.name.includes('/pins?')).length"
_HEAP = "return Math.round(performance.memory.usedJSHeapSize / 2**20)"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.browser.large_board", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pins", type=int, default=10_000_000)
    parser.add_argument("--home", type=Path, help="where the board is made, or was made before; it stays there")
    parser.add_argument("--picture", type=Path, help="where a picture of a pin that is held goes")
    chosen = parser.parse_args()
    for name in [name for name in os.environ if name.startswith("FEED_") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    with (
        tempfile.TemporaryDirectory() as folder,
        _served(chosen.home or Path(folder) / "home", chosen.pins) as served,
        chromium(Path(folder) / "chromium", "--enable-precise-memory-info") as driver,
    ):
        driver.set_window_size(1440, 900)
        failed = _looked_at(Sight(driver, served.address), served, chosen.pins, chosen.picture)
    print("as it has to be" if not failed else "\n".join(failed))
    return int(bool(failed))


@contextmanager
def _served(home: Path, pins: int) -> Iterator[Served]:
    cli = Cli(home)
    if not home.exists():
        cli("init")
        with _timed(f"{pins:,} pins are made"):
            filling = Filling(cli.home / "data" / "follows.db")
            filling.board(pins)
            filling.open().close()
    served = Served(cli)
    served.start()
    try:
        yield served
    finally:
        served.stop()


def _looked_at(sight: Sight, served: Served, pins: int, picture: Path | None) -> list[str]:
    """What is wrong."""
    driver = sight.driver
    top, second, third = (str(pins - at) for at in range(3))
    failed: list[str] = []

    def order() -> list[str]:
        return list(driver.execute_script(_ORDER))

    def dragged(what: str, pin: str, key: str, then: list[str]) -> None:
        before = driver.execute_script(_REQUESTS)
        driver.execute_script("arguments[0].focus()", driver.find_element("css selector", f".cell[data-pin='{pin}']"))
        sight.press(Keys.SPACE)
        sight.says("said", f"Pin {pin} picked up")
        if picture is not None:
            driver.save_screenshot(str(picture))
        with _timed(what):
            sight.press(key, Keys.SPACE)
            sight.until(lambda: driver.execute_script(_REQUESTS) > before, "it has its answer")
        sent = driver.execute_script(_REQUESTS) - before
        print(f"  requests of this drag: {sent}")
        shown = [line["pin"] for line in served.ask("GET", "/v1/boards/1/pins?limit=3")["pins"]]
        if sent != 1 or shown[: len(then)] != then:
            failed.append(f"{what}: {sent} requests, and then the board begins with {shown}")

    with _timed("the first pins are shown"):
        driver.get(f"{sight.address}/?board=1")
        sight.until(lambda: order()[:1] == [top], "the board is shown")
    sight.says("access", "Access:")
    driver.execute_script("performance.setResourceTimingBufferSize(1_000_000)")
    most = len(order())
    print(f"  cells in the document: {most}; heap: {driver.execute_script(_HEAP)} MiB")
    with _timed("scrolled as far as the page goes"):
        said_s = time.monotonic()
        while not sight.text("board-tail"):
            sight.scroll_to_end()
            most = max(most, len(driver.find_elements("css selector", ".cell")))
            if sight.is_shown("board-problem"):
                print(f"  {sight.text('board-problem')}")
                sight.find("board-more").click()
            if time.monotonic() - said_s > 10:
                print(f"  {sight.text('board-brief')}", flush=True)
                said_s = time.monotonic()
        sight.scroll_to_end()
    brief = sight.text("board-brief")
    print(f"  {brief}; reads: {driver.execute_script(_READS)}; most cells in the document: {most}")
    print(f"  heap: {driver.execute_script(_HEAP)} MiB")
    read = int("".join(filter(str.isdigit, brief)))
    if not 0 < most < CELLS_MAX or not min(pins, KEPT) <= read < KEPT + PAGE_MAX:
        failed.append(f"{most} cells, {brief}")
    lowest = order()[-1]
    dragged(f"the pin at place {read:,} goes to the top", lowest, Keys.HOME, [lowest, top, second])
    driver.execute_script("scrollTo(0, 0)")
    sight.until(lambda: order()[:2] == [lowest, top], "it is on top")
    dragged(f"the topmost pin goes across {pins - 1:,} others", lowest, Keys.END, [top, second, third])
    again = served.ask("POST", f"/v1/boards/1/pins/{lowest}/place", {"to": "bottom"})
    if again["changed"]:
        failed.append("the pin that went to the bottom was not there")
    return failed


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began_s = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began_s:.2f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
