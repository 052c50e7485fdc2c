"""How samples become a verdict."""

from bench.results import Row, at_least, at_most, interleaved, latencies, percentile, ratios


def test_the_median_decides() -> None:
    assert Row("w", "x", [0.1, 0.2, 9.0], at_most(0.3)).verdict == "met"
    assert Row("w", "x", [0.1, 0.4, 9.0], at_most(0.3)).verdict == "missed"
    assert Row("w", "x", [1.0, 3.0, 4.0], at_least(3)).verdict == "met"
    assert Row("w", "x", [], at_least(3)).verdict == "not measured"
    assert Row("w", "x", [1.0]).verdict == ""


def test_sides_take_turns_and_the_order_turns_round() -> None:
    calls: list[str] = []

    def side(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    samples = interleaved({"a": lambda: side("a"), "b": lambda: side("b")}, 3)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    assert samples == {"a": [1.0, 4.0, 5.0], "b": [2.0, 3.0, 6.0]}


def test_ratios_pair_what_was_taken_together() -> None:
    assert ratios([1.0, 4.0], [2.0, 1.0]) == [0.5, 4.0]


def test_percentiles() -> None:
    values = [float(value) for value in range(1, 101)]
    assert percentile(values, 0.50) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([7.0], 0.99) == 7.0


def test_latencies_are_of_so_many_blocks_together():
    blocks = {"ours": [[1.0, 2.0], [3.0, 4.0], [10.0, 20.0], [30.0, 40.0]]}
    assert latencies(blocks, 2) == {"p50": {"ours": [3.0, 30.0]}, "p99": {"ours": [4.0, 40.0]}}
