"""The threads in which the calls of a service are made, which block."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from feedstore.http import problems
from feedstore.http.problems import ProblemError
from feedstore.tracing import UNTRACED, Tracer

T = TypeVar("T")


class InThreads:
    """For calls that ask a server. A bounded number of calls waits for a thread.

    Used by one event loop. clock: the server's. tracer: a call is part of the span of its request. Raises ProblemError
    if too many calls wait, or if one has waited too long.
    """

    def __init__(self, threads: int, waiting_max: int, clock: Callable[[], float], tracer: Tracer = UNTRACED) -> None:
        self._tracer = tracer
        self._threads = ThreadPoolExecutor(threads, "request")
        self._at_most = threads + waiting_max
        self._clock = clock
        self._under_way = 0

    async def run(self, call: Callable[[], T], deadline_s: float) -> T:
        """The result of `call`, or its error. deadline_s: of the server's clock; a call that has not begun by then
        never does, and its caller is told so then.
        """
        if self._under_way >= self._at_most:
            raise ProblemError(problems.OVERLOADED, "try again")

        turn = _Turn()

        def begun() -> T:
            turn.begun = True
            if turn.given_up or self._clock() >= deadline_s:
                raise _waited()
            return call()

        self._under_way += 1
        future = asyncio.get_running_loop().run_in_executor(self._threads, self._tracer.bound(begun))
        # It is under way until it has ended, whether its caller still waits or not.
        future.add_done_callback(self._ended)
        # A thread may hang far longer than the request has time.
        await asyncio.wait({future}, timeout=max(0.0, deadline_s - self._clock()))
        if not future.done():
            turn.given_up = True
            # In this order, and the thread in the other one: a call of which this says that it was not made, is not.
            if not turn.begun:
                raise _waited()
        return await asyncio.shield(future)

    def close(self) -> None:
        """Does not wait for calls that are under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: "asyncio.Future[T]") -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # the caller may be gone


class _Turn:
    """Of a call that waits for a thread. begun: it has one. given_up: its caller was told that it has not."""

    begun = False
    given_up = False


def _waited() -> ProblemError:
    return ProblemError(problems.OVERLOADED, "the request waited too long for a thread: try again")


class Runners(NamedTuple):
    """What runs the calls of requests, by what they may wait for: what hangs keeps its own kind waiting alone.

    pages: reads of a few lines of a cluster; None: the event loop's own thread, for files, which take less than to ask
    a thread. bounded: what else ends by its deadline, whatever is away. looks: what says how the system is. reads: all
    other reads, which may be long ones of the follow store. actions: what records or changes something.
    """

    pages: InThreads | None
    bounded: InThreads
    looks: InThreads
    reads: InThreads
    actions: InThreads

    def close(self) -> None:
        for each in set(self):
            if each is not None:
                each.close()
