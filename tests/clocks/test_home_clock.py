"""One time for all processes of a home, whatever the clock of one of them says."""

import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from feedstore import clocks, durable
from feedstore.clocks import HomeClock, Machine, Moment

NOW = 1_700_000_000_000
UP = 5_000_000
DAY = 86_400_000
BOUND = 5_000
JUMPS = [sign * size for sign in (1, -1) for size in (60_000, DAY, 400 * DAY)]


@dataclass
class FakeMachine:
    """A machine, as one of its processes sees it. Time passes for all; `off_ms` is one process's own fault."""

    passed: list[int]
    boot: str = "first"
    booted_ms: int = NOW - UP
    off_ms: int = 0

    def wall_ms(self) -> int:
        return self.booted_ms + UP + self.passed[0] + self.off_ms

    def __call__(self) -> Moment:
        return Moment(self.wall_ms(), UP + self.passed[0], self.boot)

    def monotonic_s(self) -> float:
        return self.passed[0] / 1_000


@dataclass
class Home:
    """Where processes are started, each with its own clock."""

    folder: Path
    machine: FakeMachine = field(default_factory=lambda: FakeMachine([0]))
    stamped_ms: int = 0

    def passes(self, ms: int) -> None:
        self.machine.passed[0] += ms

    def rebooted(self, rest_ms: int, off_ms: int = 0) -> None:
        """The machine was off for so long, and its clock is off by so much when it has come up."""
        began_ms = self.machine.wall_ms() + rest_ms - UP - self.machine.passed[0]
        self.machine = FakeMachine(self.machine.passed, "second", began_ms, off_ms)

    def process(self, off_ms: int = 0) -> tuple[HomeClock, FakeMachine]:
        seen = replace(self.machine, off_ms=self.machine.off_ms + off_ms)
        path = self.folder / "clock.json"
        return HomeClock(path, seen, lambda: self.stamped_ms, BOUND, seen.monotonic_s), seen

    def clock(self, off_ms: int = 0) -> HomeClock:
        return self.process(off_ms)[0]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("off_ms", JUMPS)
def test_a_process_whose_clock_is_off_goes_by_the_others(home: Home, off_ms: int) -> None:
    right, wrong = home.clock(), home.clock(off_ms)
    assert (right(), wrong()) == (NOW, NOW)
    home.passes(3_000)
    assert (wrong(), right()) == (NOW + 3_000, NOW + 3_000)


