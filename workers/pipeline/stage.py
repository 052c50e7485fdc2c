"""A stage: polls one topic for one consumer group, hands messages to a handler, commits what is done.

Rule 11: a position is committed only when every message before it is done: handled, parked, or in the dead letters.
Rule 12: a message that cannot be done now does not block others. It waits in an outage, or for its next attempt, and is
parked in another topic if the outage lasts. A message that can never be done is buried with its reason. All of this
holds for each body of a message by itself; the message is done once all of them are.

What a stage has taken from the queue is always in exactly one place, whatever raises: `_ready`, `_turns`, `_later`,
`_failed`, `_outages` or `_burials`. Work is taken out of its place only after the call that may raise has returned.
What is not done is also counted in `_lots`, in the order of the queue. Of these, `turns`, `outages`, `burials` and
`lots` are modules next to this one, as are `spec` (what a service decides), `parker`, `calls` (its threads), `retry`
(when to try again) and `tally`.

A handler waits for servers most of the time. Meanwhile the stage polls and decodes the next messages, one lot ahead,
starts the first effects of that lot (`begin`), and tells the queue that it is alive.
"""

import itertools
import random
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Final, Generic, TypeVar

import structlog

from feedstore.errors import NeverError, NotNowError
from feedstore.metering import UNCOUNTED, Meter
from feedstore.portions import chunks
from workers.pipeline.burials import Burials, Corpse, Corpses, TooManyDeadLettersError
from workers.pipeline.calls import Calls
from workers.pipeline.lots import Item, Lots
from workers.pipeline.outages import Group, Isolation, Outages, Probe
from workers.pipeline.parker import Parker
from workers.pipeline.retry import REST_S, Away, Later, RetryPolicy, Share, log_failure
from workers.pipeline.spec import StageSpec
from workers.pipeline.tally import Tally
from workers.pipeline.ticks import Tick
from workers.queue.port import Consumer, DamagedQueueError, DeadLetters, PositionLostError, QueueUnavailableError

_log = structlog.get_logger()

Body = TypeVar("Body")

STEP_S: Final = 1.0
"""A step begins no attempt after this time: it ends within it, plus the time of one attempt."""
POLLS_PAST_TURNS: Final = 10
"""How many more polls skip messages that wait for their turn, or fill a batch, before something is tried."""
NOTE_EVERY_S: Final = 1.0
"""How often a busy stage notes and commits what it has done: the most work that is repeated after a kill."""
SILENT_S: Final = 5.0
"""A stage that has not looked at its notes for so long may have been suspended, or cut off from the queue. Then it
counts as ended after some seconds, and others may have changed what it relies on: it looks before it tries anything."""
ENOUGH_BYTES: Final = 100_000
"""With this many bytes of messages a stage waits for no more: a writer hands about as much to its cluster at once."""

_Work = Group[Body] | Isolation[Body] | Probe[Body] | Corpses[Body]


