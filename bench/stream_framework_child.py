"""Runs in Stream-Framework's own environment and does what its `Manager` does for a saved pin and for a follow.

The `Manager` itself does not import on Python 3.11 (`async` is a word of the language since), so its steps are here,
each with the name that it has there; Celery, which would carry them, is left out, which only helps. Reads one JSON
object a line and answers with one.
"""

import json
import sys
import time
from datetime import UTC, datetime
from typing import Any

from stream_framework import settings
from stream_framework.activity import Activity
from stream_framework.feeds.redis import RedisFeed
from stream_framework.verbs.base import Add

FANOUT_CHUNK_SIZE = 100
FOLLOW_ACTIVITY_LIMIT = 1_000


class UserPinFeed(RedisFeed):  # type: ignore[misc]
    """What a user saved."""

    key_format = "feed:user:%(user_id)s"
    max_length = 10**6


class PinFeed(RedisFeed):  # type: ignore[misc]
    """What those saved whom a user follows."""

    key_format = "feed:normal:%(user_id)s"
    max_length = 1_000


def activity(owner: int, pin: int, created_ms: int) -> Activity:
    when = datetime.fromtimestamp(created_ms / 1_000, UTC).replace(tzinfo=None)
    return Activity(owner, Add, pin % 10**10, time=when)  # its ids have at most ten digits


def add_user_activity(owner: int, followers: list[int], saved: Activity) -> None:
    UserPinFeed.insert_activity(saved)
    UserPinFeed(owner).add(saved)
    fanout(followers, [saved])


def fanout(followers: list[int], activities: list[Activity]) -> None:
    for start in range(0, len(followers), FANOUT_CHUNK_SIZE):
        with PinFeed.get_timeline_batch_interface() as batch:
            for follower in followers[start : start + FANOUT_CHUNK_SIZE]:
                PinFeed(follower).add_many(activities, batch_interface=batch, trim=True)


def follow_many(follower: int, owner: int) -> None:
    activities = UserPinFeed(owner)[:FOLLOW_ACTIVITY_LIMIT]
    with PinFeed.get_timeline_batch_interface() as batch:
        PinFeed(follower).add_many(activities, batch_interface=batch)


Group = tuple[int, list[int], list[Activity]]
"""An owner (each group has its own), the followers, and the pins: one of one, or one of the other."""


def load(request: dict[str, Any]) -> list[Group]:
    settings.STREAM_REDIS_CONFIG["default"].update(host="127.0.0.1", port=request["port"])
    groups = []
    for owner, (followers, pins) in enumerate(request["groups"], start=1):
        activities = [activity(owner, pin, created_ms) for pin, created_ms in pins]
        groups.append((owner, followers, activities))
        if len(activities) > 1:
            UserPinFeed.insert_activities(activities)
            UserPinFeed(owner).add_many(activities, trim=False)
    return groups


def run(groups: list[Group]) -> None:
    """Everything that its Manager does."""
    for owner, followers, activities in groups:
        if len(activities) > 1:
            follow_many(followers[0], owner)
        else:
            add_user_activity(owner, followers, activities[0])


def run_fanout(groups: list[Group]) -> None:
    """The writes to followers' feeds alone."""
    for _, followers, activities in groups:
        fanout(followers, activities)


def main() -> None:
    groups: list[Group] = []
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any]
        if request["do"] == "load":
            groups = load(request)
            answer = {"groups": len(groups)}
        else:
            began = time.perf_counter()
            (run if request["do"] == "run" else run_fanout)(groups)
            answer = {"seconds": time.perf_counter() - began}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
