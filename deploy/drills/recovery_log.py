"""The steps of a recovery, read from the servers' logs: pure. The messages are those of HBase 2.6, Hadoop 3.4, Kafka
4.1 and of the supervisor of a host's processes (deploy/docker/supervisor.py).

A line that is not there is never an error: a step that belongs to a recovery and was not seen says so.
"""

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from deploy.docker.names import REGIONSERVER_PORT
from deploy.drills.hosts import LogLine

BROKEN = "a log's pipeline breaks"
REBUILT = "every log has a new pipeline"
STALE = "HDFS passes over the DataNode as stale"
DEAD = "HDFS gives the DataNode up"
DETECTED = "its session has ended"
MASTER_REBUILT = "the log of the master has a new pipeline"
BEGUN = "its recovery begins"
META_SPLIT_BEGUN = "the split of hbase:meta's log begins"
META_SPLIT = "hbase:meta's log is split"
META_OPENING = "hbase:meta is assigned"
META_OPEN = "hbase:meta is open"
SPLIT_BEGUN = "the split of its logs begins"
LEASE = "a lease of its logs is asked for once more"
SPLIT = "its logs are split"
OPENING = "its regions are assigned"
OPEN = "the last of its regions is open"
DONE = "its recovery is done"

_SHOWN = 240
_META = "1588230740"
_STARTCODE = rf",{REGIONSERVER_PORT},\d+"
_HEAD = re.compile(r"^\d{4}-\d\d-\d\d[T ]\S+ +[A-Z]+ +\[.*?\]+ (?=[\w.$]+: )")
"""Time, level and thread, which precede every message of the servers."""

_OWN_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d),(\d{3}) ")
_LATE_S = 10.0
"""A busy engine reads lines late. A server's own time, in UTC, counts if it is within this of the engine's."""


class Step(msgspec.Struct, frozen=True):
    """One thing that happened. at_s: from the fault; took_s: since the step before it; both None: not seen.

    note: how many, which, how often. host: whose log says so; line: its text, without time and thread, and cut.
    """

    name: str
    at_s: float | None
    took_s: float | None = None
    note: str = ""
    host: str = ""
    line: str = ""


class Spans(NamedTuple):
    """How long the parts of a recovery took, in seconds; they do not overlap. None: not seen, or not needed.

    detection: from the fault until the master knew. split: of all logs, that of hbase:meta included. meta_open: from
    the split of its log until hbase:meta was open. reopen: from the first region that was assigned to the last that was
    open.
    """

    detection: float | None
    split: float | None
    meta_open: float | None
    reopen: float | None


class _Found(NamedTuple):
    name: str
    line: LogLine
    note: str = ""


class _Log:
    """The lines since the fault, in the order of time."""

    def __init__(self, lines: Iterable[LogLine], from_s: float) -> None:
        timed = (LogLine(each.host, _written_s(each), each.text) for each in lines)
        self.lines = sorted((each for each in timed if each.at >= from_s), key=lambda each: each.at)

    def all(self, pattern: str) -> list[tuple[LogLine, re.Match[str]]]:
        compiled = re.compile(pattern)
        return [(line, match) for line in self.lines if (match := compiled.search(line.text))]

    def first(self, pattern: str) -> LogLine | None:
        return next((line for line, _ in self.all(pattern)), None)

    def last(self, pattern: str) -> LogLine | None:
        return next((line for line, _ in reversed(self.all(pattern))), None)


def recovery(lines: Iterable[LogLine], fault_s: float, target: str) -> list[Step]:
    """The steps in the order of time, and then those that were to be expected and were not seen.

    lines: of every host of the drilled cluster, in any order, and of the target. fault_s: of the wall clock. target:
    the host that is broken; where it is one with a region server, the steps of its recovery are expected.
    """
    lines = list(lines)
    log = _Log(lines, fault_s)
    is_region_server = bool(target) and any(f"{target},{REGIONSERVER_PORT}," in line.text for line in lines)
    wanted = _of_target(log, target) if is_region_server else {}
    found = [_Found(name, *seen) for name, seen in wanted.items() if isinstance(seen, tuple)]
    done_s = next((each.line.at for each in found if each.name == DONE), None)
    found += [*_pipelines(log, target, done_s), *_storage(log), *_others(log, target), *_processes(log)]
    found.sort(key=lambda each: each.line.at)
    made = []
    before_s = 0.0
    for each in found:
        at_s = each.line.at - fault_s
        made.append(Step(each.name, at_s, at_s - before_s, each.note, each.line.host, shown(each.line.text)))
        before_s = at_s
    missing = [Step(name, None, note=seen or "") for name, seen in wanted.items() if not isinstance(seen, tuple)]
    return made + missing


