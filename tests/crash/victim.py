"""What a process does that records actions and works, until it is done or killed.

What it was told is acknowledged it appends to a file that belongs to the harness; so the harness knows what must not be
lost, whatever becomes of this process and of its home.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from feedstore.app import config as configuration
from feedstore.domain import Action, DeletePin, Follow, Followee, Pin, SavePin, Unfollow
from feedstore.following import FEEDS
from feedstore.follows.port import ActionRefusedError, Request
from feedstore.widecolumn import Mutation, UnavailableError, WideColumnStore
from tests.crash.points import Trip, tripping
from tests.mutations import rows_of
from workers.app import until, wiring
from workers.app.home import worker_lock
from workers.following.ports import Ports
from workers.pipeline.spec import StageSpec

DEADLINE_S = 60.0
_IN_A_ROW = 6


@dataclass(frozen=True)
class Spec:
    """home, acks: paths. actions: in the order in which they are recorded, `together` at a time. point: where to die,
    at its `nth` passage. flapping: some rows of each cluster are away time and again, and no writer has room for more
    than one message that waits.
    """

    home: str
    acks: str
    actions: list[dict[str, object]]
    together: int = 4
    point: str | None = None
    nth: int = 1
    flapping: bool = False


def action_of(line: dict[str, object]) -> Action:
    match line:
        case {"type": "follow", "follower": int(follower), "kind": "user" | "board" as kind, "id": int(number)}:
            return Follow(follower, Followee(kind, number))
        case {"type": "unfollow", "follower": int(follower), "kind": "user" | "board" as kind, "id": int(number)}:
            return Unfollow(follower, Followee(kind, number))
        case {"type": "save", "pin": int(pin), "owner": int(owner), "board": int(board), "created_ms": int(created_ms)}:
            return SavePin(Pin(pin, owner, board, created_ms))
        case {"type": "delete", "pin": int(pin)}:
            return DeletePin(pin)
    raise ValueError(f"no action: {line}")


def acknowledged(path: Path) -> list[int]:
    """The numbers of the actions that were acknowledged."""
    return [int(number) for number in _told(path, "ack")]


def reached(path: Path) -> list[str]:
    """The point at which a victim died."""
    return _told(path, "reached")


def _told(path: Path, what: str) -> list[str]:
    """A line that was cut off tells nothing."""
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [line.split()[1] for line in lines if line.startswith(f"{what} ") and line.endswith("\n")]


def run(spec: Spec) -> None:
    """Records what is not acknowledged yet, and works until everything has landed."""
    home = Path(spec.home)
    file = os.open(spec.acks, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    trip = Trip(spec.point, spec.nth, lambda point: os.write(file, f"reached {point}\n".encode()))
    config = configuration.load(home, {})
    room = hardly_any_room() if spec.flapping else contextlib.nullcontext()
    # Stages are made by the worker, when it has asked their clusters where they are.
    with room, worker_lock(home), contextlib.closing(wiring.open_ports(config, "write")) as real:
        ports = tripping(flapping(real) if spec.flapping else real, trip)
        worker = wiring.worker(ports, config)
        errors: list[BaseException] = []

        def work() -> None:
            try:
                worker.run()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            known = set(acknowledged(Path(spec.acks)))
            left = [number for number in range(len(spec.actions)) if number not in known]
            while left:
                some, left = left[: spec.together], left[spec.together :]
                # Asked again with the same key, as a client does that got no answer.
                requests = [Request(action_of(spec.actions[number]), f"action-{number}") for number in some]
                for number, answer in zip(some, ports.follows.record(requests), strict=True):
                    assert not isinstance(answer, ActionRefusedError), f"{spec.actions[number]}: {answer}"
                    os.write(file, f"ack {number}\n".encode())
                _wait(lambda: until.idle(ports) or bool(errors))
            landed = until.Idle(ports, config, lambda: ports.replicas)
            _wait(lambda: landed() or bool(errors))
        finally:
            worker.stop()
            thread.join()
            os.close(file)
        if errors:
            raise errors[0]


class _Flapping:
    """A table whose rows of the second half are away for _IN_A_ROW writes to them, then there for as many."""

    def __init__(self, table: WideColumnStore) -> None:
        self._table = table
        self._writes = 0

    def apply(self, batch: Sequence[Mutation]) -> None:
        if any(row[0] >= 128 for row in rows_of(batch)):
            self._writes += 1
            if self._writes // _IN_A_ROW % 2 == 0:
                raise UnavailableError("a region is away")
        self._table.apply(batch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


_rooms = threading.Lock()
_before: list[int] = []
"""The default, once for each thread that is inside: the first one's is the real one."""


@contextlib.contextmanager
def hardly_any_room() -> Iterator[None]:
    """Every stage that is made meanwhile has hardly any room. Several threads may ask for it at once: the last one to
    leave restores what was before the first one.
    """
    defaults: dict[str, Any] = StageSpec.__init__.__kwdefaults__
    with _rooms:
        _before.append(defaults["in_flight"])
        defaults["in_flight"] = 1
    try:
        yield
    finally:
        with _rooms:
            if len(_before) == 1:
                defaults["in_flight"] = _before[0]
            _before.pop()


def flapping(ports: Ports) -> Ports:
    """The ports, with regions that come and go."""
    replicas = {
        name: replace(replica, tables={**replica.tables, FEEDS: _Flapping(replica.tables[FEEDS])})  # type: ignore[arg-type]
        for name, replica in ports.replicas.items()
    }
    return replace(ports, replicas=replicas)


def _wait(until) -> None:  # noqa: ANN001
    deadline = time.monotonic() + DEADLINE_S
    while not until():
        if time.monotonic() > deadline:
            raise TimeoutError("the work does not end")
        time.sleep(0.02)
