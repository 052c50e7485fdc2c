"""What a meter has counted, for tests."""

from feedstore.metering import Counting, Definition


def value(meter: Counting, definition: Definition, *labels: str) -> float | None:
    """The value of a counter or a gauge; None if there is none."""
    counts = meter.counts()
    found = [
        each.value
        for each in (*counts.counters, *counts.gauges)
        if (each.name, each.labels) == (definition.name, labels)
    ]
    assert len(found) <= 1
    return found[0] if found else None


def observed(meter: Counting, definition: Definition, *labels: str) -> tuple[int, float]:
    """How many values a histogram has, and their sum."""
    [found] = [each for each in meter.counts().spreads if (each.name, each.labels) == (definition.name, labels)]
    return sum(found.counts), found.sum
