"""status: how a home is."""

import sys
from dataclasses import dataclass

import click

from feedstore.feeds import Progress as ClusterProgress
from feedstore.widecolumn import UnavailableError
from workers import wiring
from workers.cli.output import ago, emit_json, when
from workers.cli.session import REFUSED, Session, json_option, pass_session
from workers.wiring import Ports


@dataclass(frozen=True)
class ClusterState:
    """watermark_ms: everything committed before it has landed there; None where that is unknown. error: why it does
    not answer, or what it lost.
    """

    watermark_ms: int | None
    behind_ms: int | None
    error: str | None


def cluster_state(ports: Ports, name: str) -> ClusterState:
    try:
        mark = ClusterProgress(ports.replicas[name].progress).watermark()
    except UnavailableError as error:
        return ClusterState(None, None, str(error))
    behind = None if mark is None else max(0, ports.follows.now() - mark)
    lost = wiring.lost_deliveries(ports, name)
    return ClusterState(mark, behind, wiring.lost_message(name) if lost else None)


@click.command()
@json_option
@pass_session
def status(session: Session, *, as_json: bool) -> None:
    """Shows counts, what is left to do, how far each cluster is, dead letters, and whether a worker runs.

    The exit status is 1 where something needs a look: dead letters, a worker that has stopped by itself, or a cluster
    that does not answer or lost deliveries.

    \b
    Examples:
      feedctl status
      feedctl status --json | jq .groups
    """
    with session.ports("beside") as ports:
        counts = ports.follows.counts()
        lags = wiring.lags(ports)
        dead = ports.dead.count()
        states = {name: cluster_state(ports, name) for name in ports.replicas}
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
                "dead_letters": dead,
            }
        )
    else:
        click.echo(f"home      {session.home}")
        click.echo("worker    none runs" if worker is None else f"worker    pid {worker or 'unknown'}")
        if stopped is not None:
            click.echo(f"          has stopped, and only serves: {stopped}")
        click.echo(
            f"follows   {counts.edges_active:,} edges ({counts.edges_tombstoned:,} ended), {counts.boards:,} boards,"
            f" {counts.pins:,} pins ({counts.pins_deleted:,} deleted)"
        )
        waiting = ", ".join(f"{name} {lag:,}" for name, lag in lags.items())
        click.echo(f"to do     {'nothing' if quiet else waiting}")
        for name, state in states.items():
            click.echo(f"cluster   {name}: {_described(state)}")
        click.echo(f"dead      {dead:,} letters: feedctl dead list" if dead else "dead      no letters")
    if dead or stopped is not None or any(state.error for state in states.values()):
        sys.exit(REFUSED)


def _described(state: ClusterState) -> str:
    if state.error is not None:
        return state.error
    if state.watermark_ms is None or state.behind_ms is None:
        return "its watermark is not known yet"
    if state.watermark_ms == wiring.REBUILDING_MS:
        return "being rebuilt"
    return f"has everything before {when(state.watermark_ms)} UTC ({ago(state.behind_ms)} behind)"


COMMANDS = (status,)
