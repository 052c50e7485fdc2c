"""The baseline: feeds as sorted sets in one Redis, written and read as people do with redis-py."""

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from bench.deliveries import CAP, Deliveries
from bench.feeds import Feed

if TYPE_CHECKING:
    import redis  # an extra, which a measurement without it does not need


PIPELINE_COMMANDS = 1_000


def key(user: int) -> str:
    return f"feed:{user}"


def apply_deliveries(client: "redis.Redis", deliveries: Deliveries) -> float:
    """A ZADD and a ZREMRANGEBYRANK for each delivery; returns the seconds it took. The server starts out empty."""
    client.flushall()
    began = time.perf_counter()
    pipe = client.pipeline(transaction=False)
    for user, pin, created_ms in zip(deliveries.users, deliveries.pins, deliveries.created_ms, strict=True):
        name = f"feed:{user}"
        pipe.zadd(name, {str(pin): created_ms})
        pipe.zremrangebyrank(name, 0, -CAP - 1)
        if len(pipe) >= PIPELINE_COMMANDS:
            pipe.execute()
    pipe.execute()
    return time.perf_counter() - began


def fill(client: "redis.Redis", feeds: Iterable[Feed]) -> None:
    for feed in feeds:
        client.zadd(key(feed.user), {str(pin): created_ms for pin, created_ms in feed.entries})


def memory_bytes(client: "redis.Redis", feeds: Iterable[Feed]) -> int:
    """The memory of feeds as Redis accounts for it, every element counted."""
    return sum(int(client.execute_command("MEMORY USAGE", key(feed.user), "SAMPLES", 0)) for feed in feeds)
