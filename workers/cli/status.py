"""status: shows the condition of a home."""

import sys
from typing import Final

import click
import msgspec

from feedstore.follows.port import RecordCounts
from workers.app import home
from workers.cli.condition import ClusterStatus, Condition, look, looking, problems
from workers.cli.looks import NoAnswer
from workers.cli.output import ago, counted, emit_json, plural, say, when
from workers.cli.session import DURATION, REFUSED, Session, json_option, pass_session
from workers.following.landed import REBUILDING_MS

READ_S: Final = 0.25
"""How long `status` reads rows of each cluster: only reading finds blocks that cannot be read."""


@click.command(short_help="Show lags, clusters, dead letters, and what is wrong.")
@click.option("--max-behind", "most_ms", type=DURATION, help="Exit with 1 if a cluster is further behind, such as 60s.")
@json_option
@pass_session
def status(session: Session, most_ms: int | None, *, as_json: bool) -> None:
    """Show counts, lags, how far each cluster is, dead letters, and whether a worker runs.

    The exit status is 1 if an operator must know something: a worker that has stopped by itself; messages that wait for
    more than a minute while no worker runs (on servers: while no process reads for their group, or none relays); a
    cluster that does not answer, lost deliveries, or is three minutes behind while a worker runs; a catalog that is
    damaged or does not answer; a queue in a file that is damaged where a group reads next; deliveries that have been
    parked for ten minutes; a clock that is off; a disk that is almost full; settings of topics with which acknowledged
    messages could be lost; dead letters. There is a sentence for each, in JSON in "problems".

    The command looks at the queue, each shard of the follow store, each cluster, each catalog and the disks separately
    and at the same time: an outage of one hides none of the others. If one is away, or takes longer than 12 s, that is
    a problem too, in JSON also in "away", and the values that it would have given are unknown (null). The whole command
    ends within half a minute.

    With --max-behind the exit status is also 1 if a cluster may lack actions that were recorded longer ago than that:
    its writer, the expander or the relay does not run, or cannot keep up. If workers run all the time, use this option.

    \b
    Examples:
      feedctl status
      feedctl status --max-behind 60s --json | jq '.problems[]'
      feedctl status --json | jq .groups
    """
    with looking(session.config) as (ports, looks):
        counting = looks.begin("counts", ports.follows.counts)
        found = look(ports, session.config, READ_S, looks)
        counts = counting.found()
    wrong = problems(found, most_ms)
    if as_json:
        emit_json(
            {
                "home": str(session.home),
                "worker": None if found.worker is None else {"pid": found.worker, "stopped": found.stopped},
                "idle": found.quiet,
                "counts": None if isinstance(counts, NoAnswer) else counts._asdict(),
                "groups": found.groups,
                "members": found.members,
                "clusters": {name: vars(state) for name, state in found.clusters.items()},
                "clocks_ahead_ms": {str(shard): ms for shard, ms in found.clocks.items()},
                "clocks_off": [msgspec.structs.asdict(each) for each in found.off],
                "waits_ms": found.waits_ms,
                "disks": None
                if found.disks is None
                else [
                    {"store": disk.store, "free_bytes": disk.free_bytes, "capacity_bytes": disk.capacity_bytes}
                    for disk in found.disks
                ],
                "dead_letters": found.dead,
                "away": found.away,
                "problems": wrong,
            }
        )
    else:
        say(f"home      {session.home}")
        say(f"worker    {workers(found)}")
        say(f"follows   {recorded(counts)}")
        waiting = ", ".join(f"{name} {counted(lag)}" for name, lag in found.groups.items())
        say(f"to do     {'nothing' if found.quiet else waiting}")
        for name, state in found.clusters.items():
            say(f"cluster   {name}: {described(state)}")
        say(f"dead      {letters(found.dead)}")
        for sentence in wrong:
            say(f"problem   {sentence}")
    if wrong:
        sys.exit(REFUSED)


def workers(found: Condition) -> str:
    """The workers that are known here, for people."""
    if found.worker is not None:
        command = home.command_of(found.worker)
        return f"pid {found.worker or 'unknown'}" + ("" if command is None else f", {command}")
    if not found.members:
        return "unknown" if found.has_worker else "none runs"
    return ", ".join(f"{group} {count or 'NONE'}" for group, count in found.members.items())


def recorded(counts: RecordCounts | NoAnswer) -> str:
    """What the follow store holds, for people."""
    if isinstance(counts, NoAnswer):
        return f"unknown: {counts.why}"
    return (
        f"{plural(counts.edges_active, 'edge')} ({counts.edges_tombstoned:,} ended),"
        f" {plural(counts.boards, 'board')}, {plural(counts.pins, 'pin')} ({counts.pins_deleted:,} deleted)"
    )


def letters(dead: int | None) -> str:
    """How many dead letters there are, for people."""
    if dead is None:
        return "unknown"
    return f"{plural(dead, 'letter')}: feedctl dead list" if dead else "no letters"


def described(state: ClusterStatus) -> str:
    """How far a cluster is, for people."""
    if state.watermark_ms is None:
        return state.error or "its watermark is not known yet"
    if state.watermark_ms == REBUILDING_MS:
        return state.error or "being rebuilt"
    if state.error is not None:
        return f"{state.error}; its watermark is {when(state.watermark_ms)} UTC"
    if state.behind_ms is None:
        return f"how far behind is unknown: its watermark, {when(state.watermark_ms)} UTC, is ahead of the clock"
    return f"has everything before {when(state.watermark_ms)} UTC ({ago(state.behind_ms)} behind)"
