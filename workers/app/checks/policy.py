"""Judges the facts of a home: a list of checks, each a function of the facts. Nothing is read here."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from feedstore.app.config import Config
from feedstore.clocks import APART_MAX_MS
from feedstore.errors import MissingExtraError
from workers.app.checks.facts import HomeFacts, HomeFile
from workers.app.wiring import other_partitions
from workers.catalog.updater import updater_group

FREE_BYTES_MIN: Final = 256 << 20
"""If a disk has less room than this, it is full within minutes: compactions and logs alone need as much."""
FREE_FILES_MIN: Final = 1_000
TICK_MS_MAX: Final = 10_000
"""Ticks may be at most this far apart: watermarks move with them, and a cluster is late if it is 30 s behind."""
DELIVERY_AGE_MS_MIN: Final = 60_000
_NETWORKED: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre")


def machine_off(offset_ms: int) -> str:
    """The fault of a machine whose clock differs from the home's time, and its mend. offset_ms: how far it is ahead."""
    which = "ahead of" if offset_ms > 0 else "behind"
    return (
        f"this machine's clock is {abs(offset_ms) / 1_000:,.0f} s {which} the home's time, by which all processes of"
        " the home go. Look at it (date): if it is wrong, set it; if it is right, stop the worker, and then:"
        " feedctl clock set"
    )


class CheckFinding(NamedTuple):
    """A fault, and how to mend it. check: the name of the check that found it."""

    check: str
    message: str


class Check(NamedTuple):
    """A check. look: returns everything that is wrong. looked_at: what is said if nothing is wrong."""

    name: str
    look: Callable[[HomeFacts], Iterator[str]]
    looked_at: Callable[[HomeFacts], str]


def findings(facts: HomeFacts) -> list[CheckFinding]:
    """Everything that is wrong, in the order of the checks."""
    return [
        CheckFinding(check.name, message)
        for check in CHECKS
        for message in (*facts.failed.get(check.name, ()), *check.look(facts))
    ]


def _places(facts: HomeFacts) -> Iterator[str]:
    for one, other in combinations(facts.located, 2):
        if one.path == other.path:
            yield f"{one.what} and {other.what} are in one place, {one.path}: give each its own"
    if not facts.config.shard_files and len(set(facts.config.shards)) < len(facts.config.shards):
        yield "two shards of the follow store have one url"


def _limits(facts: HomeFacts) -> Iterator[str]:
    config = facts.config
    if config.worker.tick_ms > TICK_MS_MAX:
        found = f"worker.tick: {config.worker.tick_ms} ms"
        yield f"{found}: readers would call every cluster late; at most {TICK_MS_MAX} ms"
    if config.limits.delivery_age_ms < DELIVERY_AGE_MS_MIN:
        yield f"limits.delivery_age: {config.limits.delivery_age_ms} ms: every backlog is expanded again; at least 1m"
    if config.worker.housekeeping_ms > config.limits.purge_window_ms:
        yield "worker.housekeeping: longer than limits.purge_window: what has expired would pile up"
    if config.dead_letter_age_ms < config.limits.action_age_ms:
        yield "limits.dead_letter_age: shorter than limits.action_age: letters expire before an operator reads them"


def _rights(facts: HomeFacts) -> Iterator[str]:
    others = [entry for entry in facts.entries if entry.owner not in (facts.user, 0)]
    unusable = [entry for entry in facts.entries if not entry.usable]
    if unusable:
        some = _some(len(unusable), str(unusable[0].path))
        yield f"{some}: this user may not read and write: run as the home's owner"
    elif others:
        yield f"{_some(len(others), str(others[0].path))}: of another user: chown -R the home to one"
    if open_ones := open_to_others(facts.config, facts.entries):
        yield f"{_some(len(open_ones), str(open_ones[0].path))}: others may use it: feedctl migrate"


def open_to_others(config: Config, files: Iterable[HomeFile]) -> list[HomeFile]:
    """The files that others may use, but for those that the http check looks at."""
    guarded = {config.http.tokens, config.http.cursor_key}
    return [file for file in files if file.mode & 0o077 and file.path not in guarded]


def _some(count: int, first: str) -> str:
    return first if count == 1 else f"{first} and {count - 1:,} more"


