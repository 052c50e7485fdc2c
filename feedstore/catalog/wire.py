"""Bodies and answers about catalogs, as they travel."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore.catalog.forms import Form
from feedstore.catalog.port import MAX_KEY_BYTES, MAX_KEYS, Update
from feedstore.catalog.posting import UPDATES_MAX, UpdateLine
from feedstore.catalog.service import CatalogState
from feedstore.catalog.watch import Facts
from feedstore.http.wire import MAX_EXACT, Count, Ms
from feedstore.validation import words

BODY_BYTES_MAX: Final = 65_536
"""The most bytes of a body with keys: enough for 1,000 keys of 60 characters."""

UPDATES_BYTES_MAX: Final = 2**19
"""The most bytes of a body with updates, as for 1,000 of 500 bytes. Every connection may send this much at once."""

CLUSTERS_MAX: Final = 16

Given = (
    Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES)]
    | Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_EXACT,
            description="The id of a pin up to 2^53-1 may also be a number",
            extra=words("the id of a pin up to 2^53-1 as a number"),
        ),
    ]
)
Share = Annotated[float, Meta(ge=0, le=1)]
ByCluster = Annotated[
    dict[str, Annotated[str, Meta(min_length=1, max_length=200)]],
    Meta(min_length=1, max_length=CLUSTERS_MAX, description="For each named cluster, the id of a generation"),
]


class GetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """keys: in the catalog `pins`, ids of pins; in any other catalog, the keys as text. max_behind_ms: how far behind
    the answer may be. Keys whose answer would be further behind are `unanswered`; if these are all keys, the answer is
    a 503.
    """

    keys: Annotated[list[Given], Meta(min_length=1, max_length=MAX_KEYS)]
    max_behind_ms: Annotated[int, Meta(ge=0, le=MAX_EXACT)] | UnsetType = UNSET

    def packed(self, form: Form[Any]) -> dict[bytes, str]:
        """The keys as bytes, in the order given, each with the text that was given. Raises InvalidValueError."""
        return dict(form.key("keys", given) for given in self.keys)


class UpdatesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Updates of any keys, in any order. An update changes nothing if it is older than what the catalog has for its
    key.
    """

    updates: Annotated[list[UpdateLine], Meta(min_length=1, max_length=UPDATES_MAX)]

    def checked(self, now_ms: int) -> list[Update]:
        """Raises InvalidValueError."""
        return [each.update(f"updates[{number}]", now_ms) for number, each in enumerate(self.updates)]


class PostedUpdates(msgspec.Struct, frozen=True):
    """updates: how many updates were posted. These are always all that were sent."""

    catalog: str
    updates: Count


class RollbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"generations": "from"}):
    """from: for each cluster that is to be rolled back, the generation that is in use there and is wrong."""

    generations: ByCluster


class UseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"generations": "to"}):
    """to: for each cluster that is to be changed, the generation that it shall use."""

    generations: ByCluster


class GenerationLine(msgspec.Struct, frozen=True):
    """A generation. as_of_ms: it has everything that was committed up to this time. bytes: its size on the disk; null
    if this is not known. current: whether it is in use. used: whether it came into use and was not rolled back since
    then. A rollback goes to the latest generation before the current one for which `used` is true.
    """

    id: str
    as_of_ms: Ms
    records: Count
    bytes: Count | None
    current: bool
    used: bool


class CatalogClusterLine(msgspec.Struct, frozen=True):
    """The state of a catalog in a cluster, from the last answer of the cluster. generations: the oldest first.
    floor_ms: updates up to this time may be missing. known_ms: the cluster has every update up to this time, except
    those up to `floor_ms`; null if this is unknown. behind_ms: what is read there has every change that is older than
    this many ms. delta_entries: about how many keys were updated since the oldest generation. answered_ms: when the
    answer came; null if the cluster has not answered yet, and then everything else is unknown.
    """

    name: str
    generations: list[GenerationLine]
    floor_ms: Count | None
    known_ms: Ms | None
    behind_ms: Count | None
    delta_entries: Count | None
    answered_ms: Ms | None


class KeysLine(msgspec.Struct, frozen=True):
    """How this server's pages and requests got the records of their keys, since it was started; each is a number of
    keys. hit: from the server's cache. stale: from the cache although they were too old, because no cluster answered.
    fetched: from a cluster. joined: from a fetch of the same key that had already begun. missing: there was no record,
    or no answer. source: of the missing keys, those that the follow store was asked for.
    """

    hit: Count
    stale: Count
    fetched: Count
    joined: Count
    missing: Count
    source: Count


class CatalogLine(msgspec.Struct, frozen=True):
    """A catalog. hit_rate, missing_rate: which share of the keys was a hit, and which was missing; null if no key was
    asked for yet. cache_bytes: the size of this server's cache, roughly.
    """

    name: str
    clusters: list[CatalogClusterLine]
    keys: KeysLine
    hit_rate: Share | None
    missing_rate: Share | None
    cache_bytes: Count


class Catalogs(msgspec.Struct, frozen=True):
    """The catalogs. The clusters of each are in the order in which readers prefer them. now_ms: the time by the
    server's clock.
    """

    catalogs: list[CatalogLine]
    now_ms: Ms


class Records(msgspec.Struct, frozen=True):
    """Records by key. records: the records that are JSON; in the catalog `pins` they have the form `{"owner", "board",
    "created_ms"}`. base64: all other records. missing: the keys that have no record, such as those of deleted pins.
    unanswered: the keys for which no cluster gives an answer now, or none that is new enough. stale: the keys that were
    answered from the server's cache although their records were too old, because no cluster answered. behind_ms: the
    answer has every change that is older than this many ms; null if this is not known. generation: the generation from
    which a cluster answered; null if all records came from the cache, or from several generations.
    """

    catalog: str
    records: dict[str, Any]
    base64: dict[str, str]
    missing: list[str]
    unanswered: list[str]
    stale: list[str]
    behind_ms: Count | None
    generation: str | None


class SwapLine(msgspec.Struct, frozen=True):
    """A swap in a cluster. generation: the generation that is in use now. before: the generation that was in use before
    the request; null if there was none. changed: false if the two are the same.
    """

    cluster: str
    generation: str
    before: str | None
    changed: bool


class Swapped(msgspec.Struct, frozen=True):
    """The result of a swap. Every process reads the new generation within two seconds. After a rollback, a process
    reads the records again that it had in its cache.
    """

    catalog: str
    clusters: list[SwapLine]


def catalog_line(state: CatalogState, now_ms: int) -> CatalogLine:
    counts = state.counts
    asked = counts.asked
    return CatalogLine(
        state.name,
        [_cluster_line(name, facts, now_ms) for name, facts in state.facts.items()],
        KeysLine(counts.hit, counts.stale, counts.fetched, counts.joined, counts.missing, counts.source),
        counts.hit / asked if asked else None,
        counts.missing / asked if asked else None,
        state.cache_bytes,
    )


def _cluster_line(name: str, facts: Facts | None, now_ms: int) -> CatalogClusterLine:
    if facts is None:
        return CatalogClusterLine(name, [], None, None, None, None, None)
    generations = [
        GenerationLine(each.id, each.as_of_ms, each.records, each.bytes or None, each.current, each.used)
        for each in facts.generations
    ]
    delta = facts.delta
    behind = facts.behind_ms(now_ms)
    return CatalogClusterLine(
        name, generations, delta.floor_ms, delta.known_ms or None, behind, delta.entries, facts.answered_ms
    )