def expired(lines: Iterable[LogLine], fault_s: float) -> list[str]:
    """The hosts whose region server the master took for dead since the fault, one for each server."""
    return [host for host, _ in _expired(_Log(lines, fault_s))]


def spans(steps: Iterable[Step]) -> Spans:
    """How long the parts of the target's recovery took."""
    at_s = {step.name: step.at_s for step in steps}

    def between(begun: str, ended: str) -> float | None:
        begin_s, end_s = at_s.get(begun), at_s.get(ended)
        return None if begin_s is None or end_s is None else end_s - begin_s

    split, meta_split = between(SPLIT_BEGUN, SPLIT), between(META_SPLIT_BEGUN, META_SPLIT)
    if META_SPLIT_BEGUN in at_s:
        split = None if split is None or meta_split is None else split + meta_split
    return Spans(at_s.get(DETECTED), split, between(META_SPLIT, META_OPEN), between(OPENING, OPEN))


def shown(text: str) -> str:
    """A line as evidence: without time, level and thread, and not too long."""
    text = _HEAD.sub("", text.strip())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _written_s(line: LogLine) -> float:
    match = _OWN_TIME.match(line.text)
    if match is None:
        return line.at
    own_s = dt.datetime.fromisoformat(f"{match[1]}.{match[2]}+00:00").timestamp()
    return own_s if abs(own_s - line.at) <= _LATE_S else line.at


_Seen = tuple[LogLine, str] | str | None
"""A line and a note; or no line, and perhaps a note why."""


def _expired(log: _Log) -> list[tuple[str, LogLine]]:
    found: dict[str, tuple[str, LogLine]] = {}
    for line, match in log.all(rf"[Pp]rocessing expiration (?:\[|of )(([^,\s]+){_STARTCODE})"):
        found.setdefault(match[1], (match[2], line))
    return list(found.values())


def _of_target(log: _Log, target: str) -> dict[str, _Seen]:
    """The recovery of a region server that died, step by step."""
    server = re.escape(target) + _STARTCODE
    begun = log.all(rf"ServerCrashProcedure: Start pid=(\d+),.*ServerCrashProcedure {server},.* meta=(true|false)")
    wanted: dict[str, _Seen] = {
        DETECTED: _noted(next((line for host, line in _expired(log) if host == target), None)),
        BEGUN: None,
        SPLIT_BEGUN: None,
        SPLIT: None,
        OPENING: None,
        OPEN: None,
        DONE: None,
    }
    if not begun:
        return wanted
    first, match = begun[0]
    pid, has_meta = match[1], match[2] == "true"
    wanted[BEGUN] = first, "it held hbase:meta" if has_meta else ""
    if has_meta:
        wanted |= _meta(_Log(log.lines, first.at), server, pid)
    wanted[SPLIT_BEGUN] = _noted(log.first(rf"Splitting WALs pid={pid},.*isMeta: false"))
    wanted[SPLIT] = _noted(
        log.last(
            rf"{server} WAL count=0, meta=false"
            rf"|Finished pid=\d+, ppid={pid}, state=SUCCESS; SplitWALProcedure (?!\S+\.meta\b)"
        ),
        _slowest_split(log, server, of_meta=False),
    )
    attempts = log.all(rf"Failed to recover lease, attempt=(\d+) on file=\S*/{server}-splitting/")
    if attempts:
        wanted[LEASE] = attempts[-1][0], f"{len(attempts)} times in all"
    wanted |= _regions(log, pid)
    wanted[DONE] = _noted(log.first(rf"Finished pid={pid}, state=SUCCESS.*ServerCrashProcedure "))
    return wanted


