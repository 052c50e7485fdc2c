"""`feed.toml`: one file, read into frozen typed values. The environment overrides it; it never holds secrets.

A variable `FEED_<SECTION>_<KEY>` overrides a key of [feed], [limits], [serving], [http], [follows], [queue], [hbase],
[worker], [metrics] or [traces], for example `FEED_FEED_CAP=500` or `FEED_LIMITS_ACTION_AGE=12h`. A variable `FEED_...`
that nothing reads is refused. Durations are a number and one of ms, s, m, h, d.
"""

import difflib
import itertools
import re
import shlex
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar, assert_never
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from feedstore import settings, validation
from feedstore.catalog.settings import CatalogSettings
from feedstore.errors import ConfigError
from feedstore.following import Limits
from feedstore.following.settings import FeedSettings, LimitsSettings
from feedstore.http.settings import HttpSettings
from feedstore.metering.settings import MetricsSettings
from feedstore.replicas.settings import ServingSettings
from feedstore.settings import Ms, MsTo1h, MsTo5m, MsTo90d, MsTo100ms, Section
from feedstore.tracing.settings import TracesSettings
from feedstore.validation import words

FILE_NAME = "feed.toml"
_DATA: Final = "data"
"""The directory of a home where the default configuration has its stores."""

DEFAULT = """\
# The configuration of a following-feed home. A variable FEED_<SECTION>_<KEY> of the environment overrides a key, but
# no key of a cluster or a catalog.
[feed]
cap = 1000                    # entries of a feed that a reader can reach
slack = 250                   # live entries that a trim keeps beyond the cap

[limits]
action_age = "2d"             # an action that is older, counted from its commit, gets a new time before it is expanded
delivery_age = "1d"           # if a delivery is older, counted from its first read, its action is expanded again
purge_window = "5d"           # how long delete markers are kept: more than action_age + 2 x delivery_age
dead_letter_age = "30d"       # how long a dead letter is kept; the log names each one that is removed
dead_letters = 10000          # how many dead letters are kept at most; the oldest are removed first
clock_offset = "5s"           # if the clock of a process is off by more, the process uses the time of the others

[[clusters]]                  # in the order in which readers prefer them
name = "a"
url = "rocksdb:data/a"

[[clusters]]
name = "b"
url = "rocksdb:data/b"

[serving]
deadline = "1s"               # how long a page may take, if its caller does not say
reads_at_once = 64            # how many reads of a cluster on servers may run at once; beyond, it counts as unavailable
# prefer = "b"                # the cluster that readers ask first; for one zone only, set FEED_SERVING_PREFER=b there

[http]
# tokens = "tokens.toml"      # the file that says who may do what; without it, only this machine may use the API
patience = "10s"              # how long a client may take to send a request
drain = "1s"                  # how long it still answers after SIGTERM, so that balancers see that it is not ready

[follows]
shards = ["sqlite:data/follows.db"]

[queue]
url = "embedded:data/queue.db"
partitions = 1                # of each topic; an embedded queue keeps the number that it was made with

# [catalogs.pins]             # pages show pins without asking the follow store; then run: feedctl catalog build pins
# build = "6h"                # how often the worker builds a new generation
# keep = 3                    # how many generations are kept
# ttl = "5m"                  # how long a web process keeps a record in its cache
# cache = "64MiB"             # the size of the cache in each web process

[worker]
tick = "1s"                   # how often the watermarks move
housekeeping = "1h"           # how often feeds are trimmed and expired rows are dropped
refill_again = "1h"           # a feed that ended early and was refilled is not refilled again for this long
gather = "20ms"               # if few messages come, a writer begins a lot this often; it delays pages by up to that
dead_letters_in_a_row = 100   # if this many messages in a row cannot be processed, the worker stops
# canary = "15s"              # how often made-up users test the whole way of an action, for the metrics

[metrics]
# listen = "127.0.0.1:9464"   # where a worker serves its metrics; feedctl serve has its own at /metrics
# targets = "targets"         # the directory where each process writes its address, for a local Prometheus (file_sd)
# prometheus = "http://127.0.0.1:9090"   # the site's plots come from there; without it, from this process alone

[traces]
# endpoint = "http://127.0.0.1:4318/v1/traces"   # spans are sent there (OTLP over HTTP); without it, there are none
sample = 0.01                 # the share of requests that are recorded, if their client does not say
"""

