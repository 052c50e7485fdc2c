"""What a process tells its parent of what it counts, and what is known once it is silent or has ended."""

import os
import threading

import msgspec
import pytest

from feedstore.metering import CLUSTER, Counting, Counts, Definition
from feedstore.metering.meter import Sample
from tests.cli.command import eventually
from workers.app import metering
from workers.app.metering import SILENT_S, HeardProcess, MetricsEndpoint, tell

DONE = Definition("feed_tests_total", "counter", "Done", "x.py", ("work",), (CLUSTER,))
LAG = Definition("feed_tests_lag", "gauge", "Left to do", "x.py", ("work",), (CLUSTER,))


class Other:
    """Another process, as its parent sees it: a thread that tells."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(metering, "TELL_EVERY_S", 0.001)
        self.now_s = 0.0
        self.meter = Counting(lambda: 0.0)
        theirs, self.descriptor = os.pipe()
        self.heard = HeardProcess(theirs, lambda: self.now_s)
        self.ends = False

    def start(self) -> threading.Thread:
        thread = threading.Thread(target=tell, args=(self.descriptor, self.counts), daemon=True)
        thread.start()
        return thread

    def counts(self) -> Counts:
        if self.ends:
            raise OSError("the process ends")
        return self.meter.counts()

    def told(self) -> tuple[list[float], list[float]]:
        counts = self.heard.counts()
        return [each.value for each in counts.counters], [each.value for each in counts.gauges]


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Other:
    return Other(monkeypatch)


def test_what_it_counts_is_heard_until_it_ends(other: Other):
    other.meter.add(DONE, 1, "a")
    other.meter.note(LAG, 5, "a")
    thread = other.start()
    eventually(lambda: other.told() == ([1], [5]), "it is heard")
    other.meter.add(DONE, 1, "a")
    eventually(lambda: other.told() == ([2], [5]), "it is heard again")
    other.ends = True
    thread.join(30)
    os.close(other.descriptor)
    eventually(lambda: other.told() == ([2], []), "what it counted stays, how it is is unknown")


def test_one_that_is_silent_is_known_no_more(other: Other):
    other.meter.add(DONE, 1, "a")
    other.meter.note(LAG, 5, "a")
    thread = other.start()
    eventually(lambda: other.told() == ([1], [5]), "it is heard")
    other.ends = True  # it hangs: its end of the pipe stays open
    thread.join(30)
    other.now_s += SILENT_S + 0.1
    assert other.told() == ([1], [])
    os.close(other.descriptor)


def test_an_endpoint_says_what_all_of_them_count():
    own = Counting(lambda: 0.0)
    endpoint = MetricsEndpoint(None, "work")
    theirs, descriptor = os.pipe()
    heard = HeardProcess(theirs)
    endpoint.hear(heard)
    os.write(descriptor, msgspec.json.encode(Counts([Sample(DONE.name, ("a",), 3)])) + b"\n")
    os.close(descriptor)
    eventually(lambda: heard.counts().counters, "it is heard")

    def done() -> list[float]:
        return [each.value for each in endpoint.counts().counters if each.name == DONE.name]

    assert done() == [3], "this process counts nothing yet"
    with endpoint.of(own):
        own.add(DONE, 2, "a")
        counts = endpoint.counts()
        assert done() == [5]
    assert done() == [3]
    assert {each.labels for each in counts.gauges if each.name == "feed_process_threads"} == {("work",)}
    endpoint = MetricsEndpoint(Counting(lambda: 0.0), "work")
    names = {each.name for each in endpoint.counts().without(["feed_process_threads"]).gauges}
    assert "feed_process_open_files" in names
    assert "feed_process_threads" not in names
