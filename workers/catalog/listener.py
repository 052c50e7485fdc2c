"""Keeps a web process's cache of a catalog fresh: it hears every action that is recorded, or every update that is
posted, from now on.

Without a listener, a record may be out of date for as long as it is in the cache. With one, each update replaces the
record, and ticks say up to which time that is complete. No page waits for the listener: if it fails, pages are still
answered, and records live for their `ttl`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, Generic, TypeVar

import structlog

from feedstore.catalog.port import Update
from feedstore.catalog.reader import Catalog
from feedstore.clocks import APART_MAX_MS
from feedstore.errors import NotNowError
from workers.pipeline.retry import Rest
from workers.pipeline.ticks import KnownPartitions, Settled, Tick
from workers.queue.port import Malformed, Queue, QueueError, QueueUnavailableError, Tail, Topic

_log = structlog.get_logger()

BATCH: Final = 1_000
"""The most messages that one poll takes."""

POLL_S: Final = 0.25
"""How long a poll waits, and so how long the end of the process may have to wait."""

END_S: Final = 1.0
"""The end of the process waits this long for a queue that does not answer."""

WARN_EVERY_S: Final = 60.0
"""The log says at most this often that messages cannot be read: there may be thousands."""

APART_MS: Final = APART_MAX_MS
"""The source's clock is ahead of this process's clock by less than this."""

Body = TypeVar("Body")


class Listener(Generic[Body]):
    """Enters what it hears into catalogs. Used by one thread.

    An update is late if it comes after a tick that promised everything up to its time: it was posted late, or its
    message comes again from the dead letters. An answer that is held and knew of that tick may lack the update, so late
    updates are told apart. The ticks of the update's own partition decide: a reader that has read just these ticks has
    not read the update.

    catalogs: by name. updates_of: returns what a message says, and to which catalog; updates of other catalogs are
    passed over. connect: opens the queue, which the listener closes. clock: monotonic s. clock_ms: the source's time,
    as far as this process knows it. silent_s: if no tick comes for this long, the queue is opened again: another queue
    may have replaced it. rest: the rests after failures of the queue.
    """

    def __init__(
        self,
        name: str,
        catalogs: Mapping[str, Catalog[Any]],
        updates_of: Callable[[Body], tuple[str, Iterable[Update]]],
        connect: Callable[[], Queue],
        topic: Topic[Body | Tick | Malformed],
        clock: Callable[[], float],
        clock_ms: Callable[[], int],
        silent_s: float,
        rest: Rest | None = None,
    ) -> None:
        self.name = name
        self._catalogs = catalogs
        self._updates_of = updates_of
        self._connect = connect
        self._topic = topic
        self._clock = clock
        self._clock_ms = clock_ms
        self._silent_s = silent_s
        self._rest = rest or Rest(clock)
        self._queue: Queue | None = None
        self._reading: tuple[Tail, KnownPartitions] | None = None
        self._settled = Settled()
        self._promised: dict[int, int] = {}
        """By partition: its latest tick."""
        self._began_s = self._ticked_s = 0.0
        self._began_ms = 0
        self._quiet_until_s = 0.0

    def step(self) -> bool:
        """Hears the messages that there are, or waits a moment for some. False: the caller should rest a moment. It
        raises nothing: after a failure it tries again, after a longer rest each time.
        """
        if self._rest.is_resting():
            return False
        try:
            self._hear(*(self._reading or self._open()))
        except Exception as error:  # noqa: BLE001 - no error may affect pages
            self.close()
            wait_s = self._rest.failed()
            told = _log.warning if isinstance(error, NotNowError | QueueError) else _log.exception
            told("catalog.not_heard", loop=self.name, wait_s=round(wait_s, 3), error=str(error))
            return False
        return True

    def close(self) -> None:
        """Stops hearing: what the catalog holds is no longer kept fresh."""
        reading, queue, self._reading, self._queue = self._reading, self._queue, None, None
        for each in (reading and reading[0], queue):
            if each is not None:
                with suppress(Exception):  # whatever cannot be closed ends with the process
                    each.close()

    # One connection
    # ------------------------------------------------------------------------------------------------------------------

    def _open(self) -> tuple[Tail, KnownPartitions]:
        self._queue = queue = self._connect()
        self._reading = reading = queue.tail(self._topic), KnownPartitions(queue, self._topic)
        self._begin()
        _log.info("catalog.listening", loop=self.name)
        return reading

    def _begin(self) -> None:
        """Begins to hear. Messages that were published before may have been missed; later ones are not.

        Each missed action had committed by now. So a store that reads the source from now on has it. A delta that has
        met a later tick has it, because it has met all that was published before that tick. A generation whose batch
        began later has it, because that batch reads all that has committed. Both date what they know by the source's
        clock. So the catalog is told a time that the source's clock has not reached yet: a store that knows everything
        up to then was read later than now. The follow store may be away, and need not be asked: this process's clock
        will do, plus as much as the two clocks may be apart. If they are further apart, ticks show it.
        """
        self._began_s = self._ticked_s = self._clock()
        self._began_ms = self._clock_ms()
        self._settled = Settled()
        # Earlier ticks may have been missed, but no answer that knew of them is held as one that the stream keeps
        # fresh.
        self._promised.clear()
        for catalog in self._catalogs.values():
            catalog.heard_from(self._began_ms + APART_MS)

    def _hear(self, tail: Tail, known: KnownPartitions) -> None:
        ticks: list[Tick] = []
        malformed = 0
        for message in tail.poll(BATCH, POLL_S):
            for body in self._topic.bodies(message.value):
                if isinstance(body, Malformed):
                    malformed += 1
                    continue
                if isinstance(body, Tick):
                    if not known.had(body):
                        continue  # a tick of partitions that do not exist
                    ticks.append(body)
                self._enter(message.partition, body)
        now_s = self._clock()
        if malformed:
            # One of them may have been an update of a later version of the program: that is a gap.
            if now_s >= self._quiet_until_s:
                self._quiet_until_s = now_s + WARN_EVERY_S
                _log.warning("catalog.gap", loop=self.name, malformed=malformed)
            self._begin()
        elif ticks:
            self._tick(ticks, now_s)
        elif now_s - self._ticked_s >= self._silent_s:
            raise QueueUnavailableError(f"no tick in {self._silent_s:.0f} s: no worker runs, or the queue was replaced")

    def _enter(self, partition: int, body: Body | Tick) -> None:
        """Enters a message. The messages of a partition must come in order."""
        if isinstance(body, Tick):
            # A tick that is further ahead is from before a clock was set back. No delta notes such a tick.
            if body.settled_ms <= self._clock_ms() + APART_MS:
                self._promised[partition] = max(self._promised.get(partition, 0), body.settled_ms)
            return
        name, updates = self._updates_of(body)
        catalog = self._catalogs.get(name)
        if catalog is None:
            return
        for update in updates:
            if update.time_ms >= self._promised.get(partition, 0):
                catalog.entered(update)
            else:
                catalog.entered_late(update, self._clock_ms() + APART_MS)

    def _tick(self, ticks: list[Tick], now_s: float) -> None:
        """Notes ticks: all that precedes them has been entered."""
        self._ticked_s = now_s
        self._rest.ended()
        # If a tick is later than this, the source's clock was too far ahead when this began, or the tick is from before
        # a clock was set back.
        latest_ms = self._began_ms + int((now_s - self._began_s) * 1_000) + APART_MS
        if any(latest_ms < tick.settled_ms <= self._clock_ms() + APART_MS for tick in ticks):
            _log.warning("catalog.gap", loop=self.name, clock_was_behind=True)
            self._begin()
            return
        for tick in ticks:
            if tick.settled_ms <= latest_ms:
                self._settled.note(tick)
        settled_ms = self._settled.settled_ms()
        if settled_ms is not None:
            for catalog in self._catalogs.values():
                catalog.note_known(settled_ms - 1)


@contextmanager
def running(listener: Listener[Body]) -> Iterator[None]:
    """Runs a listener in a thread of its own until the end of the block."""
    stop = threading.Event()

    def run() -> None:
        with closing(listener):
            while not stop.is_set():
                if not listener.step():
                    stop.wait(POLL_S)

    # A daemon: a queue that does not answer must not keep the process from ending.
    thread = threading.Thread(target=run, name=listener.name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(END_S)
