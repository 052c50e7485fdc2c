"""What a board shows, by `board.js` alone, on pages and answers that are made up."""

from typing import Any

import pytest

from tests.browser.sight import Sight

pytestmark = pytest.mark.browser

RUN = """
const [steps, done] = arguments;
const run = async () => {
  const { Board, Moves } = await import("/parts/board.js");
  let pages = [], asked = [];
  const answers = [];
  const told = [];
  const moves = new Moves((pin, where) => {
    asked.push([pin, where]);
    return new Promise((resolve, reject) => answers.push({ resolve, reject }));
  });
  const opened = () => new Board(
    async (limit, { cursor, start }) => {
      asked.push(cursor ?? start ?? null);
      const next = pages.shift();
      if (next === undefined) throw new Error(`nothing to answer for ${cursor}`);
      const lines = next.pins.map(([pin, moved_ms]) => ({ pin, moved_ms, sequence: "1" }));
      return { cursor: next.cursor, above: next.above, pins: lines };
    },
    moves,
    (pin, problem) => told.push([pin, problem === null ? null : problem.reason]),
  );
  let board = opened();
  const seen = [];
  for (const [call, given, read] of steps) {
    pages = read ?? [];
    asked = [];
    if (call === "shown again") board = opened();
    else if (call === "look") await board.look(...given);
    else if (call === "more") await board.more();
    else if (call === "above") await board.moreAbove();
    else if (call === "jump") await board.jump(given);
    else if (call === "move") board.move({ pin: given[0], moved_ms: null, sequence: "1" }, given[1]);
    else if (call === "placed") answers.shift().resolve({ sequence: "2", moved_ms: given });
    else if (call === "refused") {
      const { Problem } = await import("/parts/api.js");
      answers.shift().reject(new Problem("action-refused", 409, "no", "", 0, given));
    }
    await new Promise((resolve) => setTimeout(resolve));
    if (pages.length > 0) throw new Error(`${pages.length} pages were not asked for`);
    const shown = board.shown.map((line) => line.pin).join("");
    const { first, top, hasTop, hasEnd } = board;
    seen.push({ shown, asked, told: told.splice(0), first, top, hasTop, hasEnd });
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


def page(pins: str, cursor: str | None = None, above: str | None = None, **moved: int) -> dict[str, Any]:
    return {"pins": [[pin, moved.get(pin)] for pin in pins], "cursor": cursor, "above": above}


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
    assert seen[-1]["hasEnd"]


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


def test_moves_of_a_board_that_was_left_come_before_those_after_coming_back(board_sight: Sight) -> None:
    seen = run(
        board_sight,
        ("look", TOP, [page("abcdef")]),
        ("move", ("f", {"before": "a", "after": "b"})),
        ("shown again", ()),
        ("look", TOP, [page("abcdef")]),
        ("move", ("f", {"to": "bottom"})),
        ("refused", "neighbours_apart"),
        ("placed", 5),
    )
    assert shown(seen)[3:] == ["afbcde", "abcdef", "abcdef", "abcdef"]
    assert [each["asked"] for each in seen[4:]] == [[], [["f", {"to": "bottom"}]], []]
    assert [each["told"] for each in seen[5:]] == [[["f", "neighbours_apart"]], [["f", None]]]


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


# Anywhere on a board
# --------------------------------------------------------------------------------------------------------------------


def test_a_jump_shows_another_part_which_grows_both_ways(board_sight: Sight) -> None:
    seen = run(
        board_sight,
        ("look", TOP, [page("abcd", "d")]),
        ("jump", "12345", [page("mnop", "p", "M")]),
        ("above", (), [page("kl", "l", "K")]),
        ("more", (), [page("q", "q", "Q")]),
        ("look", (0, 2), [page("mnxopq", "q", "M")]),
        ("above", (), [page("ij", "j")]),
        ("jump", "bottom", [page("yz", None, "Y")]),
        ("jump", "top", [page("abcd", "d")]),
    )
    assert shown(seen) == ["abcd", "mnop", "klmnop", "klmnopq", "klmnxopq", "ijklmnxopq", "yz", "abcd"]
    assert [each["asked"] for each in seen] == [
        [None],
        ["12345"],
        ["M"],
        ["p"],
        ["l"],
        ["K"],
        ["bottom"],
        ["top"],
    ]
    # A pin keeps its position as the part grows above it; its place is known once the top was reached.
    assert [each["first"] for each in seen] == [0, 0, -2, -2, -2, -4, 0, 0]
    assert [each["top"] for each in seen] == [0, None, None, None, None, -4, None, 0]
    assert [each["hasTop"] for each in seen] == [True, False, False, False, False, True, False, True]
    assert [each["hasEnd"] for each in seen] == [False] * 6 + [True, False]


def test_moves_show_in_the_part_that_is_there(board_sight: Sight) -> None:
    part = ("jump", "12345", [page("mnop", "p", "M")])
    for move, now in (
        (("n", {"to": "top"}), "mop"),
        (("n", {"to": "bottom"}), "mop"),
        (("n", {"before": "a", "after": "b"}), "mop"),
        (("a", {"before": "n", "after": "o"}), "mnaop"),
        (("a", {"after": "m"}), "amnop"),
    ):
        seen = run(board_sight, part, ("move", move), ("placed", 5))
        assert shown(seen) == ["mnop", now, now]


def test_what_is_kept_is_bounded_whichever_way_one_scrolls(board_sight: Sight) -> None:
    board_sight.open()
    script = """
    const [done] = arguments;
    const SIZE = 10_000;
    const run = async () => {
      const { Board, Moves } = await import("/parts/board.js");
      let reads = 0;
      const line = (pin) => ({ pin, moved_ms: null, sequence: String(SIZE - pin) });
      const pageOf = (from, until) => ({
        pins: Array.from({ length: until - from }, (_, at) => line(from + at)),
        cursor: until < SIZE ? `below ${until}` : null,
        above: from > 0 ? `above ${from}` : null,
      });
      const board = new Board(async (limit, { cursor }) => {
        reads += 1;
        const [way, at] = cursor === undefined ? ["below", 0] : cursor.split(" ");
        const edge = Number(at);
        return way === "below" ? pageOf(edge, Math.min(SIZE, edge + limit)) : pageOf(Math.max(0, edge - limit), edge);
      }, new Moves());
      let most = 0, wrong = [];
      const check = () => {
        const lines = board.shown;
        most = Math.max(most, lines.length);
        if (lines.some((line, at) => line.pin !== board.first + at)) wrong.push(board.first);
        if (board.top !== 0) wrong.push(`top ${board.top}`);
      };
      await board.look(0, 60);
      while (!board.hasEnd) {
        await board.more();
        // What is on the screen then, it is read again.
        await board.look(board.first + board.shown.length - 90, board.first + board.shown.length - 30);
        check();
      }
      const lowest = board.shown.at(-1).pin;
      const down = reads;
      while (!board.hasTop) {
        await board.moreAbove();
        await board.look(board.first + 30, board.first + 90);
        check();
      }
      return { most, wrong, lowest, down, up: reads - down, first: board.shown[0].pin, hasEnd: board.hasEnd };
    };
    run().then(done, (error) => done({ failed: String(error) }));
    """
    found = board_sight.driver.execute_async_script(script)
    assert "failed" not in found, found
    assert found["wrong"] == []
    assert (found["lowest"], found["first"], found["hasEnd"]) == (9_999, 0, False)
    assert found["most"] <= 2_000
    assert max(found["down"], found["up"]) <= 2 * 10_000 // 200 + 2


@pytest.mark.parametrize("refused_each", [1_000, 20, 3])
@pytest.mark.parametrize("spread", ["even", "one pin years above", "a million in a second", "two heaps", "few"])
def test_a_few_looks_say_where_the_pins_of_a_board_are(board_sight: Sight, spread: str, refused_each: int) -> None:
    """Also if the server refuses some of them: those that it did answer are not made again."""
    pauses = {
        "even": [(100_000, 1_000)],
        "one pin years above": [(1, 10**11), (100_000, 3)],
        "a million in a second": [(200, 10**7), (1_000_000, 1), (200, 10**7)],
        "two heaps": [(50_000, 2), (1, 10**12), (50_000, 1)],
        "few": [(300, 7)],
    }
    board_sight.open()
    script = """
    const [pauses, refusedEach, done] = arguments;
    const run = async () => {
      const { Survey } = await import("/parts/scale.js");
      // The number of a pin from the top is its place; its sequence is a ms of the real ones.
      const UNIT = 10n ** 25n;
      const ends = [];
      let sequence = 10n ** 13n, place = 0;
      for (const [count, pause] of pauses) {
        ends.push({ place, sequence, pause: BigInt(pause) });
        place += count;
        sequence -= BigInt(count) * BigInt(pause);
      }
      const total = place;
      const at = (place) => {
        const part = ends.findLast((each) => each.place <= place);
        return (part.sequence - BigInt(place - part.place) * part.pause) * UNIT;
      };
      const below = (sequence) => {
        let [low, high] = [0, total];
        while (low < high) {
          const middle = Math.floor((low + high) / 2);
          if (at(middle) <= sequence) high = middle;
          else low = middle + 1;
        }
        return low;
      };
      let reads = 0, asked = 0;
      const survey = new Survey(async (limit, { start }) => {
        if ((asked += 1) % refusedEach === 0) throw new Error("overloaded");
        reads += 1;
        const from = start === "top" ? 0 : start === "bottom" ? Math.max(0, total - limit) : below(BigInt(start));
        const until = Math.min(total, from + limit);
        const pins = Array.from({ length: until - from }, (_, each) => ({ sequence: String(at(from + each)) }));
        return { pins, cursor: until < total ? "more" : null };
      });
      let scale = null, refused = 0;
      while (scale === null) scale = await survey.finish().catch(() => { refused += 1; return null; });
      const found = [];
      for (let share = 1; share < 20; share += 1) {
        const sequence = scale.sequenceAt((scale.total * share) / 20);
        found.push([share / 20, below(sequence) / total, scale.placeOf(sequence) / scale.total]);
      }
      return { found, reads, refused, total: scale.total / total };
    };
    run().then(done, (error) => done({ failed: String(error) }));
    """
    answer = board_sight.driver.execute_async_script(script, pauses[spread], refused_each)
    assert "failed" not in answer, answer
    assert answer["reads"] <= 50
    assert answer["refused"] == (answer["reads"] - 1) // (refused_each - 1)
    assert answer["total"] == pytest.approx(1, abs=0.05)
    for share, place, again in answer["found"]:
        assert place == pytest.approx(share, abs=0.05), answer
        assert again == pytest.approx(share, abs=0.001), answer


@pytest.mark.parametrize(
    "gone",
    [
        pytest.param([(99_850, 100_000)], id="the oldest"),
        pytest.param([(0, 400)], id="the newest"),
        pytest.param([(45_000, 55_000)], id="in the middle"),
        pytest.param([(0, 5_000), (95_000, 100_000)], id="both ends"),
    ],
)
def test_where_many_pins_were_moved_away_the_board_goes_on(board_sight: Sight, gone: list[tuple[int, int]]) -> None:
    board_sight.open()
    script = """
    const [gone, done] = arguments;
    const run = async () => {
      const { Survey } = await import("/parts/scale.js");
      // A line each ms, the one of place 0 on top. A page looks at so many lines as those of the server.
      const SIZE = 100_000, NOW_MS = 10 ** 12, UNIT = 10n ** 25n;
      const at = (place) => BigInt(NOW_MS - 1 - place) * UNIT;
      const isThere = (place) => !gone.some(([from, until]) => from <= place && place < until);
      let reads = 0;
      const read = async (limit, { start, cursor }) => {
        reads += 1;
        let [way, place] = cursor?.split(" ") ?? ["down", 0];
        if (start === "bottom") [way, place] = ["up", SIZE - 1];
        else if (start !== undefined && start !== "top") {
          place = Math.max(0, NOW_MS - 1 - Number(BigInt(start) / UNIT));
        }
        const pins = [];
        let looked = 0;
        const step = way === "up" ? -1 : 1;
        for (place = Number(place); 0 <= place && place < SIZE; place += step) {
          if (pins.length === limit || looked === 2 * limit + 100) break;
          looked += 1;
          if (isThere(place)) pins.push({ sequence: String(at(place)) });
        }
        const isMore = 0 <= place && place < SIZE;
        const onward = isMore ? `${way} ${place}` : null;
        if (way === "up") return { pins: pins.reverse(), cursor: null, above: onward };
        return { pins, cursor: onward, above: null };
      };
      const scale = await new Survey(read, NOW_MS).finish();
      if (scale === null) return { reads, total: null };
      const places = Array.from({ length: 19 }, (_, share) => {
        const sequence = scale.sequenceAt((scale.total * (share + 1)) / 20);
        return NOW_MS - 1 - Number(sequence / UNIT);
      });
      return { reads, total: scale.total, places };
    };
    run().then(done, (error) => done({ failed: String(error) }));
    """
    answer = board_sight.driver.execute_async_script(script, gone)
    assert "failed" not in answer, answer
    assert answer["reads"] <= 50
    # Pins of which nothing was found may be there or not.
    there = 100_000 - sum(until - from_ for from_, until in gone)
    assert answer["total"] is not None
    assert 0.95 * there <= answer["total"] <= 1.05 * 100_000
    for share, place in enumerate(answer["places"], 1):
        assert place == pytest.approx(share * 5_000, abs=6_000), answer


def test_a_board_on_which_no_pin_was_found_has_no_scale(board_sight: Sight) -> None:
    board_sight.open()
    script = """
    const [done] = arguments;
    const run = async () => {
      const { Survey } = await import("/parts/scale.js");
      let reads = 0;
      const scale = await new Survey(async () => {
        reads += 1;
        return { pins: [], cursor: "more", above: "more" };
      }).finish();
      return { reads, scale };
    };
    run().then(done, (error) => done({ failed: String(error) }));
    """
    answer = board_sight.driver.execute_async_script(script)
    assert answer["scale"] is None
    assert answer["reads"] <= 50
