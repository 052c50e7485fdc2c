"""verify, rebuild, rewind: whether the feeds are right, and making them so."""

import sys
import time
from collections.abc import Sequence
from threading import Event

import click

from feedstore.feeds import Progress as ClusterProgress
from feedstore.serving.config import duration_ms
from feedstore.widecolumn import UnavailableError
from workers import collector, wiring
from workers import rebuild as rebuilding
from workers import rewind as rewinding
from workers.cli.output import Progress, emit_json, note, plural, say, when
from workers.cli.running import run_until_landed, run_worker, stopping
from workers.cli.session import ID, REFUSED, NotNowError, RefusedError, Session, json_option, pass_session
from workers.faults import fault
from workers.home import HomeBusyError
from workers.queue.port import GroupBusyError
from workers.verify import Difference, Look, Verifier
from workers.wiring import Ports

_ROUNDS = 2
"""How often suspects are looked at while a worker runs: what differs each time, with all watermarks passed in between,
is wrong; what was in flight is not."""


@click.command()
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0),
    default=120.0,
    help="Seconds to wait for a running worker.  [default: 120]",
)
@json_option
@pass_session
def verify(session: Session, wait_s: float, *, as_json: bool) -> None:
    """Compares every feed of every cluster with what the follow store says it must hold.

    Each entry that is missing, extra or different is named, unless work in flight explains it: beside a running
    worker, differences count when they outlast the watermarks of all clusters. The exit status is 1 where there are
    any, and 3 where it cannot be said yet.

    \b
    Examples:
      feedctl verify
      feedctl verify --json > differences.jsonl
    """
    collector.relax()
    progress = Progress("verify")
    with session.ports("beside") as ports:
        running = session.worker() is not None
        _refuse_faults(ports, running=running, as_json=as_json)
        if not running and not wiring.is_embedded(session.config):
            # Its parts may run on any machine, and hold no home.
            running = True
            _wait_for_watermarks(session, ports, progress, wait_s)
        elif not running and not wiring.idle(ports):
            raise NotNowError("work is waiting, and no worker runs: first run feedctl work --until-idle")
        tables = {name: replica.feeds for name, replica in ports.replicas.items()}
        verifier = Verifier(ports.follows, tables, session.config.limits.cap)

        def show(users: int, entries: int) -> None:
            if progress.due():
                rate = entries / max(0.001, progress.elapsed_s())
                progress.show(f"{users:,} users, {entries:,} entries, {rate:,.0f} a second")

        look = verifier.look(show)
        users: Sequence[int] = look.suspects
        found: list[Difference] = []
        for number in range(_ROUNDS if running else 1):
            if not users:
                break
            if running:
                _wait_for_watermarks(session, ports, progress, wait_s)
            again = list(verifier.differences(users))
            found = again if number == 0 else sorted(set(found) & set(again))
            users = sorted({difference.user for difference in found})
        progress.clear()
    _report(look, found, as_json=as_json)


def _refuse_faults(ports: Ports, *, running: bool, as_json: bool) -> None:
    """Ends the command if a cluster cannot be compared: it says of itself that it lacks something."""
    faults = [(name, fault(replica, ports.queue, lambda: False)) for name, replica in ports.replicas.items()]
    mended = [found.message for _, found in faults if found is not None and found.is_mended_by_writers]
    if mended and not running:
        raise NotNowError("; ".join(mended))
    damaged = [(name, found.message) for name, found in faults if found is not None and not found.is_mended_by_writers]
    for name, message in damaged:
        if as_json:
            emit_json({"cluster": name, "kind": "damaged", "detail": message})
        else:
            click.echo(f"{name}  damaged  {message}")
    if damaged:
        sys.exit(REFUSED)


def _wait_for_watermarks(session: Session, ports: Ports, progress: Progress, wait_s: float) -> None:
    """Returns once everything that was committed before now has landed in every cluster."""
    until_ms = ports.follows.now()
    deadline = time.monotonic() + wait_s
    while True:
        marks = {name: ClusterProgress(replica.progress).watermark() for name, replica in ports.replicas.items()}
        late = [name for name, mark in marks.items() if mark is None or mark <= until_ms]
        if not late:
            return
        if session.worker() is None:
            if wiring.idle(ports):
                return
            if wiring.is_embedded(session.config):
                raise NotNowError("the worker has ended, and work is waiting: run feedctl work --until-idle")
        if time.monotonic() >= deadline:
            raise NotNowError(f"cluster {', '.join(late)} is still behind after {wait_s:g} s: look again later")
        if progress.due():
            progress.show(f"waits until cluster {', '.join(late)} has everything before {when(until_ms)} UTC")
        time.sleep(0.1)


def _report(look: Look, found: Sequence[Difference], *, as_json: bool) -> None:
    if as_json:
        for difference in found:
            emit_json(difference._asdict())
        emit_json({"users": look.users, "entries": look.entries, "differences": len(found), "suspects": look.found})
    else:
        for user, cluster, kind, pin, created_ms in found:
            say(f"{cluster}  user {user}  {kind:<7}  pin {pin}  of {when(created_ms)}")
        seen = f"{plural(look.users, 'user')}, {plural(look.entries, 'entry', 'entries')} compared"
        note(f"{seen}: {plural(len(found), 'difference') if found else 'no difference'}")
    if look.found > len(look.suspects):
        note(f"{look.found:,} users differ, only the first {len(look.suspects):,} were looked at: rebuild the cluster")
    if found:
        sys.exit(REFUSED)


