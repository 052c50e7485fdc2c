"""The metrics of catalogs, from the last answer of each cluster: none is asked."""

from typing import TYPE_CHECKING, Final

from feedstore.clocks import behind_ms
from feedstore.metering import CLUSTER, Counted, Counts, Label
from feedstore.metering.meter import Sample, Spread

if TYPE_CHECKING:  # defining metrics needs no library, not even that of catalogs
    from feedstore.catalog.service import CatalogState

_SERVED: Final = Counted("feedstore/catalog/metrics.py", ("serve",))
_CATALOG: Final = Label("catalog", of="the catalogs of `feed.toml`")
_OUTCOMES: Final = ("hit", "stale", "fetched", "joined", "missing", "source")

KEYS: Final = _SERVED.counter(
    "feed_catalog_keys_total",
    "Keys that this server's pages and requests asked for. Each is one of `hit` (its record was held), `stale` (held,"
    " but its time was up and no cluster answered), `fetched`, `joined` (fetched for another request) and `missing` (no"
    " record, or no answer). `source`: of the missing, those that the follow store was then asked for",
    _CATALOG,
    Label("outcome", _OUTCOMES),
)
FETCH_SECONDS: Final = _SERVED.summary(
    "feed_catalog_fetch_seconds",
    "Duration of fetches of keys that were not held, by the cluster that answered: a sum and a count",
    _CATALOG,
    CLUSTER,
)
FAILED: Final = _SERVED.counter(
    "feed_catalog_failed_fetches_total",
    "Fetches that no cluster answered; they are not in `feed_catalog_fetch_seconds`",
    _CATALOG,
)
BEHIND: Final = _SERVED.gauge(
    "feed_catalog_behind_seconds",
    "Age of the newest change such that a read in the cluster sees it and every older one; absent if unknown",
    _CATALOG,
    CLUSTER,
)
AGE: Final = _SERVED.gauge(
    "feed_catalog_generation_age_seconds",
    "Time since the batch of the current generation began to read its source; absent if there is none",
    _CATALOG,
    CLUSTER,
)
RECORDS: Final = _SERVED.gauge(
    "feed_catalog_records", "Records of the current generation; absent if there is none", _CATALOG, CLUSTER
)
BUILD_SECONDS: Final = _SERVED.gauge(
    "feed_catalog_build_seconds",
    "How long it took to read and load the current generation; absent if an earlier version has loaded it",
    _CATALOG,
    CLUSTER,
)
SWAPS: Final = _SERVED.counter(
    "feed_catalog_swaps_total",
    "How often this server has seen another generation come into use, a later or an older one",
    _CATALOG,
    CLUSTER,
)
ENTRIES: Final = _SERVED.gauge(
    "feed_catalog_delta_entries", "About how many keys were updated since the oldest generation", _CATALOG, CLUSTER
)
CACHE: Final = _SERVED.gauge("feed_catalog_cache_bytes", "About how much memory this server holds records in", _CATALOG)
UPDATES: Final = _SERVED.counter("feed_catalog_updates_total", "Updates that replaced what this server held", _CATALOG)
HEARD: Final = _SERVED.gauge(
    "feed_catalog_heard_behind_seconds",
    "Age of the newest update such that this server has heard of it and every older one; absent if unknown, as"
    " after a gap",
    _CATALOG,
)


def counts(states: "list[CatalogState]", now_ms: int) -> Counts:
    counters: list[Sample] = []
    gauges: list[Sample] = []
    took: list[Spread] = []
    for state in states:
        of, labels = state.counts, (state.name,)
        counters += [Sample(KEYS.name, (*labels, outcome), getattr(of, outcome)) for outcome in _OUTCOMES]
        counters += [Sample(FAILED.name, labels, of.failed_fetches), Sample(UPDATES.name, labels, of.updates)]
        took += [
            Spread(FETCH_SECONDS.name, (*labels, name), [each.fetches], each.seconds) for name, each in of.took.items()
        ]
        gauges.append(Sample(CACHE.name, labels, state.cache_bytes))
        heard_behind_ms = behind_ms(state.heard_ms, now_ms)
        if heard_behind_ms is not None:
            gauges.append(Sample(HEARD.name, labels, heard_behind_ms / 1_000))
        for cluster, facts in state.facts.items():
            if facts is None:
                continue
            of_cluster = (*labels, cluster)
            gauges.append(Sample(ENTRIES.name, of_cluster, facts.delta.entries))
            counters.append(Sample(SWAPS.name, of_cluster, facts.swaps))
            cluster_ms, current = facts.behind_ms(now_ms), facts.current
            if cluster_ms is not None:
                gauges.append(Sample(BEHIND.name, of_cluster, cluster_ms / 1_000))
            if current is not None:
                gauges.append(Sample(AGE.name, of_cluster, max(0, now_ms - current.as_of_ms) / 1_000))
                gauges.append(Sample(RECORDS.name, of_cluster, current.records))
                if current.took_ms:
                    gauges.append(Sample(BUILD_SECONDS.name, of_cluster, current.took_ms / 1_000))
    return Counts(counters, gauges, took)
