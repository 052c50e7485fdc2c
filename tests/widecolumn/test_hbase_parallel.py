"""The requests of one batch, some of them side by side."""

import threading

import pytest

from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.hbase.parallel import AT_ONCE, ParallelWriter


@pytest.mark.parametrize("count", [0, 1, 2, 3, AT_ONCE, AT_ONCE + 1, 20])
def test_every_request_is_written_once(count: int):
    parallel = ParallelWriter(4)
    written: list[int] = []
    parallel.run(written.append, iter(range(count)))
    assert sorted(written) == list(range(count))
    parallel.close()


def test_so_many_are_under_way_and_never_more():
    parallel = ParallelWriter(2 * AT_ONCE)
    busy, most, lock, all_of_them = 0, 0, threading.Lock(), threading.Barrier(AT_ONCE)

    def write(number: int) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        all_of_them.wait(10)
        with lock:
            busy -= 1

    parallel.run(write, iter(range(5 * AT_ONCE)))
    assert most == AT_ONCE
    parallel.close()


def test_a_failure_is_raised_once_nothing_is_under_way():
    parallel = ParallelWriter(4)
    release, ended = threading.Event(), threading.Event()

    def write(number: int) -> None:
        if number == 0:
            release.set()
            raise UnavailableError("the first")
        release.wait(10)
        ended.set()

    with pytest.raises(UnavailableError, match="the first"):
        parallel.run(write, iter(range(2)))
    assert ended.is_set()
    parallel.close()


def test_nothing_is_begun_after_a_failure():
    parallel = ParallelWriter(4)
    begun: list[int] = []

    def write(number: int) -> None:
        begun.append(number)
        raise UnavailableError("no")

    with pytest.raises(UnavailableError):
        parallel.run(write, iter(range(10)))
    assert sorted(begun) == list(range(AT_ONCE))
    parallel.close()


def test_a_closed_one_says_so():
    parallel = ParallelWriter(1)
    parallel.close()
    with pytest.raises(UnavailableError, match="closed"):
        parallel.run(lambda _: None, iter(range(2)))