def _disk(facts: HomeFacts) -> Iterator[str]:
    for room in facts.rooms:
        if room.read_only:
            yield f"{room.path}: its file system is read-only"
        elif room.free_bytes < FREE_BYTES_MIN:
            free, least = room.free_bytes >> 20, FREE_BYTES_MIN >> 20
            yield f"{room.path}: {free:,} MiB are free: make room, {least} MiB at the least"
        elif room.free_files is not None and room.free_files < FREE_FILES_MIN:
            yield f"{room.path}: its file system has room for {room.free_files:,} more files: make room"
        if room.kind in _NETWORKED:
            yield f"{room.path}: on {room.kind}: locks and syncs are not reliable there; use a disk of this machine"


def _clock(facts: HomeFacts) -> Iterator[str]:
    for shard, ms in enumerate(facts.clocks_ms):
        if ms > facts.now_ms + APART_MAX_MS:
            yield (
                f"shard {shard} of the follow store is {(ms - facts.now_ms) / 1_000:,.0f} s ahead of this machine's"
                " clock: set the clock, or, if it is right: feedctl clock set"
            )
            return  # files that were written at that time are as far ahead
    if facts.newest_ms > facts.now_ms + APART_MAX_MS:
        yield "this machine's clock is before the time at which files of the home were written: set the clock"
    elif facts.off_ms is not None:
        yield machine_off(facts.off_ms)


def _queue(facts: HomeFacts) -> Iterator[str]:
    if said := other_partitions(facts.config, facts.partitions):
        yield said


def _catalogs(facts: HomeFacts) -> Iterator[str]:
    config = facts.config
    pairs = [(name, cluster.name) for name in config.catalogs for cluster in config.clusters]
    for (name, cluster), (other, of) in combinations(pairs, 2):
        if updater_group(name, cluster) == updater_group(other, of):
            yield (
                f"catalog {name} of cluster {cluster} and catalog {other} of cluster {of} have one consumer group, and"
                " would miss updates: give one of the catalogs another name"
            )


def _http(facts: HomeFacts) -> Iterator[str]:
    http = facts.config.http
    if http.tokens is None:
        return
    if facts.tokens and all(token.expired(facts.now_ms) for token in facts.tokens):
        yield f"{http.tokens}: every token has expired; make another: feedctl token new --name NAME --scope read"


def _libraries(facts: HomeFacts) -> Iterator[str]:
    config = facts.config
    asked = {
        "http": ("http.tokens", config.http.tokens),
        "metrics": ("metrics.listen", config.metrics.listen),
        "traces": ("traces.endpoint", config.traces.endpoint),
    }
    for extra, (key, value) in asked.items():
        if value is not None and facts.missing[extra]:
            yield str(MissingExtraError(key, extra, ImportError(f"no {', '.join(facts.missing[extra])}")))


def _nothing(_: HomeFacts) -> Iterator[str]:
    return iter(())


def _counted(count: int, one: str) -> str:
    return f"{count} {one}" if count == 1 else f"{count} {one}s"


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) or "none in files"


CHECKS: Final = (
    Check("places", _places, lambda facts: f"each in a place of its own: {_named([e.what for e in facts.located])}"),
    Check("limits", _limits, lambda facts: f"cap {facts.config.limits.cap}, slack {facts.config.limits.slack}"),
    Check("rights", _rights, lambda facts: f"{len(facts.entries):,} files and directories, for this user alone"),
    Check(
        "disk",
        _disk,
        lambda facts: ", ".join(f"{each.path}: {each.free_bytes >> 20:,} MiB free" for each in facts.rooms),
    ),
    Check("follow store", _nothing, lambda facts: _counted(len(facts.config.shards), "shard")),
    Check("queue", _queue, lambda facts: f"{_counted(facts.config.partitions, 'partition')} a topic"),
    Check("clusters", _nothing, lambda facts: ", ".join(each.name for each in facts.config.clusters)),
    Check("catalogs", _catalogs, lambda facts: ", ".join(facts.config.catalogs) or "none"),
    Check("clock", _clock, lambda facts: f"that of the home, {_counted(len(facts.clocks_ms), 'shard')} and the files"),
    Check("libraries", _libraries, lambda _: "all that feed.toml asks for"),
    Check(
        "http",
        _http,
        lambda facts: (
            "loopback only, without tokens"
            if facts.config.http.tokens is None
            else _counted(len(facts.tokens), "token")
        ),
    ),
)
"""The checks, in the order in which they are reported. The configuration itself is checked before them, when it is
loaded."""
