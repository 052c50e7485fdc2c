"""/metrics: the counts of requests, and those of other parts."""

from collections import Counter, defaultdict
from typing import Final

from feedstore.metering import Counted, Counts, Label
from feedstore.metering.meter import Histogram, Sample, Spread

_BUCKETS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_SERVED: Final = Counted("feedstore/http/metrics.py", ("serve",))
_ENDPOINT: Final = Label(
    "endpoint", of="the endpoints of docs/http.md; `none` for all other paths, and for what is refused unread"
)

REQUESTS: Final = _SERVED.counter(
    "feed_http_requests_total",
    "HTTP requests answered, also those that are refused unread, as when too many connections come",
    _ENDPOINT,
    Label("method", of="the methods of docs/http.md; `other` for all else"),
    Label("status", of="the statuses of docs/http.md"),
)
SECONDS: Final = _SERVED.histogram(
    "feed_http_request_seconds",
    "Duration of HTTP requests, from when they are begun until their answer is handed to the kernel",
    _ENDPOINT,
    buckets=_BUCKETS_S,
)
UNDER_WAY: Final = _SERVED.gauge("feed_http_requests_under_way", "HTTP requests being answered")


class Metrics:
    """The metrics of one server, counted since it was made. Used by one thread, and so without locks: counting takes
    about a microsecond for each request.
    """

    def __init__(self) -> None:
        self._under_way = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._times: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(SECONDS.buckets))

    def began(self) -> None:
        self._under_way += 1

    def ended(self, endpoint: str, method: str, status: int, took_s: float) -> None:
        """Counts a request that has ended. endpoint, method: only known ones, never a text that a caller made up."""
        self._under_way -= 1
        self._requests[endpoint, method, status] += 1
        self._times[endpoint].add(took_s)

    def refused(self, status: int) -> None:
        """Counts a request that was refused before it was read."""
        self._requests["none", "other", status] += 1

    def counts(self) -> Counts:
        return Counts(
            [
                Sample(REQUESTS.name, (endpoint, method, str(status)), count)
                for (endpoint, method, status), count in self._requests.items()
            ],
            [Sample(UNDER_WAY.name, (), self._under_way)],
            [Spread(SECONDS.name, (endpoint,), times.counts(), times.sum) for endpoint, times in self._times.items()],
        )
