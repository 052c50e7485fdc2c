"""Boards in their own order: what a drag and a page cost on boards of a thousand and of ten million pins."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from fractional_indexing import generate_key_between

from bench import board_clients
from bench.board_clients import Load, Verdict, respace
from bench.boards_made_up import DRAGGERS, LEAN, LIKE_OURS, WITH_PINS, Board, Filling, Renumbered
from bench.context import Context
from bench.ordered_model import OrderedBoard
from bench.results import Row, at_least, at_most, interleaved, latencies, percentile, ratios
from bench.timing import seconds
from feedstore.boards import SPACING, BoardCrowdedError, Boards, Move, Place, Spot
from feedstore.domain import Pin, PinSaved, RespaceAsked, SavePin
from feedstore.domain import board as board_of
from feedstore.follows import sqlite_boards
from feedstore.follows.port import Request, actions_in
from feedstore.follows.store import FollowStore
from workers.boards import Respacing

PAGE = 25
CLIENTS = "drops of 16 clients on one board"
_BATCH = 1_000

_processor_seconds = partial(seconds, clock=time.process_time)


def measure(context: Context) -> list[Row]:
    """Reorders and pages of boards: ten million pins and a thousand, one spot, far drags, many clients"""
    return [
        *_rows(context),
        *_labels(context),
        *_large(context),
        *_hole(context),
        *_far(context),
        *_library(context),
        *_clients(context),
        *_run_of_one_ms(context),
        *_saves(context),
        *_unmoved(context),
    ]


# Rows a drop
# --------------------------------------------------------------------------------------------------------------------


def _rows(context: Context) -> list[Row]:
    """Rows that the database counts, and drops that had to wait; the job runs as often as the relay would."""
    pins, drops = context.pick(2_000, 200), context.pick(6_000, 300)
    found: list[Row] = []
    crowded = 0
    for name, dragger in DRAGGERS.items():
        written: list[float] = []
        for repeat in range(context.repeats if name == "one spot" else 1):
            with _store(context, f"rows-{repeat}") as (filling, opened):
                board = filling.board(pins)
                store = opened()
                before = _placed_rows(store)
                crowded += _drag(store, board, dragger(random.Random(repeat), pins), drops, every=2)
                written.append((_placed_rows(store) - before) / drops)
        what = f"rows written a drop, re-spacing included: {name}, {drops:,} drops on {pins:,} pins"
        found.append(Row(what, "rows", written, at_most(1.1) if name == "one spot" else None))
    return [
        *found,
        _one_row(context),
        Row("drops that had to wait for room, of all of these", "drops", [crowded], at_most(0)),
    ]


def _one_row(context: Context) -> Row:
    with _store(context, "one-row") as (filling, opened):
        board = filling.board(1_000)
        boards = Boards(store := opened())
        rng = random.Random(0)
        samples: list[float] = []
        for _ in range(50):
            pin, neighbour = rng.sample(range(board.pins), 2)
            before = _all_rows(store)
            boards.reorder(Move(board.number, board.pin(pin), before=board.pin(neighbour)))
            samples.append(_all_rows(store) - before)
    return Row("rows of any table written by one drop", "rows", samples, at_most(1))


def _drag(store: FollowStore, board: Board, drags: Iterator[tuple[int, int]], drops: int, every: int) -> int:
    """How many drops had to wait."""
    boards = Boards(store)
    order = [board.pin(place) for place in range(board.pins)]
    crowded = 0
    for number in range(drops):
        place, to = next(drags)
        pin = order.pop(place)
        try:
            boards.reorder(Move(board.number, pin, before=order[to]))
        except BoardCrowdedError:
            crowded += 1
            order.insert(place, pin)
        else:
            order.insert(to + 1, pin)
        if number % every == 0:
            respace(store, Respacing(boards, lambda: 0.0))
    shown = [pin.pin for pin in boards.page(board.number, 100, None).pins]
    assert shown == order[: len(shown)], "the board is not as it was dragged"  # a page may be short
    return crowded


_COUNT = """
    CREATE TEMP TABLE IF NOT EXISTS counted (rows INTEGER);
    INSERT INTO counted SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counted);
    CREATE TEMP TRIGGER IF NOT EXISTS one AFTER INSERT ON placed_pins BEGIN UPDATE counted SET rows = rows + 1; END;
    CREATE TEMP TRIGGER IF NOT EXISTS two AFTER UPDATE ON placed_pins BEGIN UPDATE counted SET rows = rows + 1; END;
