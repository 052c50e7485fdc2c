"""`feed.toml`: one file, read into frozen typed values. The environment overrides it; secrets never stand in it.

A variable `FEED_<SECTION>_<KEY>` overrides a key of [feed], [limits], [serving], [http], [follows], [queue], [hbase] or
[worker], for example `FEED_FEED_CAP=500` or `FEED_LIMITS_ACTION_AGE=12h`. A variable `FEED_...` that nothing reads is
refused. Durations are a number and one of ms, s, m, h, d.
"""

import itertools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import parse_qs, urlsplit

import msgspec
from msgspec import Meta

from feedstore.feeds import Limits
from feedstore.serving.environment import Sources, UnknownVariableError, overridden

FILE_NAME = "feed.toml"

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

DEFAULT = """\
# The configuration of a following-feed home. Every key may be overridden by the environment: FEED_<SECTION>_<KEY>.
[feed]
cap = 1000                    # entries that a reader can reach
slack = 250                   # live entries that a trim keeps beyond the cap

[limits]
action_age = "2d"             # an action older than this, from its commit, is dated anew before it is done
delivery_age = "1d"           # a delivery older than this, from its first read, is expanded anew
purge_window = "5d"           # how long markers live: more than action_age + 2 x delivery_age
dead_letter_age = "30d"       # how long a dead letter is kept; each that goes is logged
dead_letters = 10000          # so many are kept at most, the latest

[[clusters]]                  # in the order in which readers prefer them
name = "a"
url = "rocksdb:data/a"

[[clusters]]
name = "b"
url = "rocksdb:data/b"

[serving]
deadline = "1s"               # how long a page may take, where its caller does not say
reads_at_once = 64            # so many of a cluster on servers; beyond them it counts as unavailable
# prefer = "b"                # the cluster that readers near it ask first: FEED_SERVING_PREFER=b in its zone

[http]
# tokens = "tokens.toml"      # who may do what; without it, only this machine itself may
patience = "10s"              # how long a client may take to send a request
drain = "1s"                  # how long it goes on after SIGTERM, so that balancers see that it is not ready

[follows]
shards = ["sqlite:data/follows.db"]

[queue]
url = "embedded:data/queue.db"
partitions = 1                # of each topic; fixed when an embedded queue is made

[worker]
tick = "1s"                   # how often the watermarks move
housekeeping = "1h"           # how often feeds are trimmed and expired rows are dropped
refill_again = "1h"           # how long a feed that was refilled because it ended early is left alone
dead_letters_in_a_row = 100   # so many messages in a row that cannot be done stop the worker
"""


class ConfigError(Exception):
    """The configuration cannot be used; the message names the file, the key and what was expected."""


class _Feed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cap: Annotated[int, Meta(ge=1, le=100_000)]
    slack: Annotated[int, Meta(ge=0, le=100_000)]


class _Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    action_age: str
    delivery_age: str
    purge_window: str
    dead_letter_age: str = "30d"
    dead_letters: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000


class _Cluster(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern="^[a-z][a-z0-9-]{0,30}$")]
    url: str
    zookeeper: Annotated[str, Meta(pattern=r"^[^\s:,]+:[0-9]{1,5}(,[^\s:,]+:[0-9]{1,5})*$")] | None = None


