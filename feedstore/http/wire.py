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
    Meta(
        pattern=ID_PATTERN,
        description="An id from 1 to 2^63-1, as decimal text",
        extra=words("an id from 1 to 2^63-1, in decimal"),
    ),
]
GivenId = Annotated[
    Id | Annotated[int, Meta(ge=1, le=MAX_EXACT, description="An id up to 2^53-1 may also be a number")],
    Meta(extra=words("an id from 1 to 2^63-1 as decimal text, or one up to 2^53-1 as a number")),
]
Ms = Annotated[
    int,
    Meta(
        ge=1,
        le=MAX_EXACT,
        description="A time in ms since 1970",
        extra=words("a time in ms since 1970, from 1 to 2^53-1"),
    ),
]
Cursor = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CURSOR_CHARS_MAX,
        description="The cursor that another page of the same list gave. Send it back unchanged",
    ),
]
Count = Annotated[int, Meta(ge=0)]


class Nothing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No parameters."""


class Token(msgspec.Struct, frozen=True):
    """What a request with this token may do. If the server has no tokens file: what a request from its own machine may
    do.
    """

    scopes: list[Scope]


class Health(msgspec.Struct, frozen=True):
    """The health of the server. worker: `stopped` if the worker of this process has stopped by itself, or if a home in
    files has no worker; otherwise it is absent. While it is `stopped`, pages are served, but new actions do not appear
    in them.
    """

    status: str = "ok"
    worker: Literal["stopped"] | UnsetType = UNSET
