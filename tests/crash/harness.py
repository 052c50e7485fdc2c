"""What the crash drills share: homes, actions, the model of what feeds must hold, and the comparison."""

import multiprocessing
import os
import random
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

from feedstore.app import config as configuration
from feedstore.app.config import Config
from feedstore.following import FEEDS, entries_of, is_witness
from feedstore.follows.port import ActionRefusedError, Request
from tests.crash import board_victim, victim
from tests.crash.victim import Spec, action_of
from tests.feed_rows import user_of
from workers.app import home, wiring
from workers.following.groups import EXPANDER
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import lag_of

HOUR_MS = 3_600_000
Line = dict[str, object]


def make_home(path: Path) -> Path:
    """A home whose watermarks move twice a second."""
    home.create(path, {})
    file = path / configuration.FILE_NAME
    text = re.sub(r'^tick = "1s"', 'tick = "500ms"', file.read_text(), flags=re.MULTILINE)
    file.write_text(text)
    return path


def config_of(path: Path) -> Config:
    return configuration.load(path, {})


def some_actions(seed: int, first: int, count: int, now_ms: int) -> list[Line]:
    """Actions of a few users on each other's pins and boards, with overlapping edges, repetitions and deletions.

    Any prefix of them can be done; `first` keeps the pins of several calls apart.
    """
    rng = random.Random(seed)
    users = [1, 2, 3, 4, 5]
    # So that every kind is there, whatever the seed.
    lines: list[Line] = [
        {"type": "follow", "follower": 1, "kind": "user", "id": 2},
        {"type": "save", "pin": first, "owner": 2, "board": 21, "created_ms": now_ms},
        {"type": "save", "pin": first + 1, "owner": 2, "board": 20, "created_ms": now_ms + 1},
        {"type": "follow", "follower": 3, "kind": "board", "id": 21},
        {"type": "delete", "pin": first},
        {"type": "save", "pin": first + 2, "owner": 2, "board": 21, "created_ms": now_ms + 2},
        {"type": "unfollow", "follower": 1, "kind": "user", "id": 2},
        {"type": "follow", "follower": 1, "kind": "board", "id": 21},
    ]
    alive = [first + 1, first + 2]
    for number in range(3, 3 + count - len(lines)):
        follower, owner = rng.sample(users, 2)
        kind = rng.choice(["user", "board"])
        target = owner if kind == "user" else owner * 10 + rng.randrange(2)
        choice = rng.random()
        if choice < 0.35:
            lines.append({"type": "follow", "follower": follower, "kind": kind, "id": target})
        elif choice < 0.5:
            lines.append({"type": "unfollow", "follower": follower, "kind": kind, "id": target})
        elif choice < 0.6 and alive:
            lines.append({"type": "delete", "pin": alive.pop(rng.randrange(len(alive)))})
        else:
            pin = first + number
            board = owner * 10 + rng.randrange(2)
            created_ms = now_ms - rng.randrange(1_000)
            lines.append({"type": "save", "pin": pin, "owner": owner, "board": board, "created_ms": created_ms})
            alive.append(pin)
    return lines


def model(actions: Sequence[Line], cap: int) -> dict[int, list[tuple[int, int]]]:
    """What every feed must hold: the latest action on an edge wins; the newest `cap` pins of what is followed now."""
    edges: dict[tuple[object, object, object], bool] = {}
    pins: dict[int, Line] = {}
    for line in actions:
        if line["type"] in ("follow", "unfollow"):
            edges[line["follower"], line["kind"], line["id"]] = line["type"] == "follow"
        elif line["type"] == "save":
            pins[line["pin"]] = line
        else:
            del pins[line["pin"]]
    feeds: dict[int, list[tuple[int, int]]] = {}
    for follower in {key[0] for key, active in edges.items() if active}:
        covered = [
            (pin["pin"], pin["created_ms"])
            for pin in pins.values()
            if edges.get((follower, "user", pin["owner"])) or edges.get((follower, "board", pin["board"]))
        ]
        if covered:
            feeds[follower] = sorted(covered, key=lambda entry: (-entry[1], entry[0]))[:cap]
    return feeds


