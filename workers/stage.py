"""A stage: polls one topic for one consumer group, hands messages to a handler, commits what is done.

Rule 11: a position is committed only when every message before it is done: handled, or in the dead letters.
Rule 12: what cannot be done now waits beside the stream, not in front of it, and is parked elsewhere where there is no
room for more of it; what can never be done is buried with its reason.

A handler waits for servers most of its time. Meanwhile the stage polls and decodes the next messages, one lot ahead.
"""

import heapq
import itertools
import random
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.widecolumn import RefusedError, UnavailableError
from workers.messages import MalformedError, Tick
from workers.queue.port import (
    Consumer,
    DeadLetters,
    Message,
    MessageRefusedError,
    PositionLostError,
    QueueUnavailableError,
    Topic,
)
from workers.retry import REST_S, Rest, RetryPolicy

_log = structlog.get_logger()

Body = TypeVar("Body")

_PROBES = 2
"""How many messages of a group that fails are tried alone, to tell a row that is unavailable from a cluster."""

_HURRIED = 16
"""How many groups are tried at once, out of their turn, by a stage that would stand still: between two of its rounds
its consumer is heard of by nobody."""

_NOT_NOW = (UnavailableError, FollowStoreUnavailableError, QueueUnavailableError)
_NEVER = (RefusedError, MessageRefusedError)


class TooManyDeadLettersError(Exception):
    """One message after the other cannot be done: something is wrong with this worker or with who writes the messages.

    Nothing is lost: what was not buried stays in the queue.
    """


@dataclass
class _Lot(Generic[Body]):
    """What one poll returned: committed as a whole, once none of it is waiting and all lots before it are done. size:
    bytes of its messages.
    """

    positions: dict[int, int]
    ticks: list[tuple[int, Tick]] = field(default_factory=list)
    waiting: int = 0
    size: int = 0


@dataclass
class _Group(Generic[Body]):
    """Messages that are tried together. failures: how often they were, in vain. faults: how often that was their own
    fault, and not that of what is unavailable. stuck: when they were tried last, none that was tried alone could be
    done: what is unavailable is what they need.
    """

    items: list[tuple[_Lot[Body], Message, Body]]
    failures: int = 0
    faults: int = 0
    stuck: bool = False


@dataclass
class _Corpse(Generic[Body]):
    """A message that can never be done, on its way to the dead letters."""

    lot: _Lot[Body]
    message: Message
    reason: str
    detail: str
    body: Body | None = None
    failures: int = 0


