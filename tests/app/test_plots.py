"""Plots of the last hour: from samples of a process, and from a Prometheus."""

import errno
import http.server
import json
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from feedstore.errors import NotNowError
from feedstore.metering import Counts, Definition, Label, asking
from feedstore.metering.asking import AGAIN_S, STEP_S, WITHIN_S, PrometheusHours
from feedstore.metering.meter import Sample, Spread
from feedstore.metering.plots import (
    Growth,
    Hour,
    Largest,
    Plot,
    PlotsUnavailableError,
    Quantile,
    Recorder,
    quantile,
    query,
)
from feedstore.metering.sampling import Sampler
from workers.app.metrics import ALL
from workers.app.plots import PLOTS

DEADLINE_S = 30.0
"""For what a test waits for: a machine may be slow."""

BY = (Label("cluster", of="those of the test"),)
LAG = Definition("feed_test_lag", "gauge", "Lag", "here", ("serve",), BY)
CELLS = Definition("feed_test_cells_total", "counter", "Cells", "here", ("serve",), BY)
TOOK = Definition("feed_test_seconds", "histogram", "Time", "here", ("serve",), BY, (0.1, 1.0))
TESTED = (
    Plot("lag", "Lag", "", "messages", (Largest(LAG, "cluster"),)),
    Plot("cells", "Cells", "", "cells/s", (Growth(CELLS, "cluster"),)),
    Plot("took", "Took", "", "seconds", (Quantile(TOOK, "cluster", 0.5), Quantile(TOOK, "cluster", 0.99))),
)


def told(*, lag: float, cells: float, below: tuple[int, int, int]) -> Counts:
    apart = [below[0], below[1] - below[0], below[2] - below[1]]
    return Counts(
        [Sample(CELLS.name, ("a",), cells)], [Sample(LAG.name, ("a",), lag)], [Spread(TOOK.name, ("a",), apart, 0.0)]
    )


def lines(hour: Hour) -> dict[str, list[float | None]]:
    return {each.name: each.values for plot in hour.plots for each in plot.series}


def test_a_recorder_says_values_rates_and_quantiles_of_the_last_minute() -> None:
    recorder = Recorder(TESTED)
    recorder.take(0, told(lag=3, cells=100, below=(5, 5, 5)))
    recorder.take(10_000, told(lag=0, cells=400, below=(5, 15, 15)))
    hour = recorder.hour()
    assert (hour.source, hour.times_ms) == ("own", [0, 10_000])
    lag, cells, took = hour.plots
    assert lag.series[0].values == [3, 0]
    assert cells.series[0].values == [None, 30]
    assert {each.name: each.values for each in took.series} == {
        "a p50": [None, pytest.approx(0.55)],
        "a p99": [None, pytest.approx(0.991)],
    }


def test_a_counter_that_began_again_has_grown_by_what_it_says_now() -> None:
    recorder = Recorder(TESTED[1:2])
    recorder.take(0, told(lag=0, cells=1_000, below=(0, 0, 0)))
    recorder.take(10_000, told(lag=0, cells=50, below=(0, 0, 0)))
    assert lines(recorder.hour()) == {"a": [None, 5]}


def test_a_recorder_keeps_an_hour_and_no_time_twice() -> None:
    recorder = Recorder(TESTED)
    for at in range(400):
        recorder.take(10_000 * at, told(lag=at, cells=0, below=(0, 0, 0)))
    recorder.take(3_990_000, told(lag=399, cells=0, below=(0, 0, 0)))
    hour = recorder.hour()
    assert (len(hour.times_ms), hour.times_ms[-1]) == (360, 3_990_000)
    assert hour.plots[0].series[0].values == list(range(40, 400))


