"""What somebody in front of the site does and sees."""

from collections.abc import Callable
from typing import Any, TypeVar

from selenium.common.exceptions import ElementNotInteractableException, StaleElementReferenceException
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

DEADLINE_S = 60
# A frame is drawn first: what was changed a moment ago has not begun to move before that.
RESTS = (
    "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
    "() => done(document.getAnimations().length === 0))))"
)
T = TypeVar("T")


class Sight:
    """The site in a browser, at an address."""

    def __init__(self, driver: WebDriver, address: str) -> None:
        self.driver = driver
        self.address = address

    def open(self, user: int | None = None) -> None:
        self.driver.get(self.address + ("/" if user is None else f"/?user={user}"))

    def until(self, holds: Callable[[], T], what: str) -> T:
        ignored = [StaleElementReferenceException, ElementNotInteractableException]
        wait: Any = WebDriverWait(self.driver, DEADLINE_S, poll_frequency=0.1, ignored_exceptions=ignored)
        try:
            return wait.until(lambda _: holds())
        except Exception as error:
            text = self.driver.find_element(By.TAG_NAME, "body").text
            raise AssertionError(f"timed out waiting for: {what}\n{text}") from error

    def find(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def text(self, name: str) -> str:
        """What an element says, whether it is on the screen or not."""
        return str(self.find(name).get_property("textContent")).strip()

    def is_shown(self, name: str) -> bool:
        return self.find(name).is_displayed()

    def says(self, name: str, *words: str) -> None:
        """Waits until an element says something."""
        self.until(lambda: all(word in self.text(name) for word in words), f"{name} says {words}")

    def pins(self) -> list[str]:
        """The list as it is now, in one look."""
        script = "return [...document.querySelectorAll('#feed article')].map(each => each.dataset.pin)"
        return list(self.driver.execute_script(script))

    def shows(self, pins: list[str]) -> None:
        """Waits until the list is exactly this."""
        self.until(lambda: self.pins() == pins, f"the list is {pins}")

    def scroll_to_end(self) -> None:
        self.driver.execute_script("scrollTo(0, document.documentElement.scrollHeight)")

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def tab_to(self, selector: str) -> None:
        """Goes there as somebody without a pointer does."""
        focused = "return document.activeElement.matches(arguments[0])"
        for _ in range(60):
            if self.driver.execute_script(focused, selector):
                return
            self.press(Keys.TAB)
        raise AssertionError(f"no way to {selector} with the tab key")

    def chosen(self) -> str | None:
        return self.driver.execute_script("return document.querySelector('[data-chosen]')?.dataset.pin ?? null")

    def is_in_front(self, name: str) -> bool:
        """Whether an element is on the screen, and nothing in front of it from its left to its right."""
        script = (
            "const element = document.getElementById(arguments[0]), box = element.getBoundingClientRect();"
            "return [0.02, 0.25, 0.5, 0.75, 0.98].every(share => element.contains(document.elementFromPoint("
            "box.left + share * box.width, box.top + box.height / 2)))"
        )
        return bool(self.driver.execute_script(script, name))

    def scroll_by(self, px: int) -> None:
        """At once, as a wheel does."""
        self.driver.execute_script("scrollBy({top: arguments[0], behavior: 'instant'})", px)

    def resize(self, width: int, height: int, *, is_phone: bool = False) -> None:
        """The screen of this tab."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def touch(self, kind: str, *points: tuple[float, float]) -> None:
        """One event of one finger. kind: touchStart or touchMove with a point, or touchEnd."""
        at = [{"x": x, "y": y} for x, y in points]
        self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})

    def middle(self, of: WebElement) -> tuple[float, float]:
        script = (
            "const box = arguments[0].getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]"
        )
        x, y = self.driver.execute_script(script, of)
        return x, y

    # Boards
    # ----------------------------------------------------------------------------------------------------------------

    def board(self) -> list[str]:
        """The pins of a board that are in the document, by their positions."""
        script = (
            "return [...document.querySelectorAll('.cell')].sort((one, other) => one.dataset.at - other.dataset.at)"
            ".map(cell => cell.dataset.pin)"
        )
        return list(self.driver.execute_script(script))

    def cell(self, pin: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, f".cell[data-pin='{pin}']")

    def rests(self) -> None:
        """Waits until no cell glides to its place: the mouse goes to where a cell is seen, not to where it belongs."""
        self.until(lambda: self.driver.execute_script(RESTS), "no cell moves")

    def moves_sent(self) -> int:
        """How many moves of this tab have their answers."""
        script = "return performance.getEntriesByType('resource').filter(each => each.name.endsWith('/place')).length"
        return int(self.driver.execute_script(script))

    def slide_to(self, share: float) -> None:
        """Moves the slider, as a hand does."""
        script = (
            "const slider = document.getElementById('board-slider');"
            "slider.value = arguments[0] * slider.max; slider.dispatchEvent(new Event('input'))"
        )
        self.driver.execute_script(script, share)

    def mouse(self, kind: str, at: WebElement, share: float = 0.5) -> None:
        """One event, so that there is time to look at the page while the button is down. share: how far to the right in
        the element.
        """
        script = (
            "const box = arguments[0].getBoundingClientRect();"
            "return [box.x + arguments[1] * box.width, box.y + box.height / 2]"
        )
        x, y = self.driver.execute_script(script, at, share)
        event = {"type": kind, "x": x, "y": y, "button": "left", "buttons": int(kind != "mouseReleased")}
        self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", event | {"clickCount": 1})

    def is_on_screen(self, selector: str) -> bool:
        script = (
            "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return box.width > 0 && box.height > 0 && box.top >= 0 && box.bottom <= innerHeight"
        )
        return bool(self.driver.execute_script(script, selector))

    def act(self, button: str, kind: str, followee: int | str) -> None:
        """Follows or unfollows by the form."""
        self.until(lambda: self.find("followee").is_enabled(), "actions are allowed")
        self.driver.execute_script(f"document.getElementById('kind').value = '{kind}'")
        field = self.find("followee")
        field.clear()
        field.send_keys(str(followee))
        self.driver.find_element(By.CSS_SELECTOR, f"#follow button[value={button}]").click()

    def use_token(self, token: str) -> None:
        # Not by a click: the page opens it when a token is asked for, and a click just after that would close it.
        self.driver.execute_script("document.getElementById('token-panel').open = true")
        field = self.find("token")
        self.until(field.is_displayed, "the field for a token is there")
        field.send_keys(token, Keys.ENTER)
