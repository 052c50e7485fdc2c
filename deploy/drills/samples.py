"""The calls of a drill's load, and the figures that follow from them: pure."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

Kind = Literal["page", "action", "read", "write"]


class CallSample(NamedTuple):
    """One call. began_s, took_s: of `time.monotonic`. caller: who made it, of those of its kind: for reads and writes
    the number of the drilled cluster's region, for pages that of the reader, 0 for actions. detail: the cluster that
    served a page, or what went wrong.
    """

    kind: Kind
    caller: int
    began_s: float
    took_s: float
    is_done: bool
    detail: str = ""

    @property
    def ended_s(self) -> float:
        return self.began_s + self.took_s


def longest_gap_s(samples: Iterable[CallSample], from_s: float, until_s: float, ended_s: float) -> float:
    """The longest gap between consecutive successful calls of one kind and caller, of the gaps that begin in
    [from_s, until_s); a gap may end later. `from_s` and the end of the load, `ended_s`, count as calls.
    """
    done = sorted(each.ended_s for each in samples if each.is_done and from_s <= each.ended_s <= ended_s)
    moments = [from_s, *done, ended_s]
    return max((after - before for before, after in pairwise(moments) if before < until_s), default=0.0)


def worst_gap_s(
    samples: Sequence[CallSample],
    kind: Kind,
    callers: Iterable[int],
    from_s: float,
    until_s: float,
    ended_s: float,
) -> float | None:
    """The longest gap of any of these callers; None if there are none."""
    gaps = [
        longest_gap_s(
            [each for each in samples if each.kind == kind and each.caller == caller], from_s, until_s, ended_s
        )
        for caller in callers
    ]
    return max(gaps, default=None)


def longest_quiet_s(samples: Iterable[CallSample], callers: Sequence[tuple[Kind, int]], until_s: float) -> float | None:
    """How long before `until_s` the caller that fell silent first had its last call done; None if one of them had none
    done, or there are no callers.
    """
    last = {
        (each.kind, each.caller): each.ended_s
        for each in sorted(samples, key=lambda each: each.ended_s)
        if each.is_done
    }
    if not callers or not last.keys() >= {*callers}:
        return None
    return max(0.0, until_s - min(last[caller] for caller in callers))


def all_served_s(
    samples: Sequence[CallSample], kind: Kind, regions: Iterable[int], fault_s: float, gone_s: float
) -> float | None:
    """How long after the fault every one of these regions had served a call that began when the target was gone; None
    if one never did, or there are none.

    fault_s, gone_s: when the order to kill was given, and when it had been carried out.
    """
    firsts = []
    for region in regions:
        ended = [
            each.ended_s
            for each in samples
            if each.kind == kind and each.caller == region and each.is_done and each.began_s >= gone_s
        ]
        if not ended:
            return None
        firsts.append(min(ended))
    return max(firsts) - fault_s if firsts else None


def quantile_ms(samples: Iterable[CallSample], share: float) -> float | None:
    """A quantile of how long the calls took that were done; None if none was."""
    took = sorted(each.took_s for each in samples if each.is_done)
    return took[min(len(took) - 1, int(share * len(took)))] * 1_000 if took else None


class Loss(NamedTuple):
    """The entries of the clusters, compared with the acknowledged pins. Counts of entries, one a user and pin.

    missing: acknowledged, and not there. extra: there, and never asked for. differing: in one cluster only.
    """

    missing: int
    extra: int
    differing: int


def loss(
    found: dict[str, dict[int, frozenset[int]]],
    users: Sequence[int],
    acknowledged: frozenset[int],
    asked: frozenset[int],
    behind: frozenset[int] = frozenset(),
) -> Loss:
    """found: by cluster and user, the pins of the feed. Each of `users` follows the board that every pin was saved on.

    acknowledged: pins whose save was answered; asked: those, and the ones that got no answer, which may be there.
    behind: those of them that a trim may take, in one cluster sooner than in the other.
    """
    missing = sum(len(acknowledged - behind - feeds[user]) for feeds in found.values() for user in users)
    extra = sum(len(feeds[user] - asked) for feeds in found.values() for user in users)
    first, *others = found.values()
    differing = sum(len((first[user] ^ other[user]) - behind) for other in others for user in users)
    return Loss(missing, extra, differing)
