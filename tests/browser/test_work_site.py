"""The page *Work*, in a real browser, on a real `feedctl serve` that takes samples of itself."""

import json

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from tests.browser.served import Served
from tests.browser.sight import Sight

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
INK = """
return [...document.querySelectorAll('#plots canvas')].map((each) => {
  const pixels = each.getContext('2d').getImageData(0, 0, each.width, each.height).data;
  return pixels.some((value, at) => at % 4 === 3 && value > 0);
});
"""


def has_plots(sight: Sight) -> None:
    sight.until(lambda: len(sight.driver.find_elements(By.CSS_SELECTOR, "#plots canvas")) == 4, "each plot has data")
    assert sight.driver.execute_script(INK) == [True] * 4


def titles(sight: Sight) -> list[str]:
    return [each.text for each in sight.driver.find_elements(By.CSS_SELECTOR, "#plots h3")]


def test_the_work_is_plotted_from_samples_of_the_server(served: Served, sight: Sight) -> None:
    for pin in range(601, 605):
        served.save(pin, owner=2, board=20)
        served.feed(1)
    sight.open(1)
    sight.until(lambda: len(sight.pins()) > 0, "a feed")
    sight.find("to-work").click()
    sight.says("work-brief", "own samples", "10 s")
    has_plots(sight)
    assert titles(sight) == ["Action to visible", "Lag", "Cells written", "Pages served"]
    groups = [each.text for each in sight.driver.find_elements(By.CSS_SELECTOR, "#plots .plot:nth-child(2) .key li")]
    assert [each.split()[0] for each in groups] == [
        "expander", "relay", "retries-a", "retries-b", "writer-a", "writer-b",
    ]  # fmt: skip
    assert not sight.is_shown("feed-view")
    assert not sight.is_shown("connection")
    assert sight.find("to-work").get_dom_attribute("aria-current") == "page", "an empty value means that it is not"
    logged = [each["message"] for each in sight.driver.get_log("browser") if "Content Security" in each["message"]]
    assert logged == [], "the library keeps to the policy"

    assert sight.find("user").get_property("value") == "1", "what was looked at is not forgotten"
    for back in (sight.driver.back, sight.find("to-start").click):
        back()
        sight.until(lambda: sight.is_shown("feed-view") and not sight.is_shown("work-view"), "the feed again")
        sight.says("feed-title", "Feed of user 1")
        assert sight.find("to-work").get_dom_attribute("aria-current") is None
        sight.find("to-work").click()
        sight.until(lambda: sight.is_shown("work-view"), "the work")


def test_a_server_that_was_away_while_the_work_was_shown_is_back_in_a_feed(served: Served, sight: Sight) -> None:
    sight.open(1)
    sight.until(lambda: len(sight.pins()) > 0, "a feed")
    script = """
        const real = window.fetch;
        window.isAway = true;
        window.fetch = (url, ...rest) => {
          if (!window.isAway || !String(url).endsWith("/v1/work")) return real(url, ...rest);
          return Promise.reject(new TypeError("away"));
        };
    """
    sight.driver.execute_script(script)
    sight.find("to-work").click()
    sight.says("connection", "The server cannot be reached")
    sight.driver.execute_script("window.isAway = false")
    sight.find("to-start").click()
    sight.until(lambda: not sight.is_shown("connection"), "the server answers what is asked now")


def test_plots_say_of_when_their_values_are(sight: Sight) -> None:
    midnight_ms = 1_700_006_400_000  # in UTC
    cells = {"name": "cells", "title": "Cells written", "says": "", "unit": "cells/s"}
    lag = {"name": "lag", "title": "Lag", "says": "", "unit": "messages"}
    work = {
        "source": "own",
        "every_ms": 10_000,
        "times_ms": [midnight_ms + 10_000 * at for at in range(4)],
        "plots": [
            cells | {"series": [{"name": "a", "values": [1.5, 2, 2.5, 3]}]},
            lag | {"series": [{"name": "relay", "values": [0, 1, 2, 3]}]},
        ],
    }
    script = f"""
        const [real, work] = [window.fetch, {json.dumps(json.dumps(work))}];
        window.fetch = (url, ...rest) =>
          String(url).endsWith("/v1/work") ? Promise.resolve(new Response(work)) : real(url, ...rest);
    """
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "UTC"})
    try:
        sight.driver.get(f"{sight.address}/?work")
        sight.says("plots", "a 3/s", "relay 3")
        assert times(sight) == ["2023-11-15 00:00:30"] * 2, "those of the last sample"
        over = sight.driver.find_elements(By.CSS_SELECTOR, "#plots .u-over")[1]
        ActionChains(sight.driver).move_to_element_with_offset(over, 2 - over.size["width"] // 2, 0).perform()
        sight.says("plots", "a 1.5/s", "relay 0")
        assert times(sight) == ["2023-11-15 00:00:00"] * 2, "all are pointed at together"
    finally:
        sight.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def times(sight: Sight) -> list[str]:
    return [each.text for each in sight.driver.find_elements(By.CSS_SELECTOR, "#plots figcaption time")]


def test_lines_at_the_same_place_take_turns_and_others_are_whole(sight: Sight) -> None:
    sight.open()
    lines = [
        ("relay", [0, 0, 5, 0, None]),
        ("writer-a", [0, 100, 100, 50, 3]),
        ("writer-b", [0, 100, 100, 50.4, 0]),
        ("writer-c", [0, 100, 0, 50, None]),
        ("retries-a", [0, 0, 0, 0, 0]),
        ("retries-b", [0, 0, 0, 0, 0]),
    ]
    dashes = sight.driver.execute_async_script(
        """
        const [lines, done] = arguments;
        const series = lines.map(([name, values]) => ({ name, values }));
        import("/parts/plots.js").then(({ dashesOf }) => done(dashesOf(series).map((each) => each ?? null)))
          .catch((error) => done(String(error)));
        """,
        lines,
    )
    assert dashes == [None, None, [6, 0, 6, 6], [6, 12], None, None]


def test_on_a_phone_the_plots_are_below_each_other_and_nothing_is_cut_off(sight: Sight) -> None:
    sight.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    try:
        sight.driver.get(f"{sight.address}/?work")
        sight.until(lambda: titles(sight) != [], "the plots")
        wide, shown = sight.driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide <= shown
        lefts = "return [...document.querySelectorAll('.plot')].map((each) => each.getBoundingClientRect().left)"
        assert len(set(sight.driver.execute_script(lefts))) == 1
    finally:
        sight.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_lines_are_told_apart_however_many_groups_there_are(sight: Sight) -> None:
    """Three clusters have eight groups, and there are six colours."""
    sight.open()
    groups = [f"{kind}-{cluster}" for cluster in "abcde" for kind in ("retries", "writer")]
    looks = sight.driver.execute_async_script(
        """
        const [names, done] = arguments;
        const series = names.map((name) => ({ name }));
        import("/parts/plots.js").then(({ lookOf }) => done(series.map((_, at) => Object.values(lookOf(series, at)))))
          .catch((error) => done(String(error)));
        """,
        groups,
    )
    assert len({(colour, kind) for colour, kind in looks}) == len(groups)