"""


def _placed_rows(store: FollowStore) -> int:
    """How many rows of placed pins the database has written since this was first asked."""
    with store._shards[0]._database.write() as connection:  # type: ignore[attr-defined]  # noqa: SLF001 - its own count
        for statement in _COUNT.strip().split(";\n"):
            connection.execute(statement)
        rows: int = connection.execute("SELECT rows FROM counted").fetchone()[0]
    return rows


def _all_rows(store: FollowStore) -> int:
    """How many rows of any table the database has written."""
    with store._shards[0]._database.write() as connection:  # type: ignore[attr-defined]  # noqa: SLF001 - its own count
        rows: int = connection.total_changes
    return rows


def _labels(context: Context) -> list[Row]:
    drops = context.pick(10_000, 500)
    above, below = generate_key_between(None, None), None
    for _ in range(drops):
        below = generate_key_between(above, below)
    assert below is not None
    with _store(context, "labels") as (filling, opened):
        board = filling.board(100)
        store = opened()
        _drag(store, board, DRAGGERS["one spot"](random.Random(0), board.pins), drops, every=10)
        with store._shards[0]._database.read() as connection:  # type: ignore[attr-defined]  # noqa: SLF001 - its rows
            (ours,) = connection.execute("SELECT max(length(sequence)) FROM placed_pins").fetchone()
    return [
        Row(
            f"bytes a label after {drops:,} drops at one spot / fractional-indexing",
            "x",
            [ours / len(below)],
            at_most(0.05),
        ),
        Row("bytes a label", "bytes", [ours], at_most(16)),
    ]


# Large boards
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Side:
    boards: Boards
    board: Board
    rng: random.Random

    def drags(self, count: int) -> list[float]:
        """Seconds of each drag of a random pin to a random place."""
        taken: list[float] = []
        for _ in range(count):
            pin, neighbour = self.rng.sample(range(self.board.first, self.board.first + self.board.pins), 2)
            move = Move(self.board.number, pin, before=neighbour)
            taken.append(seconds(partial(self.boards.reorder, move)))
        return taken

    def pages(self, count: int, *, top: bool) -> list[float]:
        """Seconds of processor time of each page, at the top or anywhere."""
        taken: list[float] = []
        for _ in range(count):
            pin = self.board.first + self.rng.randrange(PAGE * 2, self.board.pins)
            after = None if top else Place(Spot(SPACING.virtual(*_created(self.boards, pin)), pin))
            taken.append(_processor_seconds(partial(self.boards.page, self.board.number, PAGE, after)))
        return taken


def _large(context: Context) -> list[Row]:
    large, small = context.pick(10_000_000, 50_000), 1_000
    count = context.pick(1_000, 50)
    with _store(context, "large") as (filling, opened):
        context.say(f"a board of {large:,} pins")
        sides = {"large": filling.board(large), "small": filling.board(small)}
        untouched = filling.board(small)
        arranged = filling.board(large)
        context.say(f"a board of {large:,} pins that are all placed")
        filling.arrange(arranged)
        context.say("dragging")
        boards = Boards(opened())
        made = {name: _Side(boards, board, random.Random(0)) for name, board in sides.items()}
        for side in made.values():
            side.drags(count)
        drags = interleaved({name: partial(side.drags, count) for name, side in made.items()}, context.repeats)
        context.say("reading pages")
        at_top, anywhere = (_Side(boards, board, random.Random(1)) for board in (untouched, arranged))
        pages = interleaved(
            {"top": lambda: at_top.pages(count, top=True), "anywhere": lambda: anywhere.pages(count, top=False)},
            context.repeats,
        )
        shown = boards.page(arranged.number, 500, None)
        assert len(shown.pins) == 500
        assert all(pin.moved_ms for pin in shown.pins)
    p50, p99 = latencies(drags | pages, 1).values()
    return [
        Row(f"a drop on {large:,} pins / on {small:,}, p50", "x", ratios(p50["large"], p50["small"]), at_most(1.3)),
        Row("the same, p99", "x", ratios(p99["large"], p99["small"]), at_most(2)),
        Row(f"a drop on {large:,} pins, p50", "ms", [1_000 * each for each in p50["large"]]),
        Row(
            f"a page of {PAGE}, anywhere on {large:,} placed pins / at the top of {small:,} untouched ones, p50,"
            " processor time",
            "x",
            ratios(p50["anywhere"], p50["top"]),
            at_most(1.5),
        ),
        Row("a page anywhere on placed pins, p50, processor time", "ms", [1_000 * each for each in p50["anywhere"]]),
    ]


def _hole(context: Context) -> list[Row]:
    moved, left, count = context.pick(1_000_000, 5_000), 100_000, context.pick(300, 20)
    with _store(context, "hole") as (filling, opened):
        context.say(f"a board with {moved:,} pins that were moved to the top")
        holed, whole = filling.board(moved + left), filling.board(left)
        filling.move_to_the_top(holed, left // 2, moved)
        boards = Boards(opened())
        edge = boards.page(holed.number, 1, None).pins[0]
        last_before = Spot(SPACING.virtual(*_created(boards, holed.pin(left // 2 - 1))), holed.pin(left // 2 - 1))
        sides: dict[str, Callable[[], list[float]]] = {
            "hole": lambda: [
                seconds(lambda: boards.page(holed.number, PAGE, Place(last_before))) for _ in range(count)
            ],
            "whole": lambda: [seconds(lambda: boards.page(whole.number, PAGE, None)) for _ in range(count)],
        }
        taken = interleaved(sides, context.repeats)
        assert edge.moved_ms
    p50 = {name: [percentile(each, 0.5) for each in samples] for name, samples in taken.items()}
    what = f"a page at {moved:,} moved pins in one place / without, p50"
    return [Row(what, "x", ratios(p50["hole"], p50["whole"]), at_most(3))]


def _created(boards: Boards, pin: int) -> tuple[int, int]:
    state = boards._follows.pins([pin])[pin]  # noqa: SLF001 - the bench looks behind
    return state.pin.created_ms, pin


def _far(context: Context) -> list[Row]:
    """The baseline is a position in the table of pins. Leaner and larger tables for positions are there to compare."""
    distance = context.pick(100_000, 5_000)
    count = context.pick(200, 20)
    tables = {"pins": WITH_PINS, "lean": LEAN, "like ours": LIKE_OURS}
    with _store(context, "far") as (filling, opened), ExitStack() as stack:
        board = filling.board(2 * distance)
        boards = Boards(opened())
        naive = {
            name: stack.enter_context(
                closing(Renumbered(context.folder(f"far-{number}") / "naive.db", 2 * distance, table))
            )
            for number, (name, table) in enumerate(tables.items())
        }
        rng = random.Random(0)

        def drop() -> None:
            pin = rng.randrange(distance)
            boards.reorder(Move(board.number, board.pin(pin), before=board.pin(pin + distance)))

        def one_row() -> None:
            naive["pins"].touch(rng.randrange(2 * distance))

        def renumbering(name: str) -> Callable[[], None]:
            return lambda: naive[name].move(rng.randrange(distance // 10), distance)

        pairs = interleaved(
            {
                "ours": partial(_wall_and_processor, drop, count),
                "one row": partial(_wall_and_processor, one_row, count),
                **{name: partial(_wall_and_processor, renumbering(name), 3) for name in tables},
            },
            context.repeats,
        )
    taken = {side: [wall_s for wall_s, _ in each] for side, each in pairs.items()}
    worked = {side: [processor_s for _, processor_s in each] for side, each in pairs.items()}
    what = f"a drop across {distance:,} pins / renumbering them"
    alone = "a durable change of one row, alone"
    goal = at_most(1 / 500)
    rows = []
    for name, where in (
        ("pins", "in a table of pins, by an index on board and position"),
        ("lean", "in a table of two columns, for one board"),
        ("like ours", "in a table such as that of placed pins"),
    ):
        rows += [
            Row(f"{what} {where}, durable", "x", ratios(taken["ours"], taken[name]), goal),
            Row("the same, processor time", "x", ratios(worked["ours"], worked[name])),
            Row(f"{alone} / renumbering {where}", "x", ratios(taken["one row"], taken[name])),
            Row(f"renumbering {distance:,} pins {where}", "ms", [1_000 * each for each in taken[name]]),
        ]
    return [
        *rows,
        Row(f"a drop / {alone}", "x", ratios(taken["ours"], taken["one row"])),
        Row("a drop across them, durable", "ms", [1_000 * each for each in taken["ours"]]),
        Row("a drop, processor time", "ms", [1_000 * each for each in worked["ours"]]),
        Row(alone, "ms", [1_000 * each for each in taken["one row"]]),
        Row(f"{alone}, processor time", "ms", [1_000 * each for each in worked["one row"]]),
    ]


def _library(context: Context) -> list[Row]:
    pins, count = context.pick(10_000, 1_000), context.pick(100, 20)
    with (
        _store(context, "library") as (filling, opened),
        closing(OrderedBoard(context.folder("ordered-model") / "items.db", pins)) as library,
    ):
        board = filling.board(pins)
        boards = Boards(opened())
        rng = random.Random(0)

        def ours() -> float:
            moves = [(rng.randrange(pins // 10), rng.randrange(pins - pins // 10, pins)) for _ in range(count)]
            taken = [
                seconds(partial(boards.reorder, Move(board.number, board.pin(pin), before=board.pin(to))))
                for pin, to in moves
            ]
            return percentile(taken, 0.5)

        def theirs() -> float:
            moves = [(rng.randrange(pins // 10), rng.randrange(pins - pins // 10, pins)) for _ in range(count)]
            return percentile([seconds(partial(library.move, pin, to)) for pin, to in moves], 0.5)

        taken = interleaved({"ours": ours, "library": theirs}, context.repeats)
    what = f"a drop across a board of {pins:,} pins / django-ordered-model, durable, p50"
    return [
        Row(what, "x", ratios(taken["ours"], taken["library"]), at_most(1 / 50)),
        Row(f"a move across {pins:,} items in django-ordered-model", "ms", [1_000 * t for t in taken["library"]]),
    ]


# Many at once
# --------------------------------------------------------------------------------------------------------------------


def _clients(context: Context) -> list[Row]:
    rates: list[float] = []
    for _ in range(context.repeats):
        folder = context.folder("clients")
        load = Load([str(folder / "follows.db")], None, str(folder / "log"), seconds=context.pick(10, 2))
        verdict = board_clients.run(load, kills=0)
        assert not verdict.faults, verdict.faults
        rates.append(verdict.per_s)
    folder, seconds = context.folder("clients-killed"), context.pick(60, 4)
    killed = board_clients.run(Load([str(folder / "follows.db")], None, str(folder / "log"), seconds=seconds), kills=1)
    return [
        Row(f"{CLIENTS}, SQLite, durable", "drops/s", rates, at_least(1_500)),
        *rows_of_a_kill("SQLite", seconds, [killed]),
    ]


def rows_of_a_kill(where: str, seconds: float, verdicts: Sequence[Verdict]) -> list[Row]:
    """What clients did that were killed in between, and what is wrong with the board then."""
    what = f"{CLIENTS}, {where}, {seconds:g} s, killed in between"
    return [
        Row(what, "drops/s", [each.per_s for each in verdicts]),
        Row(f"{what}: drops that had to wait", "drops", [each.crowded for each in verdicts]),
        Row(f"{what}: lost, shown twice, narrow", "faults", [len(each.faults) for each in verdicts], at_most(0)),
    ]


def _run_of_one_ms(context: Context) -> list[Row]:
    pins = context.pick(100_000, 4_000)
    count = context.pick(300, 30)
    shares: list[float] = []
    for repeat in range(context.repeats):
        with _store(context, f"run-{repeat}") as (filling, opened):
            board = filling.board(pins, step_ms=0)
            boards = Boards(store := opened())
            # The ids of one ms ascend from the top: places are counted from there.
            side = _Side(boards, board, random.Random(repeat))
            side.drags(count)
            rest = percentile(side.drags(count), 0.99)
            middle = board.first + pins // 2
            for number in range(1, 5):
                boards.reorder(Move(board.number, board.first + number, before=middle))
            rows = store.unrelayed(_BATCH)
            asked = [each for each in actions_in(rows) if isinstance(each, RespaceAsked)]
            assert asked, "no drop asked for room"
            # In a process of its own, as expanders are.
            words = [str(path_of(store)), str(asked[-1].board), str(asked[-1].pin)]
            with subprocess.Popen([sys.executable, "-m", "bench.boards_made_up", *words]) as working:
                taken: list[float] = []
                while working.poll() is None:
                    taken += side.drags(1)
            assert working.returncode == 0
            shares.append(percentile(taken, 0.99) / rest)
            context.say(f"{len(taken)} drops while {pins:,} pins of one ms were spread")
    what = f"a drop while a run of {pins:,} pins of one ms is re-spaced / at rest, p99"
    return [Row(what, "x", shares, at_most(3))]


# Those who move nothing
# --------------------------------------------------------------------------------------------------------------------


def _saves(context: Context) -> list[Row]:
    """Pins that are recorded and entered in the indexes, and the same without the statements that boards add."""
    batches, size = context.pick(200, 10), 256
    shares: list[float] = []
    for repeat in range(context.repeats):
        with _store(context, f"saves-{repeat}") as (_, opened), _store(context, f"plain-{repeat}") as (_, plainly):
            stores = {"with": opened(), "without": plainly()}
            taken: dict[str, list[float]] = {name: [] for name in stores}
            for number in range(batches):
                for name in sorted(stores, reverse=bool(number % 2)):
                    with _without_boards() if name == "without" else nullcontext():
                        taken[name].append(_processor_seconds(partial(_save, stores[name], number * size, size)))
        p50 = {name: percentile(each, 0.5) for name, each in taken.items()}
        shares.append(p50["without"] / p50["with"])
    what = f"pins saved a second, {size} a transaction / without what boards add to an index write, processor time"
    return [Row(what, "x", shares, at_least(0.98))]


def _unmoved(context: Context) -> list[Row]:
    """A board that was never arranged, in a store where another one is arranged, and in one where none is."""
    pins, others, count = 1_000, context.pick(1_000_000, 5_000), context.pick(50, 5)
    with _store(context, "arranged") as (arranging, opened), _store(context, "unmoved") as (filling, opened_plainly):
        context.say(f"a board next to one of {others:,} pins that is arranged, and next to one that is not")
        unmoved = arranging.board(pins).number
        assert filling.board(pins).number == unmoved
        arranging.arrange(arranging.board(others))
        filling.board(others)
        stores = {"with": opened(), "without": opened_plainly()}
        shares: dict[str, list[float]] = {"page": [], "backfill": []}
        for _ in range(context.repeats):
            taken: dict[tuple[str, str], list[float]] = {(what, name): [] for what in shares for name in stores}
            for number in range(2 * count):
                for name in sorted(stores, reverse=bool(number % 2)):
                    store = stores[name]
                    page = partial(Boards(store).page, unmoved, PAGE, None)
                    backfill = partial(store.newest_pins, [board_of(unmoved)], pins)
                    taken["page", name].append(_processor_seconds(partial(_times, page, 20)))
                    taken["backfill", name].append(_processor_seconds(backfill))
            for what, found in shares.items():
                found.append(percentile(taken[what, "without"], 0.5) / percentile(taken[what, "with"], 0.5))
    where = "in a store where another board is arranged / where none is, processor time"
    return [
        Row(f"pages a second of a board that was never arranged, {where}", "x", shares["page"], at_least(0.98)),
        Row(f"its newest {pins:,} for a new follower, {where}", "x", shares["backfill"], at_least(0.98)),
    ]


def _times(work: Callable[[], object], count: int) -> None:
    for _ in range(count):
        work()


def _save(store: FollowStore, first: int, count: int) -> None:
    """Pins of sixty boards, recorded and then indexed, as their handler does it."""
    pins = range(first + 1, first + count + 1)
    answers = store.record([Request(SavePin(Pin(pin, 1 + pin % 60, 1 + pin % 60, pin))) for pin in pins])
    saved = [answer for answer in answers if isinstance(answer, PinSaved)]
    assert len(saved) == count
    store.index(pins=saved)


@contextmanager
def _without_boards() -> Iterator[None]:
    with (
        patch.object(sqlite_boards, sqlite_boards.drop.__name__, lambda *_: None),
        patch.object(sqlite_boards, sqlite_boards.end_quiet.__name__, lambda *_: None),
    ):
        yield


def path_of(store: FollowStore) -> Path:
    """The file of a store's only shard."""
    path: Path = store._shards[0]._database.path  # type: ignore[attr-defined]  # noqa: SLF001 - the bench looks behind
    return path


def _wall_and_processor(work: Callable[[], object], count: int) -> tuple[float, float]:
    """Seconds of the median call, and of processor time of the mean one."""
    began_s = time.process_time()
    taken = [seconds(work) for _ in range(count)]
    return percentile(taken, 0.5), (time.process_time() - began_s) / count


@contextmanager
def _store(context: Context, name: str) -> Iterator[tuple[Filling, Callable[[], FollowStore]]]:
    """A store to be filled, and opened once it is."""
    path: Path = context.folder(f"boards-{name}") / "follows.db"
    filling = Filling(path)
    opened: list[FollowStore] = []

    def open_it() -> FollowStore:
        opened.append(filling.open())
        return opened[0]

    try:
        yield filling, open_it
    finally:
        for store in opened:
            store.close()
        for file in path.parent.iterdir():
            file.unlink()