@pytest.mark.parametrize("off_ms", JUMPS)
def test_it_is_named_with_its_offset_and_forgotten_a_minute_after_it_has_ended(
    home: Home, off_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    right, wrong = home.clock(), home.clock(off_ms)
    right()
    assert right.off() == []
    wrong()
    [named] = right.off()
    assert named.offset_ms == off_ms
    home.passes(clocks.OFF_MS + 1)
    assert [each.pid for each in right.off()] == [named.pid], "it still runs"
    monkeypatch.setattr(clocks, "_runs", lambda _: False)
    assert right.off() == []


def test_another_process_with_the_id_of_one_that_has_ended_is_not_named(home: Home) -> None:
    """As in a container, whose processes have the same ids after each restart."""
    right, wrong = home.clock(), home.clock(DAY)
    right(), wrong()
    file = home.folder / "clock.json"
    [noted] = right.off()
    file.write_text(file.read_text().replace(f'"started":{noted.started}', f'"started":{(noted.started or 0) - 1}'))
    assert len(right.off()) == 1, "it noted that less than a minute ago"
    home.passes(clocks.OFF_MS + 1)
    assert right.off() == []
    # An earlier program did not note when it began.
    file.write_text(file.read_text().replace(f',"started":{(noted.started or 0) - 1}', ""))
    assert [each.pid for each in right.off()] == [os.getpid()]


@pytest.mark.parametrize("off_ms", JUMPS)
def test_it_is_not_named_any_more_once_its_clock_is_right_again(home: Home, off_ms: int) -> None:
    right = home.clock()
    right()
    stepping, seen = home.process()
    for _ in range(2):
        seen.off_ms = off_ms
        stepping()
        assert [each.offset_ms for each in right.off()] == [off_ms]
        home.passes(10)
        seen.off_ms = 0
        stepping()
        assert right.off() == []
        home.passes(10)


@pytest.mark.parametrize("off_ms", JUMPS)
def test_a_clock_that_steps_while_its_process_runs_is_noticed_at_once(home: Home, off_ms: int) -> None:
    clock, seen = home.process()
    assert clock() == NOW
    home.passes(10)
    seen.off_ms = off_ms
    assert clock() == NOW + 10
    home.passes(10)
    seen.off_ms = 0
    assert clock() == NOW + 20


@pytest.mark.parametrize("off_ms", JUMPS)
def test_a_process_knows_how_far_its_own_clock_is_off_and_notes_nothing_to_say_so(home: Home, off_ms: int) -> None:
    right, wrong = home.clock(), home.clock(off_ms)
    assert (right.own_offset_ms(), wrong.own_offset_ms()) == (None, None), "the home has no time yet"
    right()
    before = {path: path.stat().st_mtime_ns for path in home.folder.iterdir()}
    assert (right.own_offset_ms(), wrong.own_offset_ms()) == (None, off_ms)
    assert {path: path.stat().st_mtime_ns for path in home.folder.iterdir()} == before
    right.set()
    assert wrong.own_offset_ms() == off_ms
    wrong.set()
    assert wrong.own_offset_ms() is None


def test_a_clock_that_is_off_by_less_than_the_bound_is_its_processs_own(home: Home) -> None:
    right, nearly = home.clock(), home.clock(BOUND)
    assert (right(), nearly()) == (NOW, NOW + BOUND)
    assert nearly.own_offset_ms() is None
    assert right.off() == []


def test_a_home_may_rest_for_any_time_while_its_machine_is_off(home: Home) -> None:
    home.clock()()
    home.stamped_ms = NOW
    home.rebooted(400 * DAY)
    right, wrong = home.clock(), home.clock(-DAY)
    assert right() == NOW + 400 * DAY
    assert wrong() == NOW + 400 * DAY


def test_after_a_boot_a_clock_behind_what_was_stamped_decides_nothing(home: Home) -> None:
    home.clock()()
    home.stamped_ms = NOW
    home.rebooted(60_000)
    early, right = home.clock(-DAY), home.clock()
    assert early() == NOW + 60_000 - DAY, "what it stamps is never before what was stamped"
    assert right() == NOW + 60_000
    home.passes(1_000)
    assert early() == NOW + 61_000


def test_a_process_that_is_right_can_set_the_homes_time(home: Home) -> None:
    wrong, right = home.clock(DAY), home.clock()
    assert wrong() == NOW + DAY, "no other process was there"
    assert right() == NOW + DAY
    right.set()
    home.passes(1_000)
    assert (right(), wrong()) == (NOW + 1_000, NOW + 1_000)
    assert [each.offset_ms for each in right.off()] == [DAY]


@pytest.mark.parametrize("content", [b"", b"{", b'{"boot":1}', b"\xff"])
def test_an_anchor_that_cannot_be_read_is_made_anew(home: Home, content: bytes) -> None:
    (home.folder / "clock.json").write_bytes(content)
    assert home.clock()() == NOW
    assert home.clock(DAY)() == NOW


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"{"), lambda file: file.rename(f"{file}.bak")])
def test_an_anchor_that_was_brought_back_counts_again(home: Home, damage: Callable[[Path], object]) -> None:
    """A copy has the times of the file that it was made of, and maybe its inode."""
    right, wrong = home.clock(), home.clock(-DAY)
    assert (right(), wrong()) == (NOW, NOW)
    home.stamped_ms = NOW
    home.passes(1_000)
    assert wrong() == NOW + 1_000
    file = home.folder / "clock.json"
    content, status = file.read_bytes(), file.stat()
    damage(file)
    home.passes(1_000)
    assert wrong() == NOW - DAY + 2_000, "it may not say when the machine booted"
    if not file.exists():
        Path(f"{file}.bak").rename(file)
    file.write_bytes(content)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    home.passes(1_000)
    assert wrong() == NOW + 3_000


def test_without_a_place_for_the_anchor_a_process_goes_by_its_own_clock(home: Home) -> None:
    home.folder /= "missing"
    assert home.clock(DAY)() == NOW + DAY


@pytest.fixture
def warned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The warnings in the log."""
    events: list[str] = []
    log = SimpleNamespace(warning=lambda event, **_: events.append(event), error=lambda _event, **_about: None)
    monkeypatch.setattr(clocks, "_log", log)
    return events


def compare(home: Home, clock: HomeClock) -> None:
    for _ in range(20):
        home.passes(1_000)
        clock()


def test_a_lack_of_an_anchor_is_logged_when_it_begins(home: Home, warned: list[str]) -> None:
    home.folder /= "missing"
    clock = home.clock()
    compare(home, clock)
    assert warned == ["clock.no_anchor"]
    home.folder.mkdir()
    compare(home, clock)
    assert warned == ["clock.no_anchor"]
    shutil.rmtree(home.folder)
    home.folder.write_text("a file")
    compare(home, clock)
    assert warned == ["clock.no_anchor", "clock.no_anchor"]


def test_an_anchor_that_cannot_be_read_is_logged_once_while_nothing_may_replace_it(
    home: Home, warned: list[str]
) -> None:
    home.stamped_ms = NOW + DAY
    (home.folder / "clock.json").write_bytes(b"{")
    compare(home, home.clock())
    assert warned == ["clock.no_anchor"]


def test_a_process_that_is_suspended_while_it_writes_the_time_stops_no_other(
    home: Home, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clocks, "BEGIN_WAIT_S", 0.0)
    path = home.folder / "clock.json"
    with durable.changing(path):
        clock = home.clock(DAY)
        assert (clock(), warned) == (NOW + DAY, ["clock.no_anchor"])
    right = home.clock()
    assert right() == NOW
    with durable.changing(path):
        home.passes(1_000)
        assert clock() == NOW + 1_000, "it goes by the home's time, and is named later"
    home.passes(clocks.NOTE_EVERY_MS)
    clock()
    assert [each.offset_ms for each in right.off()] == [DAY]


def meanwhile(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Another process does this just before the next one may change the anchor."""
    changing, calls = durable.changing, iter([call])

    @contextmanager
    def changed(path: Path, within_s: float = 1.0) -> Iterator[None]:
        for each in calls:
            each()
        with changing(path, within_s):
            yield

    monkeypatch.setattr(durable, "changing", changed)


