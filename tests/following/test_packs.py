"""Packs: what deliveries say, in columns."""

import base64
import contextlib
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from feedstore.domain import (
    MAX_ID,
    Followed,
    Pin,
    PinDeleted,
    PinSaved,
    RecordedAction,
    RefillAsked,
    Unfollowed,
    board,
    user,
)
from feedstore.following import MAX_CHUNK, bucket, columns, mutations, row_key
from feedstore.widecolumn import DeleteCells, PutCells, Table
from feedstore.widecolumn.checks import check_batch
from tests.queue.memory_queue import MemoryDeadLetters, MemoryQueue
from tests.slots import EachAlone
from tests.widecolumn.written import cells_in
from workers.following.messages import (
    PACK_CELLS,
    Block,
    Column,
    Delivery,
    Hold,
    Packed,
    Purge,
    Stray,
    encode_delivery,
    schemas,
)
from workers.following.packs import Pack, cell_mutations, column, decode_bodies, encode_body, packed, unpacked
from workers.following.redeliver import redeliver
from workers.following.topics import DELIVERIES
from workers.pipeline.retry import RetryPolicy
from workers.pipeline.spec import StageSpec
from workers.pipeline.stage import Stage
from workers.pipeline.ticks import Tick
from workers.queue.port import MAX_MESSAGE_BYTES, MalformedError, Topic, decoded, single

NUMBERS = st.integers(1, 300) | st.integers(1, MAX_ID - 1)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5)
BLOCKS = st.lists(st.builds(Block, rows=PAIRS, pins=PAIRS), min_size=1, max_size=3)
PINS = st.builds(Pin, pin=NUMBERS, owner=NUMBERS, board=NUMBERS, created_ms=NUMBERS)


@st.composite
def actions(draw: st.DrawFn) -> RecordedAction:
    kind = draw(st.integers(0, 5))
    committed_ms = draw(NUMBERS)
    match kind:
        case 0 | 1:
            follower, followee = draw(NUMBERS), draw(NUMBERS)
            return Followed(
                follower,
                board(followee) if kind or follower == followee else user(followee),
                draw(NUMBERS),
                committed_ms,
            )
        case 2:
            return PinSaved(draw(PINS), committed_ms)
        case 3:
            return PinDeleted(draw(PINS), committed_ms)
        case _:
            return RefillAsked(draw(NUMBERS), None if kind == 4 else "b", committed_ms)


@st.composite
def deliveries(draw: st.DrawFn) -> Delivery:
    action = draw(actions())
    cluster = "b" if isinstance(action, RefillAsked) and action.cluster else draw(st.sampled_from([None, None, "b"]))
    puts, markers = (draw(BLOCKS), []) if draw(st.booleans()) else ([], draw(BLOCKS))
    return Delivery(action, draw(st.integers(1, 3)), puts, markers, cluster=cluster)


Cell = tuple[RecordedAction, int, str | None, bool, int, int, int, int]


def decode_body(value: bytes) -> Any:
    (body,) = decode_bodies(value)
    return body


def cells_of(message: object) -> list[Cell]:
    """Every cell that a message says, with all that it says of it."""
    if isinstance(message, Pack):
        return [cell for delivery in message.deliveries() for cell in cells_of(delivery)]
    assert isinstance(message, Delivery)
    return [
        (message.action, message.read_ms, message.cluster, marker, user_id, ts, pin, created_ms)
        for marker, blocks in ((False, message.puts), (True, message.markers))
        for block in blocks
        for user_id, ts in block.rows
        for pin, created_ms in block.pins
    ]


def sent(messages: Sequence[Delivery]) -> list[Any]:
    """What a writer gets of deliveries that an expander publishes."""
    return [decode_body(encode_delivery(message)) for message in packed(messages)]


def all_cells(messages: Sequence[object]) -> list[Cell]:
    return sorted((cell for message in messages for cell in cells_of(message)), key=repr)


@given(st.lists(deliveries(), max_size=8))
def test_what_is_packed_comes_back(messages: list[Delivery]) -> None:
    got = sent(messages)

    assert all(isinstance(each, Pack) for each in got)
    assert all_cells(got) == all_cells(messages)


