"""What /metrics says of catalogs. It asks no cluster: of each it says what that said last."""

from collections.abc import Iterator
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from feedstore.catalog.service import CatalogState
from feedstore.widecolumn.behind import behind_ms

MetricName = Literal[
    # By catalog and outcome: keys that this process asked for, and as `source` those it then asked of the follow store
    "feed_catalog_keys_total",
    # By catalog and the cluster that answered: fetches of keys that were not held, and how long they took
    "feed_catalog_fetch_seconds",
    # By catalog: those that no cluster answered
    "feed_catalog_failed_fetches_total",
    # By catalog and cluster: every change longer ago than this is in what is read there; absent where that is unknown
    "feed_catalog_behind_seconds",
    # By catalog and cluster: since the batch of the current generation began; absent where there is none
    "feed_catalog_generation_age_seconds",
    # By catalog and cluster: of the current generation
    "feed_catalog_records",
    # By catalog and cluster: how long the current generation took to load; absent where that is unknown
    "feed_catalog_build_seconds",
    # By catalog and cluster: how often this process has seen another generation come into use
    "feed_catalog_swaps_total",
    # By catalog and cluster: keys that were updated since the oldest generation, about
    "feed_catalog_delta_entries",
    # By catalog: what this process holds, about
    "feed_catalog_cache_bytes",
    # By catalog: updates that replaced what this process holds
    "feed_catalog_updates_total",
    # By catalog: this process has heard of every update longer ago than this; absent where that is unknown
    "feed_catalog_heard_behind_seconds",
]

_BY_CLUSTER = ("catalog", "cluster")


def metrics(states: list[CatalogState], now_ms: int) -> Iterator[Metric]:
    keys = CounterMetricFamily(
        _named("feed_catalog_keys_total"),
        "Keys that were asked of a catalog; outcome source: of the missing, those then asked of the follow store",
        labels=["catalog", "outcome"],
    )
    seconds = SummaryMetricFamily(
        _named("feed_catalog_fetch_seconds"),
        "Duration of fetches from the clusters of a catalog, by the one that answered",
        labels=_BY_CLUSTER,
    )
    failed = CounterMetricFamily(
        _named("feed_catalog_failed_fetches_total"), "Fetches that no cluster of a catalog answered", labels=["catalog"]
    )
    held = GaugeMetricFamily(
        _named("feed_catalog_cache_bytes"), "Memory of the local cache of a catalog", labels=["catalog"]
    )
    updates = CounterMetricFamily(
        _named("feed_catalog_updates_total"), "Updates that replaced what the local cache held", labels=["catalog"]
    )
    heard = GaugeMetricFamily(
        _named("feed_catalog_heard_behind_seconds"),
        "Every update longer ago than this has been heard of",
        labels=["catalog"],
    )
    for state in states:
        counts = state.counts
        for outcome in ("hit", "stale", "fetched", "joined", "missing", "source"):
            keys.add_metric([state.name, outcome], getattr(counts, outcome))
        for cluster, took in counts.took.items():
            seconds.add_metric([state.name, cluster], took.fetches, took.seconds)
        failed.add_metric([state.name], counts.failed_fetches)
        held.add_metric([state.name], state.cache_bytes)
        updates.add_metric([state.name], counts.updates)
        heard_behind_ms = None if state.heard_ms is None else behind_ms(state.heard_ms, now_ms)
        if heard_behind_ms is not None:
            heard.add_metric([state.name], heard_behind_ms / 1_000)
    yield from (keys, seconds, failed, held, updates, heard, *_of_clusters(states, now_ms))


def _of_clusters(states: list[CatalogState], now_ms: int) -> list[Metric]:
    behind = GaugeMetricFamily(
        _named("feed_catalog_behind_seconds"),
        "Every change longer ago than this is in what is read from a cluster's catalog",
        labels=_BY_CLUSTER,
    )
    age = GaugeMetricFamily(
        _named("feed_catalog_generation_age_seconds"),
        "Time since the batch of the current generation began to read its source",
        labels=_BY_CLUSTER,
    )
    records = GaugeMetricFamily(_named("feed_catalog_records"), "Records of the current generation", labels=_BY_CLUSTER)
    build = GaugeMetricFamily(
        _named("feed_catalog_build_seconds"), "How long the current generation took to load", labels=_BY_CLUSTER
    )
    swaps = CounterMetricFamily(
        _named("feed_catalog_swaps_total"), "Swaps of the current generation that were seen", labels=_BY_CLUSTER
    )
    entries = GaugeMetricFamily(
        _named("feed_catalog_delta_entries"), "Keys with an update in the delta, about", labels=_BY_CLUSTER
    )
    for state in states:
        for cluster, facts in state.facts.items():
            if facts is None:
                continue
            labels = [state.name, cluster]
            entries.add_metric(labels, facts.delta.entries)
            swaps.add_metric(labels, facts.swaps)
            cluster_ms, current = facts.behind_ms(now_ms), facts.current
            if cluster_ms is not None:
                behind.add_metric(labels, cluster_ms / 1_000)
            if current is not None:
                age.add_metric(labels, max(0, now_ms - current.as_of_ms) / 1_000)
                records.add_metric(labels, current.records)
                if current.took_ms:
                    build.add_metric(labels, current.took_ms / 1_000)
    return [behind, age, records, build, swaps, entries]


def _named(name: MetricName) -> str:
    return name
