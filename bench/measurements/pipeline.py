"""All actions through the whole pipeline, against Redis and Stream-Framework on the deliveries that they cause."""

from collections.abc import Callable
from contextlib import ExitStack

from bench import loaded
from bench.children import MIB, ChildError
from bench.context import Context
from bench.redis_server import redis_client, redis_server
from bench.redis_side import apply_deliveries
from bench.results import Row, at_least, at_most, interleaved, ratios
from bench.stream_framework import LOG, StreamFramework, environment, stream_framework


def measure(context: Context) -> list[Row]:
    """Replay to idle into two replicas, against Redis and Stream-Framework on the same deliveries"""
    deliveries = context.deliveries
    count = len(deliveries)
    runs: list[loaded.Run] = []

    def pipeline() -> float:
        runs.append(loaded.load(context))
        context.say(f"{runs[-1].seconds:.1f} s, replay {runs[-1].replay_seconds:.1f} s of it")
        return runs[-1].seconds

    sides: dict[str, Callable[[], float]] = {"ours": pipeline}
    with ExitStack() as stack:
        client = stack.enter_context(redis_client(context.folder("redis")))
        sides["redis"] = lambda: apply_deliveries(client, deliveries)
        framework = _framework(context, stack)
        if framework:
            sides |= {"framework": framework.seconds, "fanout": framework.fanout_seconds}
        samples = interleaved(sides, context.repeats)
    sampled = framework.deliveries if framework else 0
    rates = {
        side: [(sampled if side in ("framework", "fanout") else count) / seconds for seconds in taken]
        for side, taken in samples.items()
    }
    theirs = rates.get("framework", [])
    return [
        Row(
            "whole pipeline, replay to idle, two replicas / Redis applying the same deliveries, time",
            "x",
            ratios(samples["ours"], samples["redis"]),
            at_most(1),
        ),
        Row(
            "whole pipeline / Stream-Framework, deliveries a second",
            "x",
            ratios(rates["ours"], theirs) if theirs else [],
            at_least(20),
        ),
        Row("whole pipeline, replay to idle, two replicas", "s", samples["ours"]),
        Row("whole pipeline, of which recording the actions", "s", [run.replay_seconds for run in runs]),
        Row("whole pipeline, worker's peak memory", "MiB", [run.worker_peak_bytes / MIB for run in runs], at_most(204)),
        Row("whole pipeline, two replicas", "deliveries/s", rates["ours"]),
        Row("Redis: ZADD + ZREMRANGEBYRANK, pipelines of 1,000", "deliveries/s", rates["redis"]),
        Row(
            "Stream-Framework: what its Manager does, without Celery",
            "deliveries/s",
            theirs,
            note=f"a random sample of {sampled:,} of them",
        ),
        Row("Stream-Framework: its writes to followers' feeds alone", "deliveries/s", rates.get("fanout", [])),
    ]


def _framework(context: Context, stack: ExitStack) -> StreamFramework | None:
    """None where it cannot be installed: the rest is measured all the same."""
    try:
        python = environment(context.build)
    except ChildError as error:
        context.say(f"no Stream-Framework to compare with: {error}")
        return None
    port = stack.enter_context(redis_server(context.folder("redis")))
    sample = context.pick(60_000, 2_000)
    log = context.scratch / LOG
    return stack.enter_context(stream_framework(python, port, context.deliveries, sample, log))
