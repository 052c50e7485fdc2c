"""A mark in the home while something is broken. Only one drill can run at a time, and if a drill was killed, the next
one finds the hosts that it has left broken.
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
    """The hosts that may be broken, and the drill that broke them."""

    drill: str
    hosts: list[str]


class DrillLock:
    """Holds the file open and locked."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def heal(self, hosts: Hosts) -> str:
        """Undoes the fault of an earlier drill that the mark names; returns the drill and its hosts, empty if there is
        no mark.

        Raises NotDrillableError, HostError: it cannot be undone.
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
        """Writes the mark, before the fault: it must be there if the process is killed in the middle of the fault."""
        self.wipe()
        os.pwrite(self._descriptor, msgspec.json.encode(_Broken(drill, hosts)), 0)
        os.fsync(self._descriptor)

    def wipe(self) -> None:
        """Removes the mark, after the healing."""
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
