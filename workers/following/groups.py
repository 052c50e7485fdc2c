"""The consumer groups of a cluster, and the message about one that must be rebuilt."""

from workers.following.topics import DELIVERIES, RETRIES
from workers.queue.port import Topic

RELAY = "relay"
"""The outboxes' name in counts of what is left to do."""
UPDATES_TICKER = "updates-ticker"
"""The name of the loop that sends the ticks of posted updates."""
TICKERS = ("ticker", UPDATES_TICKER)
"""The names of all loops that send ticks."""
EXPANDER = "expander"


def writer_group(cluster: str) -> str:
    return f"writer-{cluster}"


def retry_group(cluster: str) -> str:
    """The consumer group that lands what was parked for a cluster."""
    return f"retries-{cluster}"


def cluster_groups(cluster: str) -> tuple[tuple[Topic[object], str], ...]:
    """The topics from which a cluster is written, each with its group. Messages may move to the second."""
    return ((DELIVERIES, writer_group(cluster)), (RETRIES, retry_group(cluster)))


def rebuild_command(cluster: str) -> str:
    return f"feedctl rebuild --all --cluster {cluster}"


def lost_message(cluster: str) -> str:
    return f"cluster {cluster} lost deliveries: rebuild it ({rebuild_command(cluster)})"


def gone_message(cluster: str, detail: str) -> str:
    return f"cluster {cluster} has no tables: rebuild it ({rebuild_command(cluster)}), if its url is right: {detail}"


def damaged_message(cluster: str, detail: str) -> str:
    return f"cluster {cluster} is damaged: rebuild it ({rebuild_command(cluster)}): {detail}"


def away_message(cluster: str, rows: str, detail: str) -> str:
    return (
        f"rows {rows}: {detail.rstrip('.')}. What they lack lands by itself once they are back. If HBase cannot open"
        f" their region any more, give cluster {cluster} another namespace in feed.toml, and rebuild it there"
        f" ({rebuild_command(cluster)})"
    )


def older_message(cluster: str) -> str:
    return (
        f"cluster {cluster} is older than what its writers have committed, as if it had been put back from a copy: they"
        " go back by themselves (feedctl work)"
    )