@dataclass(frozen=True)
class Verdict:
    """How many entries each replica lacks and how many it holds unasked; whether the two are the same."""

    lost: dict[str, int]
    phantom: dict[str, int]
    divergent: bool

    @property
    def clean(self) -> bool:
        return not self.divergent and not any(self.lost.values()) and not any(self.phantom.values())


def check(path: Path, actions: Sequence[Line]) -> Verdict:
    """Both replicas against the model of the actions that the harness knows to be acknowledged."""
    config = config_of(path)
    wanted = {(user, *entry) for user, entries in model(actions, config.limits.cap).items() for entry in entries}
    with closing(wiring.open_ports(config, "read")) as ports:
        found = {name: _entries(ports, name, config.limits.cap) for name in ports.replicas}
    return Verdict(
        lost={name: len(wanted - set(entries)) for name, entries in found.items()},
        phantom={name: len(set(entries) - wanted) for name, entries in found.items()},
        divergent=found["a"] != found["b"],
    )


def _entries(ports: Ports, name: str, cap: int) -> list[tuple[int, int, int]]:
    return [
        (user_of(row), entry.pin, entry.created_ms)
        for row, columns in ports.replicas[name].tables[FEEDS].scan()
        if not is_witness(row)
        for entry in entries_of(columns[:cap])
    ]


FORKED: Final = multiprocessing.get_context("forkserver")
"""A process that has loaded the victims' modules, and forks each victim: to load them takes longer than what most of
them do.
"""
FORKED.set_forkserver_preload([victim.__name__, board_victim.__name__])


def start_victim(spec: Spec, said: Path) -> BaseProcess:
    """Runs a victim in a process of its own. said: the file of its errors."""
    process = FORKED.Process(target=_run_victim, args=(spec, said))
    process.start()
    return process


def _run_victim(spec: Spec, said: Path) -> None:
    with said.open("wb") as file:
        os.dup2(file.fileno(), sys.stderr.fileno())
    victim.run(spec)


def kill_at(point: str, spec: Spec, said: Path) -> int:
    """Runs a victim until it dies at its point; returns how it ended."""
    process = start_victim(spec, said)
    process.join(120)
    code = process.exitcode
    if code is None or code >= 0:
        process.kill()
        raise AssertionError(f"{point}: the victim ended by itself ({code}):\n{said.read_text()[-3000:]}")
    return code


def record_at(path: Path, actions: Sequence[Line], clock: Callable[[], int], first_key: int = 0) -> None:
    """Records actions by some clock, and leaves them to a worker."""
    with closing(wiring.open_ports(config_of(path), "read", clock)) as ports:
        requests = [Request(action_of(line), f"action-{number}") for number, line in enumerate(actions, first_key)]
        assert not [answer for answer in ports.follows.record(requests) if isinstance(answer, ActionRefusedError)]


def expand_at(path: Path, clock: Callable[[], int]) -> None:
    """Relays and expands by some clock; the deliveries stay in the queue."""
    config = config_of(path)
    with closing(wiring.open_ports(config, "write", clock)) as ports:
        relays, expander = wiring.relays(ports, config), wiring.expander(ports, config)
        while ports.follows.unrelayed(1) or lag_of(ports.queue, ACTIONS, EXPANDER):
            for relay in relays:
                relay.step()
            expander.step()
        expander.close()


def publish_malformed(path: Path) -> None:
    with closing(wiring.open_ports(config_of(path), "read")) as ports:
        for topic in (ACTIONS, DELIVERIES):
            ports.queue.publish(topic, [b'{"v":1,"body":', b'{"v":9,"body":{}}'])


def recover(spec: Spec) -> None:
    """What the next start does, in this process."""
    victim.run(spec)