REST = """\
[[clusters]]
name = "a"                    # what commands, metrics and pages call it; a cluster keeps its name
url = "rocksdb:data/a"        # where it is
# zookeeper = "10.0.0.2:2181"   # that of the cluster; only feedctl table needs it

[http]
cursor_key = "cursor.key"     # the file with the key that signs cursors; it is made at the first start
threads = 32                  # how many calls of each kind may wait for servers at once
connections = 1000            # how many connections a server has at most

[follows]
shards = ["sqlite:data/follows.db"]   # its databases; their number and their order never change

[queue]
url = "embedded:data/queue.db"   # where it is
replication = 3               # copies of each partition in Kafka; an embedded queue has none

[hbase]
jars = ""                     # the Java class path with HBase's jars and ours; only feedctl table needs it

[catalogs.pins]
stale_max = "10m"             # how much longer than ttl a web process may show a record if no cluster answers
missing = "source"            # a pin that has no record: "source" asks the follow store, "skip" leaves it out
"""
"""Comments of the same form on all other keys: those that a new `feed.toml` does without, and those that speak for
themselves in it. Every key has one here or there, because docs/configuration.md is made of them.
"""


ClusterScheme = Literal["rocksdb", "hbase"]
FollowsScheme = Literal["sqlite", "mysql"]
QueueScheme = Literal["embedded", "kafka"]
_Scheme = TypeVar("_Scheme", bound=str)

CLUSTERS: Final[Mapping[ClusterScheme, str]] = {
    "rocksdb": "rocksdb:PATH",
    "hbase": "hbase://HOST:PORT/",
}
FOLLOWS: Final[Mapping[FollowsScheme, str]] = {"sqlite": "sqlite:PATH", "mysql": "mysql://USER@HOST/DATABASE"}
QUEUES: Final[Mapping[QueueScheme, str]] = {"embedded": "embedded:PATH", "kafka": "kafka://HOST:PORT"}
"""The schemes of all adapters, each with the form of its urls. A url of any other scheme is refused here. Code that
depends on the adapter matches the scheme and ends in `assert_never`, so that mypy names every place where a new scheme
must be added.
"""


class _Limits(LimitsSettings, frozen=True):
    dead_letter_age_ms: Ms = Ms(2_592_000_000)
    dead_letters: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    clock_offset_ms: MsTo1h = MsTo1h(5_000)


_Name = Annotated[
    str,
    Meta(
        pattern=r"^[a-z][a-z0-9-]{0,30}\Z",
        extra=words("a name of up to 31 characters: a to z first, then also digits and hyphens"),
    ),
]


class _Cluster(Section, frozen=True):
    name: _Name
    url: str
    zookeeper: (
        Annotated[
            str,
            Meta(
                pattern=r"^[^\s:,]+:[0-9]{1,5}(,[^\s:,]+:[0-9]{1,5})*\Z",
                extra=words("HOST:PORT, or several with commas between them"),
            ),
        ]
        | None
    ) = None


class _Follows(Section, frozen=True):
    shards: Annotated[list[str], Meta(min_length=1, max_length=1_024)]


class _Queue(Section, frozen=True):
    url: str
    partitions: Annotated[int, Meta(ge=1, le=1_024)] = 1
    replication: Annotated[int, Meta(ge=1, le=16)] = 3


class _HBase(Section, frozen=True):
    jars: str = ""


class WorkerSettings(Section, frozen=True):
    """The settings of the workers, which are in a package above this one. gather_ms: how far apart a writer's lots
    begin if few messages come. canary_ms: how often canaries go the whole way; None: never.
    """

    tick_ms: MsTo5m = MsTo5m(1_000)
    housekeeping_ms: MsTo90d = MsTo90d(3_600_000)
    refill_again_ms: MsTo90d = MsTo90d(3_600_000)
    gather_ms: MsTo100ms = MsTo100ms(20)
    dead_letters_in_a_row: Annotated[int, Meta(ge=1)] = 100
    canary_ms: MsTo1h | None = None


class FeedToml(Section, frozen=True):
    """The sections of a `feed.toml`, as they are in the file."""

    feed: FeedSettings
    limits: _Limits
    clusters: Annotated[list[_Cluster], Meta(min_length=1, max_length=16)]
    follows: _Follows
    queue: _Queue
    hbase: _HBase = _HBase()
    worker: WorkerSettings = WorkerSettings()
    serving: ServingSettings = ServingSettings()
    http: HttpSettings = HttpSettings()
    metrics: MetricsSettings = MetricsSettings()
    traces: TracesSettings = TracesSettings()
    catalogs: Annotated[dict[_Name, CatalogSettings], Meta(max_length=16)] = msgspec.field(default_factory=dict)


