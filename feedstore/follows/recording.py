"""The rules of recording an action, as pure functions from rows to rows."""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple, assert_never

import msgspec

from feedstore.domain import (
    MAX_SKEW_MS,
    Action,
    DeletePin,
    Follow,
    Followed,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    RespaceAsked,
    SavePin,
    Unfollow,
    Unfollowed,
)
from feedstore.follows.port import ActionRefusedError, FollowStoreUnavailableError
from feedstore.follows.shard import KIND_CODES, Changes, PinRow, Standing, Wanted

Answer = RecordedAction | ActionRefusedError


class _Refused(msgspec.Struct, frozen=True, tag_field="type", tag="refused"):
    """A refusal as it is kept under its key."""

    reason: str
    message: str


_encoder: Final = msgspec.json.Encoder()
_answers: Final[msgspec.json.Decoder[RecordedAction | _Refused]] = msgspec.json.Decoder(RecordedAction | _Refused)


class ShardRequest(NamedTuple):
    """A request on its way into a shard.

    position: the place of its answer among those of the call.
    fingerprint: of the action, if there is a key.
    refusal: the answer, if other shards have already refused the action. It then only has to be kept under the key.
    is_dated: as in the request.
    """

    position: int
    action: Action
    key: str | None = None
    fingerprint: bytes = b""
    refusal: ActionRefusedError | None = None
    is_dated: bool = True

    def has(self, stored: bytes) -> bool:
        """Whether a key with this fingerprint is that of this request. An earlier program put the time of a pin into it
        even if the client gave none.
        """
        return stored == self.fingerprint or (not self.is_dated and stored == fingerprint(self.action, is_dated=True))


def fingerprint(action: Action, *, is_dated: bool) -> bytes:
    """A digest of an action. Two requests with the same key must have the same one."""
    asked: object = action
    if not is_dated and isinstance(action, SavePin):
        asked = action.pin.pin, action.pin.owner, action.pin.board
    return hashlib.blake2b(_encoder.encode(asked), digest_size=16).digest()


def decode_answer(key: str, answer: bytes) -> Answer:
    """Reads an answer that was kept under a key. Raises FollowStoreUnavailableError if a newer program has kept it."""
    try:
        decoded = _answers.decode(answer)
    except msgspec.MsgspecError as error:
        raise FollowStoreUnavailableError(
            f"the answer under {key!r} cannot be read by this program: {error}: update it"
        ) from error
    return ActionRefusedError(decoded.reason, decoded.message) if isinstance(decoded, _Refused) else decoded


def _encode_answer(answer: Answer) -> bytes:
    if isinstance(answer, ActionRefusedError):
        return _encoder.encode(_Refused(answer.reason, str(answer)))
    return _encoder.encode(answer)


def key_reused(key: str) -> ActionRefusedError:
    return ActionRefusedError("key_reused", f"the key {key!r} was used for another action")


def foreign_board(pin: Pin, owner: int) -> ActionRefusedError:
    return ActionRefusedError(
        "board_of_another_owner", f"board {pin.board} belongs to user {owner}: user {pin.owner} cannot save on it"
    )


def refused_as_future(pin: Pin, now_ms: int) -> ActionRefusedError | None:
    """A pin dated too far ahead would sit on top of every feed (rule 8)."""
    if pin.created_ms <= now_ms + MAX_SKEW_MS:
        return None
    return ActionRefusedError(
        "pin_in_the_future",
        f"pin {pin.pin} is dated {(pin.created_ms - now_ms) / 1_000:,.0f} s in the future (created_ms"
        f" {pin.created_ms}, in ms since 1970); at most {MAX_SKEW_MS // 1_000} s are accepted",
    )


def with_trace(recorded: bytes, trace: str) -> bytes:
    """A recorded action as JSON, with the context of its trace as its member `trace`. Readers that do not know the
    member ignore it. A client that asks again with the same key gets the action without it.
    """
    return b'%s,"trace":%s}' % (recorded[:-1], _encoder.encode(trace))


# Recording
# --------------------------------------------------------------------------------------------------------------------


def wanted_by(items: Sequence[ShardRequest], *, boards: bool) -> Wanted:
    clocks: set[int] = set()
    pins: set[int] = set()
    boards_of_pins: set[int] = set()
    keys: set[str] = set()
    for _, action, key, *_ in items:
        match action:
            case Follow() | Unfollow():
                clocks.add(action.follower)
            case SavePin():
                pins.add(action.pin.pin)
                boards_of_pins.add(action.pin.board)
            case DeletePin():
                pins.add(action.pin)
            case _:
                assert_never(action)
        if key is not None:
            keys.add(key)
    return Wanted(clocks=list(clocks), boards=list(boards_of_pins) if boards else (), pins=list(pins), keys=list(keys))


