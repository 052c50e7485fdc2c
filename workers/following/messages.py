"""The messages of the queue, and their codec: versioned JSON.

On `feed.actions`: Task, RangeTask and Tick. On `feed.deliveries`: Delivery, Hold, Packed, Tick and Ticks. On
`feed.retries`: Parked. Every message is an object `{"v": 1, "body": {"type": ..., ...}}`; of the tasks of many recorded
actions, `{"v": 2, "actions": [...]}`; a RangeTask is `{"v": 3, "range": ..., "actions": [...]}`. The JSON Schema of
each topic is exported into `schemas/`. Packed has version 2, and Ticks version 3, so that an earlier writer refuses
them with a reason.

What is traced carries a context of its trace (`feedstore.tracing`), in members that earlier readers pass over and
earlier messages lack: `trace` of a task, of a delivery, and of a recorded action, as its outbox row had it; `traces` of
a pack.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from feedstore.domain import MAX_ID, Followee, InvalidValueError, PinDeleted, PinSaved, RecordedAction
from feedstore.following import MAX_CHUNK, ROW_BYTES
from feedstore.follows import port as follows
from workers.pipeline.ticks import Tick
from workers.queue.port import UNREADABLE, VERSION, Malformed, MalformedError, decoded, malformed, refuse_version

PACKED_VERSION: Final = 2
TICKS_VERSION: Final = 3
ACTIONS_VERSION: Final = 2
RANGE_VERSION: Final = 3

PACK_CELLS: Final = 10_000
"""The most cells in one pack."""
ACTIONS_A_MESSAGE: Final = follows.ROW_ACTIONS
ACTIONS_BYTES: Final = follows.ROW_BYTES
"""A message of many actions has at most ACTIONS_A_MESSAGE of them, and about ACTIONS_BYTES bytes: a row of an outbox
fits in it, and two such messages fit in a poll.
"""

Id = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Ms = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Trace = Annotated[str, Meta(max_length=128)]
"""The context of a trace (`feedstore.tracing`)."""


class Task(msgspec.Struct, frozen=True, tag_field="type", tag="task", omit_defaults=True):
    """An action to expand.

    cluster: set if deliveries came too late in this cluster (rule 8): the new deliveries are for this cluster only.
        None: they are for all clusters.
    after_ms: a time of the follow store. The deliveries of this task count as read at this time or later. The writer
        that sends the task notes this time, and does not send the action back again for a delivery that was read before
        it. So the new deliveries cannot look old if the clock was set back.
    trace: the context of the trace that the task belongs to. None: the task is not traced.
    """

    action: RecordedAction
    cluster: str | None = None
    after_ms: Ms | None = None
    trace: Trace | None = None


class Range(msgspec.Struct, frozen=True):
    """Some of the followers of a followee: those whose ids are larger than `after`, and not larger than `until`."""

    followee: Followee
    after: Annotated[int, Meta(ge=0, le=MAX_ID)]
    until: Annotated[int, Meta(ge=1, le=MAX_ID)]


class RangeTask(msgspec.Struct, frozen=True, tag_field="v", tag=RANGE_VERSION, omit_defaults=True):
    """A part of one or several large fanouts that is left to do: pins to save or delete for one range of followers. The
    actions share one read of these followers.

    cluster, after_ms: as in a task.
    traces: for each action that is traced, its number in `actions`, counted from 0, and the context of its trace.
    """

    range: Range
    actions: Annotated[list[PinSaved | PinDeleted], Meta(min_length=1, max_length=ACTIONS_A_MESSAGE)]
    cluster: str | None = None
    after_ms: Ms | None = None
    traces: list[tuple[Annotated[int, Meta(ge=0, lt=ACTIONS_A_MESSAGE)], Trace]] = msgspec.field(default_factory=list)

    def __post_init__(self) -> None:
        for action in self.actions:
            if self.range.followee not in action.pin.followees():
                raise InvalidValueError("range.followee", str(self.range.followee), "the owner and board of each pin")

    def only(self, numbers: Sequence[int]) -> "RangeTask":
        """This task for only some of its actions, counted from 0."""
        contexts = dict(self.traces)
        traces = [(new, contexts[old]) for new, old in enumerate(numbers) if old in contexts]
        return replace(self, actions=[self.actions[number] for number in numbers], traces=traces)

    def halves(self) -> "tuple[RangeTask, RangeTask] | None":
        """Divides the task into two that together do the same; None if it has only one action."""
        middle = len(self.actions) // 2
        if not middle:
            return None
        return self.only(range(middle)), self.only(range(middle, len(self.actions)))


class Block(msgspec.Struct, frozen=True, array_like=True):
    """A cross product of cells: each pin of `pins` (pin, created_ms) goes into each row of `rows` (user, timestamp in
    ms).
    """

    rows: Annotated[list[tuple[Id, Ms]], Meta(min_length=1, max_length=MAX_CHUNK)]
    pins: Annotated[list[tuple[Id, Ms]], Meta(min_length=1, max_length=MAX_CHUNK)]

    def __post_init__(self) -> None:
        if self.cells() > MAX_CHUNK:
            raise InvalidValueError("block", self.cells(), f"at most {MAX_CHUNK} cells")

    def cells(self) -> int:
        return len(self.rows) * len(self.pins)


class Purge(msgspec.Struct, frozen=True):
    """Says that a delivery holds a part of the delete markers of an unfollow. The parts are numbered: `part` is a
    number from 1 to `parts`.

    The row read and the refill (rules 6 and 9) follow once all parts have landed. If `complete` is true, the parts list
    every pin that the followee ever had, so that the row read has nothing left to find.
    """

    part: Annotated[int, Meta(ge=1)]
    parts: Annotated[int, Meta(ge=1)]
    complete: bool

    def __post_init__(self) -> None:
        if self.part > self.parts:
            raise InvalidValueError("purge.part", self.part, f"a number from 1 to {self.parts}")


class Stray(msgspec.Struct, frozen=True, array_like=True):
    """Cells that must not be there, by their keys: a row of a cluster, and columns of that row. Delete markers at `ts`,
    the timestamp of the cells themselves, remove the cells and nothing that is delivered with a later timestamp.
    """

    row: Annotated[bytes, Meta(min_length=ROW_BYTES, max_length=ROW_BYTES)]
    ts: Ms
    columns: Annotated[list[bytes], Meta(min_length=1, max_length=MAX_CHUNK)]


class Delivery(msgspec.Struct, frozen=True, tag_field="type", tag="delivery", omit_defaults=True):
    """Cells for the writers.

    action: the action that the cells come from. It is sent back to the expander if the delivery arrives too late (rule
        8).
    read_ms: the follow store's time before the first read of the handler. The age of the delivery counts from it.
    cluster: the only cluster that applies the delivery. None: all clusters apply it.
    strays: cells that a repair removes. If the delivery arrives too late, they are not sent again: the next repair
        finds them.
    trace: as in a task.
    """

    action: RecordedAction
    read_ms: Ms
    puts: list[Block] = msgspec.field(default_factory=list)
    markers: list[Block] = msgspec.field(default_factory=list)
    purge: Purge | None = None
    cluster: str | None = None
    strays: list[Stray] = msgspec.field(default_factory=list)
    trace: Trace | None = None

    def cells(self) -> int:
        """How many cells and markers it writes."""
        blocks = sum(block.cells() for block in self.puts) + sum(block.cells() for block in self.markers)
        return blocks + sum(len(stray.columns) for stray in self.strays)


class Column(msgspec.Struct, frozen=True, array_like=True):
    """A list of whole numbers from 0 to 2^63-1. Each number is the sum of `least` and of the number in its `width`
    bytes of `more`, the lowest byte first. If `width` is 0, every number is `least`.
    """

    least: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    width: Annotated[int, Meta(ge=0, le=8)]
    more: bytes


Count = Annotated[int, Meta(ge=1, le=PACK_CELLS)]


class ActionColumns(msgspec.Struct, frozen=True, array_like=True):
    """Recorded actions.

    kinds: the kind of each action. 1: a follow of a user. 2: a follow of a board. 3: a saved pin. 4: a deleted pin. 5:
        a refill that was requested for all clusters. 6: a refill that was requested for the cluster of the pack.
    numbers: five numbers for each action. For a follow: committed_ms, follower, followee, ts, 0. For a pin:
        committed_ms, pin, owner, created_ms, board. For a refill: committed_ms, user, 0, 0, 0.
    """

    count: Count
    kinds: Column
    numbers: Annotated[list[Column], Meta(min_length=5, max_length=5)]


class BlockColumns(msgspec.Struct, frozen=True, array_like=True):
    """Blocks, as in `Block`. Blocks that have the same rows, or the same pins, share them.

    actions: for each block, the number of the action that it comes from, counted from 0. markers: 1 if the block is of
    delete markers, 0 if it is of cells. first_rows, rows: a block has the rows of the pack from number `first_rows` on,
    counted from 0; `rows` says how many. first_pins, pins: the same for the pins of the pack.
    """

    count: Count
    actions: Column
    markers: Column
    first_rows: Column
    rows: Column
    first_pins: Column
    pins: Column


class PairColumns(msgspec.Struct, frozen=True, array_like=True):
    """Pairs of numbers. For rows: users and timestamps. For pins: their ids and creation times."""

    count: Count
    ids: Column
    times: Column


class Packed(msgspec.Struct, frozen=True, tag_field="type", tag="pack", omit_defaults=True):
    """A pack: the blocks of many actions, written column by column. It says the same as a `Delivery` for each block,
    but has each action only once. Purges and strays are not in packs: they travel as deliveries.

    read_ms, cluster: as in a delivery. traces: for each action that is traced, its number, counted from 0, and the
        context of its trace.
    """

    read_ms: Ms
    actions: ActionColumns
    blocks: BlockColumns
    rows: PairColumns
    pins: PairColumns
    cluster: str | None = None
    traces: list[tuple[Annotated[int, Meta(ge=0, lt=PACK_CELLS)], Trace]] = msgspec.field(default_factory=list)


class Hold(msgspec.Struct, frozen=True, tag_field="type", tag="hold", omit_defaults=True):
    """Something that was committed at `since_ms` was put off. It has landed once everything that was committed before
    `until_ms` has landed (rule 10).

    No watermark may pass `since_ms` until a tick has come that is later than `until_ms`.

    cluster: the only cluster whose watermark the hold keeps back. None: it keeps back those of all clusters.
    kind: `fanout` if a pin has so many followers that ranges of them were put off. Such holds come one after the other,
        and do not prolong each other.
    """

    since_ms: Ms
    until_ms: Ms
    cluster: str | None = None
    kind: Literal["put_off", "fanout"] = "put_off"


class Parked(msgspec.Struct, frozen=True, tag_field="type", tag="parked"):
    """A parked delivery: one cluster could not take it, and in this topic it holds up no others.

    cluster: the cluster that could not take it. Another cluster may have applied the same delivery.
    id: always 1. In a message of an earlier version, the id and the commit time of the action together name the note
        about this message in the cluster.
    due_ms: a time of the follow store. The delivery is not tried again before this time.
    delivery: the delivery, unchanged. Its age still counts from its `read_ms`.
    """

    cluster: Annotated[str, Meta(min_length=1)]
    id: Id
    due_ms: Ms
    delivery: Delivery


class Ticks(msgspec.Struct, frozen=True, tag_field="type", tag="ticks"):
    """Ticks of several sources that an expander passed on together.

    settled: the source and the `settled_ms` of each. sources, partitions: as in a tick, the same for all.
    """

    settled: Annotated[list[tuple[Annotated[int, Meta(ge=0)], Ms]], Meta(min_length=1)]
    sources: Annotated[int, Meta(ge=1)]
    partitions: Annotated[int, Meta(ge=1)]

    def each(self) -> list[Tick]:
        return [Tick(settled_ms, source, self.sources, self.partitions) for source, settled_ms in self.settled]


ActionMessage = Task | RangeTask | Tick
DeliveryMessage = Delivery | Hold | Tick | Ticks | Packed


class _ActionEnvelope(msgspec.Struct, frozen=True, tag_field="v", tag=VERSION):
    body: Task | Tick


class _ActionsEnvelope(msgspec.Struct, frozen=True, tag_field="v", tag=ACTIONS_VERSION):
    """Tasks of recorded actions, each for all clusters."""

    actions: Annotated[list[RecordedAction], Meta(min_length=1)]


class _RawActions(msgspec.Struct, frozen=True):
    v: Literal[2]
    actions: Annotated[list[msgspec.Raw], Meta(min_length=1)]


_ActionMessages = _ActionEnvelope | _ActionsEnvelope | RangeTask


class _DeliveryEnvelope(msgspec.Struct, frozen=True):
    v: int
    body: DeliveryMessage


class _RetryEnvelope(msgspec.Struct, frozen=True):
    v: int
    body: Parked


class _Carrying(msgspec.Struct, frozen=True):
    trace: Trace | None = None


class _CarryingTask(msgspec.Struct, frozen=True):
    action: _Carrying
    trace: Trace | None = None


class _TaskEnvelope(msgspec.Struct, frozen=True):
    body: _CarryingTask


class _CarryingActions(msgspec.Struct, frozen=True):
    actions: list[_Carrying]


_encoder = msgspec.json.Encoder()
_actions = msgspec.json.Decoder(_ActionMessages)
_raw_actions = msgspec.json.Decoder(_RawActions)
_recorded = msgspec.json.Decoder(RecordedAction)
_deliveries = msgspec.json.Decoder(_DeliveryEnvelope)
_retries = msgspec.json.Decoder(_RetryEnvelope)
_carrying_task = msgspec.json.Decoder(_TaskEnvelope)
_carrying_actions = msgspec.json.Decoder(_CarryingActions)
_CARRIES: Final = b'"trace":"'


def encode_action(message: ActionMessage) -> bytes:
    return _encoder.encode(message if isinstance(message, RangeTask) else _ActionEnvelope(message))


def wrap_action(recorded: bytes) -> bytes:
    """Makes a task of a recorded action that is already JSON. The bytes are copied as they are: a newer reader may know
    what this version does not.
    """
    return b'{"v":%d,"body":{"type":"task","action":%s}}' % (VERSION, recorded)


def wrap_actions(rows: Sequence[tuple[int, bytes]]) -> list[bytes]:
    """Makes messages of an outbox's rows. A row is (the number of recorded actions, the actions as JSON with commas
    between them). The bytes are copied, and the contents of an action are not looked at. If several rows share a
    message, only the end of each action is checked. If one row is invalid JSON, every row of that batch is sent alone.
    """
    messages: list[bytes] = []
    some: list[tuple[int, bytes]] = []
    size = actions = 0
    for row in rows:
        count, body = row
        if some and (size + len(body) > ACTIONS_BYTES or actions + count > ACTIONS_A_MESSAGE):
            messages += _wrapped(some, actions)
            some, size, actions = [], 0, 0
        some.append(row)
        size += len(body) + 1
        actions += count
    return messages + (_wrapped(some, actions) if some else [])


def _wrapped(some: Sequence[tuple[int, bytes]], actions: int) -> list[bytes]:
    if len(some) > 1:
        message = _joined(b",".join([body for _, body in some]))
        try:
            if len(_raw_actions.decode(message).actions) == actions:
                return [message]
        except UNREADABLE:
            pass  # one of the rows is damaged
    return [wrap_action(body) if count == 1 else _joined(body) for count, body in some]


def _joined(bodies: bytes) -> bytes:
    return b'{"v":%d,"actions":[%s]}' % (ACTIONS_VERSION, bodies)


def encode_delivery(message: DeliveryMessage) -> bytes:
    return _encoder.encode(_DeliveryEnvelope(_version_of(message), message))


def encode_ticks(ticks: Iterable[Tick], partitions: int) -> list[bytes]:
    """Makes messages of feed.deliveries of ticks of feed.actions: one of all ticks that say the same number of sources.
    partitions: how many partitions of feed.deliveries these messages go to.
    """
    settled: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for tick in ticks:
        settled[tick.sources].append((tick.source, tick.settled_ms))
    messages = (Ticks(some, sources, partitions) for sources, some in settled.items())
    return [encode_delivery(each if len(each.settled) > 1 else each.each()[0]) for each in messages]


def encode_parked(message: Parked) -> bytes:
    return _encoder.encode(_RetryEnvelope(VERSION, message))


def decode_actions(value: bytes) -> Sequence[ActionMessage | Malformed]:
    """The tasks of a message of feed.actions, or its tick. If only some of several tasks can be decoded, each of the
    others is malformed by itself. Raises MalformedError if `value` is no such message.
    """
    try:
        envelope = decoded(_actions, value, RANGE_VERSION)
    except MalformedError as error:
        if error.reason in ("oversized", "unknown_version"):
            raise
        return _each_action(value, error)
    if isinstance(envelope, RangeTask):
        return (envelope,)
    traced = _CARRIES in value
    if isinstance(envelope, _ActionEnvelope):
        body = envelope.body
        return (_with_trace(body, value) if traced and isinstance(body, Task) else body,)
    if not traced:
        return [Task(action) for action in envelope.actions]
    try:
        traces = [each.trace for each in _carrying_actions.decode(value).actions]
    except msgspec.MsgspecError:
        traces = [None] * len(envelope.actions)  # an invalid context is not worth a dead letter
    return [Task(action, trace=trace) for action, trace in zip(envelope.actions, traces, strict=True)]


def _with_trace(task: Task, value: bytes) -> Task:
    """A task with the context that the task or its action carries."""
    try:
        carrying = _carrying_task.decode(value).body
    except msgspec.MsgspecError:
        return task
    return replace(task, trace=carrying.trace or carrying.action.trace)


def _each_action(value: bytes, whole: MalformedError) -> Sequence[ActionMessage | Malformed]:
    """The tasks of a message that cannot be decoded as a whole: those that can be read are done. Raises `whole` if
    there are fewer than two tasks.
    """
    try:
        actions = _raw_actions.decode(value).actions
    except UNREADABLE:
        actions = []
    if len(actions) < 2:
        raise whole
    bodies: list[ActionMessage | Malformed] = []
    for each in actions:
        try:
            bodies.append(Task(_recorded.decode(each)))
        except (*UNREADABLE, InvalidValueError) as bad:
            action = bytes(each)
            bodies.append(Malformed(wrap_action(action), "malformed", str(malformed(bad, action, RecordedAction))))
    return bodies


def decode_delivery(value: bytes) -> DeliveryMessage:
    """Decodes a message of feed.deliveries. Whether the columns of a pack fit together is checked by
    `packs.decode_bodies`. Raises MalformedError if `value` is no such message.
    """
    envelope = decoded(_deliveries, value, TICKS_VERSION)
    refuse_version(envelope.v, TICKS_VERSION)
    if envelope.v != _version_of(envelope.body):
        raise MalformedError("malformed", f"version {envelope.v} has no such body")
    return envelope.body


def decode_parked(value: bytes) -> Parked:
    """Decodes a message of feed.retries. Raises MalformedError if `value` is no such message."""
    envelope = decoded(_retries, value)
    refuse_version(envelope.v)
    return envelope.body


def _version_of(body: object) -> int:
    match body:
        case Packed():
            return PACKED_VERSION
        case Ticks():
            return TICKS_VERSION
        case _:
            return VERSION


def schemas() -> dict[str, dict[str, object]]:
    """The JSON Schema of each topic's messages, by the name of its file in `schemas/`."""
    return {
        "feed.actions.schema.json": msgspec.json.schema(_ActionMessages),
        "feed.deliveries.schema.json": msgspec.json.schema(_DeliveryEnvelope),
        "feed.retries.schema.json": msgspec.json.schema(_RetryEnvelope),
    }
