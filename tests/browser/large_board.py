"""`python -m tests.browser.large_board`: a board of ten million pins, looked at in Chromium.

Makes the board in a home of its own, serves it, scrolls through thousands of pins, goes to its bottom and its middle,
and drags pins across all of it, by mouse and by keyboard. Prints how long that took, what the page held, and how many
requests each drag sent. It fails if a part of the board has a hole, if the page grows, or if a drag takes more than
one request.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver.common.keys import Keys

from bench.boards_made_up import Filling
from tests.browser.chromium import chromium
from tests.browser.served import Served
from tests.browser.sight import Sight
from tests.cli.command import Cli

CELLS_MAX = 150
HEAP_MAX_MIB = 30
NEAR = 0.1
"""How far from its place a jump by the slider may be, as a share of the board: it goes by estimates."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests.browser.large_board", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pins", type=int, default=10_000_000)
    parser.add_argument("--scrolled", type=int, default=20_000, help="how many pins are scrolled down, and up again")
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
        look = _Look(Sight(driver, served.address), served, chosen.pins, chosen.picture)
        look.all(chosen.scrolled)
    print("as it has to be" if not look.failed else "\n".join(look.failed))
    return int(bool(look.failed))


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


class _Look:
    """failed: what is wrong."""

    def __init__(self, sight: Sight, served: Served, pins: int, picture: Path | None) -> None:
        self.sight = sight
        self.driver = sight.driver
        self.served = served
        self.pins = pins
        self.picture = picture
        self.most = 0
        self._before = 0
        self.failed: list[str] = []

    def all(self, scrolled: int) -> None:
        with _timed("the first pins are shown"):
            self.driver.get(f"{self.sight.address}/?board=1")
            self.sight.until(lambda: self._shows(range(self.pins, self.pins - 20, -1)), "the board is shown")
        self.sight.says("access", "Access:")
        self.driver.execute_script("performance.setResourceTimingBufferSize(1_000_000)")
        self._held("at first")
        with _timed("it is known how the board is spread"):
            self.sight.until(lambda: self.sight.is_shown("board-slider"), "the slider is shown")
        print(f"  {self.sight.text('board-brief')}")
        for what, way in (("down", 1), ("up", -1)):
            with _timed(f"{scrolled:,} pins are scrolled {what}"):
                self._scroll(scrolled * way)
            self._held(f"scrolled {what}")
        with _timed("the bottom is shown"):
            self.sight.find("board-bottom").click()
            self.sight.until(lambda: self._shows(range(20, 0, -1)), "the bottom is shown")
        with _timed("the middle is shown"):
            self.sight.slide_to(0.5)
            self.sight.until(lambda: abs(self._pin() - self.pins / 2) < NEAR * self.pins, "the middle is shown")
        print(f"  it begins with pin {self._pin():,}")
        self._scroll(2_000)
        self._scroll(-4_000)
        self._held("after the middle")
        with _timed("the top is shown"):
            self.sight.find("board-top").click()
            self.sight.until(lambda: self._shows(range(self.pins, self.pins - 20, -1)), "the top is shown")
        self._drag_to_the_bottom()
        self._drag_to_the_middle()
        self._go_by_keyboard()
        self._held("at the end")

    # Dragging
    # ------------------------------------------------------------------------------------------------------------

    def _drag_to_the_bottom(self) -> None:
        pin = str(self.pins - 1)
        with self._one_request("by mouse, the second pin to directly above the lowest but one"):
            self._pick_up(pin)
            self.sight.mouse("mouseMoved", self.sight.find("board-bottom"))
            self.sight.until(lambda: "1" in self.sight.board(), "the bottom comes while the pin rests there")
            self._drop(pin, "2")

    def _drag_to_the_middle(self) -> None:
        pin = str(self.pins)
        self.sight.find("board-top").click()
        self.sight.until(lambda: self._shows([self.pins]), "the top is shown")
        with self._one_request("by mouse, the topmost pin into the middle"):
            self._pick_up(pin)
            self.sight.mouse("mouseMoved", self.sight.find("board-slider"))

            def middle() -> str | None:
                near = [each for each in self._order() if abs(int(each) - self.pins / 2) < NEAR * self.pins]
                return near[len(near) // 2] if len(near) > 20 else None

            self._drop(pin, self.sight.until(middle, "the middle comes while the pin rests there") or "")

    def _go_by_keyboard(self) -> None:
        self.sight.find("board-bottom").click()
        self.sight.until(lambda: self.sight.board()[-1:] == ["1"], "the bottom is shown")
        self.driver.execute_script("arguments[0].focus()", self.sight.cell("1"))
        with self._one_request("by keyboard, the lowest pin to the top"):
            self.sight.press(Keys.SPACE, Keys.HOME)
            self.sight.until(lambda: str(self.pins - 2) in self._order(), "the top comes while the pin is held")
            self.sight.press(Keys.SPACE)
        self._is_there("1", {"to": "top"})
        with self._one_request(f"by keyboard, it goes across {self.pins - 1:,} others, to the bottom"):
            self.sight.press(Keys.SPACE, Keys.END, Keys.SPACE)
        self._is_there("1", {"to": "bottom"})

    def _pick_up(self, pin: str) -> None:
        self.sight.rests()
        self.sight.mouse("mousePressed", self.sight.cell(pin))
        self.sight.mouse("mouseMoved", self.sight.cell(self.sight.board()[5]))
        self.sight.says("said", f"Pin {pin} picked up")
        if self.picture is not None:
            self.driver.save_screenshot(str(self.picture))

    def _drop(self, pin: str, over: str) -> None:
        """Next to another pin; and looks at the answer of the server."""
        self.sight.rests()
        self.sight.mouse("mouseMoved", self.sight.cell(over))

        def is_next_to() -> bool:
            order = self.sight.board()
            return abs(order.index(pin) - order.index(over)) == 1

        self.sight.until(is_next_to, "it is held there")
        order = self.sight.board()
        at = order.index(pin)
        self.sight.mouse("mouseReleased", self.sight.cell(over))
        self.sight.until(lambda: self._sent > self._before, "it has its answer")
        self._is_there(pin, {"before": order[at - 1], "after": order[at + 1]})

    @contextmanager
    def _one_request(self, what: str) -> Iterator[None]:
        self._before = self._sent
        with _timed(f"{what}, with what the hand waits for"):
            yield
            self.sight.until(lambda: self._sent > self._before, "it has its answer")
        sent = self._sent - self._before
        print(f"  requests of this drag: {sent}")
        if sent != 1:
            self.failed.append(f"{what}: {sent} requests")

    @property
    def _sent(self) -> int:
        return self.sight.moves_sent()

    def _is_there(self, pin: str, where: dict[str, str]) -> None:
        """A place that a pin has already is not taken again."""
        if self.served.ask("POST", f"/v1/boards/1/pins/{pin}/place", where)["changed"]:
            self.failed.append(f"pin {pin} was not where it was dropped: {where}")

    # Looking
    # ------------------------------------------------------------------------------------------------------------

    def _order(self) -> list[str]:
        """What is in the document, without the pin that is held."""
        held = "return document.querySelector('[data-held]')?.dataset.pin ?? null"
        pin = self.driver.execute_script(held)
        return [each for each in self.sight.board() if each != pin]

    def _shows(self, pins: Sequence[int]) -> bool:
        """Whether these are next to each other in the document. Their numbers descend by one: nothing was moved."""
        order = self.sight.board()
        wanted = [str(pin) for pin in pins]
        return wanted[0] in order and order[order.index(wanted[0]) :][: len(wanted)] == wanted

    def _pin(self) -> int:
        return int(self.sight.board()[0])

    def _scroll(self, pins: int) -> None:
        """Down, or up if negative: half a screen at a time, and never further than the pins that are there."""
        goal, way = self._pin() - pins, 1 if pins > 0 else -1
        scroll = "scrollBy({top: arguments[0] * innerHeight / 2, behavior: 'instant'})"
        until_s = time.monotonic() + 600
        while (self._pin() - goal) * way > 0:
            self.driver.execute_script(scroll, way)
            order = [int(pin) for pin in self.sight.board()]
            self.most = max(self.most, len(order))
            if order != list(range(order[0], order[0] - len(order), -1)):
                self.failed.append(f"a hole, or another order, in {order}")
                return
            if time.monotonic() > until_s:
                self.failed.append(f"it does not scroll from pin {order[0]} to pin {goal}")
                return

    def _held(self, when: str) -> None:
        self.most = max(self.most, len(self.sight.board()))
        self.driver.execute_cdp_cmd("HeapProfiler.collectGarbage", {})
        heap = self.driver.execute_script("return performance.memory.usedJSHeapSize / 2**20")
        reads = self.driver.execute_script(
            "return performance.getEntriesByType('resource').filter(each => each.name.includes('/pins?')).length"
        )
        print(f"  {when}: {self.most} cells in the document at most, heap {heap:.1f} MiB, {reads} pages read")
        if self.most > CELLS_MAX or heap > HEAP_MAX_MIB:
            self.failed.append(f"{when}: {self.most} cells, heap {heap:.1f} MiB")


@contextmanager
def _timed(what: str) -> Iterator[None]:
    began_s = time.perf_counter()
    yield
    print(f"{what}: {time.perf_counter() - began_s:.2f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
