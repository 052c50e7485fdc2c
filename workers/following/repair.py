"""Repair mends what verify finds. It uses the same writers, and touches nothing that is right.

- An entry that must not be there is removed by a marker at the cell's own timestamp: a later follow brings entries with
  later timestamps (rule 2), so nothing rightful is hidden. The exception is a pin that the follow store does not know
  and that is saved later: it comes at the time of a follow from before the marker. The next repair finds it masked. The
  marker goes through the queue, to that cluster's writer.
- A missing entry is put back by a refill of that feed in that cluster.
- An entry that a marker at or above its timestamp hides cannot be put back at that timestamp. The edge that delivers it
  gets a new tick of its follower's clock (rule 8), and so does all that the follow brings. No marker is taken away.

Each step may be repeated or lost: the next repair finds what a killed one left. Each step is noted before it is done.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence

from feedstore.domain import MAX_ID, Edge, Followed, RefillAsked
from feedstore.following import MAX_CHUNK, columns
from feedstore.follows.port import MAX_PAGE
from feedstore.follows.store import FollowStore
from feedstore.portions import chunks, portions
from workers.following.messages import Delivery, Stray, encode_delivery
from workers.following.topics import DELIVERIES
from workers.following.verify import Finding
from workers.queue.port import Queue

REMOVED = ("extra", "differs", "displaced", "unknown user")
"""The kinds of entries that must not be there."""

Note = Callable[[Sequence[tuple[Finding, str]]], None]
"""Notes findings, each with the step that mends it, or the reason why there is none. Durable when it returns."""


def plan(finding: Finding, now_ms: int) -> str | None:
    """Says in words how a repair mends a finding; None if it cannot. now_ms: the store's time."""
    if finding.kind in REMOVED:
        return f"a marker of {finding.ts} removes it"
    if finding.kind == "missing":
        return "a refill of this feed is requested"
    if finding.kind == "masked" and finding.ts < now_ms:
        return "the follow that delivers it gets a new time"
    return None


def left(finding: Finding) -> str:
    """Says why a repair cannot mend a finding, and what can."""
    if finding.kind == "damaged":
        return f"left: with the worker stopped, feedctl rebuild --all --cluster {finding.cluster} creates it again"
    return f"left: the marker is ahead of the store's clock: repair again once that clock is past {finding.ts} ms"


class Repairer:
    """Mends findings. What it publishes has landed once the watermarks are past the time at which `mend` returned."""

    def __init__(self, follows: FollowStore, queue: Queue, note: Note) -> None:
        self._follows = follows
        self._queue = queue
        self._note = note

    def mend(self, findings: Sequence[Finding]) -> list[Finding]:
        """Mends these findings as far as possible, and returns those for which something was done.

        Raises FollowStoreUnavailableError, QueueUnavailableError: a part was done; verify and mend the rest later.
        """
        now_ms = self._follows.now()
        plans = [(finding, plan(finding, now_ms)) for finding in findings]
        masked = [finding for finding, what in plans if what is not None and finding.kind == "masked"]
        edges = dict(self._delivering(masked))
        # Noted before anything is done: the notes hold everything that was done, and maybe more.
        self._note(
            [
                (
                    each,
                    f"{what}: {edges[each].followee}, after {edges[each].ts}" if each in edges else what or left(each),
                )
                for each, what in plans
            ]
        )
        self._remove([finding for finding in findings if finding.kind in REMOVED], now_ms)
        self._refill([finding for finding in findings if finding.kind == "missing"])
        for edge in dict.fromkeys(edges.values()):
            # If it is None, a newer action has taken the edge's place and delivers what the edge delivered.
            self._follows.redate(Followed(edge.follower, edge.followee, edge.ts, edge.ts))
        return [finding for finding, what in plans if what is not None]

    def _remove(self, findings: Sequence[Finding], now_ms: int) -> None:
        by_row: defaultdict[tuple[str, int, bytes], defaultdict[int, list[bytes]]]
        by_row = defaultdict(lambda: defaultdict(list))
        for each in findings:
            by_row[each.cluster, each.user, each.row][each.ts] += columns([(each.pin, each.created_ms)])
        for (cluster, user, row), by_ts in by_row.items():
            # If the delivery comes too late, this refill is expanded instead: that does no harm.
            action = RefillAsked(min(max(1, user), MAX_ID), cluster, now_ms)
            strays = [Stray(row, ts, some) for ts, every in by_ts.items() for some in chunks(every, MAX_CHUNK)]
            parts = portions(strays, lambda stray: len(stray.columns), MAX_CHUNK)
            deliveries = [Delivery(action, now_ms, cluster=cluster, strays=part) for part in parts]
            self._queue.publish(DELIVERIES, [encode_delivery(each) for each in deliveries])

    def _refill(self, findings: Sequence[Finding]) -> None:
        by_cluster: defaultdict[str, dict[int, None]] = defaultdict(dict)
        for each in findings:
            by_cluster[each.cluster][each.user] = None
        for cluster, users in by_cluster.items():
            self._follows.ask_refill(list(users), cluster, 0)

    def _delivering(self, findings: Sequence[Finding]) -> Iterator[tuple[Finding, Edge]]:
        """Yields each masked entry with the latest edge that delivers it, unless there is no such edge any more."""
        for some in chunks(findings, MAX_PAGE):
            pins = self._follows.pins([each.pin for each in some])
            keys = {
                (each.user, followee): None
                for each in some
                if each.pin in pins
                for followee in pins[each.pin].pin.followees()
            }
            edges = self._follows.edges(list(keys))
            for each in some:
                if each.pin in pins:
                    both = [edges.get((each.user, followee)) for followee in pins[each.pin].pin.followees()]
                    active = [edge for edge in both if edge is not None and edge.active]
                    if active:
                        yield each, max(active, key=lambda edge: edge.ts)


def audited(finding: Finding, what: str, at_ms: int) -> Mapping[str, object]:
    """A line of the audit log about a finding."""
    return {"at_ms": at_ms, **finding._asdict(), "row": finding.row.hex(), "done": what}