def _meta(log: _Log, server: str, pid: str) -> dict[str, _Seen]:
    return {
        META_SPLIT_BEGUN: _noted(log.first(rf"Splitting WALs pid={pid},.*isMeta: true")),
        META_SPLIT: _noted(
            log.last(
                rf"{server} WAL count=0, meta=true"
                rf"|Finished pid=\d+, ppid={pid}, state=SUCCESS; SplitWALProcedure \S+\.meta\b"
            ),
            _slowest_split(log, server, of_meta=True),
        ),
        META_OPENING: _noted(log.first(rf"updating hbase:meta row={_META}, regionState=OPENING\b")),
        META_OPEN: _noted(log.first(rf"updating hbase:meta row={_META}, regionState=OPEN\b")),
    }


def _regions(log: _Log, pid: str) -> dict[str, _Seen]:
    begun = log.all(
        rf"Starting pid=(\d+), ppid={pid},.*TransitRegionStateProcedure table=(?!hbase:meta,)\S+, region=(\w+)"
    )
    if not begun:
        return {OPENING: None, OPEN: None}
    of_it = {(match[1], match[2]) for _, match in begun}
    opened = {
        match[2]: line
        for line, match in log.all(r"pid=(\d+) updating hbase:meta row=(\w+), regionState=OPEN\b")
        if (match[1], match[2]) in of_it
    }
    count = _count(len(of_it), "region")
    if len(opened) < len(of_it):
        return {OPENING: (begun[0][0], count), OPEN: f"{len(opened)} of {count} seen"}
    last = max(opened.values(), key=lambda line: line.at)
    return {OPENING: (begun[0][0], count), OPEN: (last, count + _slowest_open(log, opened))}


def _pipelines(log: _Log, target: str, done_s: float | None) -> list[_Found]:
    """How the logs of other servers got on without the target's DataNode, until the target's recovery was done."""
    broken: dict[tuple[str, bool, bool], LogLine] = {}
    for line, match in log.all(r"\[AsyncFSWAL-\d+-(\S+)-prefix:([^,\s]+),(\S+)\] wal\.AsyncFSWAL: sync failed"):
        if match[2] != target and (done_s is None or line.at <= done_s):
            key = match[2], match[1].endswith("/MasterData"), match[3].endswith(".meta")
            broken.setdefault(key, line)
    if not broken:
        return []
    rolled: dict[tuple[str, bool, bool], LogLine] = {}
    for line, match in log.all(r"Rolled WAL .*; new WAL (\S*)/WALs/([^,/]+),[^/]*/(\S+)"):
        key = match[2], match[1].endswith("/MasterData"), match[3].endswith(".meta")
        if key in broken and line.at >= broken[key].at:
            rolled.setdefault(key, line)
    made = [_Found(BROKEN, min(broken.values(), key=lambda line: line.at), f"{len(broken)} logs in all")]
    made += [_Found(MASTER_REBUILT, line) for (_, of_master, _), line in rolled.items() if of_master]
    if len(rolled) == len(broken):
        made.append(_Found(REBUILT, max(rolled.values(), key=lambda line: line.at), f"{len(broken)} logs"))
    return made


def _storage(log: _Log) -> list[_Found]:
    return _firsts(
        log,
        {
            STALE: r"NODE_STALE=\d|Skipped stale nodes for recovery",
            DEAD: r"removeDeadDatanode: lost heartbeat from",
            "a DataNode comes back to HDFS": r"BLOCK\* registerDatanode: from",
            "HDFS can be written to": r"STATE\* Leaving safe mode",
        },
    )


