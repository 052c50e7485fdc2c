"""The actions that the traces consist of, and what every feed must hold after them: computed from the lines alone."""

import gzip
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path

from bench import actions
from workers.app import replay
from workers.following import synthetic_actions

VARIABLE = "TRACE"
"""Names a trace: activities (`bench.actions.of_activities`) or actions as `feedctl replay` takes them; gzip is fine."""
DEFAULT = Path(__file__).parents[2].parent / "shared" / "data" / "higgs-activity_time.txt.gz"
"""A trace next to the checkout, which is used if it is there and no other is named."""
LINES = 20_000
"""How many lines of a trace are used, from its beginning."""
UNFOLLOW_EVERY = 5

SHAPE = synthetic_actions.Shape(users=2_000, actions=20_000, seed=20)
FROM_MS, UNTIL_MS = 1_341_100_000_000, 1_341_200_000_000

_GZIP = b"\x1f\x8b"


def trace(environ: Mapping[str, str] = os.environ, default: Path = DEFAULT) -> list[bytes]:
    """The trace that the environment names, or the one that is next to the checkout, or else a made-up graph: actions,
    a line each, without their ends.
    """
    if given := environ.get(VARIABLE):
        return read(Path(given))
    return read(default) if default.exists() else made_up()


def read(path: Path) -> list[bytes]:
    """The actions that the first lines of a trace are, or mean; the first line shows which of the two."""
    with path.open("rb") as file:
        packed = file.read(len(_GZIP)) == _GZIP
    with gzip.open(path) if packed else path.open("rb") as stream:
        lines = [line.strip() for line in islice(stream, LINES)]
    if lines and lines[0].startswith(b"{"):
        return lines
    return [
        json.dumps(action, separators=(",", ":")).encode()
        for action in actions.of_activities(map(bytes.decode, lines), UNFOLLOW_EVERY)
    ]


def made_up() -> list[bytes]:
    """A made-up graph. Unlike a trace of activities it has followed boards and deleted pins."""
    made = synthetic_actions.actions(SHAPE, FROM_MS, UNTIL_MS)
    return [json.dumps(replay.line(action, UNTIL_MS)).encode() for action in made]


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
