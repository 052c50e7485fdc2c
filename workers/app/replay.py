"""Replay records a history, in JSON lines, in the follow store.

    {"type": "follow", "ts": 1341100972000, "follower": 1, "user": 2}
    {"type": "unfollow", "ts": 1341100973000, "follower": 1, "board": 8}
    {"type": "save_pin", "ts": 1341100974000, "pin": 7, "owner": 2, "board": 8}
    {"type": "delete_pin", "ts": 1341100975000, "pin": 7}
    {"type": "reorder_pin", "ts": 1341100976000, "board": 8, "pin": 7, "before": 5, "after": 3}

A reorder names the pin above the new place (`before`), the one below it (`after`), or both; or `"to"`: `"top"` or
`"bottom"`. It sees what earlier lines recorded, whether that is expanded or not.

A pin keeps its recorded time. Everything else gets the store's clock, in the order of the lines: a marker's age is
counted by its timestamp, so that one dated in the past would be purged at once (rule 2).
"""

import itertools
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final, Literal, Protocol, assert_never

import msgspec
from msgspec import Meta

from feedstore import validation
from feedstore.boards import BoardCrowdedError, Boards, Move, Placed, ReorderRefusedError
from feedstore.domain import (
    MAX_ID,
    RESERVED_FROM,
    Action,
    DeletePin,
    Follow,
    Followee,
    InvalidValueError,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    SavePin,
    Unfollow,
)
from feedstore.follows.port import ActionRefusedError, FollowStoreUnavailableError, Request
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks
from feedstore.validation import words

MAX_LINE_BYTES: Final = 65_536
BATCH: Final = 10_000
"""The most actions that one call of the follow store records: in SQLite they are one transaction, for which other
processes that record wait.
"""

HELD: Final = 1_000_000
"""The most pins that are remembered, in 8 MB, until a reorder needs them on their boards. If none comes, their handlers
alone enter them: a replay that does it, too, takes 1.4 times as long.
"""

_READ_BYTES: Final = 655_360
"""A block of a file: some 9,000 lines, which are recorded together."""

_Ts = Annotated[int, Meta(ge=1, le=MAX_ID, extra=words("a time in ms since 1970, from 1 to 2^63-1"))]
_Id = Annotated[
    int,
    Meta(
        ge=1,
        lt=RESERVED_FROM,
        extra=words(
            f"an id from 1 to {RESERVED_FROM - 1}, as a number (from {RESERVED_FROM} on they are the canaries')"
        ),
    ),
]
"""The ids that `refuse_reserved` permits, checked at no cost by the decoder: there are millions of lines."""


class _Line(msgspec.Struct, forbid_unknown_fields=True, tag_field="type"):
    ts: _Ts


class _Edge(_Line):
    follower: _Id
    user: _Id | None = None
    board: _Id | None = None


class _Follow(_Edge, tag="follow"):
    def request(self) -> Request:
        return Request(Follow(self.follower, _followee(self.user, self.board)))


class _Unfollow(_Edge, tag="unfollow"):
    def request(self) -> Request:
        return Request(Unfollow(self.follower, _followee(self.user, self.board)))


class _SavePin(_Line, tag="save_pin"):
    pin: _Id
    owner: _Id
    board: _Id

    def request(self) -> Request:
        return Request(SavePin(Pin(self.pin, self.owner, self.board, self.ts)))


class _DeletePin(_Line, tag="delete_pin"):
    pin: _Id

    def request(self) -> Request:
        return Request(DeletePin(self.pin))


class _ReorderPin(_Line, tag="reorder_pin"):
    board: _Id
    pin: _Id
    before: _Id | None = None
    after: _Id | None = None
    to: Literal["top", "bottom"] | None = None

    def request(self) -> Move:
        return Move(self.board, self.pin, self.before, self.after, self.to)


_decoder: Final = msgspec.json.Decoder(_Follow | _Unfollow | _SavePin | _DeletePin | _ReorderPin)
_decode: Final = _decoder.decode