class Stage(Generic[Body]):
    """One member of a consumer group; used by one thread.

    name: of the group, and in logs. decode: raises MalformedError.
    handle: does messages together; every effect is durable when it returns, and if it raises, any of them may be done.
        It runs in a thread of its own, one call at a time, and no step ends before it has.
    ticks: told of ticks and the partition of each, oldest first, once everything that stood before them there is done.
    lost: what it means, and what to do, where messages are gone before this group has read them.
    batch: how many messages are polled at once.
    in_flight, in_flight_bytes: how much may be waiting for another attempt before nothing more is polled.
    park: given messages and how many seconds they should wait, puts them where somebody else tries them again, and
        says of each whether it did: that is done then. It may raise as `handle` does. None: nothing is parked.
    due_ms: the time, by `wall_ms`, before which a message is not tried; wrong clocks delay it by `longest_s` at most.
    given_up: told of a message that is in the dead letters, before it counts as done; raises as `handle` does.
    clock: monotonic seconds, for waiting. wall_ms: ms since 1970, for the dead letters.
    """

    rest_s = REST_S

    def __init__(
        self,
        name: str,
        topic: Topic,
        consumer: Consumer,
        decode: Callable[[bytes], Body | Tick],
        dead: DeadLetters,
        *,
        handle: Callable[[Sequence[Body]], None],
        ticks: Callable[[Sequence[tuple[int, Tick]]], None],
        policy: RetryPolicy,
        rng: random.Random,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        lost: str = "this group lost messages",
        batch: int = 2_000,
        in_flight: int = 10_000,
        in_flight_bytes: int = 32_000_000,
        patience_s: float = 0.25,
        park: Callable[[Sequence[Body], float], Sequence[bool]] | None = None,
        due_ms: Callable[[Body], int] | None = None,
        given_up: Callable[[Body], None] | None = None,
    ) -> None:
        self.name = name
        self._topic = topic
        self._consumer = consumer
        self._decode = decode
        self._handle = handle
        self._ticks = ticks
        self._dead = dead
        self._policy = policy
        self._rng = rng
        self._clock = clock
        self._wall_ms = wall_ms
        self._lost = lost
        self._batch = batch
        self._in_flight = in_flight
        self._in_flight_bytes = in_flight_bytes
        self._patience_s = patience_s
        self._park = park
        self._due_ms = due_ms
        self._given_up = given_up
        self._rest = Rest(policy, rng, clock)
        self._park_rest = Rest(policy, rng, clock)
        self._tick_rest = Rest(policy, rng, clock)
        self._lots: deque[_Lot[Body]] = deque()
        self._next: list[_Group[Body] | _Corpse[Body]] = []  # polled while the handler did the lot before
        self._handling = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._later: list[tuple[float, int, _Group[Body] | _Corpse[Body]]] = []
        self._order = itertools.count()
        self._dead_in_a_row = 0  # the longest row of the current round, until something is done
        self._log = _log.bind(stage=name)

    def step(self) -> bool:
        """One round: what is due again, then what is new; False where there was nothing to do.

        Waits up to `patience_s` for new messages.

        Raises:
            TooManyDeadLettersError: stop the worker.
            PositionLostError: stop this stage; its cluster must be rebuilt.
        """
        if self._rest.goes_on():
            return False
        try:
            self._make_room()
            work = [*self._due(), *self._next]
            self._next = []
            if work or not self._has_room():
                # However long everything waits, the group keeps its partitions here: given away, they would come back
                # with all that waits, once more.
                self._consumer.keep_alive()
            else:
                work = self._poll(self._patience())
            for item in work:
                if isinstance(item, _Corpse):
                    self._bury(item)
                else:
                    self._attempt(item)
            settled = self._settle()
        except PositionLostError as error:
            raise PositionLostError(f"{self._lost} ({error})") from error
        except QueueUnavailableError as error:
            # Neither polled nor committed: nothing is lost, and a later round tries again.
            wait_s = self._rest.failed()
            self._log.warning("queue.unavailable", wait_s=round(wait_s, 3), error=str(error))
            return False
        self._rest.ended()
        if self._dead_in_a_row >= self._policy.dead_in_a_row:
            raise TooManyDeadLettersError(
                f"{self.name}: {self._dead_in_a_row} messages in a row could not be done; stopped so that the queue is "
                "not drained into the dead letters (see: feedctl dead list). Nothing was lost"
            )
        return bool(work) or settled

    def idle(self) -> bool:
        """Whether nothing that was polled is still to be done or to be committed."""
        return not self._lots

    def close(self) -> None:
        """Leaves the group; what is not committed comes again to whoever reads next."""
        self._handling.shutdown()
        self._consumer.close()

    def _has_room(self, times: int = 1) -> bool:
        """Whether so many times as much as waits would still leave room."""
        unfinished = [lot for lot in self._lots if lot.waiting]
        return (
            sum(lot.waiting for lot in unfinished) * times < self._in_flight
            and sum(lot.size for lot in unfinished) * times < self._in_flight_bytes
        )

    def _make_room(self) -> None:
        """Where this stage would stand still, parks the oldest of what is stuck until half of the room is free. Where
        that is not enough, everything else that waits is tried at once and in parts, so that what can be done is done,
        and the rest is stuck.

        What cannot be parked goes on waiting.
        """
        if self._park is None or self._has_room() or self._park_rest.goes_on():
            return
        groups = [work for _, _, work in self._later if isinstance(work, _Group)]
        ages = {id(lot): age for age, lot in enumerate(self._lots)}
        stuck = sorted(
            (item for group in groups if group.stuck for item in group.items), key=lambda item: ages[id(item[0])]
        )
        wait_s = self._policy.wait_s(max((group.failures for group in groups), default=1), self._rng)
        parked: set[int] = set()
        reason = ""
        try:
            # Of nothing it says as well whether it could park anything now.
            for start in range(0, max(1, len(stuck)), self._batch):
                some = stuck[start : start + self._batch]
                for item in itertools.compress(some, self._park([body for _, _, body in some], wait_s)):
                    parked.add(id(item))
                    item[0].waiting -= 1
                if self._has_room(2):
                    break
        except Exception as error:  # noqa: BLE001 - whatever it is, they wait on as they did
            reason = f"{type(error).__name__}: {error}"
        for group in groups:
            group.items = [item for item in group.items if id(item) not in parked]
        self._later = [each for each in self._later if isinstance(each[2], _Corpse) or each[2].items]
        heapq.heapify(self._later)
        if parked:
            self._log.info("messages.parked", messages=len(parked))
        if self._has_room() or (not reason and self._hurry()):
            self._park_rest.ended()
        elif groups:
            rest_s = self._park_rest.failed()
            self._log.warning("messages.not_parked", wait_s=round(rest_s, 3), error=reason)

    def _hurry(self) -> bool:
        """A few groups that are not known to be stuck are due now, and their next failure tells; False where there are
        none. The smallest first: these are nearly found out.
        """
        unknown = [work for _, _, work in self._later if isinstance(work, _Group) and not work.stuck]
        unknown = sorted(unknown, key=lambda group: len(group.items))[:_HURRIED]
        for group in unknown:
            group.failures = max(group.failures, self._policy.split_after - 1)
        hurried = {id(group) for group in unknown}
        now = self._clock()
        self._later = [(now if id(work) in hurried else at, order, work) for at, order, work in self._later]
        heapq.heapify(self._later)
        return bool(unknown)

    def _patience(self) -> float:
        if not self._later:
            return self._patience_s
        return min(self._patience_s, max(0.0, self._later[0][0] - self._clock()))

    def _due(self) -> list[_Group[Body] | _Corpse[Body]]:
        now = self._clock()
        due = []
        while self._later and self._later[0][0] <= now:
            due.append(heapq.heappop(self._later)[2])
        return due

    def _poll(self, timeout_s: float) -> list[_Group[Body] | _Corpse[Body]]:
        messages = self._consumer.poll(self._batch, timeout_s)
        if not messages:
            return []
        lot: _Lot[Body] = _Lot(
            {message.partition: message.offset + 1 for message in messages},
            size=sum(len(message.value) for message in messages),
        )
        self._lots.append(lot)
        group: _Group[Body] = _Group([])
        corpses: list[_Group[Body] | _Corpse[Body]] = []
        for message in messages:
            try:
                body = self._decode(message.value)
            except MalformedError as error:
                corpses.append(_Corpse(lot, message, error.reason, str(error)))
                continue
            if isinstance(body, Tick):
                lot.ticks.append((message.partition, body))
            else:
                group.items.append((lot, message, body))
        lot.waiting = len(group.items) + len(corpses)
        self._leave_until_due(group)
        return [*corpses, group] if group.items else corpses

    def _leave_until_due(self, group: _Group[Body]) -> None:
        """What is not due yet leaves the group, and waits beside the stream."""
        if self._due_ms is None:
            return
        now_ms = self._wall_ms()
        waits: dict[float, _Group[Body]] = {}
        for item in group.items:
            wait_s = min(self._policy.longest_s, (self._due_ms(item[2]) - now_ms) / 1_000)
            waits.setdefault(max(0.0, wait_s), _Group([])).items.append(item)
        group.items = waits.pop(0.0, _Group([])).items
        for wait_s, later in waits.items():
            heapq.heappush(self._later, (self._clock() + wait_s, next(self._order), later))

    def _attempt(self, group: _Group[Body]) -> None:
        handling = self._handling.submit(self._handle, [body for _, _, body in group.items])
        try:
            self._look_ahead()
        finally:
            wait([handling])
        try:
            handling.result()
        except _NOT_NOW as error:
            group.failures += 1
            alone = len(group.items) == 1
            if alone or group.failures >= self._policy.split_after:
                group.stuck = alone or not self._some_can_be_done(group)
            if group.stuck or group.failures < self._policy.split_after:
                self._try_later(group, error)
                return
            for half in self._halves(group):
                self._try_later(half, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not stop the messages beside it (rule 12)
            if len(group.items) > 1:
                # One of them is the cause: halving finds it in a few rounds, and the others are done on the way.
                for half in self._halves(group):
                    self._attempt(half)
            else:
                self._failed(group, error)
        else:
            self._dead_in_a_row = 0
            for lot, _, _ in group.items:
                lot.waiting -= 1

    def _look_ahead(self) -> None:
        """Takes the next messages, where there is room for twice as many: what would fill it is better parked or done
        first.
        """
        if self._next or not self._has_room(2):
            return
        # What the queue has to say against it, it says again in the next round: then what is under way here is done.
        with suppress(QueueUnavailableError, PositionLostError):
            self._next = self._poll(0)

    def _some_can_be_done(self, group: _Group[Body]) -> bool:
        """Tries a few messages alone. If one of them can be done, only some rows are unavailable, and smaller groups
        set free the others; where nothing can be done they would only make the work slower when it can be again.
        """
        self._rng.shuffle(group.items)
        for _ in range(min(_PROBES, len(group.items))):
            lot, _, body = group.items[0]
            try:
                self._handle([body])
            except Exception:  # noqa: BLE001 - it stays in the group, where it is tried again
                group.items.append(group.items.pop(0))
                continue
            self._dead_in_a_row = 0
            lot.waiting -= 1
            del group.items[0]
            return True
        return False

    def _failed(self, group: _Group[Body], error: Exception) -> None:
        group.failures += 1
        group.faults += 1
        [(lot, message, body)] = group.items
        if isinstance(error, _NEVER):
            self._bury(_Corpse(lot, message, "refused", str(error), body))
        elif group.faults >= self._policy.attempts:
            self._bury(_Corpse(lot, message, "failed", "".join(traceback.format_exception(error)), body))
        else:
            self._try_later(group, error)

    def _halves(self, group: _Group[Body]) -> list[_Group[Body]]:
        middle = len(group.items) // 2
        halves = (group.items[:middle], group.items[middle:])
        return [_Group(items, group.failures) for items in halves if items]

    def _try_later(self, work: _Group[Body] | _Corpse[Body], error: Exception) -> None:
        wait_s = self._policy.wait_s(max(1, work.failures), self._rng)
        heapq.heappush(self._later, (self._clock() + wait_s, next(self._order), work))
        # Ever more rarely: what is away for a day fills no log.
        log = self._log.warning if work.failures.bit_count() == 1 else self._log.debug
        log("messages.retry", failures=work.failures, wait_s=round(wait_s, 3), error=f"{type(error).__name__}: {error}")

    def _bury(self, corpse: _Corpse[Body]) -> None:
        message = corpse.message
        try:
            self._dead.bury(self._topic, self.name, corpse.reason, corpse.detail, self._wall_ms(), message.value)
            if self._given_up is not None and corpse.body is not None:
                self._given_up(corpse.body)
        except _NOT_NOW as error:
            corpse.failures += 1
            self._try_later(corpse, error)
            return
        corpse.lot.waiting -= 1
        self._dead_in_a_row += 1
        self._log.error(
            "message.dead",
            reason=corpse.reason,
            partition=message.partition,
            offset=message.offset,
            detail=corpse.detail,
        )

    def _settle(self) -> bool:
        """Fires the ticks of all lots that are done, and commits these lots; True where there were any."""
        done = list(itertools.takewhile(lambda lot: not lot.waiting, self._lots))
        ticks = [each for lot in done for each in lot.ticks]
        if ticks and not self._ticked(ticks):
            # A tick that is committed does not come again.
            done = list(itertools.takewhile(lambda lot: not lot.ticks, done))
        positions: dict[int, int] = {}
        for lot in done:
            positions |= lot.positions
            self._lots.popleft()
        self._commit(positions)
        return bool(positions)

    def _ticked(self, ticks: Sequence[tuple[int, Tick]]) -> bool:
        """Whether the ticks were taken; where they were not, they are left alone for a while."""
        if self._tick_rest.goes_on():
            return False
        try:
            self._ticks(ticks)
        except _NOT_NOW as error:
            wait_s = self._tick_rest.failed()
            self._log.warning("tick.unavailable", wait_s=round(wait_s, 3), error=str(error))
            return False
        self._tick_rest.ended()
        return True

    def _commit(self, positions: dict[int, int]) -> None:
        if positions:
            self._consumer.commit(positions)
