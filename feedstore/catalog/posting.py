"""Posted updates: every catalog that no action updates takes them.

An update is *late* if it is posted more than LATE_MS after its time. In every store it counts like any other. But by
then, processes may hold answers that claim to have everything up to its time: they are told to ask again.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore import validation
from feedstore.catalog.port import MAX_KEY_BYTES, MAX_KEYS, MAX_RECORD_BYTES, CatalogRefusedError, Update
from feedstore.catalog.settings import kind_of
from feedstore.domain import InvalidValueError
from feedstore.validation import words

LATE_MS: Final = 10_000
"""A tick promises every update whose time is at least this much earlier than its own."""

_SECONDS: Final = range(10**9, 10**11)
"""Times since 2001, in seconds. Read as ms they would be in the early seventies, before any source."""

AHEAD_MAX_MS: Final = 120_000
"""An update that is dated further ahead than this is refused: nothing could replace it until then."""

UPDATES_MAX: Final = MAX_KEYS
"""The most updates of one post."""


def in_seconds(time_ms: int) -> bool:
    """Whether a time is in seconds by mistake. Such an update would silently lose against every other one."""
    return time_ms in _SECONDS


class Posting(Protocol):
    """Where updates go. Thread-safe."""

    def post(self, catalog: str, updates: Sequence[Update]) -> None:
        """Posts updates. Durable when it returns: every cluster will get them.

        updates: up to UPDATES_MAX, checked. Raises QueuesUnavailableError: some may have been taken; post all again.
        """


class UpdateLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An update of one key. time_ms: the time of the change, by the clock of its source. Of all updates of a key, the
    latest one counts; if two have the same time, the deletion counts. Give exactly one of these three: record: any JSON
    value; it is kept as compact JSON. base64: the bytes of a record that is not JSON. deleted: true, if the key has no
    record from that time on.
    """

    key: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES)]
    time_ms: Annotated[int, Meta(ge=1, le=2**53 - 1, extra=words("a time in ms since 1970, from 1 to 2^53-1"))]
    record: msgspec.Raw | UnsetType = UNSET
    base64: bytes | UnsetType = UNSET
    deleted: bool = False

    def __post_init__(self) -> None:
        if (self.record is not UNSET) + (self.base64 is not UNSET) + self.deleted != 1:
            raise ValueError('expected one of "record", "base64", and "deleted": true')

    def update(self, field: str, now_ms: int) -> Update:
        """field: names it in a refusal. now_ms: by the clock of the home. Raises InvalidValueError."""
        try:
            key = self.key.encode()
        except UnicodeEncodeError as error:
            raise InvalidValueError(f"{field}.key", self.key, "text that can be encoded as UTF-8") from error
        if len(key) > MAX_KEY_BYTES:
            raise InvalidValueError(f"{field}.key", self.key, f"at most {MAX_KEY_BYTES} bytes")
        if in_seconds(self.time_ms):
            raise InvalidValueError(f"{field}.time_ms", self.time_ms, "ms since 1970, not seconds")
        if self.time_ms > now_ms + AHEAD_MAX_MS:
            raise InvalidValueError(
                f"{field}.time_ms", self.time_ms, f"a time that is at most {AHEAD_MAX_MS // 60_000} minutes ahead"
            )
        record = self._record(field)
        if record is not None and len(record) > MAX_RECORD_BYTES:
            raise InvalidValueError(f"{field}.record", f"{len(record)} bytes", f"at most {MAX_RECORD_BYTES} bytes")
        return Update(key, self.time_ms, record)

    def _record(self, field: str) -> bytes | None:
        if not isinstance(self.base64, UnsetType):
            return self.base64
        if isinstance(self.record, UnsetType):
            return None
        try:
            return compact(self.record)
        except CatalogRefusedError as error:
            raise InvalidValueError(f"{field}.record", str(error), "JSON") from error


def compact(record: msgspec.Raw) -> bytes:
    """A record of a JSON value: its text without space between its parts. Raises CatalogRefusedError if it is none."""
    try:
        msgspec.json.decode(record)  # Raw is validated only when it is decoded
        return msgspec.json.format(bytes(record), indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CatalogRefusedError(validation.malformed(error, bytes(record))) from error


def refuse_updated(catalog: str) -> None:
    """Raises CatalogRefusedError if no updates may be posted to a catalog: something else updates it."""
    if (others := kind_of(catalog).updated_by) is not None:
        raise CatalogRefusedError(f"the catalog {catalog} takes no updates: {others} update it")
