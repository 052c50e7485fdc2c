"""The messages of `feed.updates`, and their codec: versioned JSON, as on the other topics.

Posted: updates of one catalog. Tick: every update whose time is before the tick's precedes it in its partition, but for
late ones (feedstore/catalog/posting.py says which are late).
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from feedstore.catalog.port import MAX_KEY_BYTES, MAX_KEYS, MAX_RECORD_BYTES, MAX_TIME_MS, Update
from feedstore.portions import portions
from workers.pipeline.ticks import Tick
from workers.queue.port import VERSION, decoded, refuse_version

BATCH_BYTES: Final = 256 * 1_024
"""The most bytes of a message's updates, unless it is a single one: as base64 they are a third longer, and a poll of
the queue can still take such a message together with others.
"""

_UPDATE_BYTES: Final = 48
"""About how many bytes an update takes in addition to its key and its record."""


class Change(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An update of one key: the key, the time in ms by the source's clock, and the record. If the record is null, the
    key has no record from that time on. Key and record are bytes.
    """

    key: Annotated[bytes, Meta(min_length=1, max_length=MAX_KEY_BYTES)]
    time_ms: Annotated[int, Meta(ge=1, le=MAX_TIME_MS)]
    record: Annotated[bytes, Meta(max_length=MAX_RECORD_BYTES)] | None


class Posted(msgspec.Struct, frozen=True, tag_field="type", tag="updates"):
    """Updates of one catalog."""

    catalog: Annotated[str, Meta(min_length=1, max_length=100)]
    updates: Annotated[list[Change], Meta(min_length=1, max_length=MAX_KEYS)]

    def said(self) -> Iterator[Update]:
        """The updates, as catalogs take them."""
        return (Update(each.key, each.time_ms, each.record) for each in self.updates)


class _Envelope(msgspec.Struct, frozen=True):
    v: int
    body: Posted | Tick


_encoder = msgspec.json.Encoder()
_messages = msgspec.json.Decoder(_Envelope)


def encode_update(message: Posted | Tick) -> bytes:
    return _encoder.encode(_Envelope(VERSION, message))


def batches(catalog: str, updates: Sequence[Update]) -> Iterator[Posted]:
    """Divides updates into messages, each within the bounds of a message."""
    for some in portions(updates, _size, BATCH_BYTES, MAX_KEYS):
        yield Posted(catalog, [Change(*update) for update in some])


def _size(update: Update) -> int:
    return _UPDATE_BYTES + len(update.key) + len(update.record or b"")


def decode_update(value: bytes) -> Posted | Tick:
    """Raises MalformedError if `value` is no message of `feed.updates`."""
    envelope = decoded(_messages, value)
    refuse_version(envelope.v)
    return envelope.body


def schema() -> dict[str, object]:
    return msgspec.json.schema(_Envelope)