_KEYS: Final = {
    section.name: {key.encode_name: key.type for key in msgspec.structs.fields(section.type)}
    for section in msgspec.structs.fields(FeedToml)
    if isinstance(section.type, type)
}
"""The keys that a variable may override, with their types, by section. Those of clusters and catalogs cannot be, as
these have names.
"""

_PREFIX: Final = "FEED_"
OTHERS: Final[Mapping[str, str]] = {
    "FEED_HOME": "the home of a command without `--home`; without both, it is `.feed`",
    "FEED_CURSOR_KEY": "the key that signs cursors, 64 hexadecimal digits; it comes before `[http] cursor_key`",
    "FEED_KAFKA_PASSWORD": "the password for Kafka, if the queue's url has no `password_file`",
    "FEED_KAFKA_KEY_PASSWORD": "the password of the client's own key for Kafka",
    "FEED_MYSQL_PASSWORD": "the password for the databases, if a shard's url has no `password_file`",
    "FEED_RESTART_S": "only the images of the Docker clusters read it",
    "FEED_SITES": "only the images of the Docker clusters read it",
}
"""What the variables mean that override no key."""
_OTHER_PREFIXES: Final = ("FEED_CLUSTER_", "FEED_TEST_", "FEED_WEB_")
"""Variables of the tools around this program begin with one of these."""


def variable(section: str, key: str) -> str | None:
    """The variable that overrides a key; None if none does."""
    return f"{_PREFIX}{section}_{key}".upper() if key in _KEYS.get(section, {}) else None


