"""Rule 12 for as long as a region is gone: a writer parks what waits for it, and its retries land it."""

import struct
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from feedstore.following import row_key
from feedstore.widecolumn import Put
from tests.following.parking_bench import (
    LIMITS,
    RETRIER,
    START_MS,
    WRITER,
    Bench,
    KilledError,
    dead_region,
    everything,
    in_region,
)
from workers.following import parking
from workers.following.messages import (
    Block,
    Delivery,
    Hold,
    Parked,
    decode_delivery,
    decode_parked,
    encode_delivery,
    encode_parked,
)
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES
from workers.queue.port import MAX_MESSAGE_BYTES, lag_of

pytestmark = pytest.mark.long

TOGETHER = pytest.mark.parametrize("together", [None, 1, 40], ids=["deliveries", "packs of one", "packs"])


@TOGETHER
@pytest.mark.parametrize("whole", [False, True], ids=["batches in part", "batches as a whole"])
def test_rule_12_a_region_that_is_away_delays_only_its_own_rows_for_as_long_as_it_is(
    whole: bool, together: int | None
) -> None:
    bench = Bench(room=20)
    bench.feeds.away, bench.feeds.whole = dead_region, whole
    pins = range(1, 1_001)
    away = set(filter(in_region, pins))
    assert len(away) > 10 * bench.room

    for start in range(0, len(pins), 100):
        bench.publish(pins[start : start + 100], together)
        bench.tick()
    bench.run(lambda: bench.landed() == set(pins) - away)
    first = bench.pins[min(away)]
    assert bench.watermark() == first - first % 10_000, "all ticks but the last have come through, and it stays there"

    bench.now_s += 3_600
    bench.run(lambda: bench.now_s > 3_700)
    bench.publish([2_000, 2_001, 2_002, 2_003], together)
    settled_ms = bench.tick()
    bench.run(lambda: set(bench.missing()) == {pin for pin in bench.pins if in_region(pin)})

    bench.feeds.away = lambda row: False
    bench.run(lambda: bench.all_landed(settled_ms))
    assert bench.dead.count() == 0


def test_rule_12_hardly_anything_is_parked_that_could_be_done() -> None:
    bench = Bench(room=60)
    bench.feeds.away, bench.feeds.whole = dead_region, True
    pins = range(1, 501)
    bench.publish(pins)
    away = sum(map(in_region, pins))

    bench.run(lambda: set(map(in_region, bench.missing())) == {True})

    assert away - bench.room <= bench.published() < 1.5 * away


def test_short_faults_stay_in_memory() -> None:
    bench = Bench(room=1_000)
    bench.feeds.away = dead_region
    bench.publish(range(1, 200))
    settled_ms = bench.tick()
    bench.run(lambda: set(map(in_region, bench.missing())) == {True})
    bench.run(lambda: bench.now_s > 20)
    bench.feeds.away = lambda row: False

    bench.run(lambda: bench.all_landed(settled_ms))
    assert bench.published() == 0


@TOGETHER
def test_a_long_fault_is_parked_within_a_minute_though_there_is_room(together: int | None) -> None:
    bench = Bench(room=1_000)
    bench.feeds.away = dead_region
    bench.publish(range(1, 200), together)
    bench.run(lambda: bench.published() == sum(map(in_region, range(1, 200))), seconds=60)
    assert bench.lag(WRITER) == 0


def away_as_a_whole(bench: Bench, away: bool) -> None:
    bench.feeds.away = bench.notes.away = everything if away else lambda row: False


def progress_away_with_a_region(bench: Bench, away: bool) -> None:
    bench.feeds.away = dead_region if away else lambda row: False
    bench.notes.away = everything if away else lambda row: False


def follow_store_away(bench: Bench, away: bool) -> None:
    bench.follows.away = away


def queue_away_with_a_region(bench: Bench, away: bool) -> None:
    bench.feeds.away = dead_region if away else lambda row: False
    bench.queue.away = away