def record(
    items: Sequence[ShardRequest], now_ms: int, standing: Standing, *, boards_here: bool
) -> tuple[Changes, list[Answer]]:
    """The changes and the answers of a batch on one shard. The items take effect in their order.

    boards_here: True if all boards are on this shard, and are claimed in this transaction; False if they are settled.
    """
    changes = Changes.none()
    answers: list[Answer] = []
    for item in items:
        key = item.key
        stored = None if key is None else standing.keys.get(key)
        answer: Answer
        if stored is not None and not item.has(stored[0]):
            answer = key_reused(key or "")
        elif stored is not None and stored[1] is not None:
            answer = decode_answer(key or "", stored[1])
        else:
            answer = item.refusal or _record_one(item, now_ms, standing, changes, boards_here=boards_here)
            if key is not None:
                standing.keys[key] = changes.keys[key] = (item.fingerprint, _encode_answer(answer))
        answers.append(answer)
    return changes, answers


def _record_one(item: ShardRequest, now_ms: int, standing: Standing, changes: Changes, *, boards_here: bool) -> Answer:
    action = item.action
    match action:
        case Follow() | Unfollow():
            return _record_edge(action, now_ms, standing, changes)
        case SavePin():
            refusal = refused_as_future(action.pin, now_ms) if item.is_dated else None
            if refusal is None and boards_here:
                refusal = _claim_board(action.pin, standing, changes)
            return refusal or _save(action.pin, now_ms, standing, changes, is_dated=item.is_dated)
        case DeletePin():
            return _delete(action.pin, now_ms, standing, changes)
        case _:
            assert_never(action)


def _record_edge(action: Follow | Unfollow, now_ms: int, standing: Standing, changes: Changes) -> Followed | Unfollowed:
    follower, followee = action.follower, action.followee
    # One clock per follower, across all edges (rule 2), even if the edge is already in that state.
    ts = max(now_ms, standing.clocks.get(follower, 0) + 1)
    standing.clocks[follower] = changes.clocks[follower] = ts
    recorded: Followed | Unfollowed
    if type(action) is Follow:
        recorded, active = Followed(follower, followee, ts, now_ms), 1
    else:
        recorded, active = Unfollowed(follower, followee, ts, now_ms), 0
    kind = KIND_CODES[followee.kind]
    changes.edges[follower, kind, followee.id] = (follower, kind, followee.id, ts, active, now_ms)
    changes.outbox.append(_encoder.encode(recorded))
    return recorded


def _claim_board(pin: Pin, standing: Standing, changes: Changes) -> ActionRefusedError | None:
    owner = standing.boards.get(pin.board)
    if owner is None:
        standing.boards[pin.board] = changes.boards[pin.board] = pin.owner
    return None if owner is None or owner == pin.owner else foreign_board(pin, owner)


def _save(pin: Pin, now_ms: int, standing: Standing, changes: Changes, *, is_dated: bool) -> Answer:
    stored = standing.pins.get(pin.pin)
    if stored is None:
        # The caller chose the time by its own clock, which may be ahead of the store's.
        created_ms = pin.created_ms if is_dated else min(pin.created_ms, now_ms)
        return _save_at(Pin(pin.pin, pin.owner, pin.board, created_ms), now_ms, standing, changes)
    _, owner, board, created_ms, saved_ms, deleted_ms = stored
    if (pin.owner, pin.board, pin.created_ms if is_dated else created_ms) != (owner, board, created_ms):
        return ActionRefusedError(
            "pin_differs",
            f"pin {pin.pin} is recorded with owner {owner}, board {board} and time {created_ms}: these never change",
        )
    if deleted_ms is not None:
        return ActionRefusedError("pin_deleted", f"pin {pin.pin} was deleted, and cannot be saved again")
    return PinSaved(_pin(stored), saved_ms)


def _save_at(pin: Pin, now_ms: int, standing: Standing, changes: Changes) -> PinSaved:
    recorded = PinSaved(pin, now_ms)
    row = (pin.pin, pin.owner, pin.board, pin.created_ms, now_ms, None)
    standing.pins[pin.pin] = changes.pins[pin.pin] = row
    changes.outbox.append(_encoder.encode(recorded))
    return recorded


def _delete(pin: int, now_ms: int, standing: Standing, changes: Changes) -> Answer:
    stored = standing.pins.get(pin)
    if stored is None:
        return ActionRefusedError("pin_unknown", f"pin {pin} was never saved")
    if stored[5] is not None:
        return PinDeleted(_pin(stored), stored[5])
    return _delete_at(stored, now_ms, standing, changes)


