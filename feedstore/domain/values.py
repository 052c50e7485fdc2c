"""Identifiers, followees, edges, pins and feed entries."""

import re
from typing import Final, Literal

import msgspec

from feedstore.validation import shown

MAX_ID = 2**63 - 1
"""The largest id or time: positive 63-bit integers fit signed integers in SQL and Java, and zero stays free."""

ID_PATTERN: Final = r"^[1-9][0-9]{0,18}$"
"""The pattern of an id as text."""
_matches_id = re.compile(ID_PATTERN, re.ASCII).fullmatch

RESERVED_FROM = MAX_ID - 4_095
"""Ids from here on belong to the canaries, and to no real user, board or pin: `refuse_reserved`."""

FolloweeKind = Literal["user", "board"]


class InvalidValueError(ValueError):
    """A value is invalid. The message names the field and shows the value.

    Attributes:
        field: the name of the field that was refused.
        value: the refused value.
    """

    def __init__(self, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}: expected {expected}, got {shown(value)}")
        self.field = field
        self.value = value


def check_id(field: str, value: object) -> None:
    """Raises InvalidValueError unless `value` is an int in 1..2^63-1; a bool is refused."""
    if type(value) is not int or not 0 < value <= MAX_ID:
        raise InvalidValueError(field, value, "an id from 1 to 2^63-1")


def id_of(field: str, given: str | int) -> int:
    """The id in a decimal text or a number. Raises InvalidValueError."""
    if isinstance(given, str):
        if _matches_id(given) is None:
            raise InvalidValueError(field, given, "an id from 1 to 2^63-1, in decimal")
        given = int(given)
    check_id(field, given)
    return given


def check_stamp(field: str, value: object) -> None:
    """Raises InvalidValueError unless `value` is a time that a cell may have: in whole ms since 1970, 1..2^63-2."""
    if type(value) is not int or not 0 < value < MAX_ID:
        raise InvalidValueError(field, value, "a time in ms since 1970, from 1 to 2^63-2")


def check_ms(field: str, value: object) -> None:
    """Raises InvalidValueError unless `value` is a time in whole ms since 1970, 1..2^63-1."""
    if type(value) is not int or not 0 < value <= MAX_ID:
        raise InvalidValueError(field, value, "a time in ms since 1970, from 1 to 2^63-1")


class Followee(msgspec.Struct, frozen=True, order=True):
    """What is followed: a user (every pin that they own) or a board (every pin on it)."""

    kind: FolloweeKind
    id: int

    def __post_init__(self) -> None:
        if self.kind in {"user", "board"} and type(self.id) is int and 0 < self.id <= MAX_ID:
            return  # values are made by the million: the usual case costs one expression
        if self.kind not in {"user", "board"}:
            raise InvalidValueError("followee.kind", self.kind, "'user' or 'board'")
        check_id(self.kind, self.id)

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


def user(user_id: int) -> Followee:
    return Followee("user", user_id)


def board(board_id: int) -> Followee:
    return Followee("board", board_id)


class Edge(msgspec.Struct, frozen=True):
    """The latest action of a follower on a followee: followed it (`active`), or unfollowed it (a tombstone).

    `ts` is a tick of the follower's clock: strictly larger than that of any earlier action of this follower (rule 2).
    It is the cell timestamp of everything that the edge delivers (rule 3).
    """

    follower: int
    followee: Followee
    ts: int
    active: bool

    def __post_init__(self) -> None:
        check_edge(self.follower, self.followee, self.ts)


def check_edge(follower: int, followee: Followee, ts: int) -> None:
    """Raises InvalidValueError unless these make an edge."""
    if type(follower) is type(ts) is int and 0 < follower <= MAX_ID and 0 < ts < MAX_ID and followee.id != follower:
        return  # the usual case, in one expression
    check_id("follower", follower)
    check_stamp("ts", ts)
    refuse_self_follow(follower, followee)


def refuse_self_follow(follower: int, followee: Followee) -> None:
    """Raises InvalidValueError if a user would follow themselves."""
    if followee.kind == "user" and followee.id == follower:
        raise InvalidValueError("followee", followee.id, "a user other than the follower")


class Pin(msgspec.Struct, frozen=True, gc=False):
    """A pin. Its owner, board and time never change. `created_ms` is its own time: it decides the order of feeds, and
    nothing else.
    """

    pin: int
    owner: int
    board: int
    created_ms: int

    def __post_init__(self) -> None:
        pin, owner, board_id, ms = self.pin, self.owner, self.board, self.created_ms
        if (
            type(pin) is type(owner) is type(board_id) is type(ms) is int
            and 0 < pin <= MAX_ID
            and 0 < owner <= MAX_ID
            and 0 < board_id <= MAX_ID
            and 0 < ms <= MAX_ID
        ):
            return  # the usual case, in one expression
        check_id("pin", self.pin)
        check_id("owner", self.owner)
        check_id("board", self.board)
        check_ms("created_ms", self.created_ms)

    def followees(self) -> tuple[Followee, Followee]:
        """The two followees whose followers get this pin: its owner, and its board."""
        return Followee("user", self.owner), Followee("board", self.board)


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of a feed; in JSON an array of its two numbers.

    Feeds are ordered newest `created_ms` first, ties by ascending `pin`.
    """

    pin: int
    created_ms: int
