"""init, work, its parts alone, trim."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from types import FrameType

import click

from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.serving.config import ConfigError
from workers import collector, home, wiring
from workers.apart import WriterApart
from workers.cli import stacks
from workers.cli.output import Progress, emit_json, note, plural, say
from workers.cli.session import NotNowError, Session, json_option, pass_session
from workers.groups import writer_group
from workers.home import HomeBusyError
from workers.queue.port import QueueUnavailableError
from workers.runtime import Loop, Worker
from workers.wiring import Ports


@click.command()
@click.option(
    "--cap", type=click.IntRange(1, 100_000), help="Entries of a feed that a reader can reach.  [default: 1000]"
)
@click.option("--slack", type=click.IntRange(0, 100_000), help="Live entries that a trim keeps beyond.  [default: 250]")
@click.option(
    "--stack",
    type=click.Choice(["local", "docker"]),
    help="Work on the real servers of the local stack, or of the Docker clusters, instead of files of the home.",
)
@click.option(
    "--stack-home",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the stack is.  [default: .stack, or .cluster for docker]",
)
@pass_session
def init(
    session: Session, cap: int | None, slack: int | None, stack: stacks.Kind | None, stack_home: Path | None
) -> None:
    """Makes a home: feed.toml and the stores.

    A home that is there is left alone. Everything else is set in feed.toml, or by the environment
    (FEED_<SECTION>_<KEY>, for example FEED_LIMITS_ACTION_AGE=12h).

    \b
    Examples:
      feedctl init
      feedctl --home /srv/feed init --cap 500
      feedctl --home .real init --stack local
      feedctl --home .real init --stack docker
    """
    replaced = None if stack is None else stacks.replacements_of(stack, stack_home)
    config = home.create(session.home, os.environ, cap=cap, slack=slack, replaced=replaced)
    note(
        f"made {session.home}: cap {config.limits.cap}, clusters {', '.join(each.name for each in config.clusters)};"
        f" edit {session.home / 'feed.toml'} to change it"
    )


@click.command()
@click.option("--until-idle", is_flag=True, help="End when everything that was recorded has landed.")
@pass_session
def work(session: Session, *, until_idle: bool) -> None:
    """Runs the queue workers: relay, expander, a writer for each cluster, housekeeping.

    One worker holds a home. SIGTERM and SIGINT end it after its current step; what is not committed comes again.

    \b
    Examples:
      feedctl work
      feedctl work --until-idle
    """
    # Before the lock: who sees that a worker holds the home may send it a signal.
    with stopping() as stop, session.lock() as lock, session.ports("beside", feeds=False) as ports:
        run_worker(session, ports, lock, stop, until_idle=until_idle)


def run_worker(session: Session, ports: Ports, lock: int, stop: Event, *, until_idle: bool) -> None:
    """Works until `stop` is set or, with `until_idle`, everything has landed; the writers in processes of their own.
    ports: beside the clusters, which the writers own. lock: the home's.

    Raises:
        NotNowError: with `until_idle`, it was stopped before that.
        WorkerFailedError: a part of it ended by itself.
        UnsafeTopicsError
    """
    collector.relax()
    config = session.config
    wiring.refuse_unsafe(ports, config)
    worker = wiring.worker_around(
        ports, config, lambda cluster: WriterApart(config.home, cluster, session.log_level, lock)
    )
    if until_idle:
        run_until_landed(session, ports, worker, stop)
    else:
        _run(worker, ports, stop, lambda: False)


def run_until_landed(session: Session, ports: Ports, worker: Worker, stop: Event) -> None:
    """Runs a worker until everything that was recorded has landed in the clusters that it writes.

    Raises:
        NotNowError: it was stopped before that.
        WorkerFailedError: a part of it ended by itself.
    """
    landed = wiring.UntilIdle(ports, session.config, lambda: clusters_of(worker, ports))

    def ended() -> bool:
        if not landed():
            return False
        # Its next tick would stay in the queue, and look like work that waits.
        worker.end(wiring.TICKER)
        if wiring.TICKER in worker.running():
            return False
        with contextlib.suppress(QueueUnavailableError):
            return wiring.drained(ports, clusters_of(worker, ports))
        return False

    _run(worker, ports, stop, ended)
    if not landed.yes:
        raise NotNowError("stopped before everything had landed; nothing is lost: go on with feedctl work")


def _run(worker: Worker, ports: Ports, stop: Event, ended: Callable[[], bool]) -> None:
    progress = Progress("work", redraw_s=1.0)

    def until() -> bool:
        if progress.due():
            _show_lags(progress, ports)
        return stop.is_set() or ended()

    worker.run(until)
    progress.clear()


def clusters_of(worker: Worker, ports: Ports) -> list[str]:
    """The clusters that a worker still writes."""
    running = worker.running()
    return [name for name in ports.replicas if writer_group(name) in running]


def _show_lags(progress: Progress, ports: Ports) -> None:
    with contextlib.suppress(FollowStoreUnavailableError, QueueUnavailableError):
        waiting = "  ".join(f"{name} {lag:,}" for name, lag in wiring.lags(ports).items())
        progress.show(f"{progress.elapsed_s():.0f} s, to do: {waiting}")


@contextlib.contextmanager
def stopping() -> Iterator[Event]:
    """SIGTERM and SIGINT set the event; a second one ends the process at once, as if it had been killed."""
    stop = Event()

    def handle(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@click.command()
@pass_session
def relay(session: Session) -> None:
    """Runs one relay: from the outboxes of the follow store to the queue. Any number may run.

    \b
    Examples:
      feedctl relay
    """

    def loops(ports: Ports) -> list[Loop]:
        wiring.refuse_unsafe(ports, session.config)
        return [*wiring.relays(ports, session.config), wiring.housekeeper(ports, session.config)]

    _run_part(session, loops)


@click.command()
@pass_session
def expand(session: Session) -> None:
    """Runs one expander: from actions to deliveries. Any number may run.

    \b
    Examples:
      feedctl expand
    """

    def loops(ports: Ports) -> list[Loop]:
        wiring.refuse_unsafe(ports, session.config)
        return [wiring.expander(ports, session.config)]

    _run_part(session, loops)


@click.command()
@click.option("--cluster", required=True, help="The cluster that it writes.")
@pass_session
def write(session: Session, cluster: str) -> None:
    """Runs one writer of one cluster: from deliveries to cells. Any number may run.

    It refuses to start on tables and topics that would break the rules (feedctl schema check and feedctl topics check
    name the differences), and waits for a cluster that is away.

    \b
    Examples:
      feedctl write --cluster a
    """
    session.refuse_unknown(cluster)

    def loops(ports: Ports) -> list[Loop]:
        wiring.refuse_unsafe(ports, session.config, [cluster])
        return wiring.writing(ports, session.config, cluster)

    _run_part(session, loops)


def _run_part(session: Session, loops: Callable[[Ports], list[Loop]]) -> None:
    """Works in this process until a signal comes, or part of it ends by itself. Raises WorkerFailedError."""
    if wiring.is_embedded(session.config):
        raise ConfigError(
            f"{session.home}: its queue or a cluster is a file of this home, which one worker holds: feedctl work"
        )
    collector.relax()
    with stopping() as stop, session.ports("owner") as ports:
        worker = Worker(loops(ports))
        every = worker.running()
        worker.run(lambda: stop.is_set() or worker.running() != every)


@click.command()
@json_option
@pass_session
def trim(session: Session, *, as_json: bool) -> None:
    """Trims every feed to cap + slack entries, and drops what is masked or expired.

    A worker does this by itself, every so often (feed.toml: worker.housekeeping). While one holds the home, this
    refuses. A cluster in HBase trims inside its compactions: it is only asked to look whether one is due.

    \b
    Examples:
      feedctl trim
      feedctl table major-compact following_feed      # trims in HBase now
    """
    try:
        with session.lock(), session.ports("owner") as ports:
            for name in ports.replicas:
                swept = wiring.sweeper(ports, session.config, name).sweep()
                if swept is None:
                    note(f"{name}: asked to look whether a compaction is due; to trim now: feedctl table major-compact")
                elif as_json:
                    emit_json({"cluster": name, **vars(swept)})
                else:
                    say(
                        f"{name}: {plural(swept.rows, 'row')}, dropped {swept.trimmed:,} beyond the cap,"
                        f" {swept.masked:,} masked, {plural(swept.markers, 'expired marker')}"
                    )
    except HomeBusyError as error:
        raise HomeBusyError(
            f"{error}; it trims by itself (feed.toml: worker.housekeeping). To trim now, stop it first", error.pid
        ) from error


COMMANDS = (init, work, relay, expand, write, trim)