@click.command()
@click.argument("user", type=ID, required=False)
@click.option("--all", "everybody", is_flag=True, help="The feeds of all users.")
@click.option("--cluster", help="Only in this cluster.  [default: in all]")
@pass_session
def rebuild(session: Session, user: int | None, *, everybody: bool, cluster: str | None) -> None:
    """Writes the feed of USER, or all feeds, again from the follow store.

    While a worker holds the home this is queued to it; otherwise it is done at once. With --all and --cluster, a
    cluster whose directory is gone or empty, or that lost deliveries, is made anew; for that the worker must be
    stopped.

    \b
    Examples:
      feedctl rebuild 12
      feedctl rebuild --all --cluster b
    """
    if everybody == (user is not None):
        raise click.UsageError("give either USER or --all")
    if cluster is not None:
        session.refuse_unknown(cluster)
    try:
        with stopping() as stop, session.lock() as lock, session.ports("beside", feeds=False) as ports:
            names = _named(ports, cluster)
            anew = [name for name in names if rebuilding.needs_new(ports, session.config, name)]
            if anew and not everybody:
                raise UnavailableError(
                    f"{', '.join(anew)}: gone, or lost deliveries; rebuild --all --cluster NAME first"
                )
            for name in anew:
                _make_anew(session, ports, stop, name)
            if not anew:
                _ask(ports, user, cluster)
            else:
                for name in set(names) - set(anew):
                    _ask(ports, user, name)
            run_worker(session, ports, lock, stop, until_idle=True)
        note("rebuilt")
    except HomeBusyError as error:
        with session.ports("beside") as ports:
            gone = [name for name in _named(ports, cluster) if rebuilding.needs_new(ports, session.config, name)]
            if gone:
                raise HomeBusyError(f"{error}; to make {', '.join(gone)} anew, stop it first", error.pid) from error
            _ask(ports, user, cluster)
        note(f"asked; the worker (pid {error.pid or 'unknown'}) does it")


def _named(ports: Ports, cluster: str | None) -> list[str]:
    return list(ports.replicas) if cluster is None else [cluster]


def _ask(ports: Ports, user: int | None, cluster: str | None) -> None:
    if user is not None:
        rebuilding.ask_user(ports.follows, user, cluster)
        return
    progress = Progress("ask")
    rebuilding.ask_all(ports.follows, cluster, lambda users: _show_users(progress, users))
    progress.clear()


def _show_users(progress: Progress, users: int) -> None:
    if progress.due():
        progress.show(plural(users, "user"))


def _make_anew(session: Session, ports: Ports, stop: Event, cluster: str) -> None:
    note(f"cluster {cluster} is gone or lost deliveries: it is made anew")
    progress = Progress("ask")
    rebuilding.make_anew(
        ports,
        session.config,
        cluster,
        lambda worker: run_until_landed(session, ports, worker, stop),
        lambda users: _show_users(progress, users),
    )
    progress.clear()


@click.command()
@click.option("--cluster", required=True, help="The cluster that lost what was written last.")
@click.option("--by", required=True, metavar="DURATION", help="How far it goes back, such as 10m or 2h.")
@json_option
@pass_session
def rewind(session: Session, cluster: str, by: str, *, as_json: bool) -> None:
    """Lets a cluster's writers read again what was published within the last DURATION.

    For a cluster that has lost writes that it had acknowledged: its zone lost its power, or it came back from a
    snapshot. Its watermark goes back with it, and stays there until the writers have caught up; readers prefer other
    clusters meanwhile. Whatever was not lost is written once more, which changes nothing.

    Stop the cluster's writers first. DURATION is the time since the loss, and how far the cluster was behind at that
    time, and a minute or more: docs/runbooks/zone-without-power.md. limits.action_age at most: rebuild goes further.

    \b
    Examples:
      feedctl rewind --cluster b --by 30m
    """
    session.refuse_unknown(cluster)
    try:
        by_ms = duration_ms(by)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--by") from error
    try:
        with session.lock(), session.ports("owner") as ports:
            rewound = rewinding.rewind(ports, session.config.limits, cluster, by_ms)
    except rewinding.TooFarBackError as error:
        raise RefusedError(str(error)) from error
    except (HomeBusyError, GroupBusyError) as error:
        raise NotNowError(f"{error}: stop the writers of cluster {cluster} first; nothing was moved") from error
    if as_json:
        emit_json({"cluster": cluster, "to_ms": rewound.to_ms, "again": rewound.again})
        return
    again = ", ".join(f"{group} reads {plural(count, 'message')} again" for group, count in rewound.again.items())
    say(f"{cluster}: back to {when(rewound.to_ms)} UTC: {again}")
    note("start its writers now; its watermark stays before that time until they have caught up")


COMMANDS = (verify, rebuild, rewind)