def test_a_recorder_goes_by_a_clock_that_was_put_back_at_once() -> None:
    recorder = Recorder(TESTED[:2])
    for at_s, lag in ((0, 1), (10, 2), (10_000, 3), (10_010, 4), (20, 5), (30, 6)):
        recorder.take(1_000 * at_s, told(lag=lag, cells=100 * lag, below=(0, 0, 0)))
    hour = recorder.hour()
    assert hour.times_ms == [0, 10_000, 20_000, 30_000], "what came by the clock before is in the future"
    assert [each.series[0].values for each in hour.plots] == [[1, 2, 5, 6], [None, 10, 20, pytest.approx(50 / 3)]]


def test_a_quantile_is_where_prometheus_puts_it() -> None:
    assert quantile(0.5, {1.0: 10, 2.0: 20, float("inf"): 20}) == 1.0
    assert quantile(0.75, {1.0: 10, 2.0: 20, float("inf"): 20}) == 1.5
    assert quantile(0.99, {1.0: 10, float("inf"): 20}) == 1.0, "beyond the last bound it is not known"
    assert quantile(0.5, {1.0: 0, float("inf"): 0}) is None


def test_a_reading_as_a_query() -> None:
    of_lag, of_cells, of_took = (plot.readings[0] for plot in TESTED)
    assert query(of_lag, "", "1m") == "max by (cluster) (feed_test_lag)"
    assert query(of_cells, 'home="h"', "1m") == 'sum by (cluster) (rate(feed_test_cells_total{home="h"}[1m]))'
    assert "0.5, sum by (cluster, le) (rate(feed_test_seconds_bucket[1m]))" in query(of_took, "", "1m")


def test_plots_of_the_work_read_defined_metrics_by_labels_that_these_have() -> None:
    for plot in PLOTS:
        for reading in plot.readings:
            assert reading.metric in ALL
            assert reading.by in {label.name for label in reading.metric.labels}
            assert isinstance(reading, Quantile) == (reading.metric.kind == "histogram")


