"""The records of the catalog of pins.

A key is the pin's id, 8 bytes, big-endian. A record is its version (1 byte), whether the pin was deleted (1 byte), and
its owner, board and created_ms (8 bytes each, big-endian); further bytes are for later versions, and are ignored.

A deleted pin has a record too, so that a page need not ask the follow store about it. Its update is dated a millisecond
after the deletion, because a pin may be saved and deleted within the same millisecond, and a deletion is for good. If
the pin was saved by a clock that was ahead, the update is dated after the save: otherwise the save would win.
"""

import struct
from typing import Final, Literal

import msgspec

from feedstore.catalog.port import CatalogUnavailableError, Update
from feedstore.domain import Pin, PinDeleted, PinSaved, id_of
from feedstore.follows.port import PinState

_KEY: Final = struct.Struct(">Q")
_RECORD: Final = struct.Struct(">BBQQQ")
_VERSION: Final = 1
_PIN_BYTES: Final = 176
"""About how many bytes a Pin takes, with its four numbers."""


def key_of(pin: int) -> bytes:
    return _KEY.pack(pin)


def pin_of(key: bytes) -> int:
    [pin] = _KEY.unpack(key)
    return int(pin)


def record_of(pin: Pin, *, deleted: bool) -> bytes:
    return _RECORD.pack(_VERSION, deleted, pin.owner, pin.board, pin.created_ms)


def live_pin(key: bytes, record: bytes) -> Pin | None:
    """The pin of a record; None if it was deleted. Raises CatalogUnavailableError for an unknown record."""
    pin = pin_of(key)
    try:
        version, deleted, owner, board, created_ms = _RECORD.unpack_from(record)
        if version != _VERSION or deleted > 1:
            raise ValueError(f"version {version}, deleted {deleted}")  # noqa: TRY301 - one message for all errors
        return None if deleted else Pin(pin, owner, board, created_ms)
    except (struct.error, ValueError) as error:
        raise CatalogUnavailableError(f"pin {pin}: its record cannot be read by this program: {error}") from error


HeldPin = Pin | Literal[False]
"""The form of a pin in a process's cache; False: it was deleted."""


class AsPins:
    """Pins, decoded and checked once, when their records come: a `Form`."""

    def made(self, key: bytes, record: bytes) -> HeldPin:
        return live_pin(key, record) or False

    def size(self, held: HeldPin) -> int:
        return _PIN_BYTES if held else 0

    def key(self, field: str, given: str | int) -> tuple[bytes, str]:
        pin = id_of(field, given)
        return key_of(pin), str(pin)

    def shown(self, held: HeldPin) -> msgspec.Raw | None:
        if not held:
            return None
        line = {"owner": str(held.owner), "board": str(held.board), "created_ms": held.created_ms}
        return msgspec.Raw(msgspec.json.encode(line))


AS_PINS: Final = AsPins()


def update_of(action: PinSaved | PinDeleted) -> Update:
    if isinstance(action, PinSaved):
        return Update(key_of(action.pin.pin), action.committed_ms, record_of(action.pin, deleted=False))
    time_ms = max(action.committed_ms, action.saved_ms) + 1
    return Update(key_of(action.pin.pin), time_ms, record_of(action.pin, deleted=True))


def entry_of(state: PinState) -> tuple[bytes, bytes]:
    """The entry of a generation: `key_of` and `record_of`, in one step, as millions are made at a time."""
    pin, _, deleted_ms = state
    record = _RECORD.pack(_VERSION, deleted_ms is not None, pin.owner, pin.board, pin.created_ms)
    return _KEY.pack(pin.pin), record