class Stage(Generic[Body]):
    """One member of a consumer group; used by one thread.

    spec: what the stage does with which messages. policy: when to try again, and how many dead letters in a row are too
        many. rng: the jitter of retries. clock: monotonic seconds, for waiting. wall_ms: ms since 1970, for the dead
        letters. patience_s: how long a step waits for messages. meter: counts the work of the stage and of its loop.
    """

    rest_s = REST_S

    def __init__(
        self,
        spec: StageSpec[Body],
        consumer: Consumer,
        dead: DeadLetters,
        policy: RetryPolicy,
        rng: random.Random,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        patience_s: float = 0.25,
        meter: Meter = UNCOUNTED,
    ) -> None:
        self.name = name = spec.group
        self._spec, self._consumer = spec, consumer
        self._policy, self._rng = policy, rng
        self._clock, self._wall_ms = clock, wall_ms
        self._patience_s = patience_s
        self._noted_s = clock() - NOTE_EVERY_S
        self._looked_s = clock()
        self._next_lot_s = clock()
        self._quiet = True  # this step and the one before polled nothing to handle
        self._retries = Share()
        self._rests_until_s = clock()  # nothing is retried before this time
        away = partial(Away, clock, meter, name, policy=policy, rng=rng, stage=name)
        self._queue_away = away("queue", "queue.unavailable")
        self._notes_away = away("notes", "note.unavailable")
        self._ticks_away = away("ticks", "tick.unavailable")
        letters_away = away("dead_letters", "message.not_buried")
        parking_away = away("parked", "messages.not_parked")
        self._log = _log.bind(stage=name)
        self._tally = tally = Tally(meter, name, clock, wall_ms, consumer.held)
        self._calls = calls = Calls(name, consumer, clock)
        self._lots = lots = Lots(spec.in_flight, spec.in_flight_bytes)
        self._ready: deque[_Work[Body]] = deque()
        self._left = 0  # how many of the ready ones are still to be tried in this step
        self._filling: Group[Body] | None = None  # the group polled last, until it is tried: it may get more
        self._turns = spec.turns
        self._later: Later[Group[Body]] = Later()  # not due yet, or at fault
        self._failed: Later[Group[Body]] = Later()  # something was away: they are retries
        self._outages = outages = Outages(spec.slots, lots, rng)
        self._burials = Burials(spec, dead, wall_ms, policy.dead_in_a_row, lots, calls, letters_away, tally)
        self._parker: Parker[Body] | None = None
        if spec.park is not None:
            self._parker = Parker(spec, spec.park, outages, lots, calls, parking_away, tally, policy, rng, clock)

    def step(self) -> bool:
        """One round: polls, tries the messages that are ready and the retries that are due, parks, commits. False if
        there was nothing to do.

        It waits up to `patience_s` for new messages. It begins no attempt after `STEP_S`; burying, parking, a tick and
        a commit may follow, each bounded by its own time-out.

        Raises:
            TooManyDeadLettersError: stop the worker.
            PositionLostError: stop this stage; its cluster must be rebuilt.
            DamagedQueueError: stop this stage; the queue must be replaced.
            Whatever else `note` raises.
        """
        began_s = self._clock()

        def in_time() -> bool:
            return self._clock() - began_s < STEP_S

        self._quiet = not self._ready
        polled = self._ask_queue(self._take_in)
        self._take_due()
        self._look_after_silence()
        worked = self._work(in_time)
        if self._burials.waiting:
            worked = self._burials.bury_some(in_time) or worked
        if self._parker is not None and any(self._outages):
            self._parker.park_some(self._rests_until_s)
        settled = None if polled is None else self._ask_queue(self._settle)
        if settled is not None and (polled or settled):
            # A poll that brings nothing is no answer: a client whose brokers are away hears nothing, too.
            self._queue_away.ended()
        self._tally.waits(self._lots.items, self._lots.size, self._failing_since_s)
        if self._burials.too_many:
            raise TooManyDeadLettersError(
                f"{self.name}: {self._burials.in_a_row} messages in a row could not be done; stopped so that the queue "
                "is not drained into the dead letters (see: feedctl dead list). Nothing was lost;"
                " docs/runbooks/alerts/dead-letters.md says how to let them pass"
            )
        return worked or bool(settled)

    def idle(self) -> bool:
        """Whether every polled message is done and committed."""
        return not self._lots

    def close(self) -> None:
        """Leaves the group; uncommitted messages come again to the next member."""
        self._calls.close()
        self._tally.closed()
        self._consumer.close()

    # The queue
    # ----------------------------------------------------------------------------------------------------------------

    def _ask_queue(self, call: Callable[[], bool]) -> bool | None:
        """Calls the queue, unless it rests after a failure. None if it did not answer."""
        if self._queue_away.is_resting():
            return None
        try:
            return call()
        except PositionLostError as error:
            raise PositionLostError(f"{self._spec.lost} ({error})") from error
        except QueueUnavailableError as error:
            # Neither polled nor committed: nothing is lost, and a later round tries again.
            self._queue_away.noted(error)
            return None

    def _take_in(self) -> bool:
        """Polls if there is room and nothing is ready; otherwise keeps this member alive. True if messages came."""
        size = self._lots.size
        if self._ready or not self._may_begin() or not self._lots.has_room():
            # This member keeps its partitions, however long everything waits: their next member would read all waiting
            # messages once more.
            self._consumer.keep_alive()
        else:
            self._poll_past_turns(self._patience(), lambda: True, 0)
        self._gather()
        return self._lots.size > size

    def _gather(self) -> None:
        """Polls more while too little has come to be worth a try: a handful of cells costs a writer and its servers
        nearly as much as thousands. A message that comes after a silence is done at once. One that comes soon after the
        last lot began waits, and is done together with those that come meanwhile. Messages that have failed before do
        not wait for more.
        """
        while len(self._ready) == 1 and isinstance(group := self._ready[0], Group) and not group.failures:
            left_s = self._next_lot_s - self._clock()
            if left_s <= 0 or not (self._may_begin() and self._lots.has_room()):
                break
            if sum(item.taken.size for item in group.items) >= ENOUGH_BYTES:
                break
            self._poll(left_s, 0)
        if self._ready:
            self._next_lot_s = self._clock() + self._spec.gather_s

    def _poll_past_turns(self, timeout_s: float, may_poll: Callable[[], bool], first: int) -> None:
        """Polls once. A stage with turns polls again in two cases: if messages wait for their turn, because those of
        other senders may follow, and while much comes and a batch is not full. first: new messages may join ready work
        only from this place on.
        """
        polled = self._poll(timeout_s, first)
        for _ in range(POLLS_PAST_TURNS):
            # Work that is being handled does not count: it would keep the next lot small.
            coming = itertools.islice(self._ready, first, None)
            ahead = sum(len(work.items) for work in coming if isinstance(work, Group))
            more = self._turns or (self._turns is not None and polled >= self._spec.batch // POLLS_PAST_TURNS)
            if not (polled and more and ahead < self._spec.batch and self._lots.has_room() and may_poll()):
                return
            polled = self._poll(0, first)

    def _poll(self, timeout_s: float, first: int) -> int:
        """Takes new messages; returns the number of messages, or of their bodies if that is larger. first: the place of
        the first ready work that was not tried; new messages join the last such work.
        """
        messages = self._consumer.poll(self._spec.batch, timeout_s)
        if not messages:
            return 0
        size = self._lots.size
        lot = self._lots.begin(messages)
        items: list[Item[Body]] = []
        corpses: list[Corpse[Body]] = []
        good = 0
        for message in messages:
            taken, bad = self._lots.take_all(lot, message, self._spec.topic.bodies(message.value))
            items += taken
            after_good = bool(taken) or (len(bad) == 1 and len(items) > good)
            corpses += [Corpse(item, item.body.reason, item.body.detail, after_good) for item in bad]
            if len(bad) == 1 and not taken:
                good = len(items)
        self._tally.polled(self._lots.size - size)
        self._quiet = self._quiet and not items
        items = self._leave_until_due(items)
        polled = max(len(messages), len(items))
        if self._turns is not None:
            items = self._turns.admit(items)
        last = self._ready[-1] if len(self._ready) > first else None
        if isinstance(last, Group):
            room = max(0, self._spec.batch - len(last.items))
            last.items += items[:room]
            items = items[room:]
        self._make_ready(items)
        last = self._ready[-1] if len(self._ready) > first else None
        self._filling = last if isinstance(last, Group) else None
        if corpses:
            self._ready.append(Corpses(corpses))
        return polled

    def _leave_until_due(self, items: list[Item[Body]], at_the_latest_s: float | None = None) -> list[Item[Body]]:
        """Puts aside messages that are not due yet; returns the rest. at_the_latest_s: when those that were put aside
        before are tried in any case; None if none were.
        """
        due_ms = self._spec.due_ms
        if due_ms is None:
            return items
        if at_the_latest_s is None:
            at_the_latest_s = self._clock() + self._policy.longest_s
        now_ms = self._wall_ms()
        waits: dict[float, list[Item[Body]]] = {}
        for item in items:
            wait_s = min(self._policy.longest_s, (due_ms(item.body) - now_ms) / 1_000)
            waits.setdefault(max(0.0, wait_s), []).append(item)
        ready = waits.pop(0.0, [])
        for wait_s, later in waits.items():
            self._put_later(Group(later, at_the_latest_s=at_the_latest_s), wait_s)
        return ready

    def _settle(self) -> bool:
        """Notes what is done; passes ticks on and commits positions if all before is done. True if it committed any."""
        if not self._note_done():
            return False
        positions = self._lots.settle(self._tick)
        if positions:
            # The lots keep these positions until the queue has them.
            self._consumer.commit(positions)
        self._lots.committed()
        return bool(positions)

    def _note_done(self) -> bool:
        """Notes the messages that are done; True if they may be committed. A busy stage delays the note by up to
        NOTE_EVERY_S, because a note costs round trips.
        """
        note = self._spec.note
        if note is None:
            return True
        spans = self._lots.done_spans()
        due = self._clock() - self._noted_s >= NOTE_EVERY_S
        if not (due or (spans and self._quiet)):
            return False
        if not self._calls.answers(self._notes_away, lambda: note(spans)):
            return False
        self._noted_s = self._looked_s = self._clock()
        return True

    def _look_after_silence(self) -> None:
        """Gives `note` an empty mapping if it was not called for long. If it does not answer now, work continues."""
        note = self._spec.note
        if note is None or not self._ready or self._clock() - self._looked_s < SILENT_S:
            return
        if self._calls.answers(self._notes_away, lambda: note({})):
            self._looked_s = self._clock()

    def _tick(self, ticks: Sequence[tuple[int, Tick]]) -> bool:
        """Passes ticks on. False if they were not taken: they are passed on again after a while."""
        if not self._calls.answers(self._ticks_away, lambda: self._spec.ticks(ticks)):
            return False
        self._tally.ticked(ticks)
        return True

    # What is tried when
    # ----------------------------------------------------------------------------------------------------------------

    def _may_begin(self) -> bool:
        """Whether new messages may be tried. If the whole store seems away, they are tried now and then: perhaps all
        waiting messages need the one part that is away, and a new one finds that the rest answers.
        """
        whole = self._outages.whole
        return whole is None or self._clock() >= max(whole.due_s, self._rests_until_s)

    def _patience(self) -> float:
        if self._turns:
            return 0.0
        retry_s = max(self._rests_until_s, min(self._failed.due_s(), self._outages.due_s()))
        next_s = min(self._later.due_s(), retry_s)
        return max(0.0, min(self._patience_s, next_s - self._clock()))

    def _take_due(self) -> None:
        """Appends to the ready work: messages whose turn or time has come, and one retry that is due."""
        now_s = self._clock()
        if self._turns and self._may_begin():
            self._ready.append(Group(self._turns.take()))
        # Work that failed because something was unavailable may take long to fail again.
        retrying = any(
            isinstance(work, Isolation | Probe) or (isinstance(work, Group) and work.failures) for work in self._ready
        )
        while (group := self._later.take_due(now_s)) is not None:
            if group.at_the_latest_s is not None and now_s < group.at_the_latest_s:
                group.items = self._leave_until_due(group.items, group.at_the_latest_s)
            if group.items:
                self._ready.append(group)
        if not retrying and now_s >= self._rests_until_s and (retry := self._next_retry(now_s)) is not None:
            self._ready.append(retry)

    def _next_retry(self, now_s: float) -> Group[Body] | Isolation[Body] | Probe[Body] | None:
        """The next retry: of a failed group or of an outage, whichever has been due for longer: none starves."""
        if self._outages.due_s() < self._failed.due_s():
            return self._outages.take_due(now_s, self._spec.batch)
        return self._failed.take_due(now_s)

    def _work(self, in_time: Callable[[], bool]) -> bool:
        """Tries the work that is ready, and what results from it, as long as there is time. False if there was none."""
        self._left = len(self._ready)
        tried = False
        while self._left > 0 and not self._burials.too_many and (not tried or in_time()):
            tried = True
            # Work stays in its place until the call that may raise has returned.
            work = self._ready[0]
            if isinstance(work, Corpses):
                self._take()
                self._burials.waiting += work.corpses
            elif isinstance(work, Isolation):
                self._isolate(work)
            elif isinstance(work, Probe):
                self._probe(work)
            else:
                self._attempt(work)
        return tried

    def _take(self) -> None:
        """Removes the first work that is ready. The caller then notes its outcome, and must not raise."""
        self._ready.popleft()
        self._left -= 1

    def _put_first(self, works: Sequence[_Work[Body]]) -> None:
        """Puts work in front of everything else that is ready: it is tried in this step."""
        self._ready.extendleft(reversed(works))
        self._left += len(works)

    def _put_later(self, group: Group[Body], wait_s: float) -> None:
        (self._failed if group.failures else self._later).put(group, self._clock() + wait_s)

    # Attempts
    # ----------------------------------------------------------------------------------------------------------------

    def _attempt(self, group: Group[Body]) -> None:
        group.items = self._outages.admit(group.items, group.since_s)
        if not group.items:
            self._take()
            return
        began_s = self._clock()
        error = self._call(group.items)
        self._take()
        if error is None:
            self._done(group.items)
            if group.failures:
                self._retries.ended()
        elif isinstance(error, NotNowError):
            self._log_retry(group.failures + 1, error)
            if group.failures:
                self._retry_failed(began_s)
            since_s = began_s if group.since_s is None else group.since_s
            slices = self._outages.slices(group.items)
            isolation = Isolation(slices, since_s, group.failures)
            if len(slices) == 1:  # no other slice to compare it with
                isolation.untried, isolation.failed = [], slices
                self._isolated(isolation)
            else:
                self._put_first([isolation])
        else:
            self._fault(group, error)

    def _isolate(self, isolation: Isolation[Body]) -> None:
        """Tries one slice."""
        group = isolation.untried[-1]
        began_s = self._clock()
        error = self._call(group.items)
        isolation.untried.pop()
        if isinstance(error, NotNowError):
            isolation.failed.append(group)
            if isolation.failures:
                self._retry_failed(began_s)
        else:
            isolation.succeeded = True
            isolation.healthy |= self._outages.needed(group.items)
            if self._outages.whole is not None:
                # The whole store was away and answers again: the rest is tried together.
                self._make_ready([item for each in isolation.untried for item in each.items])
                isolation.untried = []
        if isolation.over():
            self._take()
            self._isolated(isolation)
        if error is None:
            self._done(group.items)
        elif not isinstance(error, NotNowError):
            self._store_answers()
            self._fault(group, error)

    def _isolated(self, isolation: Isolation[Body]) -> None:
        for group in self._outages.ended(isolation, self._clock(), self._wait_s):
            self._put_later(group, self._wait_s(group.failures))

    def _probe(self, probe: Probe[Body]) -> None:
        began_s = self._clock()
        error = self._call(probe.items)
        self._take()
        if isinstance(error, NotNowError):
            self._log_retry(probe.outage.failures + 1, error)
            self._retry_failed(began_s)
            self._outages.failed(probe, began_s, self._clock(), self._wait_s)
            return
        self._retries.ended()
        self._make_ready(self._outages.worked(probe, self._clock()))
        if error is None:
            self._done(probe.items)
        else:
            self._fault(Group(probe.items), error)

    def _call(self, items: Sequence[Item[Body]]) -> Exception | None:
        """Hands messages to the handler; returns what it raised. Meanwhile the next messages are polled."""
        bodies = [item.body for item in items]
        began_s = self._clock()
        handling = self._calls.handle(partial(self._spec.handle, bodies))
        beginning: Future[None] | None = None
        try:
            # If the queue fails now, it fails again in the next round, when this work is done.
            with suppress(QueueUnavailableError, PositionLostError, DamagedQueueError):
                self._look_ahead(handling)
            beginning = self._begin_next(handling)
        finally:
            self._calls.wait_for(handling)
            if beginning is not None:
                self._calls.wait_for(beginning)
                self._has_begun(beginning)
        error = handling.exception()
        self._tally.handled(len(items), began_s, error)
        if error is not None and not isinstance(error, Exception):
            raise error
        return error

    def _look_ahead(self, handling: "Future[Any]") -> None:
        """Polls the next messages while the backlog takes less than half of the room: above that, waiting messages
        should be done or parked first. If messages wait for their turn, it polls past them as long as there is any
        room. More messages join what a full lot has left over, because a small lot costs nearly as much as a full one.
        """
        away = not self._may_begin() or self._queue_away.is_resting()
        coming = list(itertools.islice(self._ready, 1, None))
        if self._ready[0] is self._filling:
            self._filling = None  # if it fails, it is tried again as it is
        # Only a stage with turns fills up such a lot. In the others messages differ in size, and the bytes of a poll
        # bound a lot.
        left_over = self._turns is not None and not self._turns and coming == [self._filling]
        if (not coming or left_over) and self._lots.has_room(1 if self._turns else 2) and not away:
            self._poll_past_turns(0, lambda: not handling.done(), 1)

    def _begin_next(self, handling: "Future[Any]") -> "Future[None] | None":
        """Starts `begin` for the next lot, unless something is away: only the handler finds out what that is."""
        begin = self._spec.begin
        if begin is None or len(self._ready) < 2 or handling.done() or any(self._outages):
            return None
        following = self._ready[1]
        if not isinstance(following, Group) or following.failures:
            return None
        return self._calls.begin(partial(begin, [item.body for item in following.items]))

    def _has_begun(self, beginning: "Future[None]") -> None:
        error = beginning.exception()
        if error is None:
            return
        if not isinstance(error, Exception):
            raise error
        # An error that lasts comes up again in the handler, and is dealt with there.
        self._log.debug("messages.not_begun", error=f"{type(error).__name__}: {error}")

    def _done(self, items: Sequence[Item[Body]]) -> None:
        for item in items:
            self._lots.done(item)
            item.lot.progressed = True
        self._burials.in_a_row = 0
        self._tally.done(len(items))
        self._store_answers()

    def _store_answers(self) -> None:
        self._calls.worked += 1
        if self._outages.whole is not None:
            self._retries.ended()
        self._make_ready(self._outages.answered())

    def _make_ready(self, items: Sequence[Item[Body]]) -> None:
        self._ready.extend(Group(list(some)) for some in chunks(items, self._spec.batch))

    def _fault(self, group: Group[Body], error: Exception) -> None:
        """Deals with an error that is not "unavailable": one of the messages is at fault."""
        items = group.items
        if len(items) > 1:
            # Halving the group finds that message in a few rounds, and the others are done on the way.
            middle = len(items) // 2
            self._put_first([Group(half, group.failures) for half in (items[:middle], items[middle:])])
            return
        if (part := self._outages.split(items[0], None)) is not None:
            self._put_first([Group([part], group.failures), group])
            return
        items[0].faults += 1
        if isinstance(error, NeverError):
            self._burials.waiting.append(Corpse(items[0], "refused", str(error)))
        elif items[0].faults >= self._policy.attempts:
            self._burials.waiting.append(Corpse(items[0], "failed", "".join(traceback.format_exception(error))))
        else:
            self._log_retry(items[0].faults, error)
            self._put_later(group, self._wait_s(group.failures + items[0].faults))

    def _failing_since_s(self) -> Iterator[float]:
        """When the first failed attempts of messages that wait because something is away began."""
        found = [outage.tried_s for outage in self._outages if outage.items]
        for work in itertools.chain(self._ready, self._later, self._failed):
            match work:
                case Probe():
                    found.append(work.tried_s)
                case Group() | Isolation():
                    found.append(work.since_s)
        return (each for each in found if each is not None)

    def _retry_failed(self, began_s: float) -> None:
        """Lets all retries rest after one that failed, so that other work gets its share of the time."""
        now_s = self._clock()
        self._rests_until_s = now_s + self._retries.failed(began_s, now_s, self._calls.worked)

    def _wait_s(self, failures: int) -> float:
        return self._policy.wait_s(max(1, failures), self._rng)

    def _log_retry(self, failures: int, error: Exception) -> None:
        log_failure(self._log, "messages.retry", failures, error=f"{type(error).__name__}: {error}")


class Begun(Generic[Body]):
    """A stage that is made once it is known where its group begins, and made again if that changes.

    begin: makes sure where the group begins; it is called before the group's consumer is made. It may raise
        NotNowError, and is then called again later. Any other error ends the loop.
    make: makes the stage. clock: monotonic seconds. again_on: if a step raises one of these, the loop leaves the group
        and begins again.
    """

    rest_s = REST_S

    def __init__(
        self,
        name: str,
        begin: Callable[[], None],
        make: Callable[[], Stage[Body]],
        clock: Callable[[], float],
        again_on: type[Exception] | tuple[type[Exception], ...],
        meter: Meter = UNCOUNTED,
    ) -> None:
        self.name = name
        self._begin = begin
        self._make = make
        self._away = Away(clock, meter, name, "begin", "stage.not_begun", loop=name)
        self._again_on = again_on
        self._stage: Stage[Body] | None = None

    def step(self) -> bool:
        """Takes a step of the stage. Raises the stage's errors, and those of `begin`."""
        if self._stage is None:
            if self._away.is_resting():
                return False
            try:
                self._begin()
                self._stage = self._make()
            except NotNowError as error:
                self._away.noted(error)
                return False
            self._away.ended()
        try:
            return self._stage.step()
        except self._again_on as error:
            _log.warning("stage.begins_again", loop=self.name, detail=str(error))
            self.close()
            return True

    def close(self) -> None:
        stage, self._stage = self._stage, None
        if stage is not None:
            stage.close()
