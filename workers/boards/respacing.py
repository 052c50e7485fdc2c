"""Making room on boards, after drops that left little of it."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from feedstore.boards import Boards, Respaced
from feedstore.domain import RespaceAsked
from feedstore.follows.port import TransactionTooLongError
from feedstore.metering import UNCOUNTED, Meter
from workers.boards import metrics
from workers.boards.walks import respaced

ROWS: Final = 16
"""The most rows of one transaction: a drop on the same board waits for one."""

ROWS_AGAIN: Final = 64
"""The most rows of one transaction if each looks again at what those before it have passed: that takes most of its
time."""

TRANSACTIONS: Final = 2_048
REQUEST_S: Final = 1.0
"""A request gets this many transactions at once, and this much time after the first. Then the rest is requested again,
so that other tasks go first: ticks, and so the watermarks of all clusters, wait for it."""

CALL_S: Final = 2.0
"""When a call has lasted this long, requests that it has not begun are made again."""

_log = structlog.get_logger()


class Respacing:
    """Handles requests for re-spacing. It has no state: if it is killed, the next one plans from what is there.

    clock: monotonic seconds. rows: the most rows that one transaction writes; reorders of the board wait for it. meter:
    counts the work.
    """

    def __init__(self, boards: Boards, clock: Callable[[], float], rows: int = ROWS, meter: Meter = UNCOUNTED) -> None:
        self._boards = boards
        self._clock = clock
        self._rows = rows
        self._meter = meter
        meter.add(metrics.ROWS, 0)
        meter.observe(metrics.WINDOW, [])

    def respace(self, requests: Sequence[RespaceAsked]) -> None:
        """Makes room at each of these pins; what takes long is requested again, unless one transaction of it takes too
        long. Requests do not become too old: each is done by what is there now.

        Raises FollowStoreUnavailableError: some requests are done; do all again.
        """
        until_s = self._clock() + CALL_S
        for asked in {(each.board, each.pin): each for each in requests}.values():
            if self._clock() < until_s:
                self._respace(asked)
            else:
                self._boards.ask_respace(asked.board, asked.pin)

    def _respace(self, asked: RespaceAsked) -> None:
        rows = window = 0
        done = False
        error = None
        try:
            for step in self._steps(asked):
                rows, window, done = rows + step.rows, max(window, step.window), step.done
        except TransactionTooLongError as too_long:
            error = str(too_long)
        if rows and not done and error is None:
            self._boards.ask_respace(asked.board, asked.pin)
        elif not done:
            # Other writers were faster each time: if room is short, they have asked for it themselves. Or there is too
            # much to look at: it would be so again, and ticks would wait without end. The next drop there asks again.
            _log.warning("boards.not_respaced", board=asked.board, pin=asked.pin, window=window, error=error)
        self._meter.add(metrics.ROWS, rows)
        if window:
            self._meter.observe(metrics.WINDOW, [window])
        if rows:
            _log.info("boards.respaced", board=asked.board, pin=asked.pin, rows=rows, window=window)

    def _steps(self, asked: RespaceAsked) -> Iterator[Respaced]:
        until_s: float | None = None
        steps = respaced(self._boards, asked, self._rows, max(self._rows, ROWS_AGAIN))
        for step in itertools.islice(steps, TRANSACTIONS):
            yield step
            # The time counts from the end of the first transaction, which planned the window. That may take long: a
            # request without a second transaction would plan more than it writes.
            now_s = self._clock()
            if until_s is None:
                until_s = now_s + REQUEST_S
            elif now_s >= until_s:
                return
