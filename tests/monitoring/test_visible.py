"""From an action to visible: the metric says what a client outside sees."""

from pathlib import Path

import pytest

from tests.monitoring.visible import Compared, Counted, Took, embedded


@pytest.mark.processes
def test_the_metric_is_what_a_client_that_polls_has_seen(tmp_path: Path) -> None:
    found = embedded(tmp_path, 20)
    assert found.metric.count == len(found.client) == 20
    assert found.is_possible, found.lines()


def test_a_metric_that_is_off_by_a_tenth_is_found() -> None:
    took = [Took(about=0.100, least=0.099, most=0.101)] * 10
    below = {0.1: 5.0, 0.2: 10.0, float("inf"): 10.0}
    assert Compared(took, Counted(10, 1.0, below)).is_possible
    assert not Compared(took, Counted(10, 1.1, below)).is_possible
    assert not Compared(took, Counted(10, 0.9, below)).is_possible
