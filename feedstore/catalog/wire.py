"""Bodies and answers about catalogs, as they travel."""

from base64 import b64encode
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from feedstore.catalog import pins
from feedstore.catalog.pins import HeldPin
from feedstore.catalog.port import MAX_KEY_BYTES, MAX_KEYS, Generation, Update
from feedstore.catalog.posting import UPDATES_MAX, UpdateLine
from feedstore.catalog.service import CatalogState
from feedstore.catalog.settings import PINS
from feedstore.catalog.swaps import Swap
from feedstore.catalog.watch import Facts
from feedstore.domain import InvalidValueError, id_of
from feedstore.http.wire import MAX_EXACT, Count, Id, Ms
from feedstore.validation import words

BODY_BYTES_MAX: Final = 65_536
"""The most bytes of a body with keys: enough for 1,000 keys of 60 characters."""

UPDATES_BYTES_MAX: Final = 2**19
"""The most bytes of a body with updates: enough for 1,000 updates of 500 bytes. Every connection may send this much at
once.
"""

CLUSTERS_MAX: Final = 16

Given = (
    Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES)]
    | Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_EXACT,
            description="The id of a pin up to 2^53-1 may be a number",
            extra=words("the id of a pin up to 2^53-1 as a number"),
        ),
    ]
)
Share = Annotated[float, Meta(ge=0, le=1)]
ByCluster = Annotated[
    dict[str, Annotated[str, Meta(min_length=1, max_length=200)]],
    Meta(min_length=1, max_length=CLUSTERS_MAX, description="The id of a generation, by the name of the cluster"),
]


class GetBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """keys: of the catalog `pins` ids, of others the texts of keys. max_behind_ms: an answer that may be further behind
    is not given.
    """

    keys: Annotated[list[Given], Meta(min_length=1, max_length=MAX_KEYS)]
    max_behind_ms: Annotated[int, Meta(ge=0, le=MAX_EXACT)] | UnsetType = UNSET

    def packed(self, catalog: str) -> dict[bytes, str]:
        """The keys in the catalog's form, each with the text that was given for it, in the order given. Raises
        InvalidValueError.
        """
        return dict(map(_pin_key if catalog == PINS else _text_key, self.keys))


class UpdatesBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Updates of any keys, in any order. One that is older than what the catalog has of its key changes nothing."""

    updates: Annotated[list[UpdateLine], Meta(min_length=1, max_length=UPDATES_MAX)]

    def checked(self, now_ms: int) -> list[Update]:
        """Raises InvalidValueError."""
        return [each.update(f"updates[{number}]", now_ms) for number, each in enumerate(self.updates)]


class PostedUpdates(msgspec.Struct, frozen=True):
    """updates: how many were taken: all that were sent."""

    catalog: str
    updates: Count


class RollbackBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"generations": "from"}):
    """from: the generation that is in use in each of some clusters, and is wrong."""

    generations: ByCluster


class UseBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"generations": "to"}):
    """to: the generation that is to be in use in each of some clusters."""

    generations: ByCluster


class GenerationLine(msgspec.Struct, frozen=True):
    """as_of_ms: everything that was committed up to then is in it. bytes: on the disk; null if that is not known.
    current: whether it is in use. used: whether it came into use and was not rolled back since: a rollback goes to the
    latest of these before the current one.
    """

    id: str
    as_of_ms: Ms
    records: Count
    bytes: Count | None
    current: bool
    used: bool


class ClusterLine(msgspec.Struct, frozen=True):
    """The last answer of a cluster. answered_ms: when it came; null: not yet, and then the rest is unknown.
    generations: the oldest first. floor_ms: updates up to then may be missing. known_ms: every update up to then is in,
    but for those; null if nothing is known. behind_ms: every change that is older than this is in what is read there.
    delta_entries: about how many keys were updated since the oldest generation.
    """

    name: str
    generations: list[GenerationLine]
    floor_ms: Count | None
    known_ms: Ms | None
    behind_ms: Count | None
    delta_entries: Count | None
    answered_ms: Ms | None


class KeysLine(msgspec.Struct, frozen=True):
    """What became of the keys that this server's pages and requests asked for, since it was started. hit: their records
    were held. stale: so, but their time was up, and no cluster answered. fetched: from a cluster; joined: from a fetch
    that was under way. missing: no record, or no answer. source: of the missing, how many were asked of the follow
    store then.
    """

    hit: Count
    stale: Count
    fetched: Count
    joined: Count
    missing: Count
    source: Count


class CatalogLine(msgspec.Struct, frozen=True):
    """hit_rate, missing_rate: of the keys; null while there are none. cache_bytes: what this server holds, about."""

    name: str
    clusters: list[ClusterLine]
    keys: KeysLine
    hit_rate: Share | None
    missing_rate: Share | None
    cache_bytes: Count


class Catalogs(msgspec.Struct, frozen=True):
    """The clusters of each are in the order of preference. now_ms: by the server's clock."""

    catalogs: list[CatalogLine]
    now_ms: Ms


class PinRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of the catalog `pins`."""

    owner: Id
    board: Id
    created_ms: int


class Records(msgspec.Struct, frozen=True):
    """records: those that are JSON, by key; of the catalog `pins` as `{"owner", "board", "created_ms"}`. base64: all
    others. missing: keys without a record; deleted pins are among them. unanswered: keys of which nothing is known now,
    or nothing that is new enough. stale: of the keys that were answered, those whose time was up. behind_ms: every
    change that is older than this is in the answer; null if that is not known. generation: the one by which a cluster
    answered what was fetched for this; null if all was held, or if fetches of several generations were waited for.
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
    """generation: the one that is in use now. changed: false if it was in use before. before: the one that was; null:
    there was none.
    """

    cluster: str
    generation: str
    before: str | None
    changed: bool


class Swapped(msgspec.Struct, frozen=True):
    """Every process reads it in two seconds at most. After a rollback, records that it held before are read again."""

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


def json_record(record: bytes) -> msgspec.Raw | None:
    """A record as JSON; None if it is not JSON."""
    try:
        msgspec.json.decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return msgspec.Raw(record)


def pin_record(pin: HeldPin) -> msgspec.Raw | None:
    """The record of a pin as JSON; None if the pin was deleted."""
    if not pin:
        return None
    return msgspec.Raw(msgspec.json.encode(PinRecord(str(pin.owner), str(pin.board), pin.created_ms)))


def base64_of(record: bytes) -> str:
    return b64encode(record).decode()


def swap_line(cluster: str, swap: Swap) -> SwapLine:
    return SwapLine(cluster, swap.generation, swap.before, swap.generation != swap.before)


def _cluster_line(name: str, facts: Facts | None, now_ms: int) -> ClusterLine:
    if facts is None:
        return ClusterLine(name, [], None, None, None, None, None)
    generations = [_generation_line(each) for each in facts.generations]
    delta = facts.delta
    behind = facts.behind_ms(now_ms)
    return ClusterLine(
        name, generations, delta.floor_ms, delta.known_ms or None, behind, delta.entries, facts.answered_ms
    )


def _generation_line(each: Generation) -> GenerationLine:
    return GenerationLine(each.id, each.as_of_ms, each.records, each.bytes or None, each.current, each.used)


def _pin_key(given: str | int) -> tuple[bytes, str]:
    pin = id_of("keys", given)
    return pins.key_of(pin), str(pin)


def _text_key(given: str | int) -> tuple[bytes, str]:
    if not isinstance(given, str):
        raise InvalidValueError("keys", given, "the text of a key")
    try:
        packed = given.encode()
    except UnicodeEncodeError as error:
        raise InvalidValueError("keys", given, "text that UTF-8 can say") from error
    return packed, given