@given(st.lists(deliveries(), min_size=1, max_size=8))
def test_a_pack_writes_the_cells_of_its_deliveries(messages: list[Delivery]) -> None:
    packs = [each for each in sent(messages) if isinstance(each, Pack)]
    found = cell_mutations(packs)
    written = sorted((type(each) is DeleteCells, *cell) for each in found for cell in cells_in(each))

    check_batch(Table("feeds", 9, 16, None, 1), found)  # shapes, byte order, contiguity
    assert written == sorted(
        (marker, row_key(user_id), columns([(pin, created_ms)])[0], ts)
        for _, _, _, marker, user_id, ts, pin, created_ms in all_cells(messages)
    )
    assert sum(pack.cells() for pack in packs) == len(written)


# Parts of a pack together do what the pack does.


@given(st.lists(deliveries(), min_size=1, max_size=8))
def test_halves_together_are_the_whole_and_end_as_deliveries_of_one_block(messages: list[Delivery]) -> None:
    got = sent(messages)
    waiting, ended = list(got), list[object]()
    while waiting:
        body = waiting.pop()
        if isinstance(body, Pack) and (halves := body.halves()) is not None:
            waiting += halves
        else:
            ended.append(body)

    assert all(len(each.puts) + len(each.markers) == 1 for each in ended if isinstance(each, Delivery))
    assert all_cells(ended) == all_cells(messages)


def buckets_of(message: object) -> set[int]:
    return {bucket(user_id) for _, _, _, _, user_id, _, _, _ in cells_of(message)}


@given(st.lists(deliveries(), min_size=1, max_size=6), st.integers(0, 2**32))
def test_a_pack_is_divided_by_the_buckets_of_its_rows(messages: list[Delivery], seed: int) -> None:
    for pack in sent(messages):
        assert pack.buckets == buckets_of(pack)
        buckets = sorted(pack.buckets)
        if len(buckets) > 1:
            some = frozenset(random.Random(seed).sample(buckets, random.Random(seed).randrange(1, len(buckets))))
            inside, outside = pack.divided(some)

            assert buckets_of(inside) == some
            assert buckets_of(outside) == pack.buckets - some
            assert all_cells([inside, outside]) == all_cells([pack])


@given(st.lists(deliveries(), min_size=1, max_size=6), st.integers(0, 2**32))
def test_a_part_travels_as_a_message_of_its_own(messages: list[Delivery], seed: int) -> None:
    for pack in sent(messages):
        rng = random.Random(seed)
        parts = [pack.divided(frozenset([rng.choice(sorted(pack.buckets))]))[0]] if len(pack.buckets) > 1 else [pack]
        for part in [*parts, *(pack.halves() or ())]:
            again = decode_body(encode_body(part))
            assert all_cells([again]) == all_cells([part])
            if isinstance(part, Pack):
                assert isinstance(again, Pack)
                assert again.actions.shape[1] == len(set(part.recorded()))
                assert set(part.recorded()) == {action for action, *_ in cells_of(part)}


@given(st.lists(deliveries(), min_size=1, max_size=6), st.integers(0, 2**32))
def test_parts_of_parts_need_what_their_blocks_need(messages: list[Delivery], seed: int) -> None:
    rng = random.Random(seed)
    for part in sent(messages):
        while isinstance(part, Pack):
            assert part.buckets == buckets_of(part)
            assert part.cells() == len(cells_of(part))
            by_rows = len(part.buckets) > 1 and rng.random() < 0.5
            parts = part.divided(frozenset([rng.choice(sorted(part.buckets))])) if by_rows else part.halves()
            part = None if parts is None else rng.choice(parts)  # noqa: PLW2901 - ever smaller


# What travels


def block(rows: int, first: int = 1) -> Block:
    return Block([(first + number, 7) for number in range(rows)], [(9, 8)])


def saved(pin: int) -> PinSaved:
    return PinSaved(Pin(pin, 2, 3, 4), 5)


def test_a_pack_holds_no_more_than_its_bound_and_little_is_kept() -> None:
    kept: list[int] = []

    def many() -> Any:
        for pin in range(1, 101):
            kept.append(pin)
            yield Delivery(saved(pin), 6, [block(MAX_CHUNK)])

    made = [decode_body(encode_delivery(each)) for each in packed(many())]
    assert [each.cells() for each in made if isinstance(each, Pack)] == [PACK_CELLS] * 10
    kept.clear()
    next(packed(many()))
    assert len(kept) == 11, "a pack goes out as soon as it is full"