def _delete_at(stored: PinRow, now_ms: int, standing: Standing, changes: Changes) -> PinDeleted:
    recorded = PinDeleted(_pin(stored), now_ms, stored[4] if stored[4] > now_ms else 0)
    standing.pins[stored[0]] = changes.pins[stored[0]] = (*stored[:5], now_ms)
    changes.outbox.append(_encoder.encode(recorded))
    return recorded


def _pin(row: PinRow) -> Pin:
    return Pin(row[0], row[1], row[2], row[3])


# Claims: what other shards hold before an action commits
# --------------------------------------------------------------------------------------------------------------------


class Claims(NamedTuple):
    """What is claimed on one shard: boards for owners, keys for the fingerprints of actions. The first claim wins."""

    boards: dict[int, int]
    keys: dict[str, bytes]


def claim(claims: Claims, standing: Standing) -> tuple[Changes, Claims]:
    """Claims what is free. Returns the owners of the boards, and the fingerprints of the keys, as they are now."""
    changes = Changes.none()
    for board, owner in claims.boards.items():
        if board not in standing.boards:
            standing.boards[board] = changes.boards[board] = owner
    for key, wanted in claims.keys.items():
        if key not in standing.keys:
            standing.keys[key] = changes.keys[key] = (wanted, None)
    return changes, Claims(standing.boards, {key: row[0] for key, row in standing.keys.items()})


# Giving an action a new time (rule 8), and asking for refills
# --------------------------------------------------------------------------------------------------------------------


def wanted_to_redate(action: RecordedAction) -> Wanted:
    match action:
        case Followed(follower, followee) | Unfollowed(follower, followee):
            return Wanted(clocks=[follower], edges=[(follower, KIND_CODES[followee.kind], followee.id)])
        case PinSaved(pin) | PinDeleted(pin):
            return Wanted(pins=[pin.pin])
        case RefillAsked(user, cluster):
            return Wanted(refills=[(user, cluster or "")])
        case RespaceAsked():
            return Wanted()
        case _:
            assert_never(action)


def redate(action: RecordedAction, now_ms: int, standing: Standing) -> tuple[Changes, RecordedAction | None]:
    """The action with a new time, and the changes; None and no changes if a newer action has replaced it."""
    changes = Changes.none()
    again: RecordedAction | None = None
    match action:
        case Followed(follower, followee, ts) | Unfollowed(follower, followee, ts):
            active = type(action) is Followed
            edge = standing.edges.get((follower, KIND_CODES[followee.kind], followee.id))
            if edge is not None and edge[3:5] == (ts, active):
                asked = Follow(follower, followee) if active else Unfollow(follower, followee)
                again = _record_edge(asked, now_ms, standing, changes)
        case PinSaved(pin, committed_ms):
            row = (pin.pin, pin.owner, pin.board, pin.created_ms)
            if standing.pins.get(pin.pin) == (*row, committed_ms, None):
                again = _save_at(pin, now_ms, standing, changes)
        case PinDeleted(pin, committed_ms):
            stored = standing.pins.get(pin.pin)
            if stored is not None and stored[5] == committed_ms and _pin(stored) == pin:
                again = _delete_at(stored, now_ms, standing, changes)
        case RefillAsked(user, cluster, committed_ms):
            # If its record has expired, it is requested again. If there is a later request, that one counts.
            if standing.refills.get((user, cluster or ""), committed_ms) <= committed_ms:
                again = _ask(user, cluster, now_ms, changes)
        case RespaceAsked():
            pass  # it is never too old: re-spacing reads everything when it is done
        case _:
            assert_never(action)
    return changes, again


def ask_refills(
    users: Sequence[int], cluster: str | None, not_again_within_ms: int, now_ms: int, standing: Standing
) -> tuple[Changes, int | None]:
    """The changes, and the time if any refill was requested, else None."""
    changes = Changes.none()
    for user in users:
        asked_ms = standing.refills.get((user, cluster or ""))
        if asked_ms is None or now_ms - asked_ms >= not_again_within_ms:
            _ask(user, cluster, now_ms, changes)
    return changes, now_ms if changes.outbox else None


def _ask(user: int, cluster: str | None, now_ms: int, changes: Changes) -> RefillAsked:
    recorded = RefillAsked(user, cluster, now_ms)
    changes.refills[user, cluster or ""] = now_ms
    changes.outbox.append(_encoder.encode(recorded))
    return recorded
