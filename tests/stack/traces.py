"""The actions that the traces consist of, and what every feed must hold after them: computed from the lines alone."""

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from workers import graph

VARIABLE = "TRACE_ACTIONS"
"""Names a file of actions, as `feedctl replay` takes them, to use instead of a made-up graph."""

SHAPE = graph.Shape(users=2_000, actions=20_000, seed=20)
FROM_MS, UNTIL_MS = 1_341_100_000_000, 1_341_200_000_000


def trace() -> list[bytes]:
    """The lines, without their ends."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given).read_bytes().splitlines()
    made = graph.actions(SHAPE, FROM_MS, UNTIL_MS)
    return [json.dumps(graph.line(action, UNTIL_MS)).encode() for action in made]


def model(lines: Iterable[bytes], cap: int) -> bytes:
    """The export of a cluster that holds what it must: the latest action on an edge wins, and a feed is the newest
    `cap` pins of what is followed now that were not deleted.
    """
    follows: dict[int, set[tuple[str, int]]] = defaultdict(set)
    pins: dict[int, dict[str, int]] = {}
    for line in map(json.loads, lines):
        match line["type"]:
            case "follow":
                follows[line["follower"]].add(_followee(line))
            case "unfollow":
                follows[line["follower"]].discard(_followee(line))
            case "save_pin":
                pins[line["pin"]] = line
            case "delete_pin":
                del pins[line["pin"]]
    by_followee: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for pin, line in pins.items():
        for followee in (("user", line["owner"]), ("board", line["board"])):
            by_followee[followee].append((-line["ts"], pin))
    exported = []
    for user in sorted(follows):
        entries = sorted({entry for followee in follows[user] for entry in by_followee.get(followee, ())})[:cap]
        if entries:
            shown = [[pin, -minus_ms] for minus_ms, pin in entries]
            exported.append(json.dumps({"user": user, "entries": shown}, separators=(",", ":")) + "\n")
    return "".join(exported).encode()


def _followee(line: dict[str, int]) -> tuple[str, int]:
    return ("user", line["user"]) if "user" in line else ("board", line["board"])