def test_a_pack_of_actions_that_are_all_traced_is_no_larger_than_a_message() -> None:
    """A queue refuses larger ones, and the work that made them would be done again in halves."""
    rng, now_ms = random.Random(1), 1_790_000_000_000

    def number() -> int:
        return rng.randrange(1, MAX_ID)

    deliveries = []
    for each in range(PACK_CELLS):
        pin = Pin(number(), number(), number(), rng.randrange(now_ms - 10**12, now_ms))
        block = Block([(number(), now_ms - rng.randrange(10**12))], [(pin.pin, pin.created_ms)])
        trace = f"{number():032x}-{number():016x}-01"
        deliveries.append(Delivery(PinSaved(pin, now_ms - each), now_ms, [block], trace=trace))
    messages = [encode_delivery(each) for each in packed(deliveries)]
    assert max(map(len, messages)) < MAX_MESSAGE_BYTES
    read = [each for message in messages for each in cast_pack(decode_body(message)).deliveries()]
    assert [each.trace for each in read] == [each.trace for each in deliveries]


def test_blocks_share_their_rows_and_pins() -> None:
    """As the pins of one owner do, and the followers of one followee."""
    to_many = Block([(user_id, 7) for user_id in range(1, 101)], [(1, 2)])
    pins = [(pin, 2) for pin in range(1, 101)]
    (message,) = packed(
        [
            *(Delivery(saved(pin), 6, [Block(to_many.rows, [(pin, 4)])]) for pin in range(1, 51)),
            *(Delivery(Followed(one, user(2), 3, 4), 6, [Block([(one, 3)], pins)]) for one in range(3, 53)),
        ]
    )
    assert isinstance(message, Packed)
    assert (message.rows.count, message.pins.count) == (100 + 50, 50 + 100)
    assert unpacked(message).cells() == 100 * 100


def test_an_action_is_there_once_whatever_the_number_of_its_blocks() -> None:
    (message,) = packed(Delivery(saved(1), 6, [block(10, first)]) for first in range(1, 1_000, 10))
    assert isinstance(message, Packed)
    assert (message.actions.count, message.blocks.count) == (1, 100)


def test_what_a_pack_cannot_say_travels_as_it_is() -> None:
    unfollowed = Unfollowed(1, user(2), 3, 4)
    others = [
        Delivery(unfollowed, 6, markers=[block(1)], purge=Purge(1, 1, complete=True)),
        Delivery(unfollowed, 6, markers=[block(1)]),
        Delivery(RefillAsked(1, "a", 5), 6, cluster="a", strays=[Stray(bytes(9), 1, [bytes(16)])]),
        Delivery(RefillAsked(1, "a", 5), 6, [block(1)], cluster="b"),
    ]
    first, *rest = packed([others[0], Delivery(saved(1), 6, [block(1)]), *others[1:]])
    assert [first, *rest[:-1]] == others
    assert isinstance(rest[-1], Packed)


@pytest.mark.parametrize(
    ("values", "width"),
    [
        ([0], 0),
        ([MAX_ID, MAX_ID], 0),
        ([1, 256], 1),
        ([1, 257], 2),
        ([5, 5 + 2**24 - 1], 3),
        ([1_341_705_593_000, 1_341_705_593_000 + 2**40 - 1], 5),
        ([0, MAX_ID], 8),
    ],
)
def test_a_column_is_as_wide_as_its_numbers_differ(values: list[int], width: int) -> None:
    made = column(values)
    assert (made.least, made.width, len(made.more)) == (min(values), width, width * len(values))


def test_a_delivery_to_four_takes_a_quarter_of_the_bytes() -> None:
    """With ids of a billion users, and times of five years."""
    rng, now_ms = random.Random(1), 1_790_000_000_000
    now_ms, years_ms = 1_700_000_000_000, 5 * 31_536_000_000

    def some_id() -> int:
        return 1 + rng.randrange(10**9)

    one_by_one = []
    for _ in range(2_500):
        pin = Pin(some_id(), some_id(), some_id(), now_ms + rng.randrange(10_000))
        rows = [(some_id(), now_ms - rng.randrange(years_ms)) for _ in range(4)]
        action = PinSaved(pin, pin.created_ms + rng.randrange(1_000))
        one_by_one.append(Delivery(action, now_ms + 20_000, [Block(rows, [(pin.pin, pin.created_ms)])]))
    (together,) = packed(one_by_one)
    assert len(encode_delivery(together)) <= 0.27 * sum(len(encode_delivery(each)) for each in one_by_one)


