"""How busy the processors were, and what a report says of it."""

import pytest

from deploy.drills import page, processors
from deploy.drills import report as reporting
from deploy.drills.processors import Busy, mean_share
from deploy.drills.report import DrillSetting, Moments, Observed
from deploy.drills.samples import CallSample

SETTING = DrillSetting("kill-host", "a", "a-host-2", 1, "2026-01-01T00:00:00+00:00", 20, False, 16, 1)


def test_the_mean_is_of_what_was_measured_in_the_span() -> None:
    measured = [Busy(1, 0.2), Busy(2, 0.5), Busy(3, 1.0), Busy(4, 0.1)]
    assert mean_share(measured, 1, 3) == 0.75
    assert mean_share(measured, 4, 9) is None


def test_a_machine_that_works_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real counters: a thread that does nothing but work is seen in them."""
    monkeypatch.setattr(processors, "EVERY_S", 0.01)
    measured: list[Busy] = []
    with processors.measuring(measured):
        while not any(each.share > 0 for each in list(measured)):
            pass  # it works
    assert all(0 <= each.share <= 1 for each in measured)


def test_a_report_says_how_busy_the_machine_was_until_the_regions_were_back() -> None:
    samples = [CallSample("read", 0, 13.0, 1.0, is_done=True)]
    measured = [Busy(9.5, 0.6), Busy(12, 0.9), Busy(14, 1.0), Busy(15, 0.1)]
    moments = Moments(8, 10, 10.5, 30, 40)
    seen = Observed(moments, samples, affected=[0], processors=measured)
    found = reporting.figures(SETTING, seen)
    assert (found.processors_before, found.processors_recovering) == (60, 95)
    run = reporting.assemble(SETTING, found, {}, seen)
    assert run.report.processors == [(-0.5, 0.6), (2, 0.9), (4, 1.0), (5, 0.1)]
    assert "95 % of this machine's processors were in use, and 60 % before" in page.markdown(run.report)


def test_where_nothing_was_affected_or_measured_it_is_not_said() -> None:
    seen = Observed(Moments(8, 10, 10.5, 30, 40), [], unaffected=[0], processors=[Busy(12, 0.9)])
    found = reporting.figures(SETTING, seen)
    assert (found.processors_before, found.processors_recovering) == (None, None)
