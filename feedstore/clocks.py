"""One time for all processes of a home in files, whatever the clock of one of them says.

How long a machine has been up is the same for all of its processes, and it cannot be set. A home keeps an *anchor*:
when its machine booted, by the clock of the first process of that boot. Each process compares: its own time, less the
uptime, must give the same moment. If it does not, its clock is wrong, or somebody set the machine's clock. Either way
the process goes by the anchor, and says so; what is stamped, dated and expired never steps with one clock.
"""

import contextlib
import os
import platform
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from feedstore import durable

_log = structlog.get_logger()

LOOK_EVERY_S: Final = 0.1
"""How long a process goes by the result of a comparison, before it compares again."""

BEGIN_WAIT_S: float = 1.0
"""How long a process waits while another one writes the first anchor of a boot."""

NOTE_EVERY_MS: Final = 10_000
"""How often a process whose clock is off notes that in the home."""

OFF_MS: Final = 60_000
"""How long a process that has ended is still named, after its last note."""

APART_MAX_MS: Final = 120_000
"""How much clocks that are kept in time may differ. A clock that is further ahead of others is wrong."""

OFF_MAX: Final = 100
"""The most processes whose clocks were off that a home remembers: the latest."""

_WORDS_MAX: Final = 60
_UPTIME: Final = Path("/proc/uptime")
_UPTIME_BYTES: Final = 64
_LOOK_MS: Final = 100
"""A look at the clocks of a machine that took longer than this is repeated, up to _AGAIN_MAX times."""
_AGAIN_MAX: Final = 10
_START_FIELD: Final = 19
"""The field of /proc/PID/stat with the start of the process, counted from the field that follows the name."""


class Moment(NamedTuple):
    """The clocks of a machine at one moment, as a process sees them.

    wall_ms: ms since 1970. up_ms: how long the machine has been up. boot: names the boot.
    """

    wall_ms: int
    up_ms: int
    boot: str


class Process(msgspec.Struct, frozen=True):
    """A process whose clock was off. offset_ms: how far it was ahead of the home's time (behind: less than 0). up_ms:
    when that was noted last. started: when the process began, as the kernel counts; None if an older program noted it.
    """

    pid: int
    host: str
    program: str
    offset_ms: int
    up_ms: int
    started: int | None = None


class Anchor(msgspec.Struct, frozen=True):
    """The time of a home. boot: names the boot of its machine. booted_ms: when that was, ms since 1970. program: the
    process that said so. off: the processes whose clocks differ by more than the bound.
    """

    boot: str
    booted_ms: int
    program: str
    off: tuple[Process, ...] = ()


# Policy: pure
# --------------------------------------------------------------------------------------------------------------------


def offset_ms(anchor: Anchor | None, moment: Moment) -> int | None:
    """How far a process's clock is ahead of the home's time; None if the home has no anchor of this boot."""
    if anchor is None or anchor.boot != moment.boot:
        return None
    return moment.wall_ms - moment.up_ms - anchor.booted_ms


def may_anchor(moment: Moment, stamped_ms: int, bound_ms: int) -> bool:
    """Whether a process may say when its machine booted, if no other has. stamped_ms: the latest time that the home's
    stores have stamped. A clock that is behind that is wrong for certain; one that is ahead may be right, because the
    home may have rested for any time.
    """
    return moment.wall_ms >= stamped_ms - bound_ms


def noted(anchor: Anchor, process: Process) -> Anchor:
    """The anchor with a note of a process whose clock is off. Only the latest note of each process is kept."""
    others = without(anchor, process.pid, process.host).off
    return msgspec.structs.replace(anchor, off=(*others[1 - OFF_MAX :], process))


def without(anchor: Anchor, pid: int, host: str) -> Anchor:
    """The anchor without the note of a process whose clock is not off any more."""
    others = tuple(each for each in anchor.off if (each.pid, each.host) != (pid, host))
    return msgspec.structs.replace(anchor, off=others)


def step_ms(server_ms: int, settled_ms: int, own_ms: int) -> int | None:
    """How far the clock of a server has stepped ahead; None if it has not. settled_ms: the latest time that any process
    has settled by the server's clock. own_ms: the time of the process that asks.
    """
    ahead_ms = server_ms - max(settled_ms, own_ms)
    return ahead_ms if ahead_ms > APART_MAX_MS else None


def behind_ms(watermark_ms: int | None, now_ms: int) -> int | None:
    """How far behind something may be that has a watermark: everything committed longer ago than this has landed. None
    if that is unknown. A watermark too far ahead comes from a clock that was wrong, and says nothing about now.
    """
    if watermark_ms is None or watermark_ms > now_ms + APART_MAX_MS:
        return None
    return max(0, now_ms - watermark_ms)


