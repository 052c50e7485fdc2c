"""What a measurement hands back: rows of samples, each with its target and whether it was met."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import Literal, TypeVar

from feedstore.portions import chunks

Sample = TypeVar("Sample")

Verdict = Literal["met", "missed", "not measured", ""]


@dataclass(frozen=True)
class Target:
    """A bound on the median of a row."""

    kind: Literal["at most", "at least"]
    value: float

    def met(self, reached: float) -> bool:
        return reached <= self.value if self.kind == "at most" else reached >= self.value

    def share(self, reached: float) -> float:
        """How much of the bound is used up: 1 is the bound itself, less is better."""
        if self.kind == "at most":
            return reached / self.value
        return self.value / reached if reached else float("inf")


@dataclass(frozen=True)
class Row:
    """One line of the table.

    what: in words, with the two sides. unit: of the samples ("x" for a ratio). samples: one a repeat, in the order
    taken. target: None where the row only informs. note: what a reader has to know about it.
    """

    what: str
    unit: str
    samples: Sequence[float]
    target: Target | None = None
    note: str = ""

    @property
    def reached(self) -> float | None:
        return median(self.samples) if self.samples else None

    @property
    def verdict(self) -> Verdict:
        if self.reached is None:
            return "not measured"
        if self.target is None:
            return ""
        return "met" if self.target.met(self.reached) else "missed"


def at_most(value: float) -> Target:
    return Target("at most", value)


def at_least(value: float) -> Target:
    return Target("at least", value)


def interleaved(sides: Mapping[str, Callable[[], Sample]], repeats: int) -> dict[str, list[Sample]]:
    """Runs every side once a repeat, in turn, and turns the order round every time: what the machine does meanwhile
    falls on both.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in sides}
    for repeat in range(repeats):
        for name in sides if repeat % 2 == 0 else reversed(list(sides)):
            samples[name].append(sides[name]())
    return samples


def ratios(upper: Sequence[float], lower: Sequence[float]) -> list[float]:
    """The ratio of each pair that was taken in the same repeat."""
    return [one / other for one, other in zip(upper, lower, strict=True)]


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0..1) of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def of_sides(words: Mapping[str, str], at: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Row]:
    """The microseconds of each side, at each share. words: by side. at: as `latencies` has it."""
    return [Row(f"{what}, {share}", "us", taken[side]) for side, what in words.items() for share, taken in at.items()]


def latencies(blocks: Mapping[str, Sequence[list[float]]], at_once: int) -> dict[str, dict[str, list[float]]]:
    """The `p50` and the `p99` of each side, a sample for every `at_once` of its blocks of latencies."""
    samples = {
        side: [list(chain.from_iterable(some)) for some in chunks(taken, at_once)] for side, taken in blocks.items()
    }
    return {
        share: {side: [percentile(each, value) for each in taken] for side, taken in samples.items()}
        for share, value in (("p50", 0.50), ("p99", 0.99))
    }
