"""status: how a home is."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from feedstore.app.wiring import home_clock, monotonic_s
from feedstore.clocks import Process
from feedstore.follows.port import ClockStepError
from feedstore.settings import duration_ms
from feedstore.widecolumn import DamagedError, UnavailableError
from feedstore.widecolumn.behind import AHEAD_MS, behind_ms
from feedstore.widecolumn.progress import Progress as ClusterProgress
from workers.app import wiring
from workers.cli.output import ago, emit_json, plural, say, when
from workers.cli.session import REFUSED, Session, json_option, pass_session
from workers.following import landed
from workers.following.faults import fault
from workers.following.ports import Ports

READ_S: Final = 0.25
"""How long `status` reads rows of each cluster: blocks that cannot be read are found by reading them."""


@dataclass(frozen=True)
class ClusterState:
    """watermark_ms: everything committed before it has landed there; None where that is unknown. error: why it does
    not answer, or what it lost.
    """

    watermark_ms: int | None
    behind_ms: int | None
    error: str | None


def cluster_state(ports: Ports, name: str) -> ClusterState:
    replica = ports.replicas[name]
    error: str | None = None
    try:
        found = fault(replica, ports.queue, monotonic_s, READ_S)
        error = None if found is None else found.message
        mark = ClusterProgress(replica.progress).watermark()
    except DamagedError:
        return ClusterState(None, None, error)
    except UnavailableError as unavailable:
        return ClusterState(None, None, f"cluster {name} does not answer: {unavailable}")
    return ClusterState(mark, behind_ms(mark, ports.clock()), error)


def clocks_ahead_ms(ports: Ports) -> dict[int, int]:
    """By how much the clocks of shards are ahead of the home's, if that is more than clocks may differ. Nothing
    that commits there is older than such a clock: it was wrong once, and times continue from it.
    """

    def ahead_ms(shard: int) -> int:
        try:
            return ports.follows.now(shard) - ports.clock()
        except ClockStepError as error:
            return error.offset_ms

    ahead = {shard: ahead_ms(shard) for shard in range(ports.follows.shards())}
    return {shard: ms for shard, ms in ahead.items() if ms > AHEAD_MS}


def too_far_behind(states: Mapping[str, ClusterState], most_ms: int, *, has_worker: bool) -> list[str]:
    """A sentence for each cluster that answers, and does not surely have everything of before so long ago."""
    why = "" if has_worker else ", and no worker runs in this home"
    found: list[str] = []
    for name, state in states.items():
        if state.error is not None or (state.behind_ms is not None and state.behind_ms <= most_ms):
            continue
        if state.watermark_ms == wiring.REBUILDING_MS:
            found.append(f"cluster {name} is being rebuilt{why}")
        elif state.behind_ms is None:
            found.append(f"how far cluster {name} is behind is unknown{why}")
        else:
            found.append(f"cluster {name} is {ago(state.behind_ms)} behind, more than {ago(most_ms)}{why}")
    return found


@click.command()
@click.option("--max-behind", metavar="DURATION", help="Exit with 1 if a cluster is further behind, such as 60s.")
@json_option
@pass_session
def status(session: Session, max_behind: str | None, *, as_json: bool) -> None:
    """Show counts, lags, how far each cluster is, dead letters, and whether a worker runs.

    The exit status is 1 if something needs attention: dead letters, a worker that has stopped by itself, a cluster that
    does not answer or lost deliveries, a process whose clock is off, or a shard of the follow store whose clock is far
    ahead. JSON has a sentence for each of them, in "problems".

    With --max-behind it is also 1 if a cluster may lack what was recorded longer ago: its writer, the expander or the
    relay does not run, or cannot keep up. Where workers run all the time, ask with it.

    \b
    Examples:
      feedctl status
      feedctl status --max-behind 60s --json | jq '.problems[]'
      feedctl status --json | jq .groups
    """
    try:
        most_ms = None if max_behind is None else duration_ms(max_behind)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--max-behind") from error
    with session.ports("read") as ports:
        counts = ports.follows.counts()
        lags = landed.lags(ports)
        dead = ports.dead.count()
        states = {name: cluster_state(ports, name) for name in ports.replicas}
        clocks = clocks_ahead_ms(ports)
        clock = home_clock(session.config)
        off = [] if clock is None else clock.off()
        worker = session.worker()
        stopped = session.worker_stopped()
        quiet = wiring.idle(ports)
    # Elsewhere workers may run on other machines.
    has_worker = worker is not None or not wiring.is_embedded(session.config)
    late = [] if most_ms is None else too_far_behind(states, most_ms, has_worker=has_worker)
    problems = [
        *([] if stopped is None else [f"the worker has stopped, and only serves: {stopped}"]),
        *(state.error for state in states.values() if state.error is not None),
        *late,
        *(f"the clock of shard {shard} is {ago(ms)} ahead of this machine" for shard, ms in clocks.items()),
        *map(clock_off, off),
        *([f"there are {plural(dead, 'dead letter')}"] if dead else []),
    ]
    if as_json:
        emit_json(
            {
                "home": str(session.home),
                "worker": None if worker is None else {"pid": worker, "stopped": stopped},
                "idle": quiet,
                "counts": counts._asdict(),
                "groups": lags,
                "clusters": {name: vars(state) for name, state in states.items()},
                "clocks_ahead_ms": {str(shard): ms for shard, ms in clocks.items()},
                "clocks_off": [msgspec.structs.asdict(each) for each in off],
                "dead_letters": dead,
                "problems": problems,
            }
        )
    else:
        say(f"home      {session.home}")
        say("worker    none runs" if worker is None else f"worker    pid {worker or 'unknown'}")
        if stopped is not None:
            say(f"          has stopped, and only serves: {stopped}")
        say(
            f"follows   {counts.edges_active:,} edges ({counts.edges_tombstoned:,} ended), {counts.boards:,} boards,"
            f" {counts.pins:,} pins ({counts.pins_deleted:,} deleted)"
        )
        waiting = ", ".join(f"{name} {lag:,}" for name, lag in lags.items())
        say(f"to do     {'nothing' if quiet else waiting}")
        for name, state in states.items():
            say(f"cluster   {name}: {_described(state)}")
        for sentence in late:
            say(f"behind    {sentence}")
        for shard, ms in clocks.items():
            say(f"clock     shard {shard} is {ago(ms)} ahead of this machine: feedctl clock set")
        for each in off:
            say(f"clock     {clock_off(each)}")
        say(f"dead      {dead:,} letters: feedctl dead list" if dead else "dead      no letters")
    if problems:
        sys.exit(REFUSED)


def clock_off(process: Process) -> str:
    """What is wrong with the clock of a process, and what it does instead."""
    which = "ahead of" if process.offset_ms > 0 else "behind"
    return (
        f"that of {process.program} (pid {process.pid} on {process.host}) is {ago(abs(process.offset_ms))} {which} the"
        " home's time. It goes by the home's: set its clock (feedctl clock show says more)"
    )


def _described(state: ClusterState) -> str:
    if state.error is not None:
        return state.error
    if state.watermark_ms is None:
        return "its watermark is not known yet"
    if state.watermark_ms == wiring.REBUILDING_MS:
        return "being rebuilt"
    if state.behind_ms is None:
        return f"how far behind is unknown: its watermark, {when(state.watermark_ms)} UTC, is ahead of the clock"
    return f"has everything before {when(state.watermark_ms)} UTC ({ago(state.behind_ms)} behind)"


COMMANDS = (status,)