@pytest.mark.parametrize(
    "fault", [away_as_a_whole, progress_away_with_a_region, follow_store_away, queue_away_with_a_region]
)
@pytest.mark.parametrize("together", [None, 10], ids=["deliveries", "packs"])
def test_where_nothing_can_be_noted_nothing_is_parked_and_the_group_stands_still(
    fault: Callable[[Bench, bool], None], together: int | None
) -> None:
    bench = Bench(room=20)
    bench.publish(range(1, 501), together)
    settled_ms = bench.tick()
    published = bench.lag(WRITER)
    fault(bench, True)

    for _ in range(5_000):
        bench.step(checked=False)
    assert bench.published() == 0
    assert bench.lag(WRITER) >= published - 100

    fault(bench, False)
    bench.run(lambda: bench.all_landed(settled_ms))


@TOGETHER
def test_a_restart_in_the_middle_loses_nothing(together: int | None) -> None:
    bench = Bench(room=20)
    bench.feeds.away = dead_region
    bench.publish(range(1, 501), together)
    settled_ms = bench.tick()
    for least in range(10, 90, 10):
        bench.run(lambda least=least: bench.published() >= least)
        bench.begin()
    bench.run(lambda: set(map(in_region, bench.missing())) == {True})
    bench.begin()
    bench.feeds.away = lambda row: False

    bench.run(lambda: bench.all_landed(settled_ms))


def test_retries_that_have_no_room_stand_still_alone() -> None:
    bench = Bench(room=20, retry_room=5)
    bench.feeds.away = dead_region
    bench.publish(range(1, 501))
    settled_ms = bench.tick()

    bench.run(lambda: set(map(in_region, bench.missing())) == {True})
    for _ in range(2_000):
        bench.step(checked=False)
    assert bench.lag(RETRIER) == bench.published() > 50, "it parks nothing by itself"

    bench.feeds.away = lambda row: False
    bench.run(lambda: bench.all_landed(settled_ms))


@TOGETHER
def test_so_much_is_parked_is_bounded(monkeypatch: pytest.MonkeyPatch, together: int | None) -> None:
    monkeypatch.setattr(parking, "MAX_PARKED", 30)
    bench = Bench(room=20)
    bench.feeds.away = dead_region
    bench.publish(range(1, 501), together)
    settled_ms = bench.tick()

    for _ in range(5_000):
        bench.step(checked=False)
    assert 30 <= bench.published() <= 40
    bench.check()

    bench.feeds.away = lambda row: False
    bench.run(lambda: bench.all_landed(settled_ms))


def test_nothing_is_tried_before_it_is_due_and_wrong_clocks_delay_it_by_the_longest_wait() -> None:
    bench = Bench()
    soon, never = bench.wall_ms() + 10_000, 2**62
    for pin, due_ms in ((1, soon), (2, never), (3, 1)):
        bench.publish([])
        parked = Parked("a", pin, due_ms, bench.delivery(pin, pin))
        bench.queue.publish(RETRIES, [encode_parked(parked)], 0)

    for upto_s, landed in ((9.9, {3}), (10.2, {1, 3}), (29.9, {1, 3}), (30.2, {1, 2, 3})):
        while bench.now_s < upto_s:
            bench.step()
        assert bench.landed() == landed
    assert bench.lag(RETRIER) == 0


def test_what_is_parked_for_another_cluster_is_passed_over_at_once() -> None:
    bench = Bench()
    parked = Parked("b", 7, 2**62, bench.delivery(1, 1))
    bench.queue.publish(RETRIES, [encode_parked(parked)])
    bench.feeds.away = everything
    follow_store_away(bench, True)

    bench.retries.step()

    assert bench.lag(RETRIER) == 0
    assert bench.landed() == set()


def test_rule_12_a_parked_message_that_nobody_can_read_is_a_dead_letter() -> None:
    bench = Bench()
    good = encode_parked(Parked("a", 7, 1, bench.delivery(1, 1)))
    bench.queue.publish(RETRIES, [b"nonsense", good, encode_delivery(bench.delivery(2, 2))], 0)

    bench.retries.step()

    letters = bench.dead.letters(0, 10)
    assert [(letter.topic, letter.group, letter.reason) for letter in letters] == [
        (RETRIES.name, RETRIER, "not_json"),
        (RETRIES.name, RETRIER, "malformed"),
    ]
    assert bench.landed() == {1}
    assert bench.lag(RETRIER) == 0


