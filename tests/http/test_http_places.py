"""Who keeps a connection if more clients come than there are places."""

from dataclasses import dataclass

import pytest

from feedstore.http.places import Places, network


@dataclass(eq=False)
class Fake:
    ranks: int | None = 1

    def rank(self) -> int | None:
        return self.ranks


def test_one_network_may_have_all_places():
    places: Places[Fake] = Places(3, 1)
    assert [places.enter(Fake(), "one") for _ in range(3)] == [(False, None)] * 3
    assert places.full()


def test_another_network_gets_an_equal_share_and_the_oldest_leave():
    places: Places[Fake] = Places(4, 1)
    first = [Fake() for _ in range(4)]
    for each in first:
        places.enter(each, "one")
    assert [places.enter(Fake(), "two").leaves for _ in range(2)] == first[:2]
    spare, leaves = places.enter(Fake(), "two")
    assert (spare, leaves) == (True, None), "two and two are equal"


def test_equal_networks_do_not_take_a_place_from_each_other_for_ever():
    places: Places[Fake] = Places(3, 1)
    for _ in range(2):
        places.enter(Fake(), "one")
    places.enter(Fake(), "two")
    assert places.enter(Fake(), "two").spare


def test_the_one_that_owes_a_request_leaves_before_one_that_rests_and_one_that_is_answered_stays():
    places: Places[Fake] = Places(3, 1)
    answered, rests, owes = Fake(None), Fake(2), Fake(1)
    for each in (answered, rests, owes):
        places.enter(each, "one")
    assert places.enter(Fake(), "two").leaves is owes
    assert places.enter(Fake(), "three").leaves is rests
    assert places.enter(Fake(), "four").spare


def test_those_that_are_all_answered_keep_their_places():
    places: Places[Fake] = Places(3, 1)
    for _ in range(3):
        places.enter(Fake(None), "one")
    assert places.enter(Fake(), "two") == (True, None)


def test_a_spare_place_goes_to_who_comes_last():
    places: Places[Fake] = Places(1, 2)
    places.enter(Fake(), "one")
    oldest, middle, newest = Fake(), Fake(), Fake()
    assert [places.enter(each, "one") for each in (oldest, middle, newest)] == [(True, None)] * 2 + [(True, oldest)]
    places.leave(middle, "one")
    assert places.enter(Fake(), "one") == (True, None)


def test_a_place_that_was_left_is_free():
    places: Places[Fake] = Places(1, 1)
    client = Fake()
    places.enter(client, "one")
    places.leave(client, "one")
    places.leave(client, "one")
    assert not places.full()
    assert places.enter(Fake(), "one") == (False, None)


@pytest.mark.parametrize(
    ("host", "counts_as"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("no address", "no address"),
    ],
)
def test_an_ipv6_network_counts_as_one_client(host: str, counts_as: str):
    assert network(host) == counts_as
