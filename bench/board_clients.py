"""`python -m bench.board_clients`: clients that drag pins of one board, killed in between, and what is left of it.

A process runs the clients and the re-spacing that they cause. It is killed (SIGKILL) and started again. Then the board
is checked: every acknowledged move is there, no pin is lost or shown twice, no gap stays narrow unless it was asked
for. In SQLite files, or with --mysql URL on a server: a user that may create databases whose names begin with follows_.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench.mysql_follows import dropped, servers
from bench.ours import forget_outbox
from deploy.local.signals import unwinding
from feedstore.boards import BoardCrowdedError, Boards, Move, Place, ReorderRefusedError
from feedstore.clocks import wall_ms
from feedstore.domain import Pin, PinSaved, RespaceAsked, SavePin
from feedstore.follows import mysql, sqlite
from feedstore.follows.port import Request, actions_in
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from workers.boards import Respacing
from workers.boards.walks import checked

BOARD = 9
OWNER = 7
_BATCH = 1_000


@dataclass(frozen=True)
class Load:
    """paths: the files of the shards; mysql: or the server. log: what was acknowledged, a line each. near: clients drop
    at so many places, so that they meet.
    """

    paths: list[str]
    mysql: str | None
    log: str
    shards: int = 1
    clients: int = 16
    seconds: float = 60.0
    pins: int = 400
    near: int = 8
    seed: int = 0

    def create(self) -> None:
        if self.mysql is None:
            sqlite.create([Path(path) for path in self.paths])
        else:
            mysql.create(databases(self.mysql, self.shards))

    def open(self) -> FollowStore:
        if self.mysql is None:
            return sqlite.open_store([Path(path) for path in self.paths], wall_ms)
        return mysql.open_store(databases(self.mysql, self.shards))


def databases(url: str, shards: int) -> list[mysql.MySQLServer]:
    """The databases of so many shards: stores of one shard and of three may be there at once."""
    return servers(url, shards, f"clients_of_{shards}")


@dataclass(frozen=True)
class Verdict:
    """reorders: acknowledged ones; per_s: of a second in which clients ran. refused: with a reason. crowded: had to
    wait for room. faults: what is wrong, a sentence each.
    """

    reorders: int
    per_s: float
    refused: int
    crowded: int
    faults: list[str]


def fill(store: FollowStore, pins: int) -> None:
    """A board of so many pins, a few ms apart, some of one ms."""
    first_ms = wall_ms() - 100 * pins
    for some in chunks(range(1, pins + 1), _BATCH):
        answers = store.record([Request(SavePin(Pin(pin, OWNER, BOARD, first_ms + pin // 2))) for pin in some])
        store.index(pins=[answer for answer in answers if isinstance(answer, PinSaved)])
    forget_outbox(store)


def drag(load: Load) -> None:
    """Runs the clients until the time is over."""
    until_s = time.monotonic() + load.seconds
    log = os.open(load.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    with closing(load.open()) as store, ThreadPoolExecutor(load.clients + 1) as pool:
        boards = Boards(store)
        anchors = [pin.pin for pin in boards.page(BOARD, load.near, None).pins]

        def client(number: int) -> None:
            rng = random.Random(load.seed * 1_000 + number)
            mine = [pin for pin in range(1 + number, load.pins + 1, load.clients) if pin not in anchors]
            while time.monotonic() < until_s:
                pin, neighbour = rng.choice(mine), rng.choice(anchors)
                move = Move(BOARD, pin, before=neighbour) if rng.random() < 0.8 else Move(BOARD, pin, after=neighbour)
                if rng.random() < 0.1:
                    move = Move(BOARD, pin, before=neighbour, after=rng.choice([each for each in mine if each != pin]))
                try:
                    placed = boards.reorder(move)
                except ReorderRefusedError:
                    os.write(log, b"refused\n")
                except BoardCrowdedError:
                    os.write(log, b"crowded\n")
                else:
                    os.write(log, b"moved %d %d\n" % (pin, placed.moved_ms))

        def work() -> None:
            respacing = Respacing(boards, time.monotonic)
            while time.monotonic() < until_s:
                respace(store, respacing)
                time.sleep(0.01)

        for each in [pool.submit(work), *(pool.submit(client, number) for number in range(load.clients))]:
            each.result()


def respace(store: FollowStore, respacing: Respacing) -> bool:
    """Makes the room that drops have asked for; whether anything was asked."""
    rows = store.unrelayed(_BATCH)
    respacing.respace([each for each in actions_in(rows) if isinstance(each, RespaceAsked)])
    store.mark_relayed(rows)
    return bool(rows)


def judge(load: Load, seconds: float) -> Verdict:
    """Does what was asked for, and compares the board with what was acknowledged."""
    moved: dict[int, int] = {}
    counts = {"moved": 0, "refused": 0, "crowded": 0}
    for words in map(str.split, Path(load.log).read_text().splitlines()):
        counts[words[0]] += 1
        if words[0] == "moved":
            moved[int(words[1])] = max(moved.get(int(words[1]), 0), int(words[2]))
    faults: list[str] = []
    with closing(load.open()) as store:
        boards = Boards(store)
        while respace(store, Respacing(boards, time.monotonic)):
            pass
        seen: dict[int, int] = {}
        after: Place | None = None
        while True:
            page = boards.page(BOARD, 100, after)
            for pin in page.pins:
                if pin.pin in seen:
                    faults.append(f"pin {pin.pin} is shown twice")
                seen[pin.pin] = pin.moved_ms
            after = page.after
            if after is None:
                break
        faults += [f"pin {pin} is lost" for pin in range(1, load.pins + 1) if pin not in seen]
        faults += [f"an acknowledged move of pin {pin} is lost" for pin, ms in moved.items() if seen.get(pin, 0) < ms]
        faults += list(_checked(boards))
    return Verdict(counts["moved"], counts["moved"] / seconds, counts["refused"], counts["crowded"], faults)


def _checked(boards: Boards) -> Iterable[str]:
    for part in checked(boards, BOARD):
        yield from (f"pins {upper} and {lower} have one number" for upper, lower in part.ties)
        yield from (f"a row of pin {key.pin}, which is dead" for key in part.dead)
        yield from (f"the gap above pin {pin} stays narrow" for pin in part.narrow)


def run(load: Load, *, kills: int) -> Verdict:
    """Clients on a new board, for `load.seconds` altogether; the process is killed so many times in between."""
    load.create()
    with closing(load.open()) as store:
        fill(store, load.pins)
    Path(load.log).touch()
    for number in range(kills + 1):
        killed = number < kills
        part = replace(load, seconds=3_600.0 if killed else load.seconds / (kills + 1), seed=number)
        child = subprocess.Popen([sys.executable, "-m", "bench.board_clients", "--child", json.dumps(asdict(part))])
        try:
            if killed:
                _after_the_first(load.log)
                time.sleep(load.seconds / (kills + 1))
                child.send_signal(signal.SIGKILL)
            ended = child.wait(load.seconds + 60)
        finally:
            child.kill()
            child.wait()
        if ended != (-signal.SIGKILL if killed else 0):
            raise RuntimeError(f"the clients ended with {ended}")
    return judge(load, load.seconds)


def _after_the_first(log: str) -> None:
    """Waits until the child has moved something."""
    size = Path(log).stat().st_size
    deadline_s = time.monotonic() + 60
    while Path(log).stat().st_size == size:
        if time.monotonic() > deadline_s:
            raise TimeoutError("no pin was moved within a minute")
        time.sleep(0.01)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="bench.board_clients", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mysql", metavar="URL", help="a server, and a user that may create databases")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--kills", type=int, default=1, help="how often the process of the clients is killed")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.child:
        drag(Load(**json.loads(chosen.child)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(Path(folder) / f"follows-{number}.db") for number in range(chosen.shards)]
        load = Load(paths, chosen.mysql, str(Path(folder) / "log"), chosen.shards, chosen.clients, chosen.seconds)
        try:
            verdict = run(load, kills=chosen.kills)
        finally:
            if chosen.mysql:
                dropped(databases(chosen.mysql, chosen.shards))
    print(f"{verdict.reorders:,} reorders, {verdict.per_s:,.0f}/s of {chosen.clients} clients")
    print(f"{verdict.refused:,} refused with a reason, {verdict.crowded} had to wait for room")
    print(*verdict.faults or ["the board is as it was acknowledged"], sep="\n")
    return int(bool(verdict.faults))


if __name__ == "__main__":
    with unwinding():
        sys.exit(main())
