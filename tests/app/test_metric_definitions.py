"""The one list of metrics: names, labels, and where each is counted."""

import importlib
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from feedstore.metering import Definition, Kind, Label
from workers.app import metrics

ROOT = Path(__file__).parents[2]


EXTRAS = ("crc32c", "kafka", "lru", "pymysql", "starlette", "thriftpy2", "uvicorn")


@pytest.mark.processes
def test_the_list_needs_no_library_of_another_extra():
    """A worker serves metrics with `feedstore[metrics]` alone."""
    code = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS})); import workers.app.metrics"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_no_two_have_one_name():
    assert [name for name, times in Counter(each.name for each in metrics.ALL).items() if times > 1] == []


def test_no_two_are_confused_once_they_are_served():
    """A histogram x serves x_bucket, x_sum and x_count."""
    served = [
        f"{each.name}{ending}"
        for each in metrics.ALL
        for ending in (("_bucket", "_sum", "_count") if each.kind in {"histogram", "summary"} else ("",))
    ]
    assert len(served) == len(set(served))


def test_all_that_a_room_defines_is_listed():
    rooms = [*ROOT.glob("feedstore/**/metrics.py"), *ROOT.glob("workers/**/metrics.py")]
    names = {".".join(room.relative_to(ROOT).with_suffix("").parts) for room in rooms} - {"workers.app.metrics"}
    modules = [importlib.import_module(name) for name in sorted(names)]
    defined = [each for module in modules for each in vars(module).values() if isinstance(each, Definition)]
    assert {each.name for each in defined} == {each.name for each in metrics.ALL}


@pytest.mark.parametrize(
    ("name", "kind", "buckets"),
    [
        ("reads_total", "counter", ()),
        ("feed_reads", "counter", ()),
        ("feed_reads_total", "gauge", ()),
        ("feed_read_seconds", "histogram", ()),
        ("feed_read_seconds", "gauge", (1.0,)),
    ],
)
def test_a_definition_that_prometheus_would_misread_is_refused(name: str, kind: Kind, buckets: tuple[float, ...]):
    with pytest.raises(ValueError, match=name):
        Definition(name, kind, "Reads", "x.py", ("serve",), (), buckets)


def test_a_label_has_values_or_a_bound():
    with pytest.raises(ValueError, match="cluster"):
        Label("cluster")
