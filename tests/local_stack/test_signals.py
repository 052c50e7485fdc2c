"""What unwinds a program that has something to end in order."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.signals import unwinding

BOTH = (signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_unwinds_and_another_one_does_not_cut_that_short(number: signal.Signals) -> None:
    for each in BOTH:
        signal.signal(each, signal.SIG_DFL)
    ended = []

    def work() -> None:
        try:
            signal.raise_signal(number)
        finally:
            for each in BOTH:
                signal.raise_signal(each)
                ended.append(each)

    with pytest.raises(SystemExit) as raised, unwinding():
        work()
    assert raised.value.code == 128 + number
    assert ended == list(BOTH)


def test_what_runs_under_nohup_outlives_its_terminal() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with unwinding():
        signal.raise_signal(signal.SIGHUP)
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)


DROPPED = """
import signal
import time
import weakref

from deploy.local.signals import unwinding


class Something:
    pass


something = Something()
look = weakref.ref(something, lambda _: signal.raise_signal(signal.{}))
with unwinding():
    try:
        del something
        print("dropped", flush=True)
        time.sleep(600)
    finally:
        print("unwound")
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", BOTH)
def test_a_signal_whose_exception_python_drops_unwinds_all_the_same(number: signal.Signals) -> None:
    signal.signal(number, signal.SIG_DFL)
    words = [sys.executable, "-c", DROPPED.format(number.name)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (128 + number, "dropped\nunwound\n"), done.stderr
    assert "Exception ignored in" in done.stderr


ENDED = """
import signal

import pytest


@pytest.fixture
def clusters():
    yield
    print("taken away")


def test_something(clusters):
    signal.raise_signal(signal.{})
"""


@pytest.mark.processes
@pytest.mark.parametrize("number", BOTH)
def test_a_signal_that_ends_tests_lets_them_take_away_what_they_have_started(
    tmp_path: Path, number: signal.Signals
) -> None:
    # As where somebody runs them in a terminal, whatever runs these.
    signal.signal(number, signal.SIG_DFL)
    (tmp_path / "test_ended.py").write_text(ENDED.format(number.name))
    words = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "0"]
    done = subprocess.run(
        [*words, "-c", "/dev/null", str(tmp_path)], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 128 + number, done.stdout + done.stderr
    assert "taken away" in done.stdout
