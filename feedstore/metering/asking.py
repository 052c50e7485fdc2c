"""Asks a Prometheus for plots, over its HTTP API (`/api/v1/query_range`)."""

import math
import threading
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from http.client import HTTPException
from typing import Final

import msgspec

from feedstore.background import answer_of, on_a_thread
from feedstore.metering.plots import HOUR_S, WINDOW_S, Hour, Plot, PlotsUnavailableError, Reading, drawn, name_of, query

STEP_S: Final = 15
AGAIN_S: Final = 5.0
"""How long an answer is reused: all callers at about the same time get the same one."""
WITHIN_S: Final = 5.0
"""How long all queries of one answer may take together, and how long a caller waits for it: the look-up of a name, or
the head of an answer that comes byte by byte, may take longer.
"""
_ANSWER_MAX: Final = 8_000_000


class _Found(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Data(msgspec.Struct, frozen=True):
    result: list[_Found]


class _Answer(msgspec.Struct, frozen=True):
    data: _Data


_decode: Final = msgspec.json.Decoder(_Answer).decode


class PrometheusHours:
    """Thread-safe. url: http://HOST:PORT. matching: a selector of our series, such as `home="x"`.

    clock: monotonic seconds. wall_s: the time.
    """

    def __init__(
        self,
        url: str,
        matching: str,
        plots: Sequence[Plot],
        clock: Callable[[], float],
        wall_s: Callable[[], float],
    ) -> None:
        self._url = url
        self._matching = matching
        self._plots = plots
        self._clock = clock
        self._wall_s = wall_s
        self._lock = threading.Lock()
        self._asking = False
        self._asked_s = -math.inf
        self._kept: Hour | None = None
        self._why = "it is asked for the first time just now"
        """Why there is no answer."""

    def hour(self) -> Hour:
        """The plots of the last hour. Raises PlotsUnavailableError.

        Only the caller that begins a look waits for it, and for `WITHIN_S` at most: callers that come meanwhile get the
        answer or the error of the look before. They are on threads that other looks need.
        """
        with self._lock:
            began_s = self._clock()
            if self._asking or began_s - self._asked_s < AGAIN_S:
                return self._last()
            try:
                look = answer_of(partial(self._look, began_s + WITHIN_S), on_a_thread("plots"))
            except RuntimeError as error:  # the machine has no thread left
                raise PlotsUnavailableError(str(error)) from error
            self._asking = True
        with suppress(TimeoutError):
            look.result(WITHIN_S)
        with self._lock:
            if self._asking:
                self._kept, self._why = None, f"{self._url} does not answer within {WITHIN_S:g} s"
            return self._last()

    def close(self) -> None:
        """Does nothing, as nothing is open."""

    def _last(self) -> Hour:
        if self._kept is None:
            raise PlotsUnavailableError(self._why)
        return self._kept

    def _look(self, until_s: float) -> None:
        found, why = None, self._why
        try:
            found = self._found(until_s)
        except (OSError, HTTPException, msgspec.MsgspecError, ValueError) as error:
            why = f"{self._url} does not answer: {error}"
        finally:
            # The look that is late counts, too: what it found is the newest.
            with self._lock:
                self._kept, self._why = found, why
                self._asked_s = self._clock()
                self._asking = False

    def _found(self, until_s: float) -> Hour:
        # At whole steps, so that the next answer has the same points, except the newest.
        end = math.floor(self._wall_s() / STEP_S) * STEP_S
        times = range(end - HOUR_S + STEP_S, end + 1, STEP_S)
        places = {at: place for place, at in enumerate(times)}
        lines: dict[tuple[str, str], list[float | None]] = {}
        for plot in self._plots:
            for reading in plot.readings:
                for found in self._series(reading, times, until_s):
                    name = name_of(reading, found.metric.get(reading.by, ""))
                    line = lines.setdefault((plot.name, name), [None] * len(times))
                    for at, text in found.values:
                        if (place := places.get(round(at))) is None:
                            raise ValueError("it answers for other times than it was asked for")
                        number = float(text)
                        if math.isfinite(number):
                            line[place] = number
        return Hour("prometheus", 1_000 * STEP_S, [1_000 * at for at in times], drawn(self._plots, lines))

    def _series(self, reading: Reading, times: range, until_s: float) -> list[_Found]:
        within_s = self._left_s(until_s)
        asked = urllib.parse.urlencode(
            {
                "query": query(reading, self._matching, f"{WINDOW_S}s"),
                "start": times[0],
                "end": times[-1],
                "step": STEP_S,
                "timeout": f"{within_s:.3f}s",
            }
        )
        with urllib.request.urlopen(f"{self._url}/api/v1/query_range?{asked}", timeout=within_s) as answer:  # noqa: S310 - the configuration's own
            text = bytearray()
            # A socket's time-out is for one call: an answer that comes byte by byte would be read for hours.
            while len(text) < _ANSWER_MAX and (part := answer.read1(_ANSWER_MAX - len(text))):
                self._left_s(until_s)
                text += part
            return _decode(text).data.result

    def _left_s(self, until_s: float) -> float:
        """The time that is left until then. Raises TimeoutError if none is."""
        left_s = until_s - self._clock()
        if left_s <= 0:
            raise TimeoutError(f"not all of it within {WITHIN_S:g} s")
        return left_s
