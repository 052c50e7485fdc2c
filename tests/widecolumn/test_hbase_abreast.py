"""The requests of one batch, two at a time."""

import threading

import pytest

from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase.abreast import Abreast


@pytest.mark.parametrize("count", [0, 1, 2, 3, 10])
def test_every_request_is_written_once(count: int):
    abreast = Abreast(4)
    written: list[int] = []
    abreast.run(written.append, iter(range(count)))
    assert sorted(written) == list(range(count))
    abreast.close()


def test_two_are_under_way_and_never_more():
    abreast = Abreast(8)
    busy, most, lock, both = 0, 0, threading.Lock(), threading.Barrier(2)

    def write(number: int) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        both.wait(10)
        with lock:
            busy -= 1

    abreast.run(write, iter(range(10)))
    assert most == 2
    abreast.close()


def test_a_failure_is_raised_once_nothing_is_under_way():
    abreast = Abreast(4)
    release, ended = threading.Event(), threading.Event()

    def write(number: int) -> None:
        if number == 0:
            release.set()
            raise UnavailableError("the first")
        release.wait(10)
        ended.set()

    with pytest.raises(UnavailableError, match="the first"):
        abreast.run(write, iter(range(2)))
    assert ended.is_set()
    abreast.close()


def test_nothing_is_begun_after_a_failure():
    abreast = Abreast(4)
    begun: list[int] = []

    def write(number: int) -> None:
        begun.append(number)
        raise UnavailableError("no")

    with pytest.raises(UnavailableError):
        abreast.run(write, iter(range(10)))
    assert sorted(begun) == [0, 1]
    abreast.close()


def test_a_closed_one_says_so():
    abreast = Abreast(1)
    abreast.close()
    with pytest.raises(UnavailableError, match="closed"):
        abreast.run(lambda _: None, iter(range(2)))
