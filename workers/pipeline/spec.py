"""What a service decides about a stage: its topic, its handler, and how much it takes at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from workers.pipeline.outages import Slots
from workers.pipeline.ticks import Tick
from workers.pipeline.turns import Turns
from workers.queue.port import Malformed, Topic

Body = TypeVar("Body")


@dataclass(frozen=True, kw_only=True)
class StageSpec(Generic[Body]):
    """What one stage does with which messages.

    group: the name of the consumer group, also used in logs.
    encode: makes a message of one body alone: that is what is buried if the body's message holds more than this body.
    handle: handles messages together. Every effect is durable when it returns; if it raises, some may be done.
        It runs on a thread of its own, one call at a time, and no step ends before it has.
    begin: makes the first effects of `handle` for the messages that are handled next, while `handle` works. It runs on
        another thread, one call at a time, and no step ends before it has. It may never be called. If it raises,
        `handle` does all of the work. None: nothing is begun.
    ticks: gets ticks with their partitions, once everything before them in their partitions is done; of each source it
        gets only the newest.
    slots: which parts of a store a message needs, and how it is divided.
    lost: explains what happened and what to do if messages are gone before this group has read them.
    turns: holds back messages of a sender who sent many, while others' are done. None: all are done as they come.
    batch: how many messages are polled, and how many bodies are handled at once.
    in_flight, in_flight_bytes: how many bodies may wait, and how many bytes of messages, before nothing more is polled.
    park: gets messages and how many seconds they should wait, stores them for a later attempt, and says for each
        whether it did: that message is then done. It may raise as `handle` does. None: nothing is parked.
    due_ms: the time, by `wall_ms` of the stage, before which a message is not tried; it is asked again then. It delays
        a message by the policy's `longest_s` at most: clocks may be wrong. It must not raise. None: all are due.
    gather_s: the least time from the beginning of one lot to that of the next, if few messages have come: more are
        polled meanwhile. So no message waits longer than this for others.
    note: gets the messages that are done in each partition (the first offset, and the one after the last message),
        before ticks are passed on and before anything is committed; durable when it returns. If nothing was done, it
        sometimes gets an empty mapping. It may raise as `handle` does; any other error ends the stage. None: nothing
        is noted.
    given_up: gets a message that is in the dead letters, before it counts as done; raises as `handle` does.
    """

    group: str
    topic: Topic[Body | Tick | Malformed]
    encode: Callable[[Body], bytes]
    handle: Callable[[Sequence[Body]], None]
    ticks: Callable[[Sequence[tuple[int, Tick]]], None]
    slots: Slots[Body]
    lost: str = "this group lost messages"
    turns: Turns[Body] | None = None
    begin: Callable[[Sequence[Body]], None] | None = None
    batch: int = 2_000
    in_flight: int = 10_000
    in_flight_bytes: int = 32_000_000
    park: Callable[[Sequence[Body], float], Sequence[bool]] | None = None
    due_ms: Callable[[Body], int] | None = None
    given_up: Callable[[Body], None] | None = None
    note: Callable[[Mapping[int, tuple[int, int]]], None] | None = None
    gather_s: float = 0.0
