"""The codec of the queue's messages: what is encoded comes back, and everything else is a MalformedError."""

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from feedstore.domain import (
    MAX_ID,
    Followed,
    Followee,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    Unfollowed,
)
from feedstore.follows.port import ROW_ACTIONS
from feedstore.follows.shard import outbox_rows
from workers.following.messages import (
    ACTIONS_A_MESSAGE,
    ACTIONS_BYTES,
    ACTIONS_VERSION,
    RANGE_VERSION,
    TICKS_VERSION,
    ActionMessage,
    Block,
    Delivery,
    DeliveryMessage,
    Hold,
    Parked,
    Purge,
    Range,
    RangeTask,
    Stray,
    Task,
    Ticks,
    decode_actions,
    decode_delivery,
    decode_parked,
    encode_action,
    encode_delivery,
    encode_parked,
    schemas,
    wrap_action,
    wrap_actions,
)
from workers.pipeline.ticks import Tick
from workers.queue.port import MAX_MESSAGE_BYTES, MAX_POLL_BYTES, Malformed, MalformedError

NUMBERS = st.integers(1, MAX_ID)
TIMES = st.integers(1, MAX_ID - 1)
SMALL = st.integers(0, 1_000)
CLUSTERS = st.none() | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
PINS = st.builds(Pin, pin=NUMBERS, owner=NUMBERS, board=NUMBERS, created_ms=NUMBERS)


@st.composite
def edges(draw: st.DrawFn, kind: type[Followed] | type[Unfollowed]) -> RecordedAction:
    follower = draw(NUMBERS)
    followee = draw(st.builds(Followee, kind=st.sampled_from(["user", "board"]), id=NUMBERS))
    if followee == Followee("user", follower):
        followee = Followee("board", follower)
    return kind(follower, followee, draw(TIMES), draw(TIMES))


ACTIONS: st.SearchStrategy[RecordedAction] = st.one_of(
    edges(Followed),
    edges(Unfollowed),
    st.builds(PinSaved, pin=PINS, committed_ms=TIMES),
    st.builds(PinDeleted, pin=PINS, committed_ms=TIMES),
    st.builds(RefillAsked, user=NUMBERS, cluster=CLUSTERS, committed_ms=TIMES),
)


@st.composite
def ranges(draw: st.DrawFn) -> RangeTask:
    followee = draw(st.builds(Followee, kind=st.just("user"), id=NUMBERS))
    pins = st.builds(Pin, pin=NUMBERS, owner=st.just(followee.id), board=NUMBERS, created_ms=NUMBERS)
    kind = draw(st.sampled_from([PinSaved, PinDeleted]))
    actions = draw(st.lists(st.builds(kind, pin=pins, committed_ms=TIMES), min_size=1, max_size=5))
    traces = [(number, "00-01") for number in range(len(actions)) if draw(st.booleans())]
    within = Range(followee, draw(st.integers(0, MAX_ID)), draw(NUMBERS))
    return RangeTask(within, actions, draw(CLUSTERS), draw(st.none() | NUMBERS), traces)


PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=4)
BLOCKS = st.lists(st.builds(Block, rows=PAIRS, pins=PAIRS), max_size=3)
PURGES = st.builds(
    lambda part, more, complete: Purge(part, part + more, complete), st.integers(1, 1_000), SMALL, st.booleans()
)
STRAYS = st.lists(
    st.builds(
        Stray,
        row=st.binary(min_size=9, max_size=9),
        ts=NUMBERS,
        columns=st.lists(st.binary(min_size=16, max_size=16), min_size=1, max_size=3),
    ),
    max_size=2,
)
TICKS = st.builds(lambda ms, source, more: Tick(ms, source, source + 1 + more), NUMBERS, SMALL, SMALL)
HOLDS = st.builds(
    lambda ms, more, cluster, kind: Hold(ms, min(ms + more, MAX_ID), cluster, kind),
    NUMBERS,
    SMALL,
    CLUSTERS,
    st.sampled_from(["put_off", "fanout"]),
)
DELIVERIES = st.builds(
    Delivery,
    action=ACTIONS,
    read_ms=NUMBERS,
    puts=BLOCKS,
    markers=BLOCKS,
    strays=STRAYS,
    purge=st.none() | PURGES,
    cluster=CLUSTERS,
)
PARKED = st.builds(
    Parked,
    cluster=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
    id=NUMBERS,
    due_ms=NUMBERS,
    delivery=DELIVERIES,
)
ACTION_MESSAGES: st.SearchStrategy[ActionMessage] = (
    st.builds(Task, action=ACTIONS, cluster=CLUSTERS, after_ms=st.none() | NUMBERS) | ranges() | TICKS
)
DELIVERY_MESSAGES: st.SearchStrategy[DeliveryMessage] = DELIVERIES | HOLDS | TICKS

PIN = Pin(11, 12, 13, 14)
FULL = Delivery(
    action=Unfollowed(1, Followee("user", 2), 3, 4),
    read_ms=5,
    puts=[Block([(6, 7)], [(8, 9)])],
    markers=[Block([(6, 7), (16, 17)], [(8, 9)])],
    purge=Purge(1, 2, complete=True),
    cluster="caf\u00e9",
)
"""A delivery with something in every field."""

SAMPLES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "follow": (encode_action(Task(Followed(1, Followee("board", 1), 3, 4))), decode_actions),
    "unfollow": (encode_action(Task(Unfollowed(1, Followee("user", 2), 3, 4))), decode_actions),
    "save": (encode_action(Task(PinSaved(PIN, 15))), decode_actions),
    "delete": (encode_action(Task(PinDeleted(PIN, 15))), decode_actions),
    "refill": (encode_action(Task(RefillAsked(1, "a", 2))), decode_actions),
    "sent back": (encode_action(Task(PinSaved(PIN, 15), "b", 16)), decode_actions),
    "range": (
        encode_action(
            RangeTask(
                Range(Followee("user", 12), 16, 17), [PinSaved(PIN, 15), PinDeleted(PIN, 18)], "b", 19, [(0, "x")]
            )
        ),
        decode_actions,
    ),
    "action tick": (encode_action(Tick(1, 0, 1)), decode_actions),
    "delivery": (encode_delivery(FULL), decode_delivery),
    "hold": (encode_delivery(Hold(1, 2)), decode_delivery),
    "hold of a fanout": (encode_delivery(Hold(1, 2, None, "fanout")), decode_delivery),
    "hold of one cluster": (encode_delivery(Hold(1, 2, "b")), decode_delivery),
    "delivery tick": (encode_delivery(Tick(1, 0, 1)), decode_delivery),
    "delivery ticks": (encode_delivery(Ticks([(0, 1), (2, 5)], 3, 4)), decode_delivery),
    "parked": (encode_parked(Parked("a", 18, 19, FULL)), decode_parked),
}


@pytest.fixture(params=SAMPLES)
def sample(request: pytest.FixtureRequest) -> tuple[bytes, Callable[[bytes], object]]:
    return SAMPLES[request.param]


def refused(decode: Callable[[bytes], object], value: bytes) -> str:
    """The reason that bytes are refused for; any other exception fails the test."""
    with pytest.raises(MalformedError) as error:
        decode(value)
    assert str(error.value), "an operator reads why"
    return error.value.reason


# What is encoded comes back, and is what the schemas say.

ACTION_SCHEMA = Draft202012Validator(schemas()["feed.actions.schema.json"])
DELIVERY_SCHEMA = Draft202012Validator(schemas()["feed.deliveries.schema.json"])
RETRY_SCHEMA = Draft202012Validator(schemas()["feed.retries.schema.json"])


