"""What a board shows, by `board.js` alone, on pages and answers that are made up."""

from typing import Any

import pytest

from tests.browser.sight import Sight

pytestmark = pytest.mark.browser

RUN = """
const [steps, done] = arguments;
const run = async () => {
  const { Board } = await import("/parts/board.js");
  let pages = [], asked = [];
  const answers = [];
  const told = [];
  const board = new Board(
    async (limit, cursor) => {
      asked.push(cursor ?? null);
      const next = pages.shift();
      if (next === undefined) throw new Error(`nothing to answer for ${cursor}`);
      const pins = next.pins.map((pin) => (Array.isArray(pin) ? pin : [pin, null]));
      return { cursor: next.cursor, pins: pins.map(([pin, moved_ms]) => ({ pin, moved_ms, sequence: "1" })) };
    },
    (pin, where) => {
      asked.push([pin, where]);
      return new Promise((resolve, reject) => answers.push({ resolve, reject }));
    },
    (pin, problem) => told.push([pin, problem === null ? null : problem.reason]),
  );
  const seen = [];
  for (const [call, given, read] of steps) {
    pages = read ?? [];
    asked = [];
    if (call === "look") await board.look(...given);
    else if (call === "more") await board.more();
    else if (call === "move") board.move(...given);
    else if (call === "placed") answers.shift().resolve({ sequence: "2", moved_ms: given });
    else if (call === "refused") {
      const { Problem } = await import("/parts/api.js");
      answers.shift().reject(new Problem("action-refused", 409, "no", "", 0, given));
    }
    await new Promise((resolve) => setTimeout(resolve));
    if (pages.length > 0) throw new Error(`${pages.length} pages were not asked for`);
    const shown = board.shown.map((line) => line.pin).join("");
    seen.push({ shown, asked, told: told.splice(0), ended: board.hasEnded });
  }
  return { seen };
};
run().then(done, (error) => done({ failed: String(error) }));
"""


def run(board_sight: Sight, *steps: tuple[Any, ...]) -> list[Any]:
    """How the board is after each step. Pins are letters."""
    board_sight.open()
    found = board_sight.driver.execute_async_script(RUN, list(steps))
    assert "failed" not in found, found
    return list(found["seen"])


def page(pins: str, cursor: str | None = None, **moved: int) -> dict[str, Any]:
    return {"pins": [[pin, moved.get(pin)] for pin in pins], "cursor": cursor}


TOP = (0, 3)


def shown(seen: list[Any]) -> list[str]:
    return [each["shown"] for each in seen]


def test_pages_join_and_a_short_one_is_no_end(board_sight: Sight) -> None:
    seen = run(
        board_sight,
        ("look", TOP, [page("abcd", "d")]),
        ("more", (), [page("", "e")]),
        ("more", (), [page("ef", "f")]),
        ("more", (), [page("g")]),
        ("more", ()),
    )
    assert shown(seen) == ["abcd", "abcd", "abcdef", "abcdefg", "abcdefg"]
    assert [each["asked"] for each in seen] == [[None], ["d"], ["e"], ["f"], []]
    assert seen[-1]["ended"]


def test_a_look_brings_what_others_changed(board_sight: Sight) -> None:
    first = ("look", TOP, [page("abcdefgh")])
    for again, now in (
        (page("abcdefgh"), "abcdefgh"),
        (page("xabcdefgh"), "xabcdefgh"),
        (page("abdefgh"), "abdefgh"),
        (page("aebcdfgh", e=5), "aebcdfgh"),
        (page("bcdefgha", a=5), "bcdefgha"),
        (page(""), ""),
    ):
        assert shown(run(board_sight, first, ("look", TOP, [again])))[-1] == now


def test_a_look_at_a_part_leaves_what_is_below_it(board_sight: Sight) -> None:
    begin = [("look", TOP, [page("abcd", "d")]), ("more", (), [page("efgh", "h")]), ("more", (), [page("ijkl", "l")])]
    for again, now in (
        (page("abcd", "d"), "abcdefghijkl"),
        (page("xabc", "c"), "xabcdefghijkl"),
        (page("akbc", "c", k=5), "akbcdefghijl"),
        (page("bcde", "e"), "bcdefghijkl"),
        (page("wxyz", "z"), "wxyzabcdefghijkl"),
    ):
        assert shown(run(board_sight, *begin, ("look", TOP, [again])))[-1] == now
    # Further down it begins where a page began, by its cursor.
    seen = run(board_sight, *begin, ("look", (9, 10), [page("jikl", "l", j=5)]), ("look", (5, 6), [page("efgh", "h")]))
    assert [each["asked"] for each in seen[3:]] == [["h"], ["d"]]
    assert shown(seen)[3:] == ["abcdefghjikl"] * 2


def test_a_look_at_much_reads_several_pages(board_sight: Sight) -> None:
    seen = run(board_sight, ("look", (0, 5), [page("abc", "c"), page("def", "f")]))
    assert (seen[0]["shown"], seen[0]["asked"]) == ("abcdef", [None, "c"])


def test_moves_show_at_once_and_are_sent_one_after_the_other(board_sight: Sight) -> None:
    seen = run(
        board_sight,
        ("look", TOP, [page("abcdef")]),
        ("move", ("f", {"before": "a", "after": "b"})),
        ("move", ("a", {"to": "bottom"})),
        ("move", ("c", {"to": "top"})),
        ("placed", 5),
        ("placed", 6),
        ("placed", 7),
    )
    assert shown(seen) == ["abcdef", "afbcde", "fbcdea", "cfbdea", "cfbdea", "cfbdea", "cfbdea"]
    sent = [each["asked"] for each in seen[1:]]
    first, second, third = ["f", {"before": "a", "after": "b"}], ["a", {"to": "bottom"}], ["c", {"to": "top"}]
    assert sent == [[first], [], [], [second], [third], []]
    assert [each["told"] for each in seen[4:]] == [[["f", None]], [["a", None]], [["c", None]]]


def test_a_refused_move_is_put_back_and_those_after_it_stay(board_sight: Sight) -> None:
    seen = run(
        board_sight,
        ("look", TOP, [page("abcdef")]),
        ("move", ("f", {"before": "a", "after": "b"})),
        ("move", ("e", {"before": "b", "after": "c"})),
        ("refused", "neighbours_apart"),
        ("placed", 5),
    )
    assert shown(seen)[2:] == ["afbecd", "abecdf", "abecdf"]
    assert seen[3]["told"] == [["f", "neighbours_apart"]]


def test_an_answer_from_before_a_move_does_not_take_it_back(board_sight: Sight) -> None:
    script = RUN.replace(
        "const next = pages.shift();",
        "const next = pages.shift(); if (next.waits) { answers.shift().resolve({ sequence: '2', moved_ms: 5 });"
        " await new Promise((resolve) => setTimeout(resolve)); }",
    )
    board_sight.open()
    late = page("abcdef") | {"waits": True}
    steps = [
        ("look", TOP, [page("abcdef")]),
        ("move", ("f", {"before": "a"})),
        ("look", TOP, [late]),
        ("look", TOP, [page("afbcde", f=5)]),
    ]
    found = board_sight.driver.execute_async_script(script, steps)
    assert shown(found["seen"]) == ["abcdef", "afbcde", "afbcde", "afbcde"]
