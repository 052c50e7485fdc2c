"""The records of pins."""

import pytest

from feedstore.catalog.pins import entry_of, key_of, live_pin, pin_of, record_of, update_of
from feedstore.catalog.port import CatalogUnavailableError
from feedstore.domain import MAX_ID, Pin, PinDeleted, PinSaved
from feedstore.follows.port import PinState

PIN = Pin(MAX_ID, 7, MAX_ID, 1_000)


def test_a_record_is_the_pin_or_that_it_was_deleted():
    key = key_of(PIN.pin)
    assert pin_of(key) == PIN.pin
    assert live_pin(key, record_of(PIN, deleted=False)) == PIN
    assert live_pin(key, record_of(PIN, deleted=True)) is None
    assert live_pin(key, record_of(PIN, deleted=False) + b"of a later version") == PIN


@pytest.mark.parametrize(
    "record", [b"", b"\x01", b"\x02" + bytes(25), b"\x01\x02" + bytes(24), b"\x01\x00" + bytes(24)]
)
def test_a_record_that_no_program_writes_is_refused(record: bytes):
    with pytest.raises(CatalogUnavailableError, match="pin 5"):
        live_pin(key_of(5), record)


def test_keys_are_in_the_order_of_ids():
    ids = [1, 2, 255, 256, 2**40, MAX_ID]
    assert sorted(map(key_of, ids)) == list(map(key_of, ids))


def test_a_deletion_is_later_than_a_save_of_the_same_millisecond():
    saved, deleted = update_of(PinSaved(PIN, 50)), update_of(PinDeleted(PIN, 50))
    assert saved.key == deleted.key == key_of(PIN.pin)
    assert saved.time_ms < deleted.time_ms
    assert (live_pin(*entry_of(PinState(PIN, 50, None))), live_pin(*entry_of(PinState(PIN, 50, 60)))) == (PIN, None)
    assert deleted.record == entry_of(PinState(PIN, 50, 50))[1]
