"""What the clients of a soak know finds what is wrong, and only that."""

from random import Random

import pytest

from tests.soak.orders import Orders
from tests.soak.records import Ads, Pins

NOW = 1_000_000


@pytest.fixture
def ads() -> Ads:
    """One that has posted changes of keys at NOW, and again a second later. The second ones have no answer yet."""
    ads = Ads()
    first = ads.drawn(Random(1), NOW)
    ads.acknowledged(first, NOW + 10)
    ads.drawn(Random(1), NOW + 1_000)
    return ads


def test_an_answer_lacks_no_change_that_was_acknowledged_long_enough_ago(ads: Ads) -> None:
    for key, number in ads.batch(NOW).items():
        assert ads.wrong(key, number, complete_ms=NOW + 5_000) is None
        assert ads.wrong(key, None, complete_ms=NOW) is None, "the answer may be older than the change"
        assert ads.wrong(key, None, complete_ms=NOW + 11) is not None
        assert ads.wrong(key, number + 1_000, complete_ms=NOW) is not None, "nothing ever had this number"


def test_an_answer_may_have_a_change_that_was_not_acknowledged(ads: Ads) -> None:
    for key, number in ads.batch(NOW + 1_000).items():
        assert ads.wrong(key, number, complete_ms=NOW + 5_000) is None


def test_a_batch_has_the_last_change_of_each_key_up_to_its_time(ads: Ads) -> None:
    before, after = ads.batch(NOW), ads.batch(NOW + 1_000)
    assert before
    assert all(after[key] > number for key, number in before.items() if key in after)
    assert ads.batch(NOW - 1) == {}


def test_pins_are_there_from_their_save_to_their_deletion() -> None:
    pins = Pins()
    pins.saved(1, NOW)
    pins.saved(2, NOW)
    pins.deleting(2)
    assert pins.wrong([], [1], complete_ms=NOW) == []
    assert len(pins.wrong([], [1, 2], complete_ms=NOW + 1)) == 1, "the deletion of the other may have come first"
    pins.deleted(2, NOW + 5)
    assert pins.wrong([1, 2], [], complete_ms=NOW + 5) == []
    assert len(pins.wrong([1, 2], [], complete_ms=NOW + 6)) == 1


def test_a_board_has_the_order_of_its_saves_and_moves() -> None:
    orders = Orders()
    for pin in range(1, 6):
        orders.saved(9, pin, NOW + pin)
    assert orders.movable(9, NOW + 4) == [3, 2, 1], "others may not be in the index yet"
    orders.moved(9, 1, below=3)
    orders.moved(9, 3, below=None)
    orders.deleting(4)
    assert orders.wanted() == {9: [5, 1, 2, 3]}
