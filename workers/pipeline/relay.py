"""The relay publishes the outboxes of a store to the queue; ticks say how far it is.

Each shard has a relay of its own, in a thread of its own: a shard that is away or slow holds up only its own rows.
Ticks need every shard, and wait for all of them.
"""

from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from feedstore.errors import NotNowError
from feedstore.metering import UNCOUNTED, Meter
from feedstore.tracing import UNTRACED, Tracer
from workers.pipeline import metrics
from workers.pipeline.retry import Away, RetryPolicy
from workers.pipeline.ticks import Tick
from workers.queue.port import MAX_MESSAGE_BYTES, DeadLetters, Queue, Topic
from workers.queue.traced import sending

_log = structlog.get_logger()

AT_ONCE = 10_000
"""About the most actions that a relay takes from an outbox at once; the last row may exceed it."""

_REST_S = 0.05
"""Not shorter: each look at an outbox is a query, and on a quiet day most of them find nothing."""

_ASK_EVERY_S = 1.0
"""How often a relay asks whether it still has its shard if there is nothing to relay."""

_WAITING_REST_S = 2.0
"""How long a relay rests while another one has its shard: within this time it takes over from one that has ended."""

_POLICY = RetryPolicy(longest_s=2.0)
"""Ticks go every second: a longer rest would keep the watermarks back."""


class Row(Protocol):
    """A row of an outbox. Its body tells of `number` things, and was stored in the same transaction as they."""

    @property
    def number(self) -> int: ...

    @property
    def body(self) -> bytes: ...


Rows = TypeVar("Rows", bound=Row)


class Outbox(Protocol[Rows]):
    """The part of a store that a relay needs; `FollowStore` says more about each call."""

    def unrelayed(self, limit: int, shard: int | None = None) -> Sequence[Rows]:
        """Rows of a shard that are not marked relayed, oldest first: as many as it takes to have `limit` things."""

    def mark_relayed(self, rows: Sequence[Rows]) -> None:
        """Marks rows as published; marking twice is fine."""


