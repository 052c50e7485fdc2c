"""What a drill that was killed leaves broken is healed by the next one, and two do not break things at once."""

from pathlib import Path

import pytest

from deploy.drills.catalogue import DRILLS
from deploy.drills.drill_lock import NAME, locked
from deploy.drills.hosts import NotDrillableError
from tests.drills.fake_hosts import FakeHosts


def test_what_a_killed_drill_broke_is_healed_by_the_next(tmp_path: Path) -> None:
    hosts = FakeHosts()
    drill = DRILLS["kill-host"]
    target = next(each for each in hosts.all() if each.holds_regions)
    with locked(tmp_path) as first:
        assert first.heal(hosts) == ""
        first.write(drill.name, [target.name])
        assert drill.fault is not None
        drill.fault.inject(hosts, [target])
    # It ended without having wiped its mark.
    with locked(tmp_path) as second:
        assert second.heal(hosts) == f"kill-host on {target.name}"
        assert all(each.is_running for each in hosts.all())
        assert second.heal(hosts) == ""


def test_a_mark_that_cannot_be_read_heals_nothing_and_goes_away(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{half")
    with locked(tmp_path) as found:
        assert found.heal(FakeHosts())
    assert not (tmp_path / NAME).read_text()


def test_a_second_drill_of_a_home_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(NotDrillableError, match="under way"), locked(tmp_path):
        pass
