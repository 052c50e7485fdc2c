"""The parts of a topic's decoder."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

Body = TypeVar("Body")


class MalformedError(ValueError):
    """Bytes that are no message that this version knows. `reason` is a stable word for the dead letters:
    `oversized`, `not_json`, `unknown_version`, `malformed`.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Malformed(NamedTuple):
    """A body that cannot be decoded, of a message whose other bodies can be. value: the message of it alone, for the
    dead letters. reason, detail: as of a MalformedError.
    """

    value: bytes
    reason: str
    detail: str


def single(decode: Callable[[bytes], Body]) -> Callable[[bytes], tuple[Body]]:
    """The decoder of a topic whose messages hold one body each, from what decodes that."""
    return lambda value: (decode(value),)
