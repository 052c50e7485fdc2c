"""The catalog card of the site: what it shows of generations, clusters and reads, and the way back from a bad build."""

import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from selenium.webdriver.chrome.webdriver import WebDriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browser.conftest import OLD
from tests.browser.served import Served
from tests.browser.sight import Sight
from tests.cli.command import Cli, eventually

pytestmark = pytest.mark.browser


class Shelf(NamedTuple):
    """A server with a catalog of pins in two generations, and tokens by what they allow."""

    served: Served
    tokens: dict[str, str]

    def clusters(self) -> list[Any]:
        return list(self.served.ask("GET", "/v1/catalogs", token=self.tokens["read"])["catalogs"][0]["clusters"])

    def current(self) -> list[int]:
        """Which generation each cluster uses, counted from the oldest."""
        return [
            next((place for place, each in enumerate(cluster["generations"]) if each["current"]), -1)
            for cluster in self.clusters()
        ]


@pytest.fixture(scope="module")
def shelf(template: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    cli = Cli(tmp_path_factory.mktemp("catalogs") / "home")
    shutil.copytree(template.home, cli.home)
    toml = cli.home / "feed.toml"
    toml.write_text(toml.read_text().replace("# tokens =", "tokens =") + "[catalogs.pins]\n")
    scopes = {"read": ["read"], "operate": ["read", "operate"]}
    tokens = {
        name: cli(
            "token", "new", "--name", name, *(word for scope in each for word in ("--scope", scope))
        ).stdout.strip()
        for name, each in scopes.items()
    }
    made = Shelf(Served(cli), tokens)
    made.served.start()
    eventually(lambda: made.current() == [0, 0], "the worker has built")
    cli("catalog", "build", "pins")
    eventually(lambda: made.current() == [1, 1], "the second build is in use")
    yield made
    made.served.stop()


@pytest.fixture
def card(driver: WebDriver, shelf: Shelf) -> Iterator[Sight]:
    """The card as an operator sees it, open, with the newest generation in use."""
    sight = Sight(driver, shelf.served.address)
    sight.open(1)
    sight.use_token(shelf.tokens["operate"])
    sight.until(lambda: sight.is_shown("catalogs-panel"), "the card is there")
    sight.until(lambda: places_in_use(sight) == [1, 1], "the newest generation is in use")
    yield sight
    to = {cluster["name"]: cluster["generations"][-1]["id"] for cluster in shelf.clusters()}
    shelf.served.ask("POST", "/v1/catalogs/pins/use", {"to": to}, shelf.tokens["operate"])


def places_in_use(sight: Sight) -> list[int]:
    """Which generation is marked on the time line of each cluster, from the left."""
    script = (
        "return [...document.querySelectorAll('.time-line')]"
        ".map(each => [...each.querySelectorAll('.dot')].findIndex(dot => dot.matches('.current')))"
    )
    return list(sight.driver.execute_script(script))


def in_use_in_words(sight: Sight) -> list[int]:
    """The same by the lists below, which have the newest first."""
    script = (
        "return [...document.querySelectorAll('.generations')].map(each => {"
        "  const lines = [...each.children].reverse();"
        "  return lines.findIndex(line => line.textContent.includes('in use'));"
        "})"
    )
    return list(sight.driver.execute_script(script))


def open_dialog(sight: Sight) -> None:
    sight.tab_to(".rollback")
    sight.press(Keys.ENTER)
    sight.until(lambda: sight.is_shown("rollback"), "it asks first")


def test_without_catalogs_there_is_no_card(served: Served, sight: Sight) -> None:
    sight.open(1)
    sight.says("letters-note", "No message has failed.")
    sight.until(lambda: asked_for_catalogs(sight) == 1, "the server was asked")
    looks = sight.driver.execute_script("return performance.getEntriesByType('resource').length")
    sight.until(
        lambda: sight.driver.execute_script("return performance.getEntriesByType('resource').length") > looks + 4,
        "more is asked",
    )
    assert asked_for_catalogs(sight) == 1, "it is not asked again"
    assert not sight.is_shown("catalogs-panel")


def asked_for_catalogs(sight: Sight) -> int:
    script = "return performance.getEntriesByType('resource').filter(each => each.name.endsWith('/v1/catalogs')).length"
    return int(sight.driver.execute_script(script))


def test_it_shows_generations_freshness_and_what_reads_found(shelf: Shelf, card: Sight) -> None:
    assert in_use_in_words(card) == [1, 1]
    card.says("catalogs", "cluster a", "cluster b", "behind", f"{len(OLD)} records", "since the oldest generation")
    for generation in shelf.clusters()[0]["generations"]:
        card.says("catalogs", generation["id"])
    shelf.served.ask("GET", "/v1/users/1/feed?hydrate=true&limit=100", token=shelf.tokens["read"])
    shelf.served.ask("GET", "/v1/users/1/feed?hydrate=true&limit=100", token=shelf.tokens["read"])
    card.says("catalogs-brief", "% held")
    card.until(
        lambda: (
            "held" in card.driver.find_element(By.CSS_SELECTOR, ".rates").text
            and "missing\n0 %" in card.driver.find_element(By.CSS_SELECTOR, ".rates").text
        ),
        "the rates",
    )


def test_a_rollback_by_keyboard_asks_first_and_says_what_it_did(shelf: Shelf, card: Sight) -> None:
    open_dialog(card)
    card.says("rollback-title", "Roll back pins?")
    card.says("rollback-clusters", "cluster a", "cluster b", "back to", f"({len(OLD)} records)")
    assert card.driver.switch_to.active_element.get_attribute("id") == "rollback-cancel", "nothing happens by accident"
    card.press(Keys.ESCAPE)
    card.until(lambda: not card.is_shown("rollback"), "it is called off")
    assert shelf.current() == [1, 1]
    assert card.driver.execute_script("return document.activeElement.className") == "rollback", "back where one was"

    card.press(Keys.ENTER)
    card.until(lambda: card.is_shown("rollback"), "it asks again")
    card.tab_to("#rollback-do")
    card.press(Keys.ENTER)
    card.says("catalogs-result", "Rolled back pins", "a uses the generation of", "b uses the generation of")
    assert shelf.current() == [0, 0]
    card.until(lambda: places_in_use(card) == in_use_in_words(card) == [0, 0], "the time line follows")
    card.until(lambda: not card.driver.find_element(By.CSS_SELECTOR, ".rollback").is_displayed(), "no further back")
    focused = "return document.activeElement.matches('#catalogs-panel summary')"
    card.until(lambda: card.driver.execute_script(focused), "the keyboard is still at the card")


def test_one_cluster_alone_is_rolled_back(shelf: Shelf, card: Sight) -> None:
    open_dialog(card)
    card.tab_to("#rollback-clusters input[value=a]")
    card.press(Keys.SPACE)
    card.tab_to("#rollback-clusters input[value=b]")
    card.press(Keys.SPACE)
    assert not card.find("rollback-do").is_enabled(), "nothing is chosen"
    card.press(Keys.SPACE)
    card.find("rollback-do").click()
    card.says("catalogs-result", "Rolled back pins", "b uses the generation of")
    assert "a uses" not in card.text("catalogs-result")
    assert shelf.current() == [1, 0]
    card.until(lambda: places_in_use(card) == [1, 0], "only that one")


REFUSED = """
    const real = window.fetch;
    window.fetch = (url, ...rest) => String(url).endsWith("/rollback")
      ? Promise.resolve(new Response(JSON.stringify({
          type: "urn:feedstore:problem:catalog-unavailable", title: "Catalog is unavailable", status: 503,
          detail: "b: it did not answer in time; a: 1-a is in use",
        }), { status: 503 }))
      : real(url, ...rest);
"""


def test_a_rollback_that_fails_says_why(shelf: Shelf, card: Sight) -> None:
    card.driver.execute_script(REFUSED)
    open_dialog(card)
    card.find("rollback-do").click()
    card.says("catalogs-result", "Catalog is unavailable", "b: it did not answer in time; a: 1-a is in use")
    assert shelf.current() == [1, 1]


def test_readers_see_it_and_cannot_roll_back(driver: WebDriver, shelf: Shelf) -> None:
    sight = Sight(driver, shelf.served.address)
    sight.open(1)
    sight.use_token(shelf.tokens["read"])
    sight.says("catalogs-note", "operators", "scope operate")
    sight.until(lambda: places_in_use(sight) == [1, 1], "the time lines")
    assert not driver.find_element(By.CSS_SELECTOR, ".rollback").is_displayed()


def test_on_a_phone_it_fits_and_the_dialog_too(shelf: Shelf, card: Sight) -> None:
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    card.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    card.driver.refresh()
    summary = card.driver.find_element(By.CSS_SELECTOR, "#catalogs-panel summary")
    card.until(summary.is_displayed, "the bar has it")
    summary = card.driver.find_element(By.CSS_SELECTOR, "#catalogs-panel summary")
    summary.click()
    card.until(lambda: places_in_use(card) == [1, 1], "the time lines")
    button = card.driver.find_element(By.CSS_SELECTOR, ".rollback")
    card.until(button.is_displayed, "the button")
    card.driver.execute_script("arguments[0].scrollIntoView()", button)
    button.click()
    card.until(lambda: card.is_shown("rollback"), "it asks")
    assert card.is_on_screen("#rollback")
    assert card.is_on_screen("#rollback-do")
    assert card.driver.execute_script("return document.documentElement.scrollWidth") == 360
    said: list[Any] = [each["message"] for each in card.driver.get_log("browser")]
    assert not [message for message in said if "Content Security Policy" in message or "Uncaught" in message], said