def line(action: Action, ts: int) -> dict[str, object]:
    """The line of an action, before it is encoded. ts: the time of an action that has none of its own."""
    match action:
        case Follow(follower, followee):
            return {"type": "follow", "ts": ts, "follower": follower, followee.kind: followee.id}
        case Unfollow(follower, followee):
            return {"type": "unfollow", "ts": ts, "follower": follower, followee.kind: followee.id}
        case SavePin(pin):
            return {"type": "save_pin", "ts": pin.created_ms, "pin": pin.pin, "owner": pin.owner, "board": pin.board}
        case DeletePin(pin):
            return {"type": "delete_pin", "ts": ts, "pin": pin}
        case _:
            assert_never(action)


@lru_cache(maxsize=65_536)
def _followee(user: int | None, board: int | None) -> Followee:
    if user is not None and board is None:
        return Followee("user", user)
    if board is not None and user is None:
        return Followee("board", board)
    raise InvalidValueError("followee", {"user": user, "board": board}, "either a user or a board")


class ByteStream(Protocol):
    """A binary stream. `read1` returns the bytes that there are, at most `size`, and waits only for the first."""

    def read1(self, size: int, /) -> bytes: ...


@dataclass
class Replayed:
    """The counts of a replay: lines that were read, bad lines among them, and recorded actions and reorders."""

    lines: int = 0
    bad: int = 0
    recorded: int = 0


class InterruptedReplayError(Exception):
    """A replay stopped before its end: continue with line `next_line`. Every line before that one is recorded, or was
    reported as bad; up to a batch of lines from there on may be recorded too.
    """

    def __init__(self, next_line: int, cause: str) -> None:
        super().__init__(cause)
        self.next_line = next_line


def replay(
    source: ByteStream,
    follows: FollowStore,
    boards: Boards,
    *,
    from_line: int = 1,
    bad_line: Callable[[int, str], None],
    progress: Callable[[Replayed, int], None],
) -> Replayed:
    """Records every line from `from_line` on.

    bad_line: is told the number of each line that could not be recorded, and why; the others are recorded.
    progress: is told now and then what was done so far, and how many bytes were read.

    Raises InterruptedReplayError: the follow store is unavailable, a board is crowded, the source cannot be read, or a
    signal came.
    """
    done = Replayed()
    bytes_read = 0
    entering = _Entering(follows)

    def bad(number: int, reason: str) -> None:
        done.bad += 1
        bad_line(number, reason)

    try:
        for first, lines, size in _blocks(source):
            bytes_read += size
            skip = min(max(0, from_line - first), len(lines))
            # A replay that stopped before `from_line` may not have entered what it had recorded.
            entering.note(_requests(lines[:skip], first, lambda *_: None)[1])
            numbers, requests = _requests(lines[skip:], first + skip, bad)
            for batch, asked in _batches(numbers, requests):
                done.lines = batch[0] - 1
                answers: Sequence[RecordedAction | ActionRefusedError | Placed | ReorderRefusedError]
                if isinstance(asked, Move):
                    entering.enter()
                    answers = _reorder(boards, asked)
                else:
                    answers = follows.record(asked)
                    entering.note(asked)
                done.recorded += len(batch)
                for number, answer in zip(batch, answers, strict=True):
                    if isinstance(answer, ActionRefusedError | ReorderRefusedError):
                        done.recorded -= 1
                        bad(number, f"{answer.reason}: {answer}")
                done.lines = batch[-1]
                progress(done, bytes_read)
            done.lines = first + len(lines) - 1
    except (FollowStoreUnavailableError, OSError) as error:
        raise InterruptedReplayError(max(done.lines + 1, from_line), str(error)) from error
    except BoardCrowdedError as error:
        cause = f"{error}; a worker makes room: feedctl work"
        raise InterruptedReplayError(max(done.lines + 1, from_line), cause) from error
    except KeyboardInterrupt as error:
        raise InterruptedReplayError(max(done.lines + 1, from_line), "interrupted by a signal") from error
    progress(done, bytes_read)
    return done