@dataclass(frozen=True)
class Sources:
    """Tells where the value of a key comes from. path: of `feed.toml`. variables: by the keys that they override."""

    path: Path
    variables: Mapping[str, str]

    def blamed(self, *keys: str) -> str:
        """Begins an error about some keys, such as `feed.cap`: the variables that override them, or else the file."""
        names = [self.variables[key] for key in keys if key in self.variables]
        return f"the environment's {' or '.join(names)}" if names else str(self.path)


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster. scheme: of its url. zookeeper: HOST:PORT, or several, for operations that no gateway offers."""

    name: str
    url: str
    scheme: ClusterScheme
    zookeeper: str | None = None

    @property
    def in_files(self) -> bool:
        """Whether it is a directory of this machine."""
        match self.scheme:
            case "rocksdb":
                return True
            case "hbase":
                return False
            case _:
                assert_never(self.scheme)


@dataclass(frozen=True)
class Config:
    """The content of `feed.toml`. home: the directory that relative paths in urls start from. replication: of the
    topics, if the queue is Kafka. hbase_jars: the Java class path with HBase's jars and ours; may be empty. clusters:
    in the order in which readers prefer them, except that `serving.prefer` comes first. dead_letter_age_ms,
    dead_letters: how long and how many dead letters are kept. clock_offset_ms: how far the clock of a process may be
    off. http: its paths are resolved against the home. catalogs: by name. sources: which values come from the
    environment.
    """

    home: Path
    limits: Limits
    clusters: tuple[ClusterConfig, ...]
    shards: tuple[str, ...]
    shards_scheme: FollowsScheme
    queue: str
    queue_scheme: QueueScheme
    partitions: int
    replication: int
    hbase_jars: str
    serving: ServingSettings
    http: HttpSettings
    worker: WorkerSettings
    metrics: MetricsSettings
    traces: TracesSettings
    dead_letter_age_ms: int
    dead_letters: int
    clock_offset_ms: int
    catalogs: Mapping[str, CatalogSettings]
    sources: Sources

    @property
    def holds_files(self) -> bool:
        """Whether any store of the home is in files; if so, all of its processes are on one machine."""
        in_files = any(cluster.in_files for cluster in self.clusters)
        return in_files or self.queue_file is not None or bool(self.shard_files)

    def path(self, url: str) -> Path:
        """The path in a url SCHEME:PATH."""
        return self.home / url.partition(":")[2]

    @property
    def shard_files(self) -> tuple[Path, ...]:
        """The files of the follow store; none if it is on servers."""
        match self.shards_scheme:
            case "sqlite":
                return tuple(map(self.path, self.shards))
            case "mysql":
                return ()
            case _:
                assert_never(self.shards_scheme)

    @property
    def queue_file(self) -> Path | None:
        """The file of the queue; None if it is on servers."""
        match self.queue_scheme:
            case "embedded":
                return self.path(self.queue)
            case "kafka":
                return None
            case _:
                assert_never(self.queue_scheme)

    def cluster(self, name: str) -> ClusterConfig:
        """The cluster of a name. Raises ConfigError, which names the clusters that exist."""
        for each in self.clusters:
            if each.name == name:
                return each
        raise ConfigError(f"no cluster {name!r}; there are: {', '.join(each.name for each in self.clusters)}")


def load(home: Path, environ: Mapping[str, str]) -> Config:
    """Reads `home/feed.toml`. Raises ConfigError, whatever is wrong with it."""
    path = home / FILE_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        init = f"feedctl --home {shlex.quote(str(home))} init"
        if (home / _DATA).exists():
            raise ConfigError(
                f"{path}: not found, and stores of a home are here: bring it back from a copy; only if an init was"
                f" interrupted, repeat it: {init}"
            ) from None
        raise ConfigError(f"{path}: not found; make a home with: {init}") from None
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    return parse(home, text, environ)


def parse(home: Path, text: str, environ: Mapping[str, str]) -> Config:
    """The configuration in `text`, the `feed.toml` of a home. Raises ConfigError."""
    path = home / FILE_NAME
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    sources = _overridden(raw, path, environ)
    try:
        file = msgspec.convert(raw, FeedToml, dec_hook=settings.decoded)
    except msgspec.ValidationError as error:
        refused = validation.refused(error, raw, FeedToml, table="a table")
        raise ConfigError(f"{sources.blamed(_key_in(refused.field))}: {refused}") from error
    names = [cluster.name for cluster in file.clusters]
    if len(set(names)) < len(names):
        raise ConfigError(f"{path}: clusters: two of them have the same name")
    clusters = tuple(_cluster(sources, cluster) for cluster in file.clusters)
    shards_scheme = _shards_scheme(sources, file.follows.shards)
    queue_scheme = _scheme(sources, "queue.url", file.queue.url, QUEUES)
    if file.serving.prefer not in {None, *names}:
        raise ConfigError(
            f"{sources.blamed('serving.prefer')}: serving.prefer: no cluster {file.serving.prefer!r};"
            f" there are: {', '.join(names)}"
        )
    try:
        limits = file.limits.of(file.feed)
    except ValueError as error:
        # The message of the error names the keys that do not fit together.
        keys = [f"{section}.{key}" for section in ("feed", "limits") for key in _KEYS[section] if key in str(error)]
        raise ConfigError(f"{sources.blamed(*keys)}: {error}") from error
    config = Config(
        home=home,
        limits=limits,
        clusters=clusters,
        shards=tuple(file.follows.shards),
        shards_scheme=shards_scheme,
        queue=file.queue.url,
        queue_scheme=queue_scheme,
        partitions=file.queue.partitions,
        replication=file.queue.replication,
        hbase_jars=file.hbase.jars,
        serving=file.serving,
        http=msgspec.structs.replace(
            file.http,
            tokens=None if file.http.tokens is None else home / file.http.tokens,
            cursor_key=home / file.http.cursor_key,
        ),
        worker=file.worker,
        metrics=file.metrics,
        traces=file.traces,
        dead_letter_age_ms=file.limits.dead_letter_age_ms,
        dead_letters=file.limits.dead_letters,
        clock_offset_ms=file.limits.clock_offset_ms,
        catalogs=file.catalogs,
        sources=sources,
    )
    _refuse_one_place(path, config)
    return config


def _overridden(raw: dict[str, object], path: Path, environ: Mapping[str, str]) -> Sources:
    """Puts the values of the environment into the tables of a `feed.toml`. Raises ConfigError for a variable that
    nothing reads.
    """
    names = {str(variable(section, key)): (section, key) for section, some in _KEYS.items() for key in some}
    variables: dict[str, str] = {}
    for name, text in environ.items():
        if not name.startswith(_PREFIX):
            continue
        if name.upper() not in names:
            _refuse_unknown(name, names)
            continue
        section, key = names[name.upper()]
        values = raw.setdefault(section, {})
        if isinstance(values, dict):
            values[key] = _value(text, _KEYS[section][key])
            variables[f"{section}.{key}"] = name
    return Sources(path, variables)


def _refuse_unknown(name: str, names: Iterable[str]) -> None:
    if name in OTHERS or name.startswith(_OTHER_PREFIXES):
        return
    near = difflib.get_close_matches(name, [*names, *OTHERS], n=1, cutoff=0.7)
    rather = f"; the most similar one is {near[0]}" if near else ""
    raise ConfigError(f"the environment's {name}: nothing reads this variable{rather}; rename it or unset it")


def _value(text: str, kind: Any) -> object:
    """The value of a variable. kind: the type of its key."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text  # a bare word is text: FEED_LIMITS_ACTION_AGE=12h
    # What looks like a number may be meant as text: FEED_METRICS_LISTEN=9464
    return value if isinstance(value, str) or not validation.is_text(kind) else text


