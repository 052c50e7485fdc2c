"""Starts servers and signals them, and never signals anything else.

A process is known by a *mark*: one argument of its command line that holds the path of its home, so that no other
process has it. A process id alone says nothing: after a crash it may belong to somebody else.
"""

import contextlib
import os
import select
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from deploy.local import logs
from deploy.local.errors import StackError
from deploy.local.programs import installed
from deploy.local.waiting import becomes

_EXEC_S = 5.0
_SUSPEND_S = 5.0
_KILL_S = 30.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Command:
    """How a server is started, in this process's environment. mark: one of the arguments; see above."""

    argv: Sequence[str]
    mark: str

    def __post_init__(self) -> None:
        if self.mark not in self.argv:
            raise ValueError(f"the mark {self.mark!r} is not an argument of the command")


def is_ours(pid: int, mark: str) -> bool:
    """Whether this process runs and has the mark. A process that has ended and was not waited for does not run."""
    return mark in arguments(pid)


def arguments(pid: int) -> list[str]:
    """The arguments of a process; none if it has ended."""
    try:
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    except OSError:
        return []


def find(pid_file: Path, mark: str) -> int | None:
    """The process of a server: the recorded one, or one that was started and not recorded before a crash."""
    with contextlib.suppress(OSError, ValueError):
        recorded = int(pid_file.read_text(encoding="ascii"))
        _reap(recorded)
        if is_ours(recorded, mark):
            return recorded
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_ours(int(entry.name), mark):
            return int(entry.name)
    return None


def spawn(command: Command, log: Path, pid_file: Path) -> int:
    """Starts a server in a session of its own, so that it outlives this process and its terminal. It inherits no open
    file of this process: otherwise a lock of the caller would be held as long as the server runs.

    Raises StackError: there is no such program.
    """
    program = installed(command.argv[0])
    logs.begin(log)
    pid = os.posix_spawn(
        program,
        list(command.argv),
        dict(os.environ),
        setsid=True,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
            *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable()),
        ],
    )
    pid_file.write_text(f"{pid}\n", encoding="ascii")
    # Until the new program has replaced this one's image, its command line is not its own.
    becomes(lambda: is_ours(pid, command.mark) or _reap(pid), _EXEC_S)
    return pid


def _inheritable() -> list[int]:
    """The descriptors that a server would keep open as long as it lives: those that this process has from its parent, a
    lock or a pipe.
    """
    found = []
    for entry in Path("/proc/self/fd").iterdir():
        descriptor = int(entry.name)
        with contextlib.suppress(OSError):  # the listing's own descriptor is closed already
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found


class HeldProcess:
    """A process that had the mark when it was taken hold of. Signals reach it or no process, never a successor."""

    def __init__(self, pid: int, descriptor: int) -> None:
        self.pid = pid
        self._descriptor = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def send(self, number: signal.Signals) -> None:
        """Signals the process; nothing happens if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def ask_to_end(self) -> None:
        """SIGTERM; a suspended process is resumed first, or it would not hear it."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)

    def suspend(self) -> None:
        """SIGSTOP; returns when the process is stopped, because that takes a moment."""
        self.send(signal.SIGSTOP)
        becomes(lambda: is_suspended(self.pid) or self._is_gone(0), _SUSPEND_S)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone.

        Raises StackError: it does not go.
        """
        self.send(signal.SIGKILL)
        if not self.wait_gone(_KILL_S):
            raise StackError(f"process {self.pid} does not end, not even by SIGKILL")

    def wait_gone(self, patience_s: float) -> bool:
        """Whether it has ended within that time, all of its threads, so that its ports are free.

        Its command line goes earlier than its ports, so `is_ours` is not enough here.
        """
        gone = self._is_gone(max(0.0, patience_s))
        if gone:
            _reap(self.pid)
        return gone

    def _is_gone(self, patience_s: float) -> bool:
        ending = select.poll()
        ending.register(self._descriptor, select.POLLIN)
        return bool(ending.poll(patience_s * 1_000))


def hold(pid: int, mark: str) -> HeldProcess | None:
    """Takes hold of the process if it runs and has the mark; the caller lets go of it."""
    try:
        held = HeldProcess(pid, os.pidfd_open(pid))
    except OSError:
        return None
    if is_ours(pid, mark):
        return held
    with held:
        return None


def is_suspended(pid: int) -> bool:
    """Whether the process was stopped by a signal and can be resumed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    # The name before the state is in parentheses, and may hold anything.
    return stat.rpartition(")")[2].split()[:1] == ["T"]


def resident_bytes(pid: int) -> int:
    """The memory that the process holds now; 0 if it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, ValueError, IndexError):
        return 0


def _reap(pid: int) -> bool:
    """Whether this was a child of ours that has ended; it leaves the process table by that."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return False
