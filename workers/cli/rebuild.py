"""rebuild: feeds from the follow store."""

from collections.abc import Callable, Sequence

import click

from feedstore.widecolumn import UnavailableError
from workers.app import metering, until, wiring
from workers.app import rebuild as rebuilding
from workers.app.home import HomeBusyError
from workers.cli.output import ProgressLine, heartbeat, note, plural
from workers.cli.session import ID, CommandRefusedError, Session, TryLaterError, pass_session
from workers.cli.signals import Stop, stopping
from workers.cli.verify import Total, cluster_option, found, saying_how_to_ask_one, show, spelled
from workers.cli.work import refuse_shards_apart, run_until, work_until_landed
from workers.following.lost_actions import refuse_lost
from workers.following.ports import Ports
from workers.following.verify import EVERYBODY, UserRange
from workers.queue.port import GroupBusyError


@click.command(short_help="Rebuild one feed or all feeds from the follow store.")
@click.argument("user", type=ID, required=False)
@click.option("--all", "everybody", is_flag=True, help="Rebuild the feeds of all users.")
@cluster_option
@pass_session
def rebuild(session: Session, user: int | None, *, everybody: bool, cluster: str | None) -> None:
    """Rebuild the feed of USER, or all feeds, from the follow store.

    If a worker holds the home, this command only requests the work, and the worker does it. Otherwise this command does
    the work itself; the exit status is then 1 if a difference is left that only feedctl repair can repair.

    With --all and --cluster, the command creates a cluster again that is gone, is damaged or knows that it has lost
    deliveries: stop the worker before that. Any other cluster is only refilled: missing entries come back, and wrong
    ones stay. To remove these, use feedctl repair.

    \b
    Examples:
      feedctl rebuild 12
      feedctl rebuild --all --cluster b
    """
    if everybody == (user is not None):
        raise click.UsageError("give either USER or --all")
    names = session.clusters(cluster)
    try:
        with (
            saying_how_to_ask_one(session, cluster, "rebuild --all" if everybody else f"rebuild {user}"),
            session.lock(),
            session.writers() as writers,
            metering.serving(session.config, None, "work") as endpoint,
        ):
            heartbeat()
            with session.ports("read", feeds=False) as ports:
                refuse_shards_apart(ports)
                refuse_lost(ports)
                wiring.refuse_older_queue(ports, session.config)
                # All of a large cluster is read, which takes long and changes nothing: a signal ends it at once.
                lost = [name for name in names if rebuilding.needs_new(ports, session.config, name)]
                if lost and not everybody:
                    raise UnavailableError(
                        "; ".join(
                            f"cluster {name} is gone, or lost deliveries: feedctl rebuild --all --cluster {name} first"
                            for name in lost
                        )
                    )
                with stopping() as stop:
                    for name in lost:
                        _recreate(session, ports, stop, name)
                    if not lost:
                        _ask(ports, user, cluster, stop)
                    else:
                        for name in set(names) - set(lost):
                            _ask(ports, user, name, stop)
                    # Not for the others: if one is gone, too, this would wait for it for ever.
                    work_until_landed(session, ports, names, writers, stop, endpoint)
        _refuse_left(session, EVERYBODY if user is None else [UserRange(user, user)], cluster)
        note("rebuilt")
    except HomeBusyError as error:
        heartbeat()
        with session.ports("read") as ports:
            gone = [name for name in names if rebuilding.needs_new(ports, session.config, name)]
            if gone:
                raise HomeBusyError(f"{error}; {', '.join(gone)} must be created again", error.pid) from error
            _ask(ports, user, cluster, Stop())
        if (why := session.worker_stopped()) is not None:
            raise TryLaterError(
                f"requested, but the worker (pid {error.pid or 'unknown'}) has stopped: {why}"
            ) from error
        note(f"requested; the worker (pid {error.pid or 'unknown'}) does it: feedctl verify says if anything is left")


def _refuse_left(session: Session, spans: Sequence[UserRange], cluster: str | None) -> None:
    """Reports differences that are left, and what mends them. Raises RefusedError if there are any."""
    total = Total()
    with session.ports("read", session.clusters(cluster)) as ports:
        for finding in found(ports, session.config.limits, spans, total, ProgressLine("verify")):
            show(finding, as_json=False)
    if total.differences:
        words = ["feedctl repair", *([] if cluster is None else [f"--cluster {cluster}"])]
        words += [f"--users {spelled(spans)}"] if spans is not EVERYBODY else []
        raise CommandRefusedError(
            f"{plural(total.differences, 'difference')} left that a refill does not mend: {' '.join(words)}"
        )


def _ask(ports: Ports, user: int | None, cluster: str | None, stop: Stop) -> None:
    if user is not None:
        ports.follows.ask_refill([user], cluster, 0)
        return
    rebuilding.ask_all(ports.follows, cluster, _asking(stop, cluster))


def _asking(stop: Stop, cluster: str | None) -> Callable[[int], None]:
    """Shows for how many users a refill was requested. Ends the command if it was stopped."""
    progress = ProgressLine("ask")

    def asked(users: int) -> None:
        if stop.is_set():
            raise stop.error(_stopped(cluster))
        progress.count(users, "user")

    return asked


def _stopped(cluster: str | None) -> str:
    return "stopped: to finish, feedctl rebuild --all" + ("" if cluster is None else f" --cluster {cluster}")


def _recreate(session: Session, ports: Ports, stop: Stop, cluster: str) -> None:
    note(f"cluster {cluster} is gone or lost deliveries: creating it again")
    try:
        rebuilding.recreate(
            ports,
            session.config,
            cluster,
            lambda worker: run_until(session, until.RecordedExpanded(ports), ports, worker, stop, _stopped(cluster)),
            _asking(stop, cluster),
        )
    except GroupBusyError as error:
        raise TryLaterError(
            f"{error}: stop the writers of cluster {cluster} first, and run this again; the others may keep running"
        ) from error