@given(ACTION_MESSAGES)
def test_action_messages_come_back_and_the_schema_takes_them(message: ActionMessage) -> None:
    value = encode_action(message)
    assert decode_actions(value) == (message,)
    ACTION_SCHEMA.validate(json.loads(value))


@given(DELIVERY_MESSAGES)
def test_delivery_messages_come_back_and_the_schema_takes_them(message: DeliveryMessage) -> None:
    value = encode_delivery(message)
    assert decode_delivery(value) == message
    DELIVERY_SCHEMA.validate(json.loads(value))


@given(PARKED)
def test_parked_messages_come_back_and_the_schema_takes_them(message: Parked) -> None:
    value = encode_parked(message)
    assert decode_parked(value) == message
    RETRY_SCHEMA.validate(json.loads(value))


@pytest.mark.parametrize("document", [{}, {"v": 1}, {"v": 1, "body": {"type": "other"}}, {"v": "1", "body": {}}, []])
def test_the_schemas_refuse_what_is_no_message(document: object) -> None:
    assert not ACTION_SCHEMA.is_valid(document)
    assert not DELIVERY_SCHEMA.is_valid(document)
    assert not RETRY_SCHEMA.is_valid(document)


def test_a_message_is_an_object_of_a_version_and_a_body() -> None:
    assert json.loads(encode_delivery(Hold(1, 2))) == {"v": 1, "body": {"type": "hold", "since_ms": 1, "until_ms": 2}}


# Everything else is malformed.


