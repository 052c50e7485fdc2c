"""People who arrange the boards of a site, and the order that each board must have in the end."""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tests.soak.client import Client, reason, refusal

_AT_ONE_SPOT: Final = 0.7
"""So many of the moves go directly below the same pin, so that the room there is used up."""
_TO_BOTTOM: Final = 0.05
_DELETED: Final = frozenset({"pin_deleted", "pin_unknown"})
_PAGE: Final = 200
_FEWEST: Final = 5
"""A board with fewer pins is left alone."""


@dataclass
class Orders:
    """The pins of each board, from the top. A deleted pin keeps its place, as others were put next to it. Thread-safe.

    Pins are saved one after the other, and each is above all that were saved before. One client moves the pins of a
    board, next to pins of which it is certain that the index has all up to their times. So the order is known.
    """

    _of: dict[int, list[int]] = field(default_factory=dict)
    _saved_ms: dict[int, int] = field(default_factory=dict)
    _deleted: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def saved(self, board: int, pin: int, now_ms: int) -> None:
        """The save of a pin was acknowledged."""
        with self._lock:
            self._of.setdefault(board, []).insert(0, pin)
            self._saved_ms[pin] = now_ms

    def deleting(self, pin: int) -> None:
        """A client has begun to delete a pin."""
        with self._lock:
            self._deleted.add(pin)

    def is_deleted(self, pin: int) -> bool:
        with self._lock:
            return pin in self._deleted

    def movable(self, board: int, indexed_ms: int) -> Sequence[int]:
        """The pins of a board, from the top, that were saved before `indexed_ms` and that no client has deleted."""
        with self._lock:
            return [
                pin for pin in self._of.get(board, []) if self._saved_ms[pin] < indexed_ms and pin not in self._deleted
            ]

    def moved(self, board: int, pin: int, below: int | None) -> None:
        """A pin is directly below another one now, or at the bottom."""
        with self._lock:
            order = self._of[board]
            order.remove(pin)
            order.insert(len(order) if below is None else order.index(below) + 1, pin)

    def wanted(self) -> Mapping[int, Sequence[int]]:
        """What each board must show."""
        with self._lock:
            return {board: [pin for pin in order if pin not in self._deleted] for board, order in self._of.items()}


@dataclass
class Arranger:
    """Moves pins, one after the other. rate: moves a second. indexed_ms: up to when every save is in the index."""

    address: tuple[str, int]
    rate: float
    orders: Orders
    indexed_ms: int = 0
    moves: int = 0
    refused: list[str] = field(default_factory=list)
    _spots: dict[int, int] = field(default_factory=dict)

    def run(self, rng: Random, boards: Sequence[int], ended: threading.Event) -> None:
        client = Client(self.address)
        while not ended.wait(1 / self.rate):
            self._move(client, rng, rng.choice(boards))
        client.close()

    def _move(self, client: Client, rng: Random, board: int) -> None:
        pins = self.orders.movable(board, self.indexed_ms)
        if len(pins) < _FEWEST:
            return
        if (spot := self._spots.get(board)) not in pins:
            spot = self._spots[board] = rng.choice(pins)
        below = None if rng.random() < _TO_BOTTOM else spot if rng.random() < _AT_ONE_SPOT else rng.choice(pins)
        pin = rng.choice([each for each in pins if each != below])
        path = f"/v1/boards/{board}/pins/{pin}/place"
        body = {"to": "bottom"} if below is None else {"before": str(below)}
        status, said = client.ask_until_answered("POST", path, lambda: body)
        self.moves += 1
        if status == 200:
            self.orders.moved(board, pin, below)
        elif not (
            reason(said) in _DELETED
            and (self.orders.is_deleted(pin) or (below is not None and self.orders.is_deleted(below)))
        ):
            self.refused.append(refusal("POST", path, status, said))


def wrong_orders(address: tuple[str, int], orders: Orders) -> list[str]:
    """What is not in the order that it must be in, and what is missing or there twice, as sentences."""
    client, wrong = Client(address), list[str]()
    for board, wanted in orders.wanted().items():
        found = _shown(client, board)
        if found == list(wanted):
            continue
        missing, extra = {*wanted} - {*found}, {*found} - {*wanted}
        twice = len(found) - len({*found})
        at = next((at for at, (one, other) in enumerate(zip(found, wanted, strict=False)) if one != other), None)
        wrong.append(
            f"board {board}: {len(missing)} pins are missing, {len(extra)} are extra, {twice} are there twice; the"
            f" first difference is at {at}"
        )
    client.close()
    return wrong


def _shown(client: Client, board: int) -> list[int]:
    """The pins of a board, page by page."""
    found: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        status, said = client.ask_until_answered(
            "GET", f"/v1/boards/{board}/pins?limit={_PAGE}" + (f"&cursor={cursor}" if cursor else "")
        )
        assert status == 200, said
        page = json.loads(said)
        found += [int(each["pin"]) for each in page["pins"]]
        cursor = page["cursor"]
    return found