def test_of_processes_that_begin_at_once_the_first_decides(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile(monkeypatch, home.clock())
    assert home.clock(DAY)() == NOW


def test_a_process_that_notes_that_it_is_off_takes_back_no_time_that_is_set_meanwhile(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.clock(DAY)()
    meanwhile(monkeypatch, home.clock().set)
    assert home.clock()() == NOW + DAY, "it had compared before"
    assert home.clock()() == NOW


def test_nor_does_one_that_is_right_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.clock()()
    clock, machine = home.process(DAY)
    clock()
    machine.off_ms = 0
    meanwhile(monkeypatch, home.clock(2 * DAY).set)
    clock()
    assert home.clock()() == NOW + 2 * DAY


def test_a_home_remembers_a_bounded_number_of_processes() -> None:
    anchor = clocks.Anchor("boot", NOW, "first")
    for pid in range(2 * clocks.OFF_MAX):
        anchor = clocks.noted(anchor, clocks.Process(pid, "here", "feedctl", DAY, UP))
    assert [each.pid for each in anchor.off] == [*range(clocks.OFF_MAX, 2 * clocks.OFF_MAX)]
    again = clocks.noted(anchor, clocks.Process(150, "here", "feedctl", 2 * DAY, UP + 1))
    assert len(again.off) == clocks.OFF_MAX
    assert again.off[-1].offset_ms == 2 * DAY


@pytest.mark.parametrize(
    ("server", "settled", "own", "found"),
    [
        (NOW + 400 * DAY, NOW, NOW, 400 * DAY),
        (NOW + clocks.APART_MAX_MS + 1, NOW, NOW - DAY, clocks.APART_MAX_MS + 1),
        (NOW + clocks.APART_MAX_MS, NOW, NOW, None),
        (NOW - 400 * DAY, NOW, NOW, None),  # what it stamps is never before what was settled
        (NOW + DAY, NOW, NOW + DAY, None),  # no process was there for a day
        (NOW + DAY, NOW + DAY, NOW, None),  # others have gone by it for as long
    ],
)
def test_a_server_has_stepped_if_it_is_ahead_of_all_that_others_say(
    server: int, settled: int, own: int, found: int | None
) -> None:
    assert clocks.step_ms(server, settled, own) == found


def test_a_steady_clock_does_not_step_with_the_one_that_it_began_with() -> None:
    seen = FakeMachine([0])
    own = clocks.steady(seen.wall_ms, seen.monotonic_s)
    seen.off_ms = DAY
    seen.passed[0] += 1_500
    assert own() == NOW + 1_500


def test_the_clocks_of_this_machine() -> None:
    machine = Machine(lambda: NOW)
    first, second = machine(), machine()
    assert first.wall_ms == NOW
    assert first.boot == second.boot != ""
    assert 0 < first.up_ms <= second.up_ms


def test_the_clocks_of_a_machine_are_of_one_moment_although_its_process_was_suspended_between_two_looks(
    home: Home, tmp_path: Path
) -> None:
    uptime = tmp_path / "uptime"
    suspended_ms = [0, 7_000, 8_000]

    def wall_ms() -> int:
        home.passes(suspended_ms.pop(0) if suspended_ms else 0)
        uptime.write_text(f"{home.machine().up_ms / 1_000:.2f} 0.00\n", encoding="utf-8")
        return home.machine.wall_ms()

    wall_ms()
    machine = Machine(wall_ms, uptime)
    assert machine()[:2] == home.machine()[:2]


def test_a_machine_is_read_while_the_process_has_no_descriptors_left() -> None:
    machine = Machine(lambda: NOW)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        moment = machine()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert moment.up_ms > 0