@contextmanager
def prometheus(
    answer: bytes, status: int = 200, gate: threading.Event | None = None, there: threading.Event | None = None
) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """gate: answers wait for it. there: is set when something was asked."""
    asked: list[dict[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query)))
            if there is not None:
                there.set()
            assert gate is None or gate.wait(DEADLINE_S)
            self.send_response(status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()
        thread.join()


def test_a_prometheus_is_asked_for_an_hour_and_not_again_for_a_moment() -> None:
    now = 7_200.0
    found = {"metric": {"cluster": "a"}, "values": [[now - STEP_S, "4"], [now, "NaN"]]}
    with prometheus(json.dumps({"status": "success", "data": {"result": [found]}}).encode()) as (url, asked):
        source = PrometheusHours(url, 'home="h"', TESTED[:1], lambda: 0.0, lambda: now + 3)
        hour = source.hour()
        assert source.hour() == hour
    assert len(asked) == 1
    assert asked[0]["query"] == 'max by (cluster) (feed_test_lag{home="h"})'
    assert (float(asked[0]["end"]), float(asked[0]["step"])) == (now, STEP_S)
    assert (hour.source, len(hour.times_ms), hour.times_ms[-1]) == ("prometheus", 240, 7_200_000)
    assert lines(hour)["a"][-3:] == [None, 4, None]


def test_a_prometheus_that_does_not_answer_is_not_asked_again_for_a_moment() -> None:
    """Those who wait behind the first one would each wait as long, on threads that other looks need."""
    clock_s = 0.0
    with prometheus(b"away", 503) as (url, asked):
        source = PrometheusHours(url, "", TESTED[:1], lambda: clock_s, lambda: 7_200.0)
        for _ in range(3):
            with pytest.raises(PlotsUnavailableError, match="does not answer"):
                source.hour()
        assert len(asked) == 1
        clock_s += AGAIN_S
        with pytest.raises(PlotsUnavailableError, match="does not answer"):
            source.hour()
        assert len(asked) == 2


def test_all_queries_of_an_answer_together_have_a_bounded_time() -> None:
    """A caller that waits for plots holds one of the few threads that answer Prometheus itself."""
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += WITHIN_S / 2  # between any two looks at it
        return now_s

    with prometheus(b'{"data": {"result": []}}') as (url, asked):
        with pytest.raises(PlotsUnavailableError, match="within"):
            PrometheusHours(url, "", TESTED, clock, lambda: 7_200.0).hour()
        assert len(asked) < len([reading for plot in TESTED for reading in plot.readings])


def test_a_caller_that_comes_while_a_prometheus_is_asked_gets_the_answer_of_before() -> None:
    """It would hold one more of the few threads that answer Prometheus itself."""
    clock_s = 0.0
    gate, there = threading.Event(), threading.Event()
    gate.set()
    with prometheus(b'{"data": {"result": []}}', gate=gate, there=there) as (url, asked):
        source = PrometheusHours(url, "", TESTED[:1], lambda: clock_s, lambda: 7_200.0 + clock_s)
        before = source.hour()
        clock_s += 2 * STEP_S
        gate.clear()
        there.clear()
        with ThreadPoolExecutor(1) as first:
            under_way = first.submit(source.hour)
            assert there.wait(DEADLINE_S)
            assert source.hour() == before
            assert not under_way.done()
            gate.set()
            assert under_way.result().times_ms[-1] == before.times_ms[-1] + 2_000 * STEP_S
        assert len(asked) == 2


@pytest.mark.parametrize("drips", [b"X-Long: ", b"Content-Length: 100000\r\n\r\n"], ids=["a head", "a body"])
def test_a_prometheus_whose_answer_drips_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, drips: bytes) -> None:
    """Each piece of it comes soon, so that no call of a socket takes too long."""
    monkeypatch.setattr(asking, "WITHIN_S", 0.2)
    enough = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n" + drips)
                while not enough.wait(0.01):
                    connection.sendall(b" ")

        answering = threading.Thread(target=answer)
        answering.start()
        source = PrometheusHours(
            f"http://127.0.0.1:{listener.getsockname()[1]}", "", TESTED[:1], time.monotonic, lambda: 7_200.0
        )
        try:
            for _ in range(2):
                with pytest.raises(PlotsUnavailableError, match="does not answer"):
                    source.hour()
            assert not enough.is_set()
        finally:
            enough.set()
            answering.join()


def test_what_speaks_no_http_is_not_now() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            with listener.accept()[0] as connection:
                connection.recv(65_536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        answering = threading.Thread(target=answer)
        answering.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(PlotsUnavailableError, match="does not answer"):
            PrometheusHours(url, "", TESTED[:1], lambda: 0.0, lambda: 7_200.0).hour()
        answering.join()


def test_a_prometheus_whose_port_is_no_number_is_not_now() -> None:
    with pytest.raises(PlotsUnavailableError, match="does not answer"):
        PrometheusHours("http://localhost:web", "", TESTED[:1], lambda: 0.0, lambda: 7_200.0).hour()


def test_a_sample_that_fails_does_not_end_the_samples() -> None:
    faults: list[Exception] = [OSError(errno.ENFILE, "too many open files in system"), NotNowError("away")]

    def counts() -> Counts:
        if faults:
            raise faults.pop()
        return Counts()

    sampler = Sampler(TESTED, counts, lambda: 1_000)
    for taken in (0, 0, 1):
        sampler.take()
        assert len(sampler.hour().times_ms) == taken


OF_ANOTHER_TIME = {"data": {"result": [{"metric": {"cluster": "a"}, "values": [[7_201, "4"]]}]}}


@pytest.mark.parametrize("answer", [b"no", b"{}", json.dumps(OF_ANOTHER_TIME).encode()])
def test_a_prometheus_that_answers_something_else_is_not_now(answer: bytes) -> None:
    with prometheus(answer) as (url, _), pytest.raises(PlotsUnavailableError):
        PrometheusHours(url, "", TESTED[:1], lambda: 0.0, lambda: 7_200.0).hour()
