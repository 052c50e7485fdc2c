"""Calls on threads, and a queue that is not there yet."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import NoReturn

import pytest

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.http.problems import OVERLOADED, ProblemError
from feedstore.http.queues import QueuesUnavailableError
from feedstore.http.running import InThreads
from tests.cli.command import DEADLINE_S, Cli
from workers.app.queue_status import LazyQueues, OpenQueues
from workers.following.ports import Ports
from workers.following.topics import ACTIONS
from workers.queue.port import QueueUnavailableError


@pytest.fixture
def one_thread() -> Iterator[InThreads]:
    with closing(InThreads(threads=1, waiting_max=1, clock=time.monotonic)) as threads:
        yield threads


def long() -> float:
    return time.monotonic() + DEADLINE_S


def test_a_call_that_waited_past_its_deadline_never_begins(one_thread: InThreads):
    gate, begun = threading.Event(), []

    async def main() -> None:
        first = asyncio.create_task(one_thread.run(lambda: gate.wait(DEADLINE_S), long()))
        late = asyncio.create_task(one_thread.run(lambda: begun.append(1), time.monotonic()))
        await asyncio.sleep(0)
        with pytest.raises(ProblemError) as refusal:
            await one_thread.run(lambda: begun.append(2), long())
        assert refusal.value.kind is OVERLOADED
        gate.set()
        assert await first is True
        with pytest.raises(ProblemError):
            await late

    asyncio.run(main())
    assert begun == []


def test_who_waits_for_a_thread_is_told_at_the_deadline_whatever_the_threads_do(one_thread: InThreads):
    gate, begun = threading.Event(), []

    async def main() -> None:
        first = asyncio.create_task(one_thread.run(lambda: gate.wait(DEADLINE_S), long()))
        await asyncio.sleep(0)
        with pytest.raises(ProblemError) as refusal:
            await one_thread.run(lambda: begun.append(1), time.monotonic() + 0.01)
        assert refusal.value.kind is OVERLOADED
        assert not first.done()
        with pytest.raises(ProblemError):
            await one_thread.run(lambda: begun.append(2), long())  # it counts until a thread has passed over it
        gate.set()
        assert await first is True

    asyncio.run(main())
    assert begun == []


def test_a_call_that_has_begun_may_take_longer_than_its_deadline(one_thread: InThreads):
    gate, begun = threading.Event(), threading.Event()

    def call() -> str:
        begun.set()
        assert gate.wait(DEADLINE_S)
        return "done"

    async def main() -> None:
        deadline_s = time.monotonic() + 2.0
        running = asyncio.create_task(one_thread.run(call, deadline_s))
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        await asyncio.wait({running}, timeout=deadline_s - time.monotonic() + 0.05)
        assert not running.done()
        gate.set()
        assert await running == "done"

    asyncio.run(main())


def test_a_call_counts_until_it_has_ended_even_if_nobody_waits_for_it(one_thread: InThreads):
    gate = threading.Event()

    async def main() -> None:
        abandoned = [asyncio.create_task(one_thread.run(lambda: gate.wait(DEADLINE_S), long())) for _ in range(2)]
        await asyncio.sleep(0)
        for each in abandoned:
            each.cancel()
        await asyncio.gather(*abandoned, return_exceptions=True)
        with pytest.raises(ProblemError):
            await one_thread.run(lambda: None, long())
        gate.set()
        deadline_s = long()
        answer = None
        while answer is None:
            assert time.monotonic() < deadline_s, "there is no room again"
            with contextlib.suppress(ProblemError):
                answer = await one_thread.run(lambda: "room", long())
            await asyncio.sleep(0.01)

    asyncio.run(main())


def test_where_no_thread_can_be_had_a_call_is_refused_and_later_ones_are_made(
    one_thread: InThreads, monkeypatch: pytest.MonkeyPatch
):
    made = []

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", refuse)
            for number in range(3):  # more than may wait
                with pytest.raises(ProblemError) as refusal:
                    await one_thread.run(partial(made.append, number), long())
                assert refusal.value.kind is OVERLOADED
        await one_thread.run(partial(made.append, "later"), long())

    asyncio.run(main())
    assert made == ["later"]


def test_what_a_call_raises_comes_back(one_thread: InThreads):
    def fails() -> None:
        raise KeyError("x")

    async def main() -> None:
        with pytest.raises(KeyError):
            await one_thread.run(fails, long())

    asyncio.run(main())


def test_a_queue_that_is_away_is_looked_for_again(cli: Cli):
    with cli.ports() as ports:
        away = [QueueUnavailableError("no broker")]

        def opened() -> Ports:
            if away:
                raise away.pop()
            return ports

        with closing(LazyQueues(opened, lambda: None)) as queues:
            with pytest.raises(QueuesUnavailableError, match="no broker"):
                queues.state()
            assert [(group.group, group.topic) for group in queues.state().groups] == [
                ("relay", None),
                ("expander", "feed.actions"),
                ("writer-a", "feed.deliveries"),
                ("retries-a", "feed.retries"),
                ("writer-b", "feed.deliveries"),
                ("retries-b", "feed.retries"),
            ]
            assert list(queues.letters(0, 10)) == []
            ports.dead.bury(ACTIONS, "expander", "malformed", "why", 1_000, b"secret")
            [letter] = queues.letters(0, 10)
            assert (letter.id, letter.reason, letter.bytes) == (1, "malformed", 6)
        with pytest.raises(QueuesUnavailableError):
            queues.state()


def test_a_shard_that_is_away_hides_nothing_of_the_queue(cli: Cli, monkeypatch: pytest.MonkeyPatch):

    def away() -> NoReturn:
        raise FollowStoreUnavailableError("away")

    with cli.ports() as ports:
        ports.queue.publish(ACTIONS, [b"x"])
        ports.dead.bury(ACTIONS, "expander", "malformed", "why", 1_000, b"secret")
        monkeypatch.setattr(ports.follows, "backlog", away)
        state = OpenQueues(ports).state()
    assert [(each.group, each.lag) for each in state.groups][:2] == [("expander", 1), ("writer-a", 0)]
    assert state.dead_letters == 1