def test_golden_vectors_of_keys_hold_for_arrays() -> None:
    vectors = json.loads((Path(__file__).parents[2] / "schemas" / "cell-layout.json").read_text())
    rows, entries = vectors["rows"], vectors["columns"]
    users = np.array([each["user"] for each in rows])
    ones = np.ones(len(rows), np.int64)
    put = mutations.put_cells(users, ones, ones, ones)
    assert sorted(map(bytes, put.rows)) == sorted(bytes.fromhex(each["row"]) for each in rows)
    pins, times = (np.array([each[name] for each in entries]) for name in ("pin", "created_ms"))
    ones = np.ones(len(entries), np.int64)
    put = mutations.put_cells(ones, ones, pins, times)
    assert [bytes(each) for each in put.columns] == [bytes.fromhex(each["column"]) for each in entries]


def test_golden_vectors_of_packs() -> None:
    vectors = json.loads((Path(__file__).parents[2] / "schemas" / "packs.json").read_text())
    for each in vectors["packs"]:
        pack = decode_body(each["message"].encode())
        assert [json.loads(encode_delivery(delivery))["body"] for delivery in cast_pack(pack).deliveries()] == each[
            "deliveries"
        ]


def cast_pack(body: object) -> Pack:
    assert isinstance(body, Pack)
    return body


# Everything else is malformed.

SAMPLE = next(
    packed(
        [
            Delivery(saved(1), 6, [block(3), block(2)], [block(1)], cluster="a"),
            Delivery(PinDeleted(Pin(10**12, 2, 3, 4), 5), 6, markers=[block(2)], cluster="a"),
            Delivery(Followed(1, user(2), 3, 4), 6, [Block([(1, 3)], [(9, 8), (10, 8)])], cluster="a"),
            Delivery(Followed(1, board(1), 3, 4), 6, [block(1)], cluster="a"),
            Delivery(RefillAsked(1, None, 4), 6, [block(1)], cluster="a"),
            Delivery(RefillAsked(1, "a", 4), 6, [block(1)], cluster="a"),
        ]
    )
)
VALUE = encode_delivery(SAMPLE)


def refused(value: bytes) -> str:
    with pytest.raises(MalformedError) as error:
        decode_body(value)
    assert str(error.value)
    return error.value.reason


def test_the_schema_takes_packs() -> None:
    Draft202012Validator(schemas()["feed.deliveries.schema.json"]).validate(json.loads(VALUE))


def changed(change: Callable[[Any], Any]) -> bytes:
    """The sample with another part; the change gets its document."""
    document = json.loads(VALUE)
    change(document["body"])
    return json.dumps(document).encode()


def set_column(*path: Any, values: Sequence[int]) -> Callable[[Any], None]:
    def change(body: Any) -> None:
        *way, last = path
        for step in way:
            body = body[step]
        body[last] = json.loads(msgspec.json.encode(column(values)))

    return change


