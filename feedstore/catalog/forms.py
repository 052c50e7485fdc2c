"""The form of a catalog: what its keys and records are in a web process, in requests and in answers."""

from base64 import b64encode
from typing import Final, Protocol, TypeVar

import msgspec

from feedstore.domain import InvalidValueError

T = TypeVar("T")


class Form(Protocol[T]):
    """Makes, once, the object that the cache keeps of a record. The garbage collector must not walk it."""

    def made(self, key: bytes, record: bytes) -> T:
        """The object of a record. Raises CatalogUnavailableError if this program cannot read the record."""

    def size(self, held: T) -> int:
        """About how many bytes of memory the object takes."""

    def key(self, field: str, given: str | int) -> tuple[bytes, str]:
        """A key as a field of a request gives it: its bytes, and its text for the answer. Raises InvalidValueError."""

    def shown(self, held: T) -> msgspec.Raw | str | None:
        """The object in an answer: JSON, or base64 of a record that is not JSON; None if there is nothing to show."""


class AsBytes:
    """Records as they are: a `Form`."""

    def made(self, _key: bytes, record: bytes) -> bytes:
        return record

    def size(self, held: bytes) -> int:
        return len(held)

    def key(self, field: str, given: str | int) -> tuple[bytes, str]:
        if not isinstance(given, str):
            raise InvalidValueError(field, given, "the text of a key")
        try:
            return given.encode(), given
        except UnicodeEncodeError as error:
            raise InvalidValueError(field, given, "text that can be encoded as UTF-8") from error

    def shown(self, held: bytes) -> msgspec.Raw | str:
        try:
            msgspec.json.decode(held)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return b64encode(held).decode()
        return msgspec.Raw(held)


AS_BYTES: Final = AsBytes()
