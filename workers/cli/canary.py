"""canary: shows whether the whole way works now."""

import sys
import time
from collections.abc import Mapping
from typing import Final

import click

from feedstore.errors import NotNowError
from workers.app import wiring
from workers.cli.output import ago, emit_json, say
from workers.cli.session import DURATION, REFUSED, Session, TryLaterError, json_option, pass_session
from workers.following.canary import USERS, arrived, fly
from workers.following.ports import Ports

_LOOK_S: Final = 0.05


@click.command(short_help="Test the whole way of an action now, with made-up users.")
@click.option(
    "--within",
    "within_ms",
    type=DURATION,
    default="60s",
    show_default=True,
    help="How long canaries may take, such as 10s.",
)
@json_option
@pass_session
def canary(session: Session, within_ms: int, *, as_json: bool) -> None:
    """Record one follow of a made-up user in each part of the tables, and wait until every cluster shows all of them.

    The follows go the whole way: follow store, queue, expander, writers. Then the command reads the feeds of these
    users in the same way as pages are read. A worker must run: if none runs in a home with files, nothing is recorded,
    and the exit status is 3. The exit status is 1 if a cluster does not show all of the follows in time. No data grows:
    the users and their one pin are always the same, and have the largest possible ids. If [worker] canary is set, a
    worker does this all the time.

    \b
    Examples:
      feedctl canary
      feedctl canary --within 10s --json
    """
    with session.ports("read") as ports:
        if wiring.is_embedded(session.config) and session.worker() is None:
            raise TryLaterError("no worker runs in this home: start feedctl work, then try again")
        flown = fly(ports.follows, 1)
        took = _watched(ports, flown.ts, within_ms / 1_000)
    late = {name: len(USERS) - len(seen) for name, seen in took.items() if len(seen) < len(USERS)}
    if as_json:
        emit_json(
            {
                "parts": len(USERS),
                "clusters": {
                    name: {"seen": len(seen), "slowest_ms": max(seen.values(), default=None)}
                    for name, seen in took.items()
                },
            }
        )
    else:
        for name, seen in took.items():
            slowest = f", the slowest after {ago(max(seen.values()))}" if seen else ""
            say(f"cluster   {name}: {len(seen)} of {len(USERS)} parts{slowest}")
    if late:
        sys.exit(REFUSED)


def _watched(ports: Ports, ts: Mapping[int, int], within_s: float) -> dict[str, dict[int, int]]:
    """For each cluster, the canaries that it has shown in time, each with the ms that it took."""
    until_s = time.monotonic() + within_s
    waiting = {name: dict(ts) for name in ports.replicas}
    took: dict[str, dict[int, int]] = {name: {} for name in ports.replicas}
    while any(waiting.values()) and time.monotonic() < until_s:
        for name, left in waiting.items():
            try:
                seen = arrived(ports.replicas[name], left) if left else set()
            except NotNowError:
                continue  # it may still answer in time
            for each in seen:
                took[name][each] = max(0, ports.clock() - left.pop(each))
        time.sleep(_LOOK_S)
    return took
