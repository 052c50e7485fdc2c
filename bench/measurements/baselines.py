"""What the system is compared with, by itself: Redis and Stream-Framework on the deliveries of the actions."""

from bench.context import Context
from bench.redis_server import redis_client, redis_server
from bench.redis_side import apply_deliveries
from bench.results import Row
from bench.stream_framework import LOG, environment, stream_framework

NAME = "baselines"


def measure(context: Context) -> list[Row]:
    """Redis and Stream-Framework by themselves: deliveries a second"""
    deliveries = context.deliveries
    rates: list[float] = []
    managed: list[float] = []
    fanned: list[float] = []
    with (
        redis_client(context.folder("redis")) as client,
        redis_server(context.folder("redis")) as port,
        stream_framework(
            environment(context.build), port, deliveries, context.pick(60_000, 2_000), context.scratch / LOG
        ) as framework,
    ):
        for _ in range(context.repeats):
            rates.append(len(deliveries) / apply_deliveries(client, deliveries))
            managed.append(framework.deliveries / framework.seconds())
            fanned.append(framework.deliveries / framework.fanout_seconds())
    return [
        Row("Redis: ZADD + ZREMRANGEBYRANK, pipelines of 1,000", "deliveries/s", rates),
        Row("Stream-Framework: what its Manager does", "deliveries/s", managed),
        Row("Stream-Framework: writes to followers' feeds alone", "deliveries/s", fanned),
    ]
