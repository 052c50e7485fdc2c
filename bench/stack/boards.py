"""Boards in their own order, in MariaDB: a drop across many pins against renumbering them, and many clients."""

import os
import random
import time
from collections.abc import Callable
from functools import partial

from bench import board_clients
from bench.board_clients import Load
from bench.context import Context
from bench.measurements.boards import CLIENTS, rows_of_a_kill
from bench.mysql_follows import dropped, temporary_store
from bench.results import Row, at_least, at_most, interleaved, percentile, ratios
from bench.stack.servers import Servers, database, insert
from bench.timing import seconds
from feedstore.boards import Boards, Move

DATABASE = f"follows_bench{os.getpid()}_positions"
# As in SQLite: a position for each pin in the table of pins, and an index for pages of a board.
PINS = (
    "CREATE TABLE pins (pin BIGINT PRIMARY KEY, owner BIGINT NOT NULL, board BIGINT NOT NULL,"
    " created_ms BIGINT NOT NULL, saved_ms BIGINT NOT NULL, deleted_ms BIGINT, position BIGINT NOT NULL,"
    " KEY positions (board, position)) ENGINE=InnoDB"
)
SHIFT = "UPDATE pins SET position = position - 1 WHERE board = 1 AND position BETWEEN {first} AND {last}"


def measure(servers: Servers, context: Context) -> list[Row]:
    """A drop across 100,000 pins in MariaDB, against renumbering them; sixteen clients on one board, killed between"""
    return [*_far(servers, context), *_clients(servers, context)]


def _far(servers: Servers, context: Context) -> list[Row]:
    distance, count = context.pick(100_000, 2_000), context.pick(200, 20)
    pins = 2 * distance
    rng = random.Random(0)
    with temporary_store(servers.database_url()) as store, database(servers, DATABASE, [PINS]) as connection:
        context.say(f"a board of {pins:,} pins")
        filled = "pins (pin, owner, board, created_ms, saved_ms, position)"
        insert(connection, filled, ((pin, 7, 1, pin, pin, pin) for pin in range(pins)))
        board_clients.fill(store, pins)
        boards = Boards(store)

        def drop() -> None:
            # Of two pins of one ms the older id is above: the board's places are near its ids, counted from the top.
            pin = rng.randrange(pins - distance + 1, pins + 1)
            boards.reorder(Move(board_clients.BOARD, pin, before=pin - distance))

        def renumbering() -> None:
            pin = rng.randrange(distance // 10)
            ((position,),) = connection.rows(f"SELECT position FROM pins WHERE pin = {pin}")
            to = position + distance
            connection.run(
                [
                    "BEGIN",
                    SHIFT.format(first=position + 1, last=to),
                    f"UPDATE pins SET position = {to} WHERE pin = {pin}",
                    "COMMIT",
                ]
            )

        def one_row() -> None:
            # The same again would write nothing.
            stamp = time.monotonic_ns()
            connection.run([f"UPDATE pins SET saved_ms = {stamp} WHERE pin = {rng.randrange(pins)}"])

        sides: dict[str, Callable[[], float]] = {
            "ours": partial(_median, drop, count),
            "renumbering": partial(_median, renumbering, 1),
            "one row": partial(_median, one_row, count),
        }
        interleaved(sides, 1)
        taken = interleaved(sides, context.repeats)
    what = f"a drop across {distance:,} pins / renumbering them in a table of pins, MariaDB, durable"
    return [
        Row(what, "x", ratios(taken["ours"], taken["renumbering"]), at_most(1 / 100)),
        Row(f"renumbering {distance:,} pins, MariaDB", "ms", [1_000 * each for each in taken["renumbering"]]),
        Row("a drop, MariaDB", "ms", [1_000 * each for each in taken["ours"]]),
        Row("a durable change of one row, alone, MariaDB", "ms", [1_000 * each for each in taken["one row"]]),
    ]


def _median(work: Callable[[], None], count: int) -> float:
    return percentile([seconds(work) for _ in range(count)], 0.5)


def _clients(servers: Servers, context: Context) -> list[Row]:
    url, seconds = servers.database_url(), context.pick(60, 4)
    verdicts = []
    for _ in range(context.pick(2, 1)):
        log = context.folder("clients") / "log"
        try:
            verdicts.append(board_clients.run(Load([], url, str(log), seconds=seconds), kills=1))
        finally:
            dropped(board_clients.databases(url, 1))
    rows = rows_of_a_kill("MariaDB", seconds, verdicts)
    return [Row(f"{CLIENTS}, MariaDB, durable", "drops/s", [v.per_s for v in verdicts], at_least(400)), *rows[1:]]
