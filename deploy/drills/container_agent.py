"""The program that a drill runs inside a container. Its text is handed to the container's own Python, whatever image
that has. It needs nothing but the standard library, and prints one JSON value.

    signal NUMBER NAME...   a signal to the servers of these names
    state PORT              how old each server is, and who is connected to PORT
    shell SCRIPT            a script for `sh`, in the networks that this process sees
    throttle GROUP BYTES_S  limits what the control group of a container may read from, and write to, the disk that
                            holds /data, in bytes a second each; 0: no limit
"""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

GROUPS = Path("/host/cgroup")
"""Where the machine's control groups are mounted for `throttle`."""

_MARK = b"-Dfeed.process="
_ESTABLISHED = "01"


def main(words: list[str]) -> object:
    match words:
        case ["signal", number, *names]:
            return _signal(signal.Signals(int(number)), names)
        case ["state", port]:
            return {"ages_s": _ages_s(), "peers": _peers(int(port))}
        case ["shell", script]:
            at_s = time.monotonic()
            subprocess.run(["sh", "-euc", script], stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True)  # noqa: S603, S607
            return {"at_s": at_s}
        case ["throttle", group, bytes_s]:
            at_s = time.monotonic()
            disk = _disk(Path("/data"))
            if disk is not None:
                _throttle(group, int(bytes_s), disk)
            elif int(bytes_s):
                raise SystemExit("/data is on no disk of its own: it cannot be throttled")
            return {"at_s": at_s}
    raise SystemExit(f"unknown: {words}")


def _servers() -> dict[int, str]:
    """The names of the servers that run here, by process id."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # ended meanwhile
        for word in words:
            if word.startswith(_MARK):
                found[int(folder.name)] = word.removeprefix(_MARK).decode()
    return found


def _signal(number: signal.Signals, names: list[str]) -> object:
    chosen = {pid: name for pid, name in _servers().items() if name in names}
    at_s = time.monotonic()
    for pid in chosen:
        os.kill(pid, number)
    return {"at_s": at_s, "reached": sorted(set(chosen.values()))}


def _ages_s() -> dict[str, float]:
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    tick = os.sysconf("SC_CLK_TCK")
    ages = {}
    for pid, name in _servers().items():
        try:
            # The text in brackets may hold spaces; the moment of the start is the 20th word after it.
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ages[name] = up_s - int(words[19]) / tick
    return ages


def _peers(port: int) -> list[str]:
    """The IPv4 addresses of the peers that are connected to a port of this host."""
    found = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]:
            _, local, remote, state, *_ = line.split()
            if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) == port:
                # An IPv4 address is at the end of an IPv6 one, its bytes the other way round.
                found.add(socket.inet_ntoa(struct.pack("<I", int(remote.partition(":")[0][-8:], 16))))
    return sorted(found)


def _disk(path: Path) -> str | None:
    """The disk that holds a path, as `MAJOR:MINOR`: only whole disks can be throttled. None if the path is on none."""
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    block = Path("/sys/dev/block") / number
    if not block.exists():
        return None
    if (block / "partition").exists():
        number = (block.resolve().parent / "dev").read_text().strip()
    return number


def _throttle(group: str, bytes_s: int, disk: str) -> None:
    """Where no limit can be set there is none to take away: a healing does nothing there."""
    names: tuple[str, ...]
    if (GROUPS / "blkio").is_dir():
        root, text = GROUPS / "blkio", f"{disk} {bytes_s}"
        names = ("blkio.throttle.read_bps_device", "blkio.throttle.write_bps_device")
    else:
        limit = str(bytes_s) if bytes_s else "max"
        root, text = GROUPS, f"{disk} rbps={limit} wbps={limit}"
        names = ("io.max",)
    folders = [Path(folder) for folder, _, _ in os.walk(root) if group in Path(folder).name]
    found = [folder / name for folder in folders for name in names if (folder / name).exists()]
    if bytes_s and not found:
        raise SystemExit(f"there is no control group of {group} that limits disks")
    for file in found:
        file.write_text(text)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1:])))