def test_a_message_cut_anywhere_is_no_json(sample: tuple[bytes, Callable[[bytes], object]]) -> None:
    value, decode = sample
    for length in range(len(value)):
        assert refused(decode, value[:length]) == "not_json"


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document, the document itself first."""
    yield path
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


def at(document: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        document = document[key]
    return document


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    at(document, path[:-1])[path[-1]] = value
    return document


WRONG: dict[type, list[Any]] = {
    int: [None, "1", 1.0, 1.5, True, [], {}, [1], 2**64, -(2**64)],
    str: [None, 1, 1.5, False, [], {}, ["a"]],
    bool: [None, 0, 1, "true", [], {}],
    list: [None, 1, "x", True, {}, {"0": 1}],
    dict: [None, 1, "x", True, [], [1]],
}
INSIDE = (("body",), ("body", "delivery"))
"""The places of the fields of a delivery."""
OPTIONAL = {
    ("body", "action", "cluster"),
    ("cluster",),
    ("after_ms",),
    *((*place, name) for place in INSIDE for name in ("purge", "cluster", "after_ms")),
}
"""Fields in which null says something, but for the cluster that a message is parked for."""
UNBOUNDED = {
    ("body", "source"),
    ("body", "sources"),
    ("body", "partitions"),
    *(("body", "settled", number, 0) for number in range(2)),
    *((*place, "purge", "parts") for place in INSIDE),
}
"""Numbers that are not stored: they are large enough as they are."""
FROM_ZERO = {
    ("body", "source"),
    *(("body", "settled", number, 0) for number in range(2)),
    ("range", "after"),
    ("traces", 0, 0),
}


def is_parked_for(document: Any, path: tuple[Any, ...]) -> bool:
    return path == ("body", "cluster") and document["body"]["type"] == "parked"


def test_a_wrong_type_in_any_place_is_malformed(sample: tuple[bytes, Callable[[bytes], object]]) -> None:
    value, decode = sample
    document = json.loads(value)
    for path in places(document):
        for wrong in WRONG[type(at(document, path))]:
            if (wrong is None and path in OPTIONAL and not is_parked_for(document, path)) or (
                wrong == 2**64 and path in UNBOUNDED
            ):
                continue
            reason = refused(decode, json.dumps(replaced(document, path, wrong)).encode())
            another_version = path == ("v",) and type(wrong) is int
            assert reason == ("unknown_version" if another_version else "malformed"), (path, wrong)


def test_a_number_out_of_its_range_is_malformed(sample: tuple[bytes, Callable[[bytes], object]]) -> None:
    value, decode = sample
    document = json.loads(value)
    for path in places(document):
        if type(at(document, path)) is int and path != ("v",):
            for wrong in (-1, -(2**63), 2**63, 0):
                if (wrong == 0 and path in FROM_ZERO) or (wrong == 2**63 and path in UNBOUNDED):
                    continue
                assert refused(decode, json.dumps(replaced(document, path, wrong)).encode()) == "malformed", (
                    path,
                    wrong,
                )


def test_a_missing_field_is_malformed(sample: tuple[bytes, Callable[[bytes], object]]) -> None:
    value, decode = sample
    document = json.loads(value)
    optional = ("puts", "markers", "purge", "cluster", "after_ms", "kind")
    with_default = {(*place, name) for place in INSIDE for name in optional}
    with_default |= {("cluster",), ("after_ms",), ("traces",)}
    # What can be nothing else need not say what it is.
    with_default |= {("body", "delivery", "type")} | ({("body", "type")} if decode is decode_parked else set())
    for path in places(document):
        if path and isinstance(path[-1], str) and (path not in with_default or is_parked_for(document, path)):
            shorter = copy.deepcopy(document)
            del at(shorter, path[:-1])[path[-1]]
            assert refused(decode, json.dumps(shorter).encode()) == "malformed", path


def test_fields_that_this_version_does_not_know_are_ignored(sample: tuple[bytes, Callable[[bytes], object]]) -> None:
    """A newer worker may add fields within a version: an older one reads it all the same."""
    value, decode = sample
    document = json.loads(value)
    expected = decode(value)
    for path in places(document):
        if isinstance(at(document, path), dict):
            more = replaced(document, path, at(document, path) | {"added": {"deep": [1, None, 1.5, "x"]}})
            assert decode(json.dumps(more).encode()) == expected, path


def test_the_order_of_fields_and_white_space_say_nothing(sample: tuple[bytes, Callable[[bytes], object]]) -> None:
    value, decode = sample

    def backwards(document: Any) -> Any:
        if isinstance(document, dict):
            return {key: backwards(document[key]) for key in reversed(document)}
        return [backwards(item) for item in document] if isinstance(document, list) else document

    assert decode(json.dumps(backwards(json.loads(value)), indent=3).encode()) == decode(value)


@pytest.mark.parametrize("version", [0, 3, 4, -1, 2**70])
def test_another_version_is_named_whatever_it_holds(version: int) -> None:
    for body in (json.loads(SAMPLES["hold"][0])["body"], {"type": "yet to come"}, None, [1], "x"):
        value = json.dumps({"v": version, "body": body}).encode()
        assert refused(decode_delivery, value) == ("malformed" if version == TICKS_VERSION else "unknown_version")
        assert refused(decode_actions, value) == (
            "malformed" if version in {ACTIONS_VERSION, RANGE_VERSION} else "unknown_version"
        )
    if version != TICKS_VERSION:
        assert refused(decode_delivery, b'{"v": %d}' % version) == "unknown_version"


RECORDED = st.lists(ACTION_MESSAGES, max_size=30).map(
    lambda messages: [message.action for message in messages if isinstance(message, Task)]
)


def alone(*actions: bytes) -> list[tuple[int, bytes]]:
    """Rows of an outbox, each with one action."""
    return [(1, action) for action in actions]


@given(RECORDED, st.integers(1, 6))
def test_rows_of_many_actions_are_copied_and_come_back_in_their_order(actions: list[RecordedAction], cut: int) -> None:
    encoded = list(map(msgspec.json.encode, actions))
    rows = [(len(some), b",".join(some)) for some in (encoded[n : n + cut] for n in range(0, len(encoded), cut))]
    values = wrap_actions(rows)
    assert [body for value in values for body in decode_actions(value)] == [Task(action) for action in actions]
    assert len(values) == bool(actions)
    assert all(ACTION_SCHEMA.is_valid(json.loads(value)) for value in values)


def test_a_full_row_has_a_message_of_its_own() -> None:
    small = msgspec.json.encode(Followed(1, Followee("user", 2), 3, 4))
    full = next(outbox_rows([small] * ROW_ACTIONS))
    values = wrap_actions([(1, small), full, full, (1, small), (1, small)])
    assert [len(decode_actions(value)) for value in values] == [1, ROW_ACTIONS, ROW_ACTIONS, 2]
    assert values[0] == wrap_action(small)
    assert values[1] == b'{"v":2,"actions":[%s]}' % full[1]


def test_a_message_of_many_actions_is_bounded() -> None:
    largest = msgspec.json.encode(Followed(2**63 - 1, Followee("board", 2**63 - 1), 2**63 - 2, 2**63 - 2))
    values = wrap_actions(alone(largest) * 5_001)
    assert max(len(decode_actions(value)) for value in values) <= ACTIONS_A_MESSAGE
    assert max(map(len, values)) <= ACTIONS_BYTES + 1_000 < MAX_POLL_BYTES
    assert sum(len(decode_actions(value)) for value in values) == 5_001
    small = msgspec.json.encode(Followed(1, Followee("user", 2), 3, 4))
    assert [len(decode_actions(value)) for value in wrap_actions(alone(small) * 2_001)] == [2_000, 1]
    huge = wrap_actions(alone(largest, b'{"type":"yet to come","x":"%s"}' % (b"x" * ACTIONS_BYTES), largest))
    assert len(huge) == 3


@pytest.mark.parametrize(
    "newer",
    [
        b'{"type":"yet to come","x":[1,{"y":2}]}',
        b'{"type":"follow","follower":0,"followee":{"kind":"user","id":2},"ts":1,"committed_ms":1}',
        b"[]",
        b"7",
        b'{"type":"follow\xff"}',
    ],
)
def test_of_many_actions_the_unknown_one_is_malformed_alone(newer: bytes) -> None:
    known = msgspec.json.encode(Followed(1, Followee("user", 2), 3, 4))
    (value,) = wrap_actions(alone(known, newer, known))
    first, bad, last = decode_actions(value)
    assert first == last == Task(Followed(1, Followee("user", 2), 3, 4))
    assert isinstance(bad, Malformed)
    assert (bad.reason, bad.value) == ("malformed", wrap_action(newer))
    assert bad.detail
    # Sent again it is read by itself, and refused.
    assert refused(decode_actions, bad.value) in ("malformed", "not_json")


@pytest.mark.parametrize("damaged", [b'{"type":', b'1],"x":[2', b"1,2", b'{"a":1}}', b""])
def test_a_damaged_action_spoils_no_other(damaged: bytes) -> None:
    known = msgspec.json.encode(Followed(1, Followee("user", 2), 3, 4))
    values = wrap_actions(alone(known, damaged, known))
    assert decode_actions(values[0]) == decode_actions(values[2]) == (Task(Followed(1, Followee("user", 2), 3, 4)),)
    assert len(values) == 3
    refused(decode_actions, values[1])


def test_a_delivery_from_before_strays_has_none() -> None:
    older = json.loads(encode_delivery(FULL))
    older["body"].pop("strays", None)
    assert decode_delivery(json.dumps(older).encode()).strays == []  # type: ignore[union-attr]


def test_a_message_of_the_other_topic_is_malformed() -> None:
    assert refused(decode_actions, encode_delivery(FULL)) == "malformed"
    assert refused(decode_actions, encode_delivery(Hold(1, 2))) == "malformed"
    assert refused(decode_parked, encode_delivery(FULL)) == "malformed"
    assert refused(decode_delivery, SAMPLES["parked"][0]) == "malformed"
    assert refused(decode_delivery, SAMPLES["follow"][0]) == "malformed"


def test_the_largest_message_is_read_and_one_byte_more_is_oversized() -> None:
    value = encode_delivery(FULL)
    largest = value + b" " * (MAX_MESSAGE_BYTES - len(value))
    assert decode_delivery(largest) == FULL
    assert refused(decode_delivery, largest + b" ") == "oversized"
    assert refused(decode_actions, bytes(10_000_000)) == "oversized"


def _with_action(action: str) -> bytes:
    return b'{"v":1,"body":{"type":"task","action":%s}}' % action.encode()


HOLD = '{"v":1,"body":{"type":"hold","since_ms":%s,"until_ms":2}}'
DEEP = 400_000


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        pytest.param(b"", "not_json", id="empty"),
        pytest.param(b"\x00", "not_json", id="zero byte"),
        pytest.param(b"\xef\xbb\xbf" + SAMPLES["hold"][0], "not_json", id="byte order mark"),
        pytest.param(SAMPLES["hold"][0].decode().encode("utf-16"), "not_json", id="UTF-16"),
        pytest.param(SAMPLES["hold"][0] + b"{}", "not_json", id="two messages"),
        pytest.param(SAMPLES["hold"][0] + b"\x00", "not_json", id="trailing byte"),
        pytest.param((HOLD % "NaN").encode(), "not_json", id="NaN"),
        pytest.param((HOLD % "Infinity").encode(), "not_json", id="Infinity"),
        pytest.param((HOLD % "01").encode(), "not_json", id="leading zero"),
        pytest.param((HOLD % "1e400").encode(), "malformed", id="number out of range"),
        pytest.param((HOLD % ("9" * 10_000)).encode(), "malformed", id="very long number"),
        pytest.param(encode_delivery(FULL).replace("\u00e9".encode(), b"\xff"), "not_json", id="not UTF-8"),
        pytest.param(encode_delivery(FULL).replace("\u00e9".encode(), b"\xe9"), "not_json", id="Latin-1"),
        pytest.param(encode_delivery(FULL).replace("\u00e9".encode(), rb"\ud800"), "not_json", id="lone surrogate"),
        pytest.param(b'{"v":1,"\xff":1}', "malformed", id="not UTF-8 in a name"),
        pytest.param(b"[" * DEEP, "malformed", id="deep array"),
        pytest.param(b'{"v":1,"body":' + b"[" * DEEP, "malformed", id="deep body"),
        pytest.param(b'{"v":1,"body":' + b"[" * DEEP + b"]" * DEEP + b"}", "malformed", id="deep whole body"),
        pytest.param(b'{"v":1,"added":' + b"[" * DEEP + b"]" * DEEP + b"}", "not_json", id="deep unknown field"),
        pytest.param(b'{"v":1,"added":' + b'{"a":' * (DEEP // 4), "not_json", id="deep objects"),
    ],
)
def test_odd_bytes_have_their_reason(value: bytes, reason: str) -> None:
    assert refused(decode_delivery, value) == reason


@pytest.mark.parametrize(
    "action",
    [
        '{"type":"follow","follower":1,"followee":{"kind":"user","id":1},"ts":1,"committed_ms":1}',
        '{"type":"unfollow","follower":1,"followee":{"kind":"user","id":1},"ts":1,"committed_ms":1}',
        '{"type":"follow","follower":-1,"followee":{"kind":"user","id":1},"ts":1,"committed_ms":1}',
        '{"type":"follow","follower":1,"followee":{"kind":"planet","id":2},"ts":1,"committed_ms":1}',
        '{"type":"follow","follower":1,"followee":{"kind":"user","id":2},"ts":0,"committed_ms":1}',
        '{"type":"follow","follower":1,"followee":{"kind":"user","id":2},"ts":9223372036854775807,"committed_ms":1}',
        '{"type":"unfollow","follower":1,"followee":{"kind":"user","id":2},"ts":1,"committed_ms":9223372036854775807}',
        '{"type":"delete_pin","pin":{"pin":1,"owner":1,"board":1,"created_ms":1},"committed_ms":9223372036854775807}',
        '{"type":"refill","user":1,"cluster":"","committed_ms":1}',
        '{"type":"refill","user":-5,"cluster":null,"committed_ms":1}',
        '{"type":"explode"}',
        '{"type":null}',
        '{"type":1}',
        "{}",
    ],
)
def test_an_action_that_cannot_be_is_malformed(action: str) -> None:
    assert refused(decode_actions, _with_action(action)) == "malformed"


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("purge", {"part": 3, "parts": 2, "complete": False}),
        ("puts", [[[], [[1, 1]]]]),
        ("puts", [[[[1, 1]], []]]),
        ("puts", [[[[1, 1]]]]),
        ("puts", [[[[1]], [[1, 1]]]]),
        ("puts", [[[[1, 1, 1]], [[1, 1]]]]),
        ("puts", [[[[1, 1]] * 1_000_000, [[1, 1]]]]),
        ("markers", [[[[1, 1]] * 10_001, [[1, 1]]]]),
        ("markers", [[[[1, 1]] * 1_000, [[1, 1]] * 1_000]]),
    ],
)
def test_a_delivery_that_cannot_be_is_malformed(field: str, wrong: object) -> None:
    value = json.dumps(replaced(json.loads(encode_delivery(FULL)), ("body", field), wrong)).encode()
    assert refused(decode_delivery, value) == ("oversized" if len(value) > MAX_MESSAGE_BYTES else "malformed")


def _delivery(fields: str) -> str:
    refill = '{"type":"refill","user":1,"cluster":null,"committed_ms":1}'
    return f'{{"v":1,"body":{{"type":"delivery","action":{refill}{fields}}}}}'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "it ends too early"),
        ("[]", "expected an object, got a list of 0"),
        (
            '{"v":1,"body":{"type":"explode"}}',
            "body.type: expected 'delivery', 'hold', 'tick', 'ticks' or 'pack', got 'explode'",
        ),
        (
            '{"v":1,"body":{"type":"hold","since_ms":"1","until_ms":2}}',
            "body.since_ms: expected a whole number from 1 to",
        ),
        (_delivery(""), "body.read_ms: expected a whole number from 1 to"),
        (
            _delivery(',"read_ms":1,"puts":[[[[1,1]],[[1,1],[0,1]]]]'),
            "body.puts[0][1][1][0]: expected a whole number from 1 to 9223372036854775807, got 0",
        ),
        (
            _delivery(',"read_ms":1,"strays":[["AAAA",1,["AAAA"]]]'),
            "body.strays[0][0]: expected base64",
        ),
    ],
)
def test_what_is_wrong_is_said_in_plain_words(value: str, words: str) -> None:
    with pytest.raises(MalformedError) as error:
        decode_delivery(value.encode())
    assert str(error.value).startswith(words)


def test_an_unknown_kind_of_action_is_named_with_those_that_are_known() -> None:
    with pytest.raises(MalformedError, match=r"body\.action\.type: expected 'follow', .* got 'explode'"):
        decode_actions(_with_action('{"type":"explode"}'))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(value: bytes) -> None:
    refused(decode_actions, value)
    refused(decode_delivery, value)
    refused(decode_parked, value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["v", "body", "type", "x"]), inner),
    max_leaves=10,
)


@given(JSON)
def test_random_json_is_refused(document: object) -> None:
    value = json.dumps(document).encode()
    refused(decode_actions, value)
    refused(decode_delivery, value)


@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_a_damaged_message_is_read_or_refused(name: str, data: st.DataObject) -> None:
    """A changed digit is still a message; nothing but MalformedError ever comes out."""
    value, decode = SAMPLES[name]
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedError):
        decode(bytes(damaged))
