"""The threads for the calls of a service, which block."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from feedstore.http import problems
from feedstore.http.problems import ProblemError
from feedstore.tracing import UNTRACED, Tracer

T = TypeVar("T")


class InThreads:
    """Runs calls that may wait for a server, on threads. A bounded number of calls waits for a thread.

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
        """The result of `call`, or its error. deadline_s: by the server's clock. If a call has not begun by then, it
        never begins, and the caller gets an error at that time.
        """
        if self._under_way >= self._at_most:
            raise ProblemError(problems.OVERLOADED, "try again")

        turn = _Turn()

        def begun() -> T:
            turn.begun = True
            if turn.given_up or self._clock() >= deadline_s:
                raise _waited()
            return call()

        try:
            future = asyncio.get_running_loop().run_in_executor(self._threads, self._tracer.bound(begun))
        except RuntimeError as error:  # the machine has no thread left
            turn.given_up = True  # the pool has kept the call, for the threads that it has
            if turn.begun:
                raise
            raise ProblemError(problems.OVERLOADED, "try again", cause=str(error)) from error
        self._under_way += 1
        # The call counts as under way until it has ended, even if its caller no longer waits.
        future.add_done_callback(self._ended)
        # A call may hang in its thread far beyond the deadline of the request.
        await asyncio.wait({future}, timeout=max(0.0, deadline_s - self._clock()))
        if not future.done():
            turn.given_up = True
            # This sets `given_up` and then reads `begun`; the thread does it the other way round. So a call that is
            # reported as not made is really not made.
            if not turn.begun:
                raise _waited()
        return await asyncio.shield(future)

    def close(self) -> None:
        """Ends the threads. Does not wait for calls that are under way."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: "asyncio.Future[T]") -> None:
        self._under_way -= 1
        if not future.cancelled():
            future.exception()  # the caller may be gone


class _Turn:
    """The state of a call that waits for a thread. begun: it has one. given_up: its caller was told so."""

    begun = False
    given_up = False


def _waited() -> ProblemError:
    return ProblemError(problems.OVERLOADED, "the request waited too long for a thread: try again")


class Runners(NamedTuple):
    """What runs the calls of requests, by what these may wait for: a call that hangs delays only those of its own kind.

    pages: reads of a few lines of a cluster; None: the event loop's own thread, for clusters in files, which answer
    faster than a thread can be asked. bounded: other calls that end by their deadline, whatever is away. looks: reports
    of the state of the system. reads: all other reads, some of them long ones of the follow store. actions: calls that
    record or change something.
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