ACTIONS, BLOCKS_OF, ROWS, PINS_OF = "actions", "blocks", "rows", "pins"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(set_column(ACTIONS, 1, values=[3, 4, 1, 2, 5, 7]), id="an unknown kind"),
        pytest.param(set_column(ACTIONS, 1, values=[3, 4, 1, 2, 5, 0]), id="no kind"),
        pytest.param(set_column(ACTIONS, 1, values=[3, 4, 1, 1, 5, 6]), id="a follow of oneself"),
        pytest.param(set_column(ACTIONS, 1, values=[3, 4, 1, 2, 5, 3]), id="a number is missing"),
        pytest.param(set_column(ACTIONS, 2, 4, values=[3, 3, 1, 0, 0, 0]), id="a number that the kind does not use"),
        pytest.param(set_column(ACTIONS, 2, 0, values=[5, 5, 4, 4, 4, MAX_ID]), id="a commit at the end of time"),
        pytest.param(set_column(ACTIONS, 2, 3, values=[1, 1, MAX_ID, 3, 0, 0]), id="a follow at the end of time"),
        pytest.param(set_column(ACTIONS, 1, values=[3, 4, 1, 2, 5]), id="a kind too few"),
        pytest.param(set_column(ACTIONS, 1, values=[3, 4, 1, 2, 5, 6, 6]), id="a kind too many"),
        pytest.param(set_column(BLOCKS_OF, 1, values=[0, 0, 0, 1, 2, 3, 4, 6]), id="an action that is not there"),
        pytest.param(set_column(BLOCKS_OF, 2, values=[0, 0, 1, 1, 0, 0, 0, 2]), id="neither cells nor markers"),
        pytest.param(set_column(BLOCKS_OF, 3, values=[0, 3, 5, 3, 6, 5, 5, 7]), id="a first row that is not there"),
        pytest.param(set_column(BLOCKS_OF, 3, values=[0, 3, 5, 3, 6, 5, 5, MAX_ID]), id="a first row far away"),
        pytest.param(set_column(BLOCKS_OF, 4, values=[3, 2, 1, 2, 1, 1, 1, 0]), id="a block without rows"),
        pytest.param(set_column(BLOCKS_OF, 4, values=[3, 2, 1, 2, 2, 1, 1, 1]), id="a row too many"),
        pytest.param(set_column(BLOCKS_OF, 4, values=[3, 2, 1, 2, 1, 1, 1, MAX_ID]), id="very many rows in a block"),
        pytest.param(set_column(BLOCKS_OF, 5, values=[0, 0, 0, 0, 1, 0, 0, 3]), id="a first pin that is not there"),
        pytest.param(set_column(BLOCKS_OF, 6, values=[1, 1, 1, 1, 2, 1, 1, 0]), id="a block without pins"),
        pytest.param(set_column(BLOCKS_OF, 6, values=[1, 1, 1, 1, 3, 1, 1, 1]), id="a pin too many"),
        pytest.param(set_column(ROWS, 1, values=[0, *range(1, 7)]), id="user 0"),
        pytest.param(set_column(ROWS, 2, values=[1] * 6 + [0]), id="timestamp 0"),
        pytest.param(set_column(PINS_OF, 1, values=[0, 1, 2]), id="pin 0"),
        pytest.param(set_column(PINS_OF, 2, values=[1, 2, 0]), id="creation time 0"),
        pytest.param(lambda body: body.update(cluster=None), id="a refill of no cluster"),
        pytest.param(lambda body: body.update(cluster=""), id="a refill of a cluster without a name"),
        pytest.param(lambda body: body[ROWS].__setitem__(1, [1, 9, ""]), id="nine bytes"),
        pytest.param(lambda body: body[ROWS].__setitem__(1, [1, 1, "AAAA"]), id="bytes too few"),
        pytest.param(lambda body: body[ROWS].__setitem__(1, [1, 0, "AAAA"]), id="bytes where there are none"),
        pytest.param(lambda body: body[ROWS].__setitem__(1, [1, 1, "?"]), id="no base64"),
        pytest.param(lambda body: body[ROWS].__setitem__(0, 2**40), id="very many rows"),
        pytest.param(lambda body: body[ROWS].__setitem__(0, 0), id="no rows"),
        pytest.param(lambda body: body[ACTIONS].__setitem__(2, body[ACTIONS][2][:4]), id="four numbers"),
        pytest.param(lambda body: body.pop(PINS_OF), id="no pins"),
        pytest.param(lambda body: body.update(read_ms=0), id="read at 0"),
    ],
)
def test_a_pack_that_cannot_be_is_malformed(change: Callable[[Any], None]) -> None:
    assert refused(changed(change)) == "malformed"


def test_the_sample_is_read() -> None:
    assert isinstance(decode_body(changed(lambda body: None)), Pack)


def test_numbers_that_together_are_too_large_are_malformed() -> None:
    more = base64.b64encode(b"\xff" * 8 * 7).decode()
    assert refused(changed(lambda body: body[ROWS].__setitem__(1, [1, 8, more]))) == "malformed"
    least = [MAX_ID, 1, base64.b64encode(bytes([0] * 6 + [1])).decode()]
    assert refused(changed(lambda body: body[ROWS].__setitem__(1, least))) == "malformed"


