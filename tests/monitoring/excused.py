"""Metrics of the rules and the dashboard that change only where something is wrong, and what shows each."""

from typing import Final

CONSTANT: Final = {
    "feed_build_info": "is always 1",
    "feed_process_max_files": "a limit of the system",
    "feed_process_start_time_seconds": "when a process began",
    "feed_store_capacity_bytes": "the size of a disk",
}
"""What need not change anywhere, and why. It must be scraped."""
BY_FAULTS: Final = {
    "feed_actions_lost": "actions-lost",
    "feed_clock_offset_seconds": "clock-ahead",
    "feed_cluster_answers": "cluster-away",
    "feed_cluster_breaker_open": "cluster-away",
    "feed_cluster_damaged": "table-emptied",
    "feed_cluster_failures_total": "cluster-away",
    "feed_cluster_parts_answer": "region-away",
    "feed_cluster_read_p95_seconds": "cluster-away",
    "feed_cluster_reads_total": "cluster-away",
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
SERVERS_IN_TROUBLE: Final = {
    "hbase_call_failures_total": "counts what a client did wrong, or a server could not do",
    "hbase_compactions_waiting": "needs more compactions than a server does at once",
    "hbase_dead_region_servers": "needs a region server that is lost",
    "hbase_flushes_waiting": "needs more flushes than a server does at once",
    "hbase_region_servers": "needs a region server that is lost",
    "hbase_regions_in_transition": "needs a region that cannot move at once",
    "hbase_regions_in_transition_oldest_seconds": "needs a region that cannot move at once",
    "hbase_trim_compactions_untrimmed_total": "needs a server with another version of the trim",
    "hbase_writes_blocked_seconds_total": "needs more writes than a server takes",
    "kafka_failed_fetch_requests_total": "needs a file that is damaged",
    "kafka_failed_produce_requests_total": "needs a message that is refused",
    "kafka_offline_partitions": "needs a broker that is lost",
    "kafka_under_replicated_partitions": "needs a broker that is lost",
}
"""What changes on servers that have too much to do, are lost or refuse something: `test_servers_in_trouble.py`."""
