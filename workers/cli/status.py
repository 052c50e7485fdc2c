"""status: how a home is."""

import sys
from dataclasses import dataclass
from typing import Final

import click
import msgspec

from feedstore.app.wiring import home_clock, monotonic_s
from feedstore.clocks import Process
from feedstore.follows.port import ClockStepError
from feedstore.widecolumn import DamagedError, UnavailableError
from feedstore.widecolumn.behind import AHEAD_MS, behind_ms
from feedstore.widecolumn.progress import Progress as ClusterProgress
from workers.app import wiring
from workers.cli.output import ago, emit_json, say, when
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


@click.command()
@json_option
@pass_session
def status(session: Session, *, as_json: bool) -> None:
    """Show counts, lags, how far each cluster is, dead letters, and whether a worker runs.

    The exit status is 1 if something needs attention: dead letters, a worker that has stopped by itself, a cluster that
    does not answer or lost deliveries, a process whose clock is off, or a shard of the follow store whose clock is far
    ahead.

    \b
    Examples:
      feedctl status
      feedctl status --json | jq .groups
    """
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
        for shard, ms in clocks.items():
            say(f"clock     shard {shard} is {ago(ms)} ahead of this machine: feedctl clock set")
        for each in off:
            say(f"clock     {clock_off(each)}")
        say(f"dead      {dead:,} letters: feedctl dead list" if dead else "dead      no letters")
    if dead or clocks or off or stopped is not None or any(state.error for state in states.values()):
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