class _Entering:
    """Enters pins and deletions on their boards, as their handlers do: a reorder sees only what is there. It does no
    harm that the handlers do it again. If a crash comes first, they alone do it.
    """

    def __init__(self, follows: FollowStore) -> None:
        self._follows = follows
        self._pins = array("q")

    def note(self, requests: Sequence[Request | Move]) -> None:
        """Remembers the pins of these requests, some of which may have been refused."""
        for request in requests:
            if isinstance(request, Request):
                match request.action:
                    case SavePin(pin):
                        self._pins.append(pin.pin)
                    case DeletePin(number):
                        self._pins.append(number)
        if len(self._pins) > HELD:
            self.enter()

    def enter(self) -> None:
        """Enters the pins as their records are now."""
        for some in chunks(self._pins, BATCH):
            states = self._follows.pins(some).values()
            self._follows.index(
                pins=[PinSaved(each.pin, each.saved_ms) for each in states if each.deleted_ms is None],
                deletions=[PinDeleted(each.pin, each.deleted_ms) for each in states if each.deleted_ms is not None],
            )
        del self._pins[:]


def _reorder(boards: Boards, move: Move) -> list[Placed | ReorderRefusedError]:
    try:
        return [boards.reorder(move)]
    except ReorderRefusedError as error:
        return [error]


def _batches(
    numbers: Sequence[int], requests: Sequence[Request | Move]
) -> Iterator[tuple[Sequence[int], list[Request] | Move]]:
    """Yields the requests in the order of their lines, with the lines' numbers: up to BATCH actions, or one reorder."""
    start = 0
    while start < len(requests):
        actions: list[Request] = []
        for each in itertools.islice(requests, start, start + BATCH):
            if isinstance(each, Move):
                break
            actions.append(each)
        if actions:
            yield numbers[start : start + len(actions)], actions
        start += len(actions)
        if start < len(requests) and isinstance(move := requests[start], Move):
            yield numbers[start : start + 1], move
            start += 1


def _requests(
    lines: Sequence[bytes], first: int, bad: Callable[[int, str], None]
) -> tuple[Sequence[int], Sequence[Request | Move]]:
    """The requests of lines, with their numbers. Only if a line is bad, each line is tried by itself."""
    try:
        return range(first, first + len(lines)), [_decode(line).request() for line in lines]
    except (msgspec.MsgspecError, InvalidValueError, UnicodeDecodeError, RecursionError):
        numbers: list[int] = []
        requests: list[Request | Move] = []
        for number, request in _good(lines, first, bad):
            numbers.append(number)
            requests.append(request)
        return numbers, requests


def _good(lines: Sequence[bytes], first: int, bad: Callable[[int, str], None]) -> Iterator[tuple[int, Request | Move]]:
    for number, line in enumerate(lines, first):
        if line is _OVERSIZED:
            bad(number, f"more than {MAX_LINE_BYTES} bytes")
        elif line and not line.isspace():
            try:
                yield number, _decode(line).request()
            except msgspec.ValidationError as error:
                bad(number, str(validation.of_json(error, line, _decoder.type)))
            except InvalidValueError as error:
                bad(number, str(error))
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                bad(number, f"not JSON: {validation.malformed(error, line)}")


_OVERSIZED: Final = b"an oversized line"
"""Replaces a line that was too long. It is not JSON, so it never counts as a good line."""


def _blocks(source: ByteStream) -> Iterator[tuple[int, list[bytes], int]]:
    """Yields (number of the first line, whole lines, bytes read). Memory: _READ_BYTES and MAX_LINE_BYTES at most."""
    number = 1
    rest = b""
    oversized = False
    while data := source.read1(_READ_BYTES):
        *lines, rest = (rest + data).split(b"\n")
        if oversized and lines:
            lines[0] = _OVERSIZED
            oversized = False
        if len(rest) > MAX_LINE_BYTES:
            oversized = True
        if oversized:
            rest = b""
        yield number, _bounded(lines), len(data)
        number += len(lines)
    if rest or oversized:
        yield number, _bounded([_OVERSIZED if oversized else rest]), 0


def _bounded(lines: list[bytes]) -> list[bytes]:
    if lines and max(map(len, lines)) > MAX_LINE_BYTES:
        return [line if len(line) <= MAX_LINE_BYTES else _OVERSIZED for line in lines]
    return lines