def _others(log: _Log, target: str) -> list[_Found]:
    """The events of the rest of a cluster: masters, sessions, other servers than the target that count as dead."""
    made = _firsts(
        log,
        {
            "the other master takes over": r"ActiveMasterManager: Registered as active master=",
            "the new master is ready": r"HMaster: Master has completed initialization",
            "its region server is known again": rf"ephemeral node created, adding \[{re.escape(target)}{_STARTCODE}\]",
            "the broker is ready": r"KafkaRaftServer.*Kafka Server started",
            "the database is ready": r"mariadbd: ready for connections",
        },
    )
    made += [_Found(f"{host} is taken for dead", line) for host, line in _expired(log) if host != target]
    for line, match in log.all(rf"Finished pid=\d+, state=SUCCESS.*ServerCrashProcedure ([^,\s]+){_STARTCODE},"):
        if match[1] != target:
            made.append(_Found(f"the recovery of {match[1]} is done", line))
    # Each of these once: a master repeats its region servers' messages, and a server without ZooKeeper repeats its own.
    once: dict[str, LogLine] = {}
    for line, match in log.all(r"\*{5} (ABORTING|STOPPING) (region server|master) '?([^,\s]+),"):
        does = "gives up" if match[1] == "ABORTING" else "stops"
        once.setdefault(f"the {match[2]} of {match[3]} {does}", line)
    for line, match in log.all(r"Client session timed out, have not heard from server|session \S+ has expired"):
        what = "has lost its session" if "expired" in match[0] else "does not hear from ZooKeeper"
        once.setdefault(f"{line.host} {what}", line)
    return made + [_Found(name, line) for name, line in once.items()]


def _processes(log: _Log) -> list[_Found]:
    made = []
    for line, match in log.all(r"^supervisor: (\w+): (ended (?:by|with) [^;]+|started, process)"):
        does = "starts" if match[2].startswith("started") else match[2].strip()
        made.append(_Found(f"{match[1]} of {line.host} {does}", line))
    return made


def _firsts(log: _Log, patterns: dict[str, str]) -> list[_Found]:
    found = ((name, log.first(pattern)) for name, pattern in patterns.items())
    return [_Found(name, line) for name, line in found if line is not None]


def _noted(line: LogLine | None, note: str = "") -> _Seen:
    return None if line is None else (line, note)


def _slowest_split(log: _Log, server: str, *, of_meta: bool) -> str:
    """How many logs were split, and how the slowest of them spent its time."""
    leases_s: dict[str, float] = {}
    for _, match in log.all(rf"WALSplitter: Open \S*/{server}-splitting/(\S+) took (\d+)ms"):
        leases_s[match[1]] = int(match[2]) / 1_000
    edits_s: dict[str, float] = {}
    for _, match in log.all(rf"Processed \d+ edits .* in (\d+) ms;.* WAL=\S*/{server}-splitting/([^,\s]+),"):
        edits_s[match[2]] = int(match[1]) / 1_000
    logs = [name for name in edits_s if name in leases_s and name.endswith(".meta") == of_meta]
    if not logs:
        return ""
    slowest = max(logs, key=lambda name: leases_s[name] + edits_s[name])
    return (
        f"{_count(len(logs), 'log')}; the slowest: {leases_s[slowest]:.1f} s to get its lease and open it, "
        f"{edits_s[slowest]:.1f} s for its edits"
    )


def _slowest_open(log: _Log, regions: Iterable[str]) -> str:
    """How the region that took longest to open spent its time."""
    begun, took_s, flushed_s = {}, {}, {}
    for line, match in log.all(r"AssignRegionHandler: (Open|Opened) \S.*\.(\w+)\.$"):
        if match[1] == "Open":
            begun[match[2]] = line.at
        elif match[2] in begun:
            took_s[match[2]] = line.at - begun[match[2]]
    for _, match in log.all(r"HRegion: Finished flush of .* for (\w+) in (\d+)ms"):
        flushed_s[match[1]] = int(match[2]) / 1_000
    slowest = max((each for each in regions if each in took_s), key=took_s.__getitem__, default=None)
    if slowest is None:
        return ""
    flush = f", {flushed_s[slowest]:.1f} s of it to flush what was replayed" if slowest in flushed_s else ""
    return f"; the slowest took {took_s[slowest]:.1f} s{flush}"


def _count(number: int, one: str) -> str:
    return f"{number} {one}{'s' * (number != 1)}"


def in_time(steps: Sequence[Step]) -> list[tuple[float, Step]]:
    """The steps that were seen, each with its time."""
    return [(step.at_s, step) for step in steps if step.at_s is not None]
