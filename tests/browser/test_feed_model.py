"""What a feed shows, by `feed.js` alone, on pages that are made up."""

from typing import Any

import pytest

from tests.browser.sight import Sight

pytestmark = pytest.mark.browser

RUN = """
const [steps, done] = arguments;
const run = async () => {
  const { Feed } = await import("/parts/feed.js");
  let pages = [];
  const feed = new Feed(async (limit, cursor) => {
    const next = pages.shift();
    if (next === undefined) throw new Error(`nothing to answer for ${cursor}`);
    if (next === "refused") throw Object.assign(new Error(next), { kind: "malformed-cursor" });
    const entries = next.pins.map((pin) => ({ pin: String(pin), created_ms: pin, owner: "2", board: "9" }));
    return { ...next, entries };
  });
  const seen = [];
  for (const { call, options, answers } of steps) {
    pages = answers;
    await feed[call](options);
    if (pages.length > 0) throw new Error(`${pages.length} pages were not asked for`);
    seen.push({ shown: feed.shown.map((entry) => Number(entry.pin)), fresh: feed.fresh, isMore: feed.isFreshMore });
  }
  return { seen };
};
run().then(done, (error) => done({ failed: String(error) }));
"""


def run(sight: Sight, *steps: dict[str, Any]) -> list[Any]:
    """How the feed is after each step. A pin is dated by its id."""
    sight.open()
    found = sight.driver.execute_async_script(RUN, list(steps))
    assert "failed" not in found, found
    return list(found["seen"])


def look(*answers: Any, **options: bool) -> dict[str, Any]:
    return {"call": "look", "options": options, "answers": list(answers)}


def more(*answers: Any) -> dict[str, Any]:
    return {"call": "more", "answers": list(answers)}


def page(*pins: int, more: str | None = None, served_by: str = "a", behind_ms: int | None = 0) -> dict[str, Any]:
    return {"pins": pins, "cursor": more, "served_by": served_by, "behind_ms": behind_ms}


def test_a_cluster_that_is_behind_takes_nothing_away(sight: Sight) -> None:
    ahead, behind, caught_up = run(
        sight,
        look(page(3, 2, 1)),
        look(page(2, 1, served_by="b", behind_ms=60_000)),
        look(page(2, 1, served_by="b")),
    )
    assert ahead["shown"] == behind["shown"] == [3, 2, 1]
    assert caught_up["shown"] == [2, 1]


def test_a_cluster_that_does_not_know_how_far_it_is_takes_away_what_it_showed_itself(sight: Sight) -> None:
    _, by_other, shown, by_same = run(
        sight,
        look(page(3, 2, 1)),
        look(page(3, 1, served_by="b", behind_ms=None)),
        look(page(3, 2, 1, served_by="b", behind_ms=None)),
        look(page(2, 1, served_by="b", behind_ms=None)),
    )
    assert by_other["shown"] == shown["shown"] == [3, 2, 1]
    assert by_same["shown"] == [2, 1]


def test_what_comes_in_the_middle_waits_and_is_taken_in_its_place(sight: Sight) -> None:
    _, found, taken = run(
        sight, look(page(50, 30, 10)), look(page(50, 40, 30, 10)), look(page(50, 40, 30, 10, 5), isTaking=True)
    )
    assert (found["shown"], found["fresh"]) == ([50, 30, 10], 1)
    assert (taken["shown"], taken["fresh"]) == ([50, 40, 30, 10, 5], 0)


def test_what_stands_below_the_cursor_comes_with_it_and_not_twice(sight: Sight) -> None:
    _, looked, grown = run(
        sight,
        look(page(50, 40, more="c1")),
        look(page(50, 45, 40, 35, more="c2"), isDeep=True),
        more(page(35, 30)),
    )
    assert (looked["shown"], looked["fresh"]) == ([50, 40], 1), "45 is new; 35 comes with the next page"
    assert grown["shown"] == [50, 40, 35, 30]
    assert grown["fresh"] == 1


def test_where_the_shown_ones_went_what_comes_between_them_and_the_cursor_is_not_lost(sight: Sight) -> None:
    *_, found = run(
        sight,
        look(page(50, 40, more="c1")),
        more(page(30, 20, more="c2")),
        look(page(50, 40, 15, more="c3"), isDeep=True),
        look(page(50, 40, 25, 15, more="c3"), isDeep=True),
    )
    assert (found["shown"], found["fresh"]) == ([50, 40], 1), "25 waits; 15 comes with the next page"


def test_past_what_a_walk_reads_the_feed_begins_at_the_top_again(sight: Sight) -> None:
    new = list(range(5_000, 3_900, -1))
    walk = [page(*new[at : at + 200], more=f"w{at}") for at in range(0, 1_000, 200)]
    _, seen, taken, on = run(
        sight,
        look(page(50, 40, more="c1")),
        look(page(*new[:25], more="w")),
        look(*walk, isTaking=True),
        more(page(*new[1_000:], 50, 40)),
    )
    assert (seen["fresh"], seen["isMore"]) == (25, True)
    assert taken["shown"] == new[:1_000]
    assert (taken["fresh"], taken["isMore"]) == (0, False)
    assert on["shown"] == [*new, 50, 40]


def test_a_cursor_that_the_server_no_longer_knows_begins_the_walk_again(sight: Sight) -> None:
    _, again = run(sight, look(page(50, 40, more="c1")), more("refused", page(60, 50, 40, 30)))
    assert again["shown"] == [60, 50, 40, 30]


def test_an_empty_feed_shows_what_comes_at_once(sight: Sight) -> None:
    nothing, something = run(sight, look(page()), look(page(2, 1)))
    assert nothing["shown"] == []
    assert (something["shown"], something["fresh"]) == ([2, 1], 0)