class Relay(Generic[Rows]):
    """Publishes the rows of one shard's outbox to a topic. If several run, only one of them publishes; when it ends,
    another one takes over. A row that both relay meanwhile arrives twice.

    dead: gets messages that are too large for any queue: their rows are damaged. clock: monotonic seconds. wall_ms: ms
    since 1970, for the dead letters. wrap: makes messages of rows, in their order, many rows a message. tracer: gets
    each lot that is relayed; it finds the contexts in the rows without decoding them. may_relay: whether this relay is
    the one that relays; it may raise NotNowError. begin: is called before the first rows are published; it may raise
    NotNowError.
    """

    def __init__(
        self,
        outbox: Outbox[Rows],
        shard: int,
        queue: Queue,
        topic: Topic[object],
        dead: DeadLetters,
        clock: Callable[[], float],
        wall_ms: Callable[[], int],
        wrap: Callable[[Sequence[tuple[int, bytes]]], Sequence[bytes]],
        meter: Meter = UNCOUNTED,
        tracer: Tracer = UNTRACED,
        may_relay: Callable[[], bool] = lambda: True,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        self._begin: Callable[[], None] | None = begin
        self._may_relay = may_relay
        self._relays = True
        self._ask_s = clock()  # when it asks again, whether there are rows or not
        self._clock = clock
        self._published: list[Rows] = []  # perhaps not marked
        self._wrap = wrap
        self._meter = meter
        self._tracer = tracer
        self.name = f"relay-{shard}"
        meter.add(metrics.RELAYED, 0, str(shard))
        self._outbox = outbox
        self._shard = shard
        self._queue = queue
        self._topic = topic
        self._span = f"send {topic}", sending(topic)
        self._dead = dead
        self._wall_ms = wall_ms
        self._away = Away(clock, meter, self.name, "outbox", "relay.unavailable", _POLICY, shard=shard)

    @property
    def rest_s(self) -> float:
        return _REST_S if self._relays else _WAITING_REST_S

    def step(self) -> bool:
        """Relays one batch; False if there was nothing to relay, it is another relay's, or it could not be done now.

        Rows are copied as they are: one that this version cannot read reaches a reader that can, or becomes a dead
        letter.
        After a crash between the publishing and the marking the rows are published again: their readers are idempotent
        (rule 1).
        """
        if self._away.is_resting():
            return False
        try:
            rows = self._rows()
            if rows:
                if self._begin is not None:
                    self._begin()
                    self._begin = None
                self._relay(rows)
            else:  # all are marked, or are another relay's; if one is here again, it must be published again
                self._published = []
        except NotNowError as error:
            self._away.noted(error)
            return False
        self._away.ended()
        return bool(rows)

    def _rows(self) -> Sequence[Rows]:
        """The rows to relay; none if they are another relay's. A relay that waits for its shard asks for it before it
        looks, so that it reads no rows for nothing. One that has it looks first: most looks find nothing.
        """
        if self._relays and self._clock() < self._ask_s:
            rows = self._outbox.unrelayed(AT_ONCE, self._shard)
            return rows if rows and self._is_mine() else ()
        return self._outbox.unrelayed(AT_ONCE, self._shard) if self._is_mine() else ()

    def _relay(self, rows: Sequence[Rows]) -> None:
        """Publishes rows and marks them. If they cannot be marked, the next step publishes only new rows: a shard whose
        disk is full can be read for days, and would fill the queue.
        """
        # Whole rows are compared: a shard that was brought back from a copy may use an id twice.
        old = len(self._published) if [*rows[: len(self._published)]] == self._published else 0
        new = rows[old:]
        number = sum(row.number for row in new)
        messages = self._wrap([(row.number, row.body) for row in new])
        name, about = self._span
        with self._tracer.lot(name, self._tracer.carried(messages), number, about, kind="producer"):
            self._publish(messages)
            self._published = [*rows]
            self._meter.add(metrics.RELAYED, number, str(self._shard))
            self._meter.add(metrics.RELAYED_BYTES, sum(map(len, messages)), str(self._shard))
            try:
                self._outbox.mark_relayed(rows)
            except NotNowError:
                if not self._are_unrelayed(rows):
                    self._published = []
                raise
        self._published = []

    def _are_unrelayed(self, rows: Sequence[Rows]) -> bool:
        """Whether these rows are still to be relayed. If the answer was lost, they may be marked. If they come back
        after that, they must be published again: the queue has lost them.
        """
        try:
            return [*self._outbox.unrelayed(AT_ONCE, self._shard)[: len(rows)]] == [*rows]
        except NotNowError:
            return False

    def _is_mine(self) -> bool:
        relays = self._may_relay()
        self._ask_s = self._clock() + _ASK_EVERY_S
        if relays != self._relays:
            self._relays = relays
            _log.info("relay.took_over" if relays else "relay.waits", shard=self._shard)
        return relays

    def _publish(self, messages: Sequence[bytes]) -> None:
        for message in messages:
            if len(message) > MAX_MESSAGE_BYTES:
                detail = (
                    f"a row of shard {self._shard}'s outbox: {len(message)} bytes, of which the first are kept here"
                )
                self._dead.bury(
                    self._topic, self.name, "oversized", detail, self._wall_ms(), message[:MAX_MESSAGE_BYTES]
                )
                _log.error("message.dead", reason="oversized", shard=self._shard, detail=detail)
        # Last, so that nothing is published again while the dead letters are away.
        self._queue.publish(self._topic, [message for message in messages if len(message) <= MAX_MESSAGE_BYTES])

    def close(self) -> None:
        """Nothing to release: the ports belong to others."""


class Ticker:
    """Sends ticks. Any number may run.

    settled_ms: returns a time such that everything from before it has been published. For a store with an outbox it is
    a store time such that everything committed before it is marked relayed.
    clock: monotonic seconds. encode: the message of a tick. every_s: how often a tick is sent; it is sent even if
    nothing happens (rule 10). name: the name of the loop.
    """

    def __init__(
        self,
        settled_ms: Callable[[], int],
        queue: Queue,
        topic: Topic[object],
        clock: Callable[[], float],
        encode: Callable[[Tick], bytes],
        every_s: float = 1.0,
        name: str = "ticker",
        meter: Meter = UNCOUNTED,
    ) -> None:
        self.name = name
        self._meter = meter
        self._encode = encode
        self._settled_ms = settled_ms
        self._queue = queue
        self._topic = topic
        self._clock = clock
        self._every_s = every_s
        self._ticked_s: float | None = None
        self._away = Away(clock, meter, name, "outbox", "ticks.wait", _POLICY)

    @property
    def rest_s(self) -> float:
        """The time until the next tick is due; short if a shard did not answer."""
        if self._ticked_s is None or self._away.is_resting():
            return _REST_S
        return max(0.0, self._ticked_s + self._every_s - self._clock())

    def step(self) -> bool:
        """Ticks if it is time and every shard answers; False, so that a rest follows."""
        now_s = self._clock()
        if self._away.is_resting() or (self._ticked_s is not None and now_s - self._ticked_s < self._every_s):
            return False
        try:
            self.tick()
        except NotNowError as error:
            self._away.noted(error)
            return False
        self._away.ended()
        self._ticked_s = now_s
        return False

    def tick(self) -> int:
        """Sends the settled time through every partition of the topic; returns it."""
        settled_ms = self._settled_ms()
        # Partitions are counted after that: what has settled may have been relayed to a partition that was just added.
        sources = self._queue.partitions(self._topic)
        ticks = {source: [self._encode(Tick(settled_ms, source, sources))] for source in range(sources)}
        self._queue.publish_each(self._topic, ticks)
        self._meter.add(metrics.TICKS, 1, self.name)
        return settled_ms

    def close(self) -> None:
        """Nothing to release: the ports belong to others."""