def test_a_block_or_a_pack_of_too_many_cells_is_malformed() -> None:
    def pack(rows: int, pins: int, blocks: int) -> bytes:
        columns_of = {
            "read_ms": 6,
            "actions": [1, [3, 0, ""], [[1, 0, ""]] * 5],
            "blocks": [blocks, [0, 0, ""], [0, 0, ""], [0, 0, ""], [rows, 0, ""], [0, 0, ""], [pins, 0, ""]],
            "rows": [rows, [1, 0, ""], [1, 0, ""]],
            "pins": [pins, [1, 0, ""], [1, 0, ""]],
        }
        return json.dumps({"v": 2, "body": {"type": "pack", **columns_of}}).encode()

    assert cast_pack(decode_body(pack(100, 10, 10))).cells() == PACK_CELLS
    assert refused(pack(100, 11, 1)) == "malformed"
    assert refused(pack(MAX_CHUNK + 1, 1, 1)) == "malformed"
    assert refused(pack(100, 10, 11)) == "malformed"
    assert refused(pack(PACK_CELLS, PACK_CELLS, 1)) == "malformed"


def test_other_bodies_have_no_second_version_and_packs_no_first() -> None:
    assert refused(VALUE.replace(b'{"v":2', b'{"v":1')) == "malformed"
    assert refused(b'{"v":2,"body":{"type":"hold","since_ms":1,"until_ms":2}}') == "malformed"
    assert refused(VALUE.replace(b'{"v":2', b'{"v":3')) == "malformed"
    assert refused(VALUE.replace(b'{"v":2', b'{"v":4')) == "unknown_version"
    assert refused(VALUE + b" " * (MAX_MESSAGE_BYTES + 1 - len(VALUE))) == "oversized"


class EarlierEnvelope(msgspec.Struct):
    """What a writer of before packs decodes."""

    v: int
    body: Delivery | Hold | Tick


def test_an_earlier_writer_names_the_version_and_keeps_the_pack_as_it_is() -> None:
    """So that `feedctl dead retry` brings it back once that writer is a newer one."""
    decoder = msgspec.json.Decoder(EarlierEnvelope)
    earlier = Topic(DELIVERIES.name, durable=False, decode=single(lambda value: decoded(decoder, value)))
    queue, dead = MemoryQueue({DELIVERIES: 1}, lambda: 1), MemoryDeadLetters()
    spec: StageSpec[Any] = StageSpec(
        group="writer-a",
        topic=earlier,
        encode=lambda _: pytest.fail("one body"),
        handle=lambda _: pytest.fail("it reads nothing"),
        ticks=lambda _: None,
        slots=EachAlone(),
    )
    consumer = queue.consumer(DELIVERIES, "writer-a")
    stage = Stage(spec, consumer, dead, RetryPolicy(), random.Random(1), lambda: 0.0, lambda: 1, patience_s=0)
    queue.publish(DELIVERIES, [VALUE])
    stage.step()
    stage.close()

    (letter,) = dead.letters(0, 10)
    assert (letter.reason, letter.value) == ("unknown_version", VALUE)
    assert redeliver(queue, [DELIVERIES], dead, [letter], lambda _, why: pytest.fail(why)) == 1
    (again,) = queue.consumer(DELIVERIES, "writer-b").poll(10, 0)[1:]
    assert cells_of(decode_body(again.value)) == cells_of(decode_body(VALUE))


def test_a_pack_cut_anywhere_is_no_json() -> None:
    for length in range(len(VALUE)):
        assert refused(VALUE[:length]) == "not_json"


@given(st.data())
def test_a_damaged_pack_is_read_or_refused(data: st.DataObject) -> None:
    damaged = bytearray(VALUE)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(32, 126))
    with contextlib.suppress(MalformedError):
        body = decode_body(bytes(damaged))
        assert isinstance(body, Pack)
        assert (
            len(cells_of(body))
            == body.cells()
            == sum(len(each.rows) for each in cell_mutations([body]) if isinstance(each, PutCells | DeleteCells))
        )


@given(
    st.builds(Column, least=st.integers(0, MAX_ID), width=st.integers(0, 8), more=st.binary(max_size=16)),
    st.sampled_from([(ROWS, 1), (ROWS, 2), (PINS_OF, 1), (BLOCKS_OF, 1), (BLOCKS_OF, 2), (BLOCKS_OF, 3), (ACTIONS, 1)]),
)
def test_a_strange_column_is_read_or_refused(strange: Column, place: tuple[str, int]) -> None:
    def change(body: Any) -> None:
        body[place[0]][place[1]] = json.loads(msgspec.json.encode(strange))

    with contextlib.suppress(MalformedError):
        assert isinstance(decode_body(changed(change)), Pack)
