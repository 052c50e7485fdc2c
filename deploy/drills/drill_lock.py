"""A mark in the home while something is broken: one drill at a time, and what a drill that was killed has left broken
is found by the next one.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deploy.drills.catalogue import DRILLS
from deploy.drills.hosts import Hosts, NotDrillableError

NAME = "drill-under-way.json"


class _Broken(msgspec.Struct, frozen=True):
    """What may be broken: by which drill, and where."""

    drill: str
    hosts: list[str]


class DrillLock:
    """Holds the file open and locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def heal(self, hosts: Hosts) -> str:
        """Undoes what the mark says an earlier drill broke; returns what that was, empty if it left nothing.

        Raises:
            NotDrillableError, HostError: it cannot be undone.
        """
        text = os.pread(self._descriptor, 1 << 16, 0)
        if not text:
            return ""
        try:
            broken = msgspec.json.decode(text, type=_Broken)
        except msgspec.DecodeError:
            broken = _Broken("", [])
        drill = DRILLS.get(broken.drill)
        if drill is not None and drill.fault is not None:
            drill.fault.heal(hosts, [each for each in hosts.all() if each.name in broken.hosts])
        self.wipe()
        return f"{broken.drill} on {', '.join(broken.hosts)}"

    def write(self, drill: str, hosts: list[str]) -> None:
        """Before the fault: it must be there when the process is killed in the middle of it."""
        self.wipe()
        os.pwrite(self._descriptor, msgspec.json.encode(_Broken(drill, hosts)), 0)
        os.fsync(self._descriptor)

    def wipe(self) -> None:
        """After the healing."""
        os.ftruncate(self._descriptor, 0)


@contextmanager
def locked(home: Path) -> Iterator[DrillLock]:
    """Raises NotDrillableError: a drill of this home is under way."""
    descriptor = os.open(home / NAME, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotDrillableError("another drill of this home is under way: wait until it has ended") from error
        yield DrillLock(descriptor)
    finally:
        os.close(descriptor)