def test_rule_12_of_a_pack_only_the_block_that_cannot_be_written_is_a_dead_letter_and_it_can_be_sent_again() -> None:
    bench = Bench(batch=100)
    bench.feeds.refused = lambda row: row == row_key(7)
    bench.publish(range(1, 61), 30)
    settled_ms = bench.tick()
    del bench.pins[7]

    bench.run(lambda: bench.all_landed(settled_ms))

    (letter,) = bench.dead.letters(0, 10)
    assert (letter.topic, letter.group, letter.reason) == (DELIVERIES.name, WRITER, "refused")
    assert decode_delivery(letter.value) == replace(bench.delivery(7, 7), read_ms=START_MS)
    assert bench.landed() == {*range(1, 61)} - {7}
    bench.feeds.refused = lambda row: False
    bench.queue.publish(DELIVERIES, [letter.value])
    bench.run(lambda: bench.landed() == {*range(1, 61)})


def test_packs_and_deliveries_travel_together() -> None:
    bench = Bench()
    bench.publish(range(1, 41), 10)
    bench.publish(range(41, 81))
    bench.publish(range(81, 121), 40)
    settled_ms = bench.tick()

    bench.run(lambda: bench.all_landed(settled_ms))
    assert bench.dead.count() == 0


def test_rule_10_a_parked_message_that_dies_keeps_no_watermark_back() -> None:
    bench = Bench(room=1)
    bench.feeds.away = dead_region
    poison = next(filter(in_region, range(1, 1_000)))
    bench.publish([poison])
    bench.run(bench.published)
    settled_ms = bench.tick()
    bench.run(lambda: not bench.lag(WRITER))
    waits_ms = bench.pins.pop(poison)
    assert bench.watermark() == waits_ms - waits_ms % 10_000

    bench.feeds.away, bench.feeds.refused = (lambda row: False), dead_region
    bench.run(lambda: not bench.lag(RETRIER))

    [letter] = bench.dead.letters(0, 10)
    assert (letter.topic, letter.group, letter.reason) == (RETRIES.name, RETRIER, "refused")
    assert bench.watermark() == settled_ms
    # Sent again once the cause is mended, as `feedctl dead retry` does, it lands.
    bench.feeds.refused = lambda row: False
    bench.queue.publish(RETRIES, [letter.value])
    bench.run(lambda: bench.landed() == {poison})


@pytest.mark.parametrize("refused", [False, True], ids=["it lands", "it dies"])
def test_rule_10_what_an_earlier_version_parked_keeps_no_watermark_back_once_it_is_done(refused: bool) -> None:
    """It noted each copy, by an id."""
    bench = Bench()
    bench.feeds.refused = lambda row: refused
    delivery = bench.delivery(1, 1)
    since_ms = delivery.action.committed_ms
    bench.notes.apply([Put([(b"h" + bytes(8), since_ms)], [struct.pack(">QQ", 2**63 + since_ms, 7)])])
    bench.queue.publish(RETRIES, [encode_parked(Parked("a", 7, 1, delivery))], 0)
    settled_ms = bench.tick()
    while bench.watermark() is None:
        bench.writer.step()
    assert bench.watermark() == since_ms

    bench.run(lambda: not bench.lag(RETRIER))
    assert (bench.watermark(), bench.dead.count()) == (settled_ms, int(refused))


def test_a_letter_counts_as_done_only_when_that_is_noted() -> None:
    bench = Bench(room=1)
    bench.feeds.away = dead_region
    poison = next(filter(in_region, range(1, 1_000)))
    bench.publish([poison])
    bench.run(bench.published)
    bench.feeds.away, bench.feeds.refused = (lambda row: False), dead_region
    bench.notes.away = everything
    bench.run(lambda: bench.dead.count() == 1)
    for _ in range(100):
        bench.step(checked=False)
    assert bench.lag(RETRIER) == 1

    bench.notes.away = lambda row: False
    bench.run(lambda: not bench.lag(RETRIER))
    assert bench.dead.count() == 1