class _Serving(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    deadline: str = "1s"
    reads_at_once: Annotated[int, Meta(ge=1, le=1_024)] = 64
    prefer: str | None = None


class _Http(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tokens: str | None = None
    cursor_key: str = "cursor.key"
    threads: Annotated[int, Meta(ge=1, le=1_024)] = 32
    connections: Annotated[int, Meta(ge=1, le=100_000)] = 1_000
    patience: str = "10s"
    drain: str = "1s"


class _Follows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shards: Annotated[list[str], Meta(min_length=1, max_length=1_024)]


class _Queue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    partitions: Annotated[int, Meta(ge=1, le=1_024)] = 1
    replication: Annotated[int, Meta(ge=1, le=16)] = 3


class _HBase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    jars: str = ""


class _Worker(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tick: str = "1s"
    housekeeping: str = "1h"
    refill_again: str = "1h"
    dead_letters_in_a_row: Annotated[int, Meta(ge=1)] = 100


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    feed: _Feed
    limits: _Limits
    clusters: Annotated[list[_Cluster], Meta(min_length=1, max_length=16)]
    follows: _Follows
    queue: _Queue
    hbase: _HBase = _HBase()
    worker: _Worker = _Worker()
    serving: _Serving = _Serving()
    http: _Http = _Http()


_KEYS: Final = {
    section.name: [key.name for key in msgspec.structs.fields(section.type)]
    for section in msgspec.structs.fields(_File)
    if isinstance(section.type, type)
}
"""The keys that a variable may override, by section: all but the clusters, which are a list."""


@dataclass(frozen=True)
class Cluster:
    """A cluster's name and where it is. zookeeper: HOST:PORT, or several, for what no gateway does."""

    name: str
    url: str
    zookeeper: str | None = None

    @property
    def in_files(self) -> bool:
        """Whether it is a directory of this machine."""
        return not self.url.startswith("hbase:")


@dataclass(frozen=True)
class Http:
    """How HTTP is served. tokens: None lets this machine in, and nobody else. threads: for calls that wait for servers.
    patience_ms: how long a client may take to send a head, or a body. drain_ms: how long a server goes on, not ready,
    after it was told to end.
    """

    tokens: Path | None
    cursor_key: Path
    threads: int
    connections: int
    patience_ms: int
    drain_ms: int


@dataclass(frozen=True)
class Config:
    """What `feed.toml` says. home: the directory that relative paths in urls start from. replication: of the topics,
    where the queue is Kafka. hbase_jars: the Java class path with HBase's jars and ours; may be empty. clusters: in the
    order in which readers prefer them, but for `prefer`. deadline_ms: how long a page may take. reads_at_once: of each
    cluster that is on servers. dead_letter_age_ms, dead_letters: how long, and how many, dead letters are kept.
    sources: which values come from the environment.
    """

    home: Path
    limits: Limits
    clusters: tuple[Cluster, ...]
    shards: tuple[str, ...]
    queue: str
    partitions: int
    replication: int
    hbase_jars: str
    tick_ms: int
    housekeeping_ms: int
    refill_again_ms: int
    deadline_ms: int
    reads_at_once: int
    prefer: str | None
    http: Http
    dead_letters_in_a_row: int
    dead_letter_age_ms: int
    dead_letters: int
    sources: Sources

    def path(self, url: str, scheme: str) -> Path:
        """The path in a url of an embedded adapter. Raises ConfigError for another scheme."""
        found, colon, rest = url.partition(":")
        if not colon or found != scheme or not rest or rest.startswith("//"):
            key = {self.queue: "queue.url", **dict.fromkeys(self.shards, "follows.shards")}.get(url, "clusters")
            raise ConfigError(f"{self.sources.blamed(key)}: url {url!r}: expected {scheme}:PATH")
        return self.home / rest


def load(home: Path, environ: Mapping[str, str]) -> Config:
    """Reads `home/feed.toml`. Raises ConfigError, whatever is wrong with it."""
    path = home / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: not found; make a home with: feedctl --home {home} init") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return parse(home, text, environ)


def parse(home: Path, text: str, environ: Mapping[str, str]) -> Config:
    """What `text` says as the `feed.toml` of a home. Raises ConfigError."""
    path = home / FILE_NAME
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    try:
        sources = overridden(raw, path, _KEYS, environ)
    except UnknownVariableError as error:
        raise ConfigError(str(error)) from error
    try:
        file = msgspec.convert(raw, _File)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{sources.blamed(_key_in(str(error)))}: {error}") from error
    names = [cluster.name for cluster in file.clusters]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: clusters: two of them have the same name")
    _refuse_one_place(path, file.clusters)
    if file.serving.prefer not in {None, *names}:
        raise ConfigError(
            f"{sources.blamed('serving.prefer')}: serving.prefer: no cluster {file.serving.prefer!r};"
            f" there are: {', '.join(names)}"
        )
    durations = {
        "limits.action_age": file.limits.action_age,
        "limits.delivery_age": file.limits.delivery_age,
        "limits.purge_window": file.limits.purge_window,
        "limits.dead_letter_age": file.limits.dead_letter_age,
        "worker.tick": file.worker.tick,
        "worker.housekeeping": file.worker.housekeeping,
        "worker.refill_again": file.worker.refill_again,
        "serving.deadline": file.serving.deadline,
        "http.patience": file.http.patience,
        "http.drain": file.http.drain,
    }
    ms = {key: _duration_ms(sources, key, text) for key, text in durations.items()}
    try:
        limits = Limits(
            cap=file.feed.cap,
            slack=file.feed.slack,
            action_age_ms=ms["limits.action_age"],
            delivery_age_ms=ms["limits.delivery_age"],
            purge_window_ms=ms["limits.purge_window"],
        )
    except ValueError as error:
        # Its message names what does not fit together.
        keys = [f"{section}.{key}" for section in ("feed", "limits") for key in _KEYS[section] if key in str(error)]
        raise ConfigError(f"{sources.blamed(*keys)}: {error}") from error
    return Config(
        home=home,
        limits=limits,
        clusters=tuple(Cluster(cluster.name, cluster.url, cluster.zookeeper) for cluster in file.clusters),
        shards=tuple(file.follows.shards),
        queue=file.queue.url,
        partitions=file.queue.partitions,
        replication=file.queue.replication,
        hbase_jars=file.hbase.jars,
        tick_ms=ms["worker.tick"],
        housekeeping_ms=ms["worker.housekeeping"],
        refill_again_ms=ms["worker.refill_again"],
        deadline_ms=ms["serving.deadline"],
        reads_at_once=file.serving.reads_at_once,
        prefer=file.serving.prefer,
        http=Http(
            tokens=None if file.http.tokens is None else home / file.http.tokens,
            cursor_key=home / file.http.cursor_key,
            threads=file.http.threads,
            connections=file.http.connections,
            patience_ms=ms["http.patience"],
            drain_ms=ms["http.drain"],
        ),
        dead_letters_in_a_row=file.worker.dead_letters_in_a_row,
        dead_letter_age_ms=ms["limits.dead_letter_age"],
        dead_letters=file.limits.dead_letters,
        sources=sources,
    )


def _refuse_one_place(path: Path, clusters: Sequence[_Cluster]) -> None:
    """Raises ConfigError if two clusters are one: each would hold what was written for the other."""
    places = [(cluster.name, _places(path.parent, cluster.url)) for cluster in clusters]
    for (name, ours), (other, theirs) in itertools.combinations(places, 2):
        if shared := ours & theirs:
            raise ConfigError(
                f"{path}: clusters: {name} and {other} are one place ({min(shared)}): give each a url of its own"
            )


def _places(home: Path, url: str) -> frozenset[str]:
    """What a cluster's url leads to: its directory, whatever its path; or its tables behind each of its gateways."""
    scheme, _, rest = url.partition(":")
    if scheme != "hbase":
        return frozenset({str((home / rest).resolve())})
    parts = urlsplit(url)
    namespace = parts.path.strip("/") or "default"
    gateways = ",".join([parts.netloc, *parse_qs(parts.query).get("thrift1", ())])
    return frozenset(f"{gateway.lower()}/{namespace}" for gateway in gateways.split(",") if gateway)


def duration_ms(text: str) -> int:
    """What a duration says, as it is written in `feed.toml`. Raises ValueError."""
    match = re.fullmatch(r"([1-9][0-9]{0,9})\s*(ms|s|m|h|d)", text)
    if match is None:
        raise ValueError(f"expected a duration such as '500ms', '90s' or '2d', got {text!r}")
    return int(match[1]) * _UNITS_MS[match[2]]


def _duration_ms(sources: Sources, key: str, text: str) -> int:
    try:
        return duration_ms(text)
    except ValueError as error:
        raise ConfigError(f"{sources.blamed(key)}: {key}: {error}") from error


def _key_in(error: str) -> str:
    """The key that an error of msgspec is about: it ends in "at `$.section.key`", and more where that is a list."""
    match = re.search(r"`\$\.([a-z]+\.[a-z_]+)", error)
    return match[1] if match else ""