def _cluster(sources: Sources, said: _Cluster) -> ClusterConfig:
    scheme = _scheme(sources, "clusters", said.url, CLUSTERS, f"cluster {said.name}")
    return ClusterConfig(said.name, said.url, scheme, said.zookeeper)


def _shards_scheme(sources: Sources, urls: Sequence[str]) -> FollowsScheme:
    schemes = {_scheme(sources, "follows.shards", url, FOLLOWS) for url in urls}
    if len(schemes) > 1:
        raise ConfigError(
            f"{sources.blamed('follows.shards')}: follows.shards: {' and '.join(sorted(schemes))}: expected urls of one"
            " scheme: a follow store is in one kind of database"
        )
    return schemes.pop()


def _scheme(sources: Sources, key: str, url: str, known: Mapping[_Scheme, str], whose: str | None = None) -> _Scheme:
    """The scheme of a url. known: all schemes, each with the form of its urls.

    Raises ConfigError, which does not show the url: it may contain a password.
    """
    found, _, rest = url.partition(":")
    blamed = f"{sources.blamed(key)}: {whose or key}"
    for scheme, form in known.items():
        if scheme == found:
            in_files = form == f"{scheme}:PATH"
            if not (_is_path(rest) if in_files else _is_url(url)):
                raise ConfigError(f"{blamed}: expected {form}")
            return scheme
    forms = " or ".join(known.values())
    raise ConfigError(f"{blamed}: the scheme {found.split('/')[0][:40]!r} is unknown: expected {forms}")


def _is_path(text: str) -> bool:
    return bool(text.strip("/")) and not text.startswith("//") and "\0" not in text


def _is_url(text: str) -> bool:
    try:
        urlsplit(text)
    except ValueError:  # such as an address of IPv6 that is not closed
        return False
    return True


def _refuse_one_place(path: Path, config: Config) -> None:
    """Raises ConfigError if two stores are in one place: each would get what is written for the other. Also if another
    store is inside the directory of a cluster: it would be removed when the cluster is created again.
    """
    directories = {f"cluster {each.name}": config.path(each.url).resolve() for each in config.clusters if each.in_files}
    files = {f"shard {number} of the follow store": each.resolve() for number, each in enumerate(config.shard_files)}
    if config.queue_file is not None:
        files["the queue"] = config.queue_file.resolve()
    in_files = directories | files
    places = {f"cluster {each.name}": _gateways(each.url) for each in config.clusters if not each.in_files}
    places |= {what: {str(place)} for what, place in in_files.items()}
    for (one, ours), (other, theirs) in itertools.combinations(places.items(), 2):
        if shared := ours & theirs:
            raise ConfigError(f"{path}: {one} and {other} are in one place ({min(shared)}): give each a url of its own")
    home = config.home.resolve()
    for what, directory in directories.items():
        inside = [other for other, place in in_files.items() if directory in place.parents]
        inside += ["the home itself"] if directory in (home, *home.parents) else []
        if inside:
            raise ConfigError(
                f"{path}: clusters: {what}, {directory}, has {', '.join(inside)} inside: give it a directory of its own"
            )


def _gateways(url: str) -> set[str]:
    """The gateways behind which a cluster in HBase is, each with the namespace of its tables."""
    parts = urlsplit(url)
    namespace = parts.path.strip("/") or "default"
    return {f"{gateway.lower()}/{namespace}" for gateway in parts.netloc.split(",") if gateway}


def _key_in(field: str) -> str:
    """The key of a field in an error; if the key is a list, the field has more after it."""
    match = re.match(r"[a-z]+\.[a-z_]+", field)
    return match[0] if match else ""