# This machine
# --------------------------------------------------------------------------------------------------------------------


def wall_ms() -> int:
    """This process's own clock, ms since 1970."""
    return time.time_ns() // 1_000_000


class Machine:
    """The clocks of this machine. wall_ms: this process's own clock. uptime: the kernel's file.

    The uptime is read from the kernel's own file: what falsifies the clock of one process (a time shift for tests, say)
    mostly falsifies its monotonic clocks as well. That file stays open: a process that has no descriptors left for a
    moment still knows the time.
    """

    def __init__(self, wall_ms: Callable[[], int], uptime: Path = _UPTIME) -> None:
        self.wall_ms = wall_ms
        self._boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
        self._uptime = os.open(uptime, os.O_RDONLY)
        weakref.finalize(self, os.close, self._uptime).atexit = False

    def __call__(self) -> Moment:
        before_ms, up_ms, wall_ms = self._look()
        for _ in range(_AGAIN_MAX):
            if 0 <= wall_ms - before_ms <= _LOOK_MS:
                break
            # The process was suspended meanwhile: the clocks are not of one moment. Its own would seem to be off, and
            # an anchor that it wrote would be wrong until the next boot.
            before_ms, up_ms, wall_ms = self._look()
        return Moment(wall_ms, up_ms, self._boot)

    def _look(self) -> tuple[int, int, int]:
        """The wall clock, the uptime, and the wall clock once more."""
        before_ms = self.wall_ms()
        # `pread`, because threads, and processes forked from this one, share the position of the descriptor.
        up_s = os.pread(self._uptime, _UPTIME_BYTES, 0).decode().partition(" ")[0]
        whole, _, hundredths = up_s.partition(".")
        return before_ms, int(whole) * 1_000 + int(f"{hundredths:0<3}"), self.wall_ms()


def steady(wall_ms: Callable[[], int], clock: Callable[[], float]) -> Callable[[], int]:
    """A clock that begins with the time of this process's clock, and then only counts the time that passes: if the
    process's clock is set later, this one does not change. clock: monotonic seconds, which continue while the machine
    is suspended.
    """
    began_ms, began_s = wall_ms(), clock()
    return lambda: began_ms + int((clock() - began_s) * 1_000)


def program() -> str:
    """This process, for people: without its options, its home and paths."""
    name, *words = sys.argv or [""]
    plain = [
        word
        for before, word in zip([name, *words], words, strict=False)
        if before != "--home" and word[:1] != "-" and "/" not in word
    ]
    said = " ".join([Path(name).name, *plain])[:_WORDS_MAX]
    return said.encode(errors="backslashreplace").decode()  # a file's name may be no text


def _runs(process: Process) -> bool:
    """Whether a process runs on this machine. Its start is compared, because another process may have its id by now: in
    a container each has the same id after a restart.
    """
    if process.host != platform.node():
        return False
    started = _started(process.pid)
    return started is not None and process.started in {None, started}


def _started(pid: int) -> int | None:
    """When a process began, in ticks since the boot; None if there is none."""
    try:
        said = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    return int(said.rpartition(")")[2].split()[_START_FIELD])  # its name may have anything in it


# The home
# --------------------------------------------------------------------------------------------------------------------


