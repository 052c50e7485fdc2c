"""rebuild, rewind: making feeds right."""

from threading import Event

import click

from feedstore.serving.config import duration_ms
from feedstore.widecolumn import UnavailableError
from workers import rebuild as rebuilding
from workers import rewind as rewinding
from workers.cli.output import Progress, emit_json, note, plural, say, when
from workers.cli.running import run_until_landed, run_worker, stopping
from workers.cli.session import ID, NotNowError, RefusedError, Session, json_option, pass_session
from workers.home import HomeBusyError
from workers.queue.port import GroupBusyError
from workers.wiring import Ports


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


COMMANDS = (rebuild, rewind)
