"""Metrics of the rules and the dashboard that a home in files, in which all is well, does not change."""

from typing import Final

CONSTANT: Final = {
    "feed_build_info": "is always 1",
    "feed_process_max_files": "a limit of the system",
    "feed_process_start_time_seconds": "when a process began",
    "feed_store_capacity_bytes": "the size of a disk",
}
"""What need not change anywhere, and why. It must be scraped."""
BY_FAULTS: Final = {
    "feed_clock_offset_seconds": "clock-ahead",
    "feed_cluster_answers": "cluster-away",
    "feed_cluster_breaker_open": "cluster-away",
    "feed_cluster_damaged": "table-emptied",
    "feed_cluster_failures_total": "cluster-away",
    "feed_cluster_parts_answer": "region-away",
    "feed_cluster_read_p95_seconds": "cluster-away",
    "feed_follow_store_away": "database-away",
    "feed_follow_store_failures_total": "database-away",
    "feed_loop_away_total": "broker-away",
    "feed_queue_failures_total": "broker-away",
    "feed_read_failovers_total": "cluster-away",
    "feed_read_hedges_total": "cluster-away",
    "feed_read_probes_total": "cluster-away",
    "feed_reads_total": "cluster-away",
    "feed_stage_retries_total": "cluster-away",
    "feed_stage_retrying_seconds": "cluster-away",
}
"""What changes if a server is away or a clock is off, and the fault of `faults.py` that shows it."""
ELSEWHERE: Final = {
    "feed_clocks_off": "tests/clocks: homes on servers compare with their shards, as feed_clock_offset_seconds says",
    "feed_catalog_failed_fetches_total": "tests/catalog/test_watch.py: the faults' home has no catalogs",
}
"""What no live process of these tests changes, and what does."""