class HomeClock:
    """The time of a home, ms since 1970: the clock of this process, unless it is off. Thread-safe.

    path: the file of the anchor.
    machine: its clocks, and the clock of this process.
    stamped_ms: the latest time that the home's stores have stamped.
    bound_ms: how far the clock of a process may be off.
    clock: monotonic seconds.

    If the anchor can be neither read nor written, the process goes by its own clock, and that is logged.
    """

    def __init__(
        self,
        path: Path,
        machine: Machine,
        stamped_ms: Callable[[], int],
        bound_ms: int,
        clock: Callable[[], float],
    ) -> None:
        self._path = path
        self._look = machine
        self._stamped_ms = stamped_ms
        self._bound_ms = bound_ms
        self._wall_ms = machine.wall_ms
        self._clock = clock
        self._mutex = threading.Lock()
        self._found = (0.0, 0.0, 0, 0, 0)
        """Of the last comparison: from when and until when it counts, by the monotonic and by the wall clock; and what
        is added to the wall clock meanwhile.
        """
        self._anchor: Anchor | None = None
        self._version: tuple[int, int] | None = None
        self._noted_up_ms: int | None = None
        self._without: str | None = None
        """Why there was no anchor to go by at the last comparison; None if there was one, or there may be none yet."""

    def __call__(self) -> int:
        from_s, until_s, from_ms, until_ms, correction_ms = self._found
        wall_ms = self._wall_ms()
        if from_s <= self._clock() < until_s and from_ms <= wall_ms < until_ms:
            return wall_ms + correction_ms
        return self._compared()

    def anchor(self) -> Anchor | None:
        """The home's anchor as it is now; None if no process has written one."""
        self._compared()
        return self._anchor

    def off(self) -> list[Process]:
        """The processes whose clocks are off: those that noted it a minute ago or less, or run on this machine."""
        anchor, moment = self.anchor(), self._look()
        if anchor is None or anchor.boot != moment.boot:
            return []
        return [each for each in anchor.off if moment.up_ms - each.up_ms <= OFF_MS or _runs(each)]

    def own_offset_ms(self) -> int | None:
        """How far the clock of this process is ahead of the home's time; None if it is within the bound, the home has
        no time of this boot, or that cannot be read. Writes nothing.
        """
        with self._mutex, contextlib.suppress(OSError):
            self._read()
            offset = offset_ms(self._anchor, self._look())
            return offset if offset is not None and abs(offset) > self._bound_ms else None
        return None

    def set(self) -> Anchor:
        """Makes the home go by the clock of this process from now on. Raises OSError."""
        with self._mutex, durable.changing(self._path):
            moment = self._look()
            anchor = self._write(self._begun(moment))
            self._noted_up_ms = None
        return anchor

    def _compared(self) -> int:
        with self._mutex:
            moment = self._look()
            before, self._without = self._without, None
            try:
                self._read()
                if offset_ms(self._anchor, moment) is None:
                    self._begin(moment)
            except OSError as error:
                self._without = str(error)
            if self._without not in {None, before}:
                _log.warning("clock.no_anchor", error=self._without)
            offset = offset_ms(self._anchor, moment) or 0
            correction_ms = -offset if abs(offset) > self._bound_ms else 0
            if correction_ms:
                self._note(moment, offset)
            elif self._noted_up_ms is not None:
                self._withdraw()
            now_s, now_ms = self._clock(), moment.wall_ms
            until_ms = now_ms + round(2_000 * LOOK_EVERY_S)
            self._found = (now_s, now_s + LOOK_EVERY_S, now_ms, until_ms, correction_ms)
            return moment.wall_ms + correction_ms

    def _read(self) -> None:
        """Reads the anchor, if it has changed."""
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_mtime_ns)
            if version != self._version:
                self._anchor = msgspec.json.decode(self._path.read_bytes(), type=Anchor)
                self._version = version
        except FileNotFoundError:
            self._anchor = self._version = None
        except msgspec.MsgspecError as error:
            # It counts as missing: the next process that may write an anchor writes another.
            self._anchor = self._version = None
            self._without = f"{self._path}: {error}"

    def _begin(self, moment: Moment) -> None:
        if not may_anchor(moment, self._stamped_ms(), self._bound_ms):
            return
        with durable.changing(self._path, BEGIN_WAIT_S):
            self._read()  # another process may have been first
            if offset_ms(self._anchor, moment) is None:
                self._write(self._begun(moment))

    def _begun(self, moment: Moment) -> Anchor:
        return Anchor(moment.boot, moment.wall_ms - moment.up_ms, f"{program()} (pid {os.getpid()})")

    def _note(self, moment: Moment, offset: int) -> None:
        if self._noted_up_ms is not None and moment.up_ms - self._noted_up_ms < NOTE_EVERY_MS:
            return
        if self._noted_up_ms is None:
            _log.error("clock.off", offset_ms=offset)
        self._noted_up_ms = moment.up_ms
        process = Process(os.getpid(), platform.node(), program(), offset, moment.up_ms, _started(os.getpid()))
        with contextlib.suppress(OSError), durable.changing(self._path, 0.0):  # it is logged in any case
            self._read()
            if self._anchor is not None:
                self._write(noted(self._anchor, process))

    def _withdraw(self) -> None:
        """Removes the note of this process: its clock is right again, and there is nothing to set."""
        with contextlib.suppress(OSError), durable.changing(self._path, 0.0):  # else the next comparison does it
            self._read()
            if self._anchor is not None:
                self._write(without(self._anchor, os.getpid(), platform.node()))
            self._noted_up_ms = None

    def _write(self, anchor: Anchor) -> Anchor:
        durable.replace(self._path, msgspec.json.encode(anchor).decode() + "\n")
        self._anchor, self._version = anchor, None
        return anchor
