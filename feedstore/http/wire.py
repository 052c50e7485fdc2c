"""The common part of all bodies: how an id, a time and a cursor are written, and the answers of every server.

Ids have 63 bits, and JavaScript's numbers 53: an id is a decimal string in every answer. A request may also give a JSON
number, as long as every client could have written it exactly. Times are numbers: ms fit for 280,000 years.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore.domain import ID_PATTERN
from feedstore.http.tokens import Scope
from feedstore.validation import words

MAX_EXACT = 2**53 - 1
"""The largest integer up to which JavaScript's numbers are exact."""
CURSOR_CHARS_MAX = 200

Id = Annotated[
    str,
    Meta(pattern=ID_PATTERN, description="1 to 2^63-1, in decimal", extra=words("an id from 1 to 2^63-1, in decimal")),
]
GivenId = Annotated[
    Id | Annotated[int, Meta(ge=1, le=MAX_EXACT, description="An id up to 2^53-1 may be a number")],
    Meta(extra=words("an id from 1 to 2^63-1 as decimal text, or one up to 2^53-1 as a number")),
]
Ms = Annotated[
    int, Meta(ge=1, le=MAX_EXACT, description="ms since 1970", extra=words("a time in ms since 1970, from 1 to 2^53-1"))
]
Cursor = Annotated[
    str, Meta(min_length=1, max_length=CURSOR_CHARS_MAX, description="The cursor of the page before; opaque")
]
Count = Annotated[int, Meta(ge=0)]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Token(msgspec.Struct, frozen=True):
    """The rights of a token's bearer; without a tokens file, those of this machine without one."""

    scopes: list[Scope]


class Health(msgspec.Struct, frozen=True):
    """worker: only if the worker of this process has stopped by itself, or a home in files has none: pages are served,
    and fall behind.
    """

    status: str = "ok"
    worker: Literal["stopped"] | UnsetType = UNSET
