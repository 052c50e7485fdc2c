"""The site at `/`, in a real browser, on a real `feedctl serve`."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from feedstore.domain import RESERVED_FROM
from tests.browser.conftest import OLD
from tests.browser.served import Served, arriving
from tests.browser.sight import Sight
from tests.cli.command import Cli
from workers.following.topics import ACTIONS

pytestmark = pytest.mark.browser

PAGE = 25


def go_to_end(sight: Sight, each: Callable[[], Any] = lambda: None) -> None:
    """Scrolls until the feed has ended. each: is called before each step."""
    while not sight.text("tail").startswith("The end"):
        length = len(sight.pins())
        each()
        sight.scroll_to_end()
        sight.until(
            lambda so_far=length: len(sight.pins()) > so_far or sight.text("tail").startswith("The end"),
            "the list grows",
        )


def pages_by_cursor(sight: Sight) -> int:
    script = "return performance.getEntriesByType('resource').map(each => each.name)"
    return len([each for each in sight.driver.execute_script(script) if f"limit={PAGE}&cursor=" in each])


# Scrolling
# --------------------------------------------------------------------------------------------------------------------


def test_pins_that_arrive_make_a_scrolled_feed_neither_repeat_nor_skip_nor_jump(served: Served, sight: Sight) -> None:
    new = list(range(501, 509))
    gate = threading.Semaphore(0)
    sight.open(1)
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    with arriving(served, new, owner=2, board=20, gate=gate):
        gate.release(2)
        go_to_end(sight, gate.release)
    assert pages_by_cursor(sight) >= 4, "it came in five pages"
    assert sight.pins() == OLD, "what arrived waits above"
    sight.says("fresh", "8 new pins")
    assert sight.is_shown("fresh")

    sight.find("fresh").click()
    sight.shows([str(pin) for pin in reversed(new)] + OLD)
    sight.until(lambda: sight.chosen() == "508", "the newest one has the focus")
    sight.until(lambda: not sight.is_shown("fresh"), "nothing waits any more")


def test_more_than_a_page_of_new_pins_leaves_no_gap(served: Served, sight: Sight) -> None:
    sight.open(1)
    go_to_end(sight)
    new = list(range(501, 501 + 2 * PAGE))
    for pin in new:
        served.save(pin, owner=2, board=20)
    sight.says("fresh", "new pins")
    sight.until(lambda: len(served.feed(1)) == len(OLD) + len(new), "all have landed")
    sight.find("fresh").click()
    sight.shows([str(pin) for pin in reversed(new)] + OLD)


def test_the_next_page_comes_by_keyboard_too(sight: Sight) -> None:
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= PAGE, "a page")
    # From here on nothing is seen to come near, as in a browser that does not say it.
    sight.driver.execute_script("IntersectionObserver.prototype.observe = () => {}")
    sight.tab_to("#more")
    before = len(sight.pins())
    sight.press(Keys.ENTER)
    sight.until(lambda: len(sight.pins()) > before, "more pins")
    shown = sight.pins()
    assert shown == OLD[: len(shown)]


def test_an_entry_says_what_the_pin_is(sight: Sight) -> None:
    sight.open(1)
    sight.until(sight.pins, "a page")
    first = sight.driver.find_element(By.CSS_SELECTOR, "#feed article").text
    assert OLD[0] in first
    assert "user 2" in first
    assert "board 20" in first
    sight.says("served", "from cluster a", "behind")


# Following
# --------------------------------------------------------------------------------------------------------------------


def test_follow_shows_the_pins_and_unfollow_takes_them_away(served: Served, sight: Sight) -> None:
    for pin in (701, 702):
        served.save(pin, owner=3, board=31)
    sight.open(1)
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    go_to_end(sight)

    sight.act("follow", "board", 31)
    sight.shows(["702", "701", *OLD])
    sight.says("action", "Followed board 31", "Landed in a, b")
    sight.says("following", "board 31", "user 2")

    sight.driver.find_element(By.CSS_SELECTOR, "[aria-label='Unfollow board 31']").click()
    sight.shows(OLD)
    sight.says("action", "Unfollowed board 31", "Landed in a, b")
    sight.until(lambda: "board 31" not in sight.text("following"), "it is followed no longer")

    sight.act("unfollow", "user", 2)
    sight.shows([])
    sight.says("empty", "follows nothing that has pins")


def test_pins_show_when_a_first_follow_is_recorded(served: Served, sight: Sight) -> None:
    sight.open(5)
    sight.says("empty", "Nothing here")
    sight.act("follow", "user", 2)
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")


def test_more_follows_that_are_asked_for_twice_show_once(served: Served, sight: Sight) -> None:
    followees = range(1_000, 1_060)
    for each in followees:
        served.ask("POST", "/v1/follows", {"follower": "9", "user": str(each)})
    script = """
        const real = window.fetch;
        window.asked = [];
        window.fetch = (url, ...rest) => {
          if (!String(url).includes("/following?") || !String(url).includes("cursor=")) return real(url, ...rest);
          return new Promise((done) => window.asked.push(() => done(real(url, ...rest))));
        };
    """
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open(9)
    sight.says("following-brief", "more than 50")
    clicks = "for (const _ of [1, 2]) document.getElementById('following-more').click()"
    sight.driver.execute_script(f"{clicks}; for (const answer of window.asked) answer()")
    sight.until(lambda: not sight.is_shown("following-more"), "all of them")
    lines = [each.text for each in sight.driver.find_elements(By.CSS_SELECTOR, "#following .what a")]
    assert sorted(lines) == sorted(map(str, followees))


def test_a_follow_without_an_answer_is_not_sent_again_after_an_unfollow(sight: Sight) -> None:
    script = """
        const [real, wait] = [window.fetch, window.setTimeout];
        window.sent = [];
        window.pauses = [];
        window.fetch = (url, options, ...rest) => {
          if (!String(url).endsWith("/v1/follows")) return real(url, options, ...rest);
          window.sent.push(options.method);
          return window.sent.length === 1 ? Promise.reject(new TypeError("lost")) : real(url, options, ...rest);
        };
        window.setTimeout = (work, ms, ...rest) => (ms === 1000 ? window.pauses.push(work) : wait(work, ms, ...rest));
    """
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open(1)
    sight.act("follow", "user", 4)
    sight.says("action", "Trying again")
    sight.act("unfollow", "user", 4)
    sight.says("action", "Unfollowed user 4")
    after_pause = "const done = arguments[0]; window.pauses[0](); requestAnimationFrame(() => done(window.sent))"
    assert sight.driver.execute_async_script(after_pause) == ["POST", "DELETE"]
    sight.says("action", "Unfollowed user 4", "Landed in a, b")


def test_a_follow_after_an_unfollow_is_recorded_though_an_earlier_one_had_no_answer(sight: Sight) -> None:
    script = """
        const [real, wait] = [window.fetch, window.setTimeout];
        window.keys = [];
        window.isLost = true;
        window.fetch = (url, options, ...rest) => {
          if (!String(url).endsWith("/v1/follows")) return real(url, options, ...rest);
          window.keys.push(options.headers["idempotency-key"]);
          const answer = real(url, options, ...rest);
          return window.isLost ? answer.then(() => Promise.reject(new TypeError("lost"))) : answer;
        };
        window.setTimeout = (work, ms, ...rest) => wait(work, ms >= 1000 && ms % 1000 === 0 ? 0 : ms, ...rest);
    """
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open(1)
    sight.act("follow", "user", 4)
    sight.says("action", "It may have been recorded")
    sight.driver.execute_script("window.isLost = false; window.keys = []")
    for button in ("unfollow", "follow"):
        sight.act(button, "user", 4)
        sight.says("action", f"{button.capitalize()}ed user 4")
    sight.until(lambda: "user 4" in sight.text("following"), "it is followed")
    unfollow, follow = sight.driver.execute_script("return window.keys")
    assert follow != unfollow


def test_an_id_that_cannot_be_is_said_and_not_sent(sight: Sight) -> None:
    sight.open(1)
    sight.act("follow", "user", 2**63)
    sight.says("action", "from 1 to 2^63-1")
    assert sight.find("followee").get_attribute("aria-invalid") == "true"


def test_an_id_that_is_pasted_is_taken_as_a_whole(sight: Sight) -> None:
    pasted, too_long = f" {OLD[0]}", f"{OLD[0]}0"
    sight.open(1)
    sight.act("follow", "user", too_long)
    sight.says("action", "from 1 to 2^63-1")
    sight.act("follow", "user", pasted)
    sight.says("action", f"Followed user {OLD[0]}.")
    field = sight.find("user")
    field.clear()
    field.send_keys(too_long, Keys.ENTER)
    sight.until(lambda: "from 1 to 2^63-1" in str(field.get_property("validationMessage")), "it is refused")
    field.clear()
    field.send_keys(pasted, Keys.ENTER)
    sight.says("feed-title", f"Feed of user {OLD[0]}")


def test_an_address_or_a_field_with_what_is_no_id_says_what_an_id_is(sight: Sight) -> None:
    for wrong in ("user=x1", "board=0", f"user={2**63}"):
        sight.driver.get(f"{sight.address}/?{wrong}")
        sight.says("empty", f"{wrong.partition('=')[2]} is no id", "from 1 to 2^63-1")

    field = sight.find("user")
    field.send_keys("x1", Keys.ENTER)
    sight.until(lambda: field.get_property("validationMessage") == "An id is a whole number from 1 to 2^63-1.", "why")
    assert field.get_attribute("aria-invalid") == "true"
    sight.find("to-start").click()
    assert field.get_attribute("aria-invalid") == "false"
    field.send_keys("1", Keys.ENTER)
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")


def test_the_start_offers_what_was_looked_at_before_and_had_something(sight: Sight) -> None:
    sight.open()
    sight.says("start", "There is no list of users")
    assert not sight.is_shown("following-panel"), "there is no user yet who could follow"
    for view, name in (("user=5", "empty"), ("user=1", "feed"), ("board=20", "grid")):
        sight.driver.get(f"{sight.address}/?{view}")
        sight.says(name, "Nothing here" if name == "empty" else OLD[0])
    seen = "return JSON.parse(localStorage.getItem('feed.seen'))"
    sight.until(lambda: sight.driver.execute_script(seen) == ["board=20", "user=1"], "both, the latest first")

    sight.find("to-start").click()
    sight.until(lambda: sight.is_shown("seen"), "the start")
    links = sight.driver.find_elements(By.CSS_SELECTOR, "#seen a")
    assert [each.text for each in links] == ["board 20", "user 1"]
    links[1].click()
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    sight.find("user").click()
    offered = "return [...document.querySelectorAll('#ids option')].map(each => each.value)"
    sight.until(lambda: sight.driver.execute_script(offered) == ["1"], "users, as users are asked for")

    sight.find("to-start").click()
    sight.driver.find_element(By.CSS_SELECTOR, "#token-panel summary").click()
    sight.find("forget").click()
    sight.until(lambda: sight.driver.execute_script("return localStorage.length") == 0, "they are forgotten")
    sight.until(lambda: sight.is_shown("none-seen"), "the start again")


def test_owners_and_what_is_followed_are_links(sight: Sight) -> None:
    sight.open(1)
    sight.until(sight.pins, "a page")
    sight.driver.find_element(By.CSS_SELECTOR, "#feed .owner a").click()
    sight.says("feed-title", "Feed of user 2")
    assert sight.driver.current_url.endswith("/?user=2")
    assert sight.driver.title == "Feed of user 2"
    sight.says("empty", "user 2 follows nothing")
    sight.driver.back()
    sight.says("feed-title", "Feed of user 1")
    sight.until(lambda: "user 2" in sight.text("following"), "what is followed")
    sight.driver.find_element(By.CSS_SELECTOR, "#following a").click()
    sight.says("feed-title", "Feed of user 2")


def test_the_way_back_from_a_board_leads_to_where_the_feed_was_left(sight: Sight) -> None:
    sight.open(1)
    go_to_end(sight)
    row = f'#feed [data-pin="{OLD[70]}"]'
    sight.driver.execute_script(f"document.querySelector('{row}').scrollIntoView({{ block: 'center' }})")
    before_px = side(sight, row, "top")
    sight.driver.find_element(By.CSS_SELECTOR, f"{row} .board a").click()
    sight.says("board-title", "Board")
    sight.until(sight.board, "the board is shown")
    sight.find("to-work").click()
    sight.until(lambda: sight.is_shown("work-view"), "the work")
    sight.driver.back()
    sight.until(lambda: sight.is_shown("board-view"), "the board again")
    sight.driver.back()
    sight.shows(OLD)
    sight.until(lambda: abs(side(sight, row, "top") - before_px) < 2, "it is where it was")
    sight.find("to-start").click()
    sight.find("user").send_keys("1", Keys.ENTER)
    sight.until(lambda: 0 < len(sight.pins()) < len(OLD), "it begins again")


def test_what_comes_above_does_not_move_what_is_read(served: Served, sight: Sight) -> None:
    for pin in (701, 702, 703):
        served.save(pin, owner=3, board=31)
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= 2 * PAGE, "two pages")
    row = f"[data-pin='{OLD[30]}']"
    top = f'return document.querySelector("{row}").getBoundingClientRect().top'
    sight.driver.execute_script(f'document.querySelector("{row}").scrollIntoView({{ block: "center" }})')
    before_px = sight.driver.execute_script(top)
    sight.act("follow", "board", 31)
    sight.until(lambda: sight.pins()[:4] == ["703", "702", "701", OLD[0]], "the board's pins")
    assert abs(sight.driver.execute_script(top) - before_px) < 2


# Why
# --------------------------------------------------------------------------------------------------------------------


def test_times_have_a_zone(sight: Sight) -> None:
    sight.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": "Europe/Berlin"})
    try:
        sight.open(1)
        sight.says("zone", "Times in Europe/Berlin")
    finally:
        sight.driver.execute_cdp_cmd("Emulation.setTimezoneOverride", {"timezoneId": ""})


def test_times_have_a_date_from_the_next_day_on(served: Served, sight: Sight) -> None:
    served.save(501, owner=2, board=20)
    served.wait_for(1, [501, *map(int, OLD)])
    sight.open(1)
    sight.until(sight.pins, "a page")
    tomorrow = """
        const Today = Date;
        const now = () => Today.now() + 86_400_000;
        window.Date = class extends Today {
          constructor(...given) {
            super(...(given.length === 0 ? [now()] : given));
          }
          static now = now;
        };
    """
    sight.driver.execute_script(tomorrow)
    time = sight.driver.find_element(By.CSS_SELECTOR, "#feed article time")
    sight.until(lambda: len(time.text) == len("2026-01-31 12:00:00"), "it has a date")


def test_why_is_shown_by_keyboard_alone(sight: Sight) -> None:
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= PAGE, "a page")
    sight.tab_to("#feed article")
    assert sight.chosen() == OLD[0]
    for key, pin in (("j", OLD[1]), (Keys.ARROW_DOWN, OLD[2]), ("k", OLD[1]), (Keys.ARROW_UP, OLD[0]), ("j", OLD[1])):
        sight.press(key)
        assert sight.chosen() == pin
    sight.says(
        "why", f"Why is pin {OLD[1]} here?", "User 1 follows user 2", "board 21", "cluster a: yes", "cluster b: yes"
    )
    sight.press(Keys.ESCAPE)
    sight.says("why", "Why is it here?")
    assert not sight.is_shown("why-close")

    sight.press("j")
    assert sight.chosen() == OLD[2]
    sight.tab_to("#why-close")
    sight.press(Keys.ENTER)
    sight.says("why", "Why is it here?")
    sight.press("j")
    assert sight.chosen() == OLD[3], "it continues from where it was"


def test_why_is_shown_where_somebody_points(sight: Sight) -> None:
    sight.open(1)
    rows = sight.until(lambda: sight.driver.find_elements(By.CSS_SELECTOR, "#feed article"), "a page")
    ActionChains(sight.driver).move_to_element(rows[3]).move_by_offset(2, 1).perform()
    sight.says("why", f"Why is pin {OLD[3]} here?", "cluster b: yes")


def test_without_room_for_a_column_why_covers_no_other_part_and_is_closed_by_its_button(sight: Sight) -> None:
    metrics = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    sight.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    sight.open(1)
    rows = sight.until(lambda: sight.driver.find_elements(By.CSS_SELECTOR, "#feed article"), "a page")
    rows[1].click()
    sight.says("why", f"Why is pin {OLD[1]} here?", "cluster a: yes")
    assert sight.is_on_screen("#why")
    assert side(sight, "#why", "left") == side(sight, "#feed", "left") > side(sight, "aside", "right")
    sight.find("why-close").click()
    sight.until(lambda: not sight.is_shown("why"), "it is closed")
    assert sight.chosen() is None


def test_a_link_can_be_pointed_at_and_clicked_wherever_it_is(sight: Sight) -> None:
    """Also where the reason would come in front of it."""
    sight.resize(1280, 800)
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= PAGE, "more than fits")
    links = sight.driver.find_elements(By.CSS_SELECTOR, "#feed .owner a")
    low = next(each for each in links if 650 < sight.middle(each)[1] < 750)
    x, y = sight.middle(low)
    mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
    sight.driver.execute_cdp_cmd("Input.dispatchMouseEvent", mouse | {"type": "mouseMoved", "x": x - 4})
    sight.driver.execute_cdp_cmd("Input.dispatchMouseEvent", mouse | {"type": "mouseMoved"})
    pointed_for_long = "const done = arguments[0]; setTimeout(() => requestAnimationFrame(done), 200)"
    sight.driver.execute_async_script(pointed_for_long)
    assert sight.chosen() is None
    for kind in ("mousePressed", "mouseReleased"):
        sight.driver.execute_cdp_cmd("Input.dispatchMouseEvent", mouse | {"type": kind})
    sight.says("feed-title", "Feed of user 2")
    assert sight.driver.current_url.endswith("/?user=2")


def test_the_column_of_cards_has_no_bar_of_its_own_and_its_end_stays_on_the_screen(sight: Sight) -> None:
    metrics = {"width": 1280, "height": 600, "deviceScaleFactor": 1, "mobile": False}
    sight.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= PAGE, "a page")
    sight.says("letters-note", "No message has failed")
    top, bottom = side(sight, "aside", "top"), side(sight, "aside", "bottom")
    assert bottom - top > 600, "it is longer than the screen, and all of it is there"
    sight.scroll_to_end()
    sight.until(lambda: sight.is_on_screen("#letters-panel"), "its end")
    # At the end of the whole page its margin follows the column; before that, nothing does.
    assert 570 < side(sight, "aside", "bottom") <= 600


def side(sight: Sight, selector: str, name: str) -> float:
    box = f"document.querySelector('{selector}').getBoundingClientRect()"
    return float(sight.driver.execute_script(f"return {box}.{name}"))


def test_on_a_phone_everything_fits_and_a_tap_shows_why(sight: Sight) -> None:
    metrics = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    sight.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    sight.open(1)
    rows = sight.until(lambda: sight.driver.find_elements(By.CSS_SELECTOR, "#feed article"), "a page")
    assert sight.driver.execute_script("return document.documentElement.scrollWidth") == 360
    rows[1].click()
    sight.says("why", f"Why is pin {OLD[1]} here?", "cluster a: yes")
    assert sight.is_on_screen("#why")


def test_on_a_phone_the_reason_covers_neither_the_pin_that_is_tapped_nor_new_ones(served: Served, sight: Sight) -> None:
    def row(pin: str) -> str:
        return f'[data-pin="{pin}"]'

    sight.resize(390, 844, is_phone=True)
    sight.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        sight.open(1)
        sight.until(lambda: len(sight.pins()) >= PAGE, "more than fits")
        low = next(each for each in sight.pins() if side(sight, row(each), "top") > 640)
        sight.touch("touchStart", (40, side(sight, row(low), "top") + 12))
        sight.touch("touchEnd")
        sight.says("why", f"Why is pin {low} here?", "cluster a: yes")
        assert sight.chosen() == low
        assert 0 < side(sight, row(low), "bottom") <= side(sight, "#why", "top")
        sight.find("why-close").click()
        served.save(501, owner=2, board=20)
        sight.says("fresh", "1 new pin")
        sight.touch("touchStart", sight.middle(sight.find("fresh")))
        sight.touch("touchEnd")
        sight.until(lambda: sight.pins()[:2] == ["501", OLD[0]], "the new pin is on top")
        assert sight.driver.execute_script("return document.activeElement.dataset.pin") == "501"
        assert not sight.is_shown("why")
    finally:
        sight.driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


LINES = """const range = document.createRange()
return [...document.querySelectorAll(arguments[0])].map(id => {
  range.selectNodeContents(id)
  return range.getClientRects().length
})"""
"""On how many lines each of some elements is."""


def test_the_longest_ids_are_not_broken_where_there_is_room_for_them(served: Served, sight: Sight) -> None:
    pin, owner, board = RESERVED_FROM - 1001, RESERVED_FROM - 1002, RESERVED_FROM - 1003
    served.save(pin, owner, board, created_ms=1_341_100_973_000)
    for each in range(12):
        served.ask("POST", "/v1/follows", {"follower": "5", "user": str(owner - 5 * each)})
    sight.open(5)
    sight.until(lambda: sight.driver.execute_script(LINES, "#following a") == 12 * [1], "all are on one line")
    metrics = {"width": 360, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    sight.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    sight.open(5)
    sight.shows([str(pin)])
    assert sight.driver.execute_script(LINES, "#feed .pin, #feed article a") == [1, 1, 1]
    assert sight.driver.execute_script("return document.documentElement.scrollWidth") <= 360


def test_a_phone_shows_the_feed_first_and_follows_and_state_at_the_bottom(sight: Sight) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    sight.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= PAGE, "more than fits")

    def place(selector: str) -> tuple[float, float]:
        rect = f"document.querySelector('{selector}').getBoundingClientRect()"
        top, bottom = sight.driver.execute_script(f"return [{rect}.top, {rect}.bottom]")
        return top, bottom

    assert place("#feed article")[1] < 844 / 4
    assert place("aside")[0] > 844 * 3 / 4
    for name in ("following", "clusters", "queue", "letters"):
        assert sight.is_on_screen(f"#{name}-brief"), name
    sight.driver.find_element(By.CSS_SELECTOR, "#clusters-panel summary").click()
    sight.says("clusters", "a", "b", "closed")
    assert sight.is_on_screen("#clusters")
    sight.driver.find_element(By.CSS_SELECTOR, "#clusters-panel summary").click()
    sight.driver.execute_script("scrollTo(0, 0)")
    assert place("aside")[1] == 844
    assert sight.driver.execute_script("return document.documentElement.scrollWidth") == 390


# State
# --------------------------------------------------------------------------------------------------------------------


def test_the_state_of_clusters_and_queue_stands_there(sight: Sight) -> None:
    sight.open()
    sight.says("clusters", "a", "b", "closed")
    sight.says("groups", "relay", "expander", "feed.actions", "writer-b", "feed.deliveries")
    sight.says("letters-brief", "none")


def with_status(change: str) -> str:
    """A script after which the page gets another status of the server. change: a statement that changes `status`."""
    return f"""
        const real = window.fetch;
        window.fetch = async (url, ...rest) => {{
          const response = await real(url, ...rest);
          if (!String(url).endsWith("/v1/status")) return response;
          const status = await response.json();
          {change}
          return new Response(JSON.stringify(status));
        }};
    """


def test_a_cluster_of_which_nothing_was_heard_is_not_said_to_be_healthy(sight: Sight) -> None:
    script = with_status("status.clusters[1].behind_ms = null;")
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open()
    sight.says("clusters", "not known")
    sight.says("clusters-brief", "b is unhealthy")


def test_a_worker_that_has_stopped_is_said(sight: Sight) -> None:
    script = "window.why = null;" + with_status("status.worker_stopped = window.why;")
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open(1)
    sight.says("queue-brief", "none waiting")
    assert not sight.is_shown("queue-note")
    sight.driver.execute_script("window.why = 'no process works in this home: start feedctl work'")
    sight.says("queue-brief", "no worker")
    assert sight.text("queue-note") == "No worker. No process works in this home: start feedctl work."
    assert sight.is_shown("queue-note")
    sight.driver.execute_script("window.why = null")
    sight.until(lambda: not sight.is_shown("queue-note"), "one works again")
    sight.says("queue-brief", "none waiting")


def test_a_queue_that_is_away_is_said_and_the_rest_of_the_state_is_read(sight: Sight) -> None:
    script = """
        const real = window.fetch;
        window.isAway = true;
        window.asked = [];
        window.fetch = async (url, ...rest) => {
          const path = new URL(url).pathname;
          window.asked.push(path);
          const problem = { type: "urn:feedstore:problem:queues-unavailable", title: "Queues unavailable", detail: "" };
          if (path === "/v1/dead-letters") return new Response(JSON.stringify(problem), { status: 503 });
          const response = await real(url, ...rest);
          if (path !== "/v1/status") return response;
          return new Response(JSON.stringify({ ...(await response.json()), groups: null, dead_letters: null }));
        };
    """
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open(1)
    sight.says("queue-brief", "unknown")
    sight.says("letters-note", "The queue does not answer")
    asked = "return window.asked"
    sight.until(lambda: "/v1/catalogs" in sight.driver.execute_script(asked), "what comes after it is asked for")
    assert not sight.is_shown("state-problem")


def test_p95_has_a_column_once_the_reads_of_a_cluster_are_timed(sight: Sight) -> None:
    def heads() -> list[str]:
        return [each.text for each in sight.driver.find_elements(By.CSS_SELECTOR, "#clusters-head th")]

    sight.open()
    sight.says("clusters", "closed")
    assert heads() == ["cluster", "breaker", "behind"], "reads of clusters in files are not timed"
    sight.driver.execute_script(with_status("status.clusters[0].p95_ms = 12;"))
    sight.says("clusters", "12 ms", "too few reads so far")
    assert heads() == ["cluster", "breaker", "behind", "p95"]


# Tokens
# --------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tokens(served: Served) -> dict[str, str]:
    """Tokens by their scopes; the server asks for them from now on."""
    served.stop()
    toml = served.cli.home / "feed.toml"
    toml.write_text(toml.read_text().replace("# tokens =", "tokens ="))
    scopes = {"read": ["read"], "write": ["read", "write"], "operate": ["read", "operate"], "operator": ["operate"]}
    issued = {}
    for name, each in scopes.items():
        words = [word for scope in each for word in ("--scope", scope)]
        issued[name] = served.cli("token", "new", "--name", name, *words).stdout.strip()
    served.start()
    return issued


def test_without_a_token_it_says_what_is_needed_and_with_one_it_goes_on(
    tokens: dict[str, str], served: Served, sight: Sight
) -> None:
    sight.open(1)
    sight.says("connection", "This server asks for a token", "“A token is needed”")
    assert sight.pins() == []
    assert not sight.is_shown("read-only"), "nothing is there to be read only"
    assert not sight.is_shown("following-panel"), "cards that can say nothing are away"
    sight.use_token(tokens["write"])
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    sight.until(lambda: not sight.is_shown("connection"), "no problem is shown")
    assert tokens["write"] not in sight.driver.current_url
    kept = "return [Object.values(sessionStorage), Object.entries(localStorage), document.cookie]"
    sight.until(
        lambda: sight.driver.execute_script(kept) == [[tokens["write"]], [["feed.seen", '["user=1"]']], ""],
        "the token is in the session storage alone",
    )
    sight.driver.find_element(By.CSS_SELECTOR, "#token-panel summary").click()
    sight.find("forget").click()
    sight.says("connection", "This server asks for a token")
    assert sight.driver.execute_script(kept) == [[], [], ""], "nothing is known of the reader before"


def test_a_token_that_is_not_taken_is_said(tokens: dict[str, str], sight: Sight) -> None:
    sight.open(1)
    sight.use_token("two words")
    field = sight.find("token")
    sight.until(lambda: "no spaces" in str(field.get_property("validationMessage")), "it is said")
    field.clear()
    sight.use_token("wrong")
    sight.says("connection", "does not take the token of this tab (unknown token)", "“A token is needed”")


def test_a_panel_for_tokens_that_is_closed_stays_closed(tokens: dict[str, str], sight: Sight) -> None:
    sight.open(1)
    sight.until(lambda: sight.is_shown("token-form"), "a token is asked for")
    sight.driver.find_element(By.CSS_SELECTOR, "#token-panel summary").click()
    asked = "return performance.getEntriesByType('resource').filter(each => each.name.endsWith('/v1/token')).length"
    before = sight.driver.execute_script(asked)
    sight.until(lambda: sight.driver.execute_script(asked) > before + 1, "the server has refused it again")
    assert not sight.is_shown("token-form")


def test_of_another_reader_nothing_stays_and_that_it_may_not_read_is_said_once(
    tokens: dict[str, str], sight: Sight
) -> None:
    sight.open(1)
    sight.use_token(tokens["read"])
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    sight.says("clusters", "closed")
    sight.use_token(tokens["operator"])
    sight.says("connection", "This token is not for reading", "scope read", "“Access: operate”")
    assert sight.pins() == []
    assert sight.text("clusters") == ""
    shown = [each.text for each in sight.driver.find_elements(By.CSS_SELECTOR, ".problem") if each.is_displayed()]
    assert shown == [sight.text("connection")]


def test_a_token_without_the_scope_write_reads_only(tokens: dict[str, str], sight: Sight) -> None:
    sight.open(1)
    sight.use_token(tokens["read"])
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    sight.says("access", "Access: read")
    sight.says("read-only", "Read-only here", "scope write")
    sight.says("letters-note", "No message has failed.")
    sight.says("following", "user 2")
    assert not sight.is_shown("follow")
    assert sight.driver.find_elements(By.CSS_SELECTOR, "#following button") == []


def test_dead_letters_are_shown_with_their_reason_to_operators(tokens: dict[str, str], home: Cli, sight: Sight) -> None:
    with home.ports(feeds=False) as ports:
        ports.dead.bury(ACTIONS, "expander", "malformed", "<b>expected an object</b>", 1, b"[]")
    sight.open(1)
    sight.use_token(tokens["read"])
    sight.says("letters-brief", "1")
    sight.says("letters-note", "scope operate")
    sight.use_token(tokens["operate"])
    sight.says("letters-brief", "1")
    sight.says("letters", "malformed", "<b>expected an object</b>", "expander, feed.actions, 2 bytes")
    sight.says("read-only", "scope write")


# Failures
# --------------------------------------------------------------------------------------------------------------------


def test_a_server_that_ends_is_said_and_the_page_goes_on_when_it_is_back(served: Served, sight: Sight) -> None:
    sight.open(1)
    sight.until(lambda: len(sight.pins()) >= PAGE, "a page")
    shown = sight.pins()
    served.stop()
    sight.says("connection", "The server cannot be reached")
    assert sight.pins()[: len(shown)] == shown, "what was shown stays"
    served.start()
    sight.until(lambda: not sight.is_shown("connection"), "all is well again")
    served.save(801, owner=2, board=20)
    sight.says("fresh", "1 new pin")


def test_a_problem_is_said_in_its_own_words_and_goes_by_itself(sight: Sight) -> None:
    script = """
        const real = window.fetch;
        window.isAway = true;
        const problem = { type: "urn:feedstore:problem:clusters-unavailable", title: "No cluster is available",
          status: 503, detail: "try again" };
        window.fetch = (url, ...rest) => window.isAway && String(url).includes("/feed?")
          ? Promise.resolve(new Response(JSON.stringify(problem), { status: 503, headers: { "retry-after": "1" } }))
          : real(url, ...rest);
    """
    sight.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script})
    sight.open(1)
    sight.says("feed-problem", "No cluster is available. Try again.")
    sight.says("clusters-brief", "all healthy")
    assert not sight.is_shown("connection"), "the server itself answers"
    sight.driver.execute_script("window.isAway = false")
    sight.until(lambda: sight.pins()[:PAGE] == OLD[:PAGE], "the first page")
    sight.until(lambda: not sight.is_shown("feed-problem"), "no problem is shown")


def test_nothing_is_loaded_from_elsewhere_and_nothing_breaks_the_policy(sight: Sight) -> None:
    sight.open(1)
    sight.until(sight.pins, "a page")
    script = "return performance.getEntriesByType('resource').map(each => each.name)"
    loaded = sight.driver.execute_script(script)
    assert loaded
    assert all(each.startswith(sight.address) for each in loaded), loaded
    said = [each["message"] for each in sight.driver.get_log("browser")]
    assert not [message for message in said if "Content Security Policy" in message or "Uncaught" in message], said
