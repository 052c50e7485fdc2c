"""Pins that arrive at a steady pace, through `feedctl replay`: 200 owners with 20 followers each."""

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from bench.ours import feedctl
from feedstore.app.config import Config

OWNERS, FOLLOWERS = 200, 20
FOLLOWED_BY_ONE = 4
USERS = range(OWNERS + 1, OWNERS + 1 + OWNERS * FOLLOWERS // FOLLOWED_BY_ONE)
"""Who has a feed."""
FIRST_MS = 1_700_000_000_000
_PACE_S = 0.1


@contextmanager
def arriving(config: Config, log: Path, per_s: float, at_once: int = 0) -> Iterator[None]:
    """per_s: pins. at_once: so many come before those, as fast as they are recorded."""
    stop = threading.Event()
    with (
        log.open("wb") as said,
        subprocess.Popen(
            feedctl(config.home, "replay", "-"), stdin=subprocess.PIPE, stdout=said, stderr=said
        ) as replay,
        ThreadPoolExecutor(1) as pool,
    ):
        assert replay.stdin
        pacing = pool.submit(_pace, replay.stdin, stop, per_s, at_once)
        try:
            yield
        finally:
            stop.set()
            # First, or a replay that takes no more would be waited for for ever.
            replay.terminate()
            pacing.exception()
            with suppress(BrokenPipeError):
                replay.stdin.close()
        pacing.result()


def _pace(to: IO[bytes], stop: threading.Event, per_s: float, at_once: int) -> None:
    """Raises BrokenPipeError: the replay has ended before it should."""
    pins = _pins()
    try:
        to.writelines(_follows())
        to.writelines(itertools.islice(pins, at_once))
        began, sent = time.perf_counter(), 0
        while not stop.wait(_PACE_S):
            due = int((time.perf_counter() - began) * per_s)
            to.writelines(itertools.islice(pins, due - sent))
            to.flush()
            sent = due
    except BrokenPipeError:
        if not stop.is_set():
            raise


def _follows() -> Iterator[bytes]:
    for number in range(OWNERS * FOLLOWERS):
        follower, owner = USERS[number // FOLLOWED_BY_ONE], 1 + number % OWNERS
        yield _line({"type": "follow", "ts": FIRST_MS, "follower": follower, "user": owner})


def _pins() -> Iterator[bytes]:
    for pin in itertools.count(1):
        owner = 1 + pin % OWNERS
        yield _line({"type": "save_pin", "ts": FIRST_MS + pin, "pin": pin, "owner": owner, "board": owner})


def _line(action: Mapping[str, object]) -> bytes:
    return json.dumps(action).encode() + b"\n"