def full(delivery: Delivery) -> Delivery:
    """A delivery that the queue takes, and takes no more than a few bytes of."""
    rows = [(2**62, START_MS)] * 1_000
    puts = [Block(rows, [(1, 1)])]
    each = len(encode_delivery(replace(delivery, puts=puts * 2))) - len(encode_delivery(replace(delivery, puts=puts)))
    puts *= (MAX_MESSAGE_BYTES - len(encode_delivery(delivery))) // each
    while len(encode_delivery(replace(delivery, puts=[*puts, Block(rows, [(1, 1)])]))) > MAX_MESSAGE_BYTES:
        rows = rows[:-1]
    found = replace(delivery, puts=[*puts, Block(rows, [(1, 1)])])
    assert MAX_MESSAGE_BYTES - 50 < len(encode_delivery(found)) <= MAX_MESSAGE_BYTES
    return found


def test_what_cannot_be_parked_goes_on_waiting() -> None:
    bench = Bench()
    ours, theirs = bench.delivery(1, 1), bench.delivery(2, 2, cluster="b")
    large = full(ours)

    assert bench.parking(bench.handler()).park([ours, theirs, Hold(1, 2), large, ours], 1.0) == [
        True,
        False,
        False,
        False,
        True,
    ]
    assert bench.published() == 2
    copies = [message.value for message in bench.queue.consumer(RETRIES, "another").poll(10, 0)]
    due_ms = bench.follows.about_now().latest_ms + 1_000
    assert [decode_parked(each).due_ms for each in copies] == [due_ms, due_ms]


def test_of_many_messages_that_are_parked_at_once_none_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "_COPIES_AT_ONCE", 3)
    bench = Bench()
    deliveries = [bench.delivery(pin, pin) for pin in range(1, 11)]
    assert all(bench.parking(bench.handler()).park(deliveries, 0.0))
    assert bench.published() == 10


def test_rule_8_what_waited_too_long_is_expanded_anew_and_held() -> None:
    bench = Bench(room=1)
    bench.feeds.away = dead_region
    pin = next(filter(in_region, range(1, 1_000)))
    bench.publish([pin])
    bench.run(bench.published)
    bench.now_s += LIMITS.delivery_age_ms / 1_000 + 1
    settled_ms = bench.tick()
    bench.run(lambda: not bench.lag(WRITER) + bench.lag(RETRIER))

    assert lag_of(bench.queue, ACTIONS, "expander") >= 1
    mark = bench.watermark()
    assert mark is not None
    assert mark <= bench.pins[pin] < settled_ms


@pytest.mark.parametrize("together", [None, 5], ids=["deliveries", "packs"])
def test_rule_11_a_kill_before_or_after_any_call_loses_nothing_and_holds_nothing_for_ever(
    together: int | None,
) -> None:
    """note, publish, commit, land, lift, commit: a restart continues from wherever the process died."""
    pins = [pin for pin in range(1, 60) if in_region(pin)][:6] + [pin for pin in range(1, 20) if not in_region(pin)][:4]

    def life(at: int | None, after: bool) -> int:
        bench = Bench(room=3)
        bench.feeds.away = dead_region
        bench.publish(pins, together)
        settled_ms = bench.tick()
        bench.trip.calls, bench.trip.at, bench.trip.after = 0, at, after

        def back() -> bool:
            if bench.now_s > 3:
                bench.feeds.away = lambda row: False
            return bench.all_landed(settled_ms)

        killed = 0
        while True:
            try:
                bench.run(back)
                break
            except KilledError:
                killed += 1
                bench.begin()
                bench.check()
        assert bench.published() >= 3
        assert bench.dead.count() == 0
        assert killed == (0 if at is None else 1)
        return bench.trip.calls

    calls = life(None, False)
    assert calls > 20
    for number in range(calls):
        for after in (False, True):
            life(number, after)
