"""What unwinds a program that has something to end in order."""

import signal
from collections.abc import Iterator

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
