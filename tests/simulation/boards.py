"""Boards in random schedules: people who drag, save and delete, handlers that are late, re-spacing in transactions of
one to three rows that is given up, repeated and killed anywhere, and readers who walk. After each step a page shows
what a plain list says.

Everything but the shard runs as it is. Between any two calls of the follow store other things may happen.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from feedstore.boards import (
    SPACING,
    BoardCrowdedError,
    BoardPin,
    Boards,
    Move,
    Place,
    ReorderRefusedError,
    RoomSpread,
    Spacing,
    cursors,
    ordering,
    room,
)
from feedstore.domain import DeletePin, Pin, PinDeleted, PinSaved, RespaceAsked, SavePin
from feedstore.follows.arranging import Arranged, BoardRows, LineKey, Way
from feedstore.follows.port import Request, actions_in
from feedstore.follows.store import FollowStore
from tests.simulation.memory_shard import MemoryShard
from workers.boards import Respacing

BOARD = 9
OWNER = 7
MEDIUM = Spacing(unit=2**20, step=2**4, last_id=2**10, ceiling=2**20 * 4_000, threshold=3, restored=8)
"""A gap between adjacent ids of one ms takes 4 drops, one between two ms 20."""
NARROW = Spacing(unit=2**10, step=2**2, last_id=2**7, ceiling=2**10 * 4_000, threshold=2, restored=5)
"""Room is asked for all the time."""
TINY = Spacing(unit=64, step=1, last_id=63, ceiling=64 * 4_000, threshold=1, restored=3)
"""Pins of one ms have adjacent numbers: room must be made at once."""


class Wrong(Exception):  # noqa: N818 - what the simulation has found
    """Something that must never be."""


class Killed(Exception):  # noqa: N818 - no error: the process is gone
    """The process ends here."""


@dataclass(frozen=True)
class Mutant:
    """A guard that is gone. patched: (object, name, value) while the world runs. tampered: changes its objects."""

    name: str
    what: str
    patched: Callable[[], Sequence[tuple[Any, str, Any]]] = tuple
    tampered: Callable[["World"], None] = lambda _: None


@dataclass
class Walk:
    """A reader, who goes down the board or up. unmoved: pins that are there since it began and were not moved. exact:
    some pin that its cursor knows has stayed, at each page. seen: from the top down.
    """

    limit: int
    unmoved: set[int]
    way: Way
    after: Place | None
    seen: list[int] = field(default_factory=list)
    known: set[int] = field(default_factory=set)
    exact: bool = True
    reads: bool = False


class _Between:
    """The follow store; before each call of some methods, something else may happen."""

    def __init__(self, store: FollowStore, happen: Callable[[], None]) -> None:
        self._store = store
        self._happen = happen

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in {"pins", "board_pins", "board_run", "arrange"}:
            return method

        def call(*args: Any, **named: Any) -> Any:
            self._happen()
            return method(*args, **named)

        return call


class World:
    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.now_ms = rng.choice((1, 500))
        self.spacing = rng.choice((MEDIUM, NARROW, TINY))
        self.tiny = self.spacing is TINY
        self.past = rng.random() < 0.5
        self.around = rng.choice((128, 2))
        self.store = FollowStore([MemoryShard(lambda: self.now_ms) for _ in range(rng.choice((1, 3)))])
        self.follows: Any = _Between(self.store, self._meanwhile)
        # A page looks at hardly more lines than it shows: it often ends among those of pins that were moved away.
        self.boards = Boards(self.follows, self.spacing, look=0)
        self.plain = Boards(self.store, self.spacing, look=0)
        self.order: list[int] = []
        self.pins: dict[int, Pin] = {}
        self.deleted: set[int] = set()
        self.late: list[PinSaved | PinDeleted] = []
        self.jobs: list[tuple[RespaceAsked, RoomSpread | None]] = []
        self.walks: list[Walk] = []
        self.latest_ms = self.now_ms  # a shard's time does not go back with its clock
        self.top_ms = 0
        self.tops = 0
        self.newest_ms = 0
        self.depth = 0
        self.history: list[str] = []

    # What happens
    # ------------------------------------------------------------------------------------------------------------

    def _meanwhile(self) -> None:
        if self.depth < 3 and self.rng.random() < 0.15:
            self.step()
        if self.depth and self.rng.random() < 0.01:
            raise Killed

    def step(self) -> None:
        self.depth += 1
        action = self.rng.choices(
            (
                self._drop,
                self._save,
                self._delete,
                self._delete_at_once,
                self._handle,
                self._work,
                self._work_all,
                self._walk,
                self._wait,
                self._look,
            ),
            (12, 2, 1, 1, 3, 8, 1, 5, 2, 1),
        )[0]
        try:
            action()
        except Killed:
            self._say("killed")
        finally:
            self.depth -= 1
        self._check()

    def _say(self, what: str) -> None:
        self.history.append(f"{'  ' * self.depth}{what}")

    def _wait(self) -> None:
        self.now_ms = max(1, self.now_ms + self.rng.choice((0, 1, 1, 3, 10, -5)))
        self.latest_ms = max(self.latest_ms, self.now_ms)

    def _save(self) -> None:
        pin = len(self.pins) + 1
        if pin > 40:
            return
        rng = self.rng
        created_ms = self.now_ms if not self.past or rng.random() < 0.5 else max(1, self.now_ms - rng.randint(0, 4))
        number = rng.choice((pin, self.spacing.last_id - pin)) if not self.tiny else pin
        if number in self.pins:
            return
        self.pins[number] = Pin(number, OWNER, BOARD, created_ms)
        (answer,) = self.store.record([Request(SavePin(self.pins[number]))])
        assert isinstance(answer, PinSaved)
        self._say(f"save {number} at {created_ms}")
        self.late.append(answer)
        if not self.past:
            self._handle_one(answer)

    def _delete(self) -> None:
        alive = [pin for pin in self.pins if pin not in self.deleted]
        if not alive or self.rng.random() < 0.5:
            return
        pin = self.rng.choice(alive)
        (answer,) = self.store.record([Request(DeletePin(pin))])
        assert isinstance(answer, PinDeleted)
        self.deleted.add(pin)
        self._say(f"delete {pin}")
        self.late.append(answer)

    def _delete_at_once(self) -> None:
        self._delete()
        for action in [each for each in self.late if isinstance(each, PinDeleted)]:
            self._handle_one(action)

    def _handle(self) -> None:
        """A handler, late, in any order, and now and then twice."""
        if not self.late:
            return
        self._handle_one(self.rng.choice(self.late))

    def _handle_one(self, action: PinSaved | PinDeleted) -> None:
        if self.rng.random() < 0.8:
            self.late.remove(action)
        before = list(self.order)
        if isinstance(action, PinSaved):
            self.store.index(pins=[action])
        else:
            self.store.index(deletions=[action])
        pin = action.pin.pin
        self._say(f"handle {type(action).__name__} {pin}")
        self._moved(pin)
        self.order = self._shown()
        if [each for each in self.order if each != pin] != [each for each in before if each != pin]:
            raise Wrong(f"{before} became {self.order}, by the handler of {action}")
        created_ms = action.pin.created_ms
        # Many moves to the top within a ms may reach into the next, where a ms has few numbers.
        is_newest = created_ms > max(self.top_ms + self.tops * self.spacing.lift // self.spacing.unit, self.newest_ms)
        if is_newest and pin in self.order and self.order[0] != pin:
            raise Wrong(f"pin {pin} was saved later than all, and is not on top of {self.order}")
        self.newest_ms = max(self.newest_ms, created_ms)

    def _drop(self) -> None:
        rng = self.rng
        if len(self.order) < 2:
            return
        candidates = list(self.pins) if rng.random() < 0.2 else self.order
        pin = rng.choice(candidates if rng.random() < 0.5 else self.order[-3:])
        others = [each for each in self.order if each != pin]
        place = min(int(rng.expovariate(0.5)), len(others) - 1) if rng.random() < 0.7 else rng.randrange(len(others))
        named: dict[str, Any]
        match rng.randrange(8):
            case 0:
                named = {"to": "top"}
            case 1:
                named = {"to": "bottom"}
            case 2 | 3:
                named = {"before": others[place]}
            case 4 | 5:
                named = {"after": others[place]}
            case _:
                named = {
                    "before": others[place],
                    "after": others[min(place + rng.choice((1, 1, 1, 2)), len(others) - 1)],
                }
                if named["before"] == named["after"]:
                    named = {"to": "bottom"}
        move = Move(BOARD, pin, **named)
        self._may_rise(move)
        try:
            self.boards.reorder(move)
        except ReorderRefusedError as refusal:
            self._say(f"refused {move}: {refusal.reason}")
            self._judge(move, refusal)
            return
        except BoardCrowdedError:
            self._say(f"crowded {move}")
            self._entered(move)
            return
        finally:
            self._may_rise(move)
        self._say(f"drop {move}")
        self._dropped(move)

    def _may_rise(self, move: Move) -> None:
        """A pin goes to the top, as if it were saved now; or directly above another pin, which may be the topmost."""
        if move.to == "top" or (move.before is None and move.after is not None):
            self.top_ms = max(self.top_ms, self.latest_ms)
            self.tops += 1

    def _entered(self, move: Move) -> None:
        """The lines of the pins that were named are there now."""
        before, self.order = self.order, self._shown()
        if [pin for pin in self.order if pin in before] != before or set(self.order) - {*before, *move.pins()}:
            raise Wrong(f"{before} became {self.order} by {move}")
        for pin in set(self.order) - set(before):
            self.newest_ms = max(self.newest_ms, self.pins[pin].created_ms)

    def _dropped(self, move: Move) -> None:
        before, now = self.order, self._shown()
        named = set(move.pins())
        if [pin for pin in now if pin in before and pin != move.pin] != [pin for pin in before if pin != move.pin]:
            raise Wrong(f"{before} became {now} by {move}")
        if set(now) - set(before) - named:
            raise Wrong(f"{set(now) - set(before)} appeared by {move}")
        if move.pin not in now:
            raise Wrong(f"pin {move.pin} is not there after {move}: {now}")
        at = now.index(move.pin)
        if (
            (move.before is not None and (at == 0 or now[at - 1] != move.before))
            or (move.after is not None and now[at + 1 : at + 2] != [move.after])
            or (move.to == "top" and at != 0)
            or (move.to == "bottom" and at != len(now) - 1)
        ):
            raise Wrong(f"{now} after {move}")
        for pin in named:
            if pin == move.pin or pin not in before:
                self._moved(pin)
                self.newest_ms = max(self.newest_ms, self.pins[pin].created_ms)
        self.order = now

    def _judge(self, move: Move, refusal: ReorderRefusedError) -> None:
        """A refusal has its reason."""
        reason = refusal.reason
        if reason == "pin_deleted" and refusal.pin in self.deleted:
            return
        if reason in {"neighbours_apart", "neighbours_reversed"}:
            if not {move.before, move.after} <= set(self.order):
                return  # a handler is behind
            others = [pin for pin in self.order if pin != move.pin]
            upper, lower = others.index(move.before or 0), others.index(move.after or 0)
            wanted = others[upper + 1 : lower] if reason == "neighbours_apart" else others[lower + 1 : upper]
            if upper + 1 != lower and (upper < lower) == (reason == "neighbours_apart"):
                if list(refusal.between) != wanted[:10]:
                    raise Wrong(f"{move} names {refusal.between} instead of {wanted}")
                return
        raise Wrong(f"{move} was refused: {refusal}, on {self.order}")

    def _moved(self, pin: int) -> None:
        for walk in self.walks:
            walk.unmoved.discard(pin)
            walk.known.discard(pin)

    # Workers
    # ------------------------------------------------------------------------------------------------------------

    def _relay(self) -> None:
        rows = self.store.unrelayed(100)
        self.jobs += [(each, None) for each in actions_in(rows) if isinstance(each, RespaceAsked)]
        self.store.mark_relayed(rows)

    def _work(self) -> None:
        self._relay()
        if not self.jobs:
            return
        number = self.rng.randrange(len(self.jobs))
        asked, going = self.jobs[number]
        if self.rng.random() < 0.15:
            going = None  # another worker has taken it over
        done = self.boards.respace(asked, self.rng.randint(1, 3), going)
        self._say(f"re-spaced {asked.pin}: {done}")
        for at, (each, _) in enumerate(self.jobs):
            if each is asked:
                if done.done and self.rng.random() < 0.9:
                    del self.jobs[at]
                else:
                    self.jobs[at] = (asked, done.going)
                break

    def _work_all(self) -> None:
        self._relay()
        if self.jobs:
            asked, _ = self.rng.choice(self.jobs)
            self._say(f"re-space all at {asked.pin}")
            Respacing(self.boards, lambda: 0.0, self.rng.randint(1, 3)).respace([asked, asked])

    # Readers
    # ------------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        shown = [pin.pin for pin in self.boards.page(BOARD, 500, None).pins]
        if shown != self.order:
            raise Wrong(f"a page shows {shown} instead of {self.order}")
        limit = self.rng.choice((1, 2, 3, 6))
        page = self.plain.page(BOARD, limit, self.rng.choice((None, self._bottom())))
        for _ in range(self.rng.randint(0, 6)):
            page = self.plain.page(BOARD, limit, self.rng.choice((page.after, page.above)) or page.after or page.above)
        near = [pin.pin for pin in page.pins]
        if page.above is not None:
            near = [pin.pin for pin in self.plain.page(BOARD, limit, page.above).pins] + near
        if page.after is not None:
            near += [pin.pin for pin in self.plain.page(BOARD, limit, page.after).pins]
        if near and near != self.order[self.order.index(near[0]) :][: len(near)]:
            raise Wrong(f"pages next to each other show {near} of {self.order}")

    def _bottom(self) -> Place:
        return Place(self.spacing.bottom, (), "up")

    def _walk(self) -> None:
        if len(self.walks) < 3 and self.rng.random() < 0.4:
            way: Way = self.rng.choice(("down", "up"))
            start = None if way == "down" else self._bottom()
            self.walks.append(Walk(self.rng.choice((1, 2, 3, 6)), set(self.order), way, start))
        if not self.walks:
            return
        walk = self.rng.choice(self.walks)
        if walk.reads:
            return
        walk.reads = True
        try:
            page = self.boards.page(BOARD, walk.limit, walk.after)
        finally:
            walk.reads = False
        walk.exact = walk.exact and (not walk.seen or bool(walk.known))
        shown = [pin.pin for pin in page.pins]
        walk.seen = walk.seen + shown if walk.way == "down" else shown + walk.seen
        onward = page.after if walk.way == "down" else page.above
        marked = {mark.pin for mark in walk.after.marks} if walk.after else set()
        if marked & {pin.pin for pin in page.pins}:
            raise Wrong(f"a page shows pins of its cursor again: {marked} in {page.pins}")
        if onward is None:
            self._say(f"walked {walk.seen}")
            self.walks.remove(walk)
            if walk.exact:
                self._walked(walk)
            return
        walk.after = cursors.decode(BOARD, cursors.encode(BOARD, onward))
        # The mark of a pin that was moved since it was shown stays in the cursor, and says nothing any more.
        stayed = walk.known | set(shown)
        walk.known = {mark.pin for mark in onward.marks if mark.pin in stayed and mark.pin in self.order}

    def _walked(self, walk: Walk) -> None:
        for pin in walk.unmoved:
            if walk.seen.count(pin) != 1:
                raise Wrong(f"a walk shows {walk.seen}: pin {pin}, which was not moved, {walk.seen.count(pin)} times")
        unmoved = [pin for pin in walk.seen if pin in walk.unmoved]
        if unmoved != [pin for pin in self.order if pin in walk.unmoved]:
            raise Wrong(f"a walk shows {unmoved} out of the order {self.order}")

    # What always holds
    # ------------------------------------------------------------------------------------------------------------

    def _shown(self) -> list[int]:
        return [pin.pin for pin in self.plain.page(BOARD, 500, None).pins]

    def _check(self) -> None:
        pins = self.plain.page(BOARD, 500, None).pins
        if [pin.pin for pin in pins] != self.order:
            raise Wrong(f"the board shows {[pin.pin for pin in pins]} instead of {self.order}")
        if any(not 0 < pin.sequence < self.spacing.ceiling for pin in pins):
            raise Wrong(f"a sequence is out of bounds: {pins}")
        findings = self.plain.check(BOARD, None)
        if findings.dead:
            raise Wrong(f"rows of pins that are dead: {findings.dead}")
        placed = {pin.pin for pin in pins if self._is_placed(pin)}
        for upper, lower in findings.ties:
            if upper in placed and lower in placed:
                raise Wrong(f"two placed pins at one number: {upper}, {lower}")

    def _is_placed(self, pin: BoardPin) -> bool:
        return pin.sequence != self.spacing.virtual(pin.created_ms, pin.pin)

    def settle(self) -> None:
        """Everything that waits is done; then no gap that a drop made is narrow."""
        self.depth = 9  # nothing happens meanwhile
        self._relay()
        while self.late:
            self._handle()
        while self.jobs:
            asked, _ = self.jobs.pop()
            Respacing(self.plain, lambda: 0.0).respace([asked])
            self._relay()
            self._check()
        if self.tiny:
            return
        # A pin that is saved may come next to a placed one: that is no drop.
        pins = [(pin, self._is_placed(pin)) for pin in self.plain.page(BOARD, 500, None).pins]
        for (upper, first), (lower, second) in itertools.pairwise(pins):
            if first and second and room(upper.sequence - lower.sequence) < self.spacing.threshold:
                raise Wrong(f"the gap between {upper} and {lower} stays narrow, and room is not asked for")


@contextmanager
def patched(patches: Sequence[tuple[Any, str, Any]]) -> Any:
    with ExitStack() as stack:
        for where, name, value in patches:
            stack.enter_context(patch.object(where, name, value))
        yield


@dataclass(frozen=True)
class Outcome:
    failure: str | None
    history: list[str]


def simulate(seed: int, mutant: Mutant | None = None, steps: int = 120) -> Outcome:
    """One schedule."""
    world = World(seed)
    patches = [] if mutant is None else list(mutant.patched())
    with patched([(ordering, "AROUND", world.around), *patches]):
        if mutant is not None:
            mutant.tampered(world)
        try:
            for _ in range(world.rng.randint(4, 14)):
                world._save()
                world._wait()
            for _ in range(40):
                world._handle()
            for _ in range(steps):
                world.step()
            world.settle()
        except Wrong as wrong:
            return Outcome(str(wrong), world.history)
        except (AssertionError, KeyError, IndexError, OverflowError, ValueError) as error:
            return Outcome(repr(error), world.history)
    return Outcome(None, world.history)


def below_the_top(drops: int, seed: int = 0, mutant: Mutant | None = None) -> str | None:
    """Drops directly below the two topmost pins, with saves in between, on real numbers. What is wrong, if anything
    is.
    """
    rng = random.Random(seed)
    now = [1_700_000_000_000]
    store = FollowStore([MemoryShard(lambda: now[0])])
    boards = Boards(store)

    def save(pin: int) -> None:
        (answer,) = store.record([Request(SavePin(Pin(pin, OWNER, BOARD, now[0])))])
        assert isinstance(answer, PinSaved)
        store.index(pins=[answer])

    with patched([] if mutant is None else list(mutant.patched())):
        for pin in range(1, 9):
            save(pin)
        order = list(range(1, 9))
        last = 8
        for number in range(drops):
            if rng.random() < 0.01:
                now[0] += rng.choice((1, 1_000))
                last += 1
                save(last)
                order.insert(0, last)
                gone = order.pop()
                (answer,) = store.record([Request(DeletePin(gone))])
                assert isinstance(answer, PinDeleted)
                store.index(deletions=[answer])
            pin = rng.choice(order[3:])
            spot = rng.choice((0, 0, 0, 1))
            boards.reorder(Move(BOARD, pin, before=order[spot], after=order[spot + 1]))
            order.remove(pin)
            order.insert(spot + 1, pin)
            rows = store.unrelayed(10)
            if rows and rng.random() < 0.7:
                Respacing(boards, lambda: 0.0, rng.choice((1, 3, 512))).respace(
                    [each for each in actions_in(rows) if isinstance(each, RespaceAsked)]
                )
                store.mark_relayed(rows)
            pins = boards.page(BOARD, 20, None).pins
            if [each.pin for each in pins] != order:
                return f"after {number + 1} drops: {[each.pin for each in pins]} instead of {order}"
            if pins[0].sequence != boards._spacing.virtual(pins[0].created_ms, pins[0].pin):
                return f"after {number + 1} drops: the topmost pin was raised to {pins[0].sequence}"
            if room(pins[0].sequence - pins[1].sequence) < 0:
                return f"after {number + 1} drops: a tie at the top"
    return None


def past_a_hole(
    store: FollowStore, now_ms: int, way: Way, bare: int, respace: Callable[[Boards, RespaceAsked], object]
) -> tuple[list[int], list[int]]:
    """Walks through a new board that has a hole of pins which were moved away, and is re-spaced next to the hole
    meanwhile. Pins of one ms have adjacent places, so drops at the edge of the hole need a window that reaches across
    it. bare: `respace` is called after so many pages that ended inside of the hole. Returns the pins that the walk
    shows, and the order, from the top.
    """
    saves = [(1_000 + number, now_ms - 1_000) for number in range(700)]
    saves += [(6_000 + number, now_ms - 2_000 + number) for number in range(20)]
    answers = store.record([Request(SavePin(Pin(pin, OWNER, BOARD, created_ms))) for pin, created_ms in saves])
    store.index(pins=[answer for answer in answers if isinstance(answer, PinSaved)])
    boards = Boards(store)
    hole = [LineKey(now_ms - 1_000, pin) for pin in range(1_200, 1_600)]

    def to_the_bottom(_: int, rows: BoardRows) -> tuple[Arranged, None]:
        rows.pins(hole)
        return Arranged(placed=[SPACING.row(pin, pin, created_ms, 1) for created_ms, pin in hole]), None

    store.arrange(BOARD, (), to_the_bottom)
    for number in range(14):
        boards.reorder(Move(BOARD, 6_000 + number, after=1_600))
    order: list[int] = []
    place: Place | None = None
    while not order or place is not None:
        page = boards.page(BOARD, 500, place)
        order += [pin.pin for pin in page.pins]
        place = page.after
    seen: list[int] = []
    place = Place(SPACING.top) if way == "down" else Place(SPACING.bottom, (), "up")
    while place is not None:
        page = boards.page(BOARD, 25, cursors.decode(BOARD, cursors.encode(BOARD, place)))
        shown = [pin.pin for pin in page.pins]
        seen = seen + shown if way == "down" else shown + seen
        place = page.after if way == "down" else page.above
        if place is not None and (place.seen is not None or len(shown) < 25):
            bare -= 1
            if bare == 0:
                respace(boards, RespaceAsked(BOARD, 1_600, now_ms))
    assert bare <= 0
    return seen, order


def above_zero(drops: int, seed: int = 0, mutant: Mutant | None = None) -> str | None:
    """Moves to the bottom of a board of the first ms that there is, and drops above its lowest pin. What is wrong, if
    anything is.
    """
    rng = random.Random(seed)
    store = FollowStore([MemoryShard(lambda: 1)])
    boards = Boards(store, NARROW)
    with patched([] if mutant is None else list(mutant.patched())):
        for pin in range(1, 13):
            (answer,) = store.record([Request(SavePin(Pin(pin, OWNER, BOARD, 1)))])
            assert isinstance(answer, PinSaved)
            store.index(pins=[answer])
        order = list(range(1, 13))
        for number in range(drops):
            pin = rng.choice(order[1:-2])
            order.remove(pin)
            lowest = rng.random() < 0.7
            try:
                boards.reorder(Move(BOARD, pin, to="bottom") if lowest else Move(BOARD, pin, after=order[-1]))
            except BoardCrowdedError as crowded:
                return f"after {number} drops: {crowded}"
            order.insert(len(order) if lowest else -1, pin)
            rows = store.unrelayed(10)
            for asked in [each for each in actions_in(rows) if isinstance(each, RespaceAsked)]:
                steps, going, done = 0, None, False
                while not done:
                    _, _, _, going = step = boards.respace(asked, 2, going)
                    steps, done = steps + 1, step.done
                    if steps > 100:
                        return f"after {number} drops: re-spacing at {asked.pin} does not end"
            store.mark_relayed(rows)
            pins = boards.page(BOARD, 20, None).pins
            if [each.pin for each in pins] != order:
                return f"after {number + 1} drops: {[each.pin for each in pins]} instead of {order}"
            if pins[-1].sequence <= 0:
                return f"after {number + 1} drops: a number below 1: {pins[-1]}"
    return None
