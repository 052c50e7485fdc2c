"""work, and its parts alone: relay, expand, write."""

import contextlib
import math
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from threading import Event
from typing import Final

import click
from click.core import ParameterSource

from feedstore.clocks import APART_MAX_MS
from feedstore.errors import ConfigError, MisconfiguredError
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.metering import UNCOUNTED, Program
from feedstore.metering.settings import split
from feedstore.widecolumn import UnavailableError
from workers.app import memory_tuning, metering, until, wiring
from workers.app import rebuild as rebuilding
from workers.app.metering import MetricsEndpoint
from workers.app.writer_process import WriterProcess
from workers.cli.output import ProgressLine, ago
from workers.cli.session import (
    DURATION,
    CommandRefusedError,
    Parsed,
    Session,
    TryLaterError,
    pass_session,
)
from workers.cli.signals import Stop, stopping
from workers.following import landed
from workers.following.groups import EXPANDER, TICKERS, writer_group
from workers.following.ports import Ports
from workers.pipeline.retry import REST_S, Away, RetryPolicy
from workers.pipeline.runtime import Loop, Worker
from workers.queue.port import QueueUnavailableError

_START_AGAIN_S: Final = 1.0
"""The longest rest between two attempts to reach the servers at the start."""


def _address(text: str) -> str:
    split(text)  # refuses what is none
    return text


metrics_option = click.option(
    "--metrics",
    "metrics_at",
    metavar="HOST:PORT",
    type=Parsed("address", _address),
    help="Serve metrics at this address.  [default: metrics.listen of feed.toml]",
)


@click.command(short_help="Run the relay, the expander, the writers and housekeeping.")
@click.option("--until-idle", is_flag=True, help="Exit when all recorded actions have landed in every cluster.")
@click.option(
    "--wait",
    "wait_ms",
    type=DURATION,
    default="60s",
    show_default=True,
    help="With --until-idle: how long to wait for a cluster, or a catalog, that does not answer, once nothing else is"
    " left to do.",
)
@metrics_option
@pass_session
def work(session: Session, metrics_at: str | None, wait_ms: int, *, until_idle: bool) -> None:
    """Run the queue workers: relay, expander, a writer for each cluster, housekeeping.

    With --until-idle, if a cluster or a catalog does not answer and nothing else is left to do, the command waits for
    it as long as --wait says. If it still does not answer, the exit status is 3, and the error names it. The messages
    for it stay in the queue.

    A home has one worker. SIGTERM and SIGINT end it after its current step; uncommitted messages are read again. It
    ends by itself, with status 2, if its home is removed or replaced.

    With --metrics, the worker serves its metrics and those of its writers at /metrics, for Prometheus
    (docs/metrics.md). With port 0 it takes a free port, which the log names. The work is traced if feed.toml says where
    spans are sent (traces.endpoint; docs/traces.md).

    \b
    Examples:
      feedctl work
      feedctl work --until-idle
      feedctl work --until-idle --wait 10m
      feedctl work --metrics 127.0.0.1:9464
    """
    source = click.get_current_context().get_parameter_source("wait_ms")
    if source is ParameterSource.COMMANDLINE and not until_idle:
        raise click.UsageError("--wait needs --until-idle")
    # Before the lock: a process that sees that a worker holds the home may send it a signal.
    # Canaries are read as pages are; nothing else here reads feeds.
    served = bool(metrics_at or session.config.metrics.listen)
    feeds = served and not until_idle and session.config.worker.canary_ms is not None
    with (
        stopping() as stop,
        session.lock(),
        session.writers() as writers,
        metering.serving(session.config, metrics_at, "work") as endpoint,
        contextlib.ExitStack() as opened,
    ):

        def open_ports() -> Ports:
            return opened.enter_context(session.working_ports("read", "work", feeds=feeds))

        waits = not until_idle and not wiring.is_embedded(session.config)
        ports = _once_servers_answer(open_ports, stop) if waits else open_ports()
        if ports is None:
            return
        ends = partial(all_idle, session, ports, away_s=wait_ms / 1_000) if until_idle else None
        run_worker(session, ports, writers, stop, ends, endpoint)


Ends = Callable[[Worker], until.End]
"""Makes the `End` that says when a worker may end."""


def all_idle(session: Session, ports: Ports, worker: Worker, away_s: float = math.inf) -> until.End:
    """Ends when everything that was recorded has landed in the clusters that the worker writes. away_s: how long to
    wait for clusters that do not answer once nothing else is left to do.
    """
    return until.Idle(
        ports,
        session.config,
        lambda: clusters_of(worker, ports),
        away_s,
        pause=partial(worker.pause, TICKERS),
        resume=partial(worker.resume, TICKERS),
    )


def recorded_landed(ports: Ports, clusters: Collection[str], worker: Worker) -> until.End:
    """Ends when everything that had been recorded by now has landed in those of some clusters that the worker writes,
    whatever is recorded meanwhile.
    """
    return until.RecordedLanded(ports, lambda: [name for name in clusters_of(worker, ports) if name in clusters])


def refuse_shards_apart(ports: Ports) -> None:
    """Refuses to wait for what has been recorded if the clock of a shard is ahead of that of another one: that would
    take until the other clock is as far. Raises CommandRefusedError.
    """
    times = [ports.follows.now(shard) for shard in range(ports.follows.shards())]
    if (apart_ms := max(times) - min(times)) > APART_MAX_MS:
        raise CommandRefusedError(
            f"the clock of shard {times.index(max(times))} is {ago(apart_ms)} ahead of that of another shard, and what"
            " was recorded would have landed only after that time: set the clocks, then feedctl clock set, and run this"
            " again"
        )


def run_worker(
    session: Session,
    ports: Ports,
    writers: Sequence[WriterProcess],
    stop: Stop,
    ends: Ends | None,
    endpoint: MetricsEndpoint | None,
) -> None:
    """Runs a worker until `stop` is set or the `End` that `ends` makes says so. The writers are processes of their own,
    which continue afterwards.

    ports: opened for reading, because the writers own the clusters. endpoint: serves the counts of all processes; None:
    they are not wanted.

    Raises UnsafeTopicsError, and what `run_until` raises.
    """
    memory_tuning.relax()
    config = session.config
    wiring.refuse_unsafe(ports, config)
    wiring.warn_of_partitions(ports, config)
    with contextlib.nullcontext() if endpoint is None else endpoint.of(ports.meter):
        for writer in writers:
            writer.begin(endpoint)
        looking = [] if endpoint is None else wiring.gauges(ports, config, faults=False)
        if endpoint is not None and ends is None:
            looking += wiring.canaries(ports, config)
        worker = wiring.worker(ports, config, writers, looking)
        if ends is None:
            _run(session, worker, ports, stop, lambda: False)
        else:
            run_until(session, ends(worker), ports, worker, stop)


def work_until_landed(
    session: Session,
    ports: Ports,
    clusters: Collection[str],
    writers: Sequence[WriterProcess],
    stop: Stop,
    endpoint: MetricsEndpoint | None,
) -> None:
    """Runs a worker, as `run_worker` does, until what has been recorded by now has landed in some clusters. The others
    are written if they can be now: a writer whose cluster is gone would end the worker, or be waited for.
    """

    def can_work(name: str) -> bool:
        try:
            return not rebuilding.needs_new(ports, session.config, name, read_s=0.0)
        except UnavailableError:
            return False

    names = {each.name for each in session.config.clusters}
    unable = {writer_group(name) for name in names - set(clusters) if not can_work(name)}
    working = [writer for writer in writers if writer.name not in unable]
    run_worker(session, ports, working, stop, partial(recorded_landed, ports, clusters), endpoint)


def run_until(
    session: Session,
    end: until.End,
    ports: Ports,
    worker: Worker,
    stop: Stop,
    stopped: str = "stopped before everything had landed; nothing is lost: continue with feedctl work",
) -> None:
    """Runs a worker until it may end. stopped: the message if it was stopped before that.

    Raises:
        TryLaterError, StoppedError: it was stopped before that, or ended without clusters that are away.
        WorkerFailedError: a part of it ended by itself.
    """
    ends_by_s: float | None = None

    def ended() -> bool:
        nonlocal ends_by_s
        if EXPANDER not in worker.running():
            return True  # it ended by itself, and without it `end` may never say so
        if not end():
            return False
        # The next tick would stay in the queue, and look like waiting work.
        if not worker.pause(TICKERS):
            return False
        if ends_by_s is None:
            ends_by_s = time.monotonic() + end.rests_within_s
        with contextlib.suppress(QueueUnavailableError):
            clusters = [name for name in clusters_of(worker, ports) if name not in end.away]
            if landed.drained(ports, clusters):
                return True
        return time.monotonic() >= ends_by_s

    _run(session, worker, ports, stop, ended)
    if not end.yes:
        raise stop.error(stopped)
    if end.away:
        away = "; ".join(end.away.values())
        raise TryLaterError(f"everything else has landed; nothing is lost, what is left waits in the queue: {away}")


def _run(session: Session, worker: Worker, ports: Ports, stop: Event, ended: Callable[[], bool]) -> None:
    progress = ProgressLine("work", redraw_s=1.0)

    def over() -> bool:
        session.end_if_gone()
        if progress.due():
            with contextlib.suppress(QueueUnavailableError):
                waiting = "  ".join(f"{name} {lag:,}" for name, lag in landed.lags(ports).items())
                progress.show(f"{progress.elapsed_s():.0f} s, to do: {waiting}")
        return stop.is_set() or ended()

    worker.run(over)


def clusters_of(worker: Worker, ports: Ports) -> list[str]:
    """The clusters that a worker still writes."""
    running = worker.running()
    return [name for name in ports.replicas if writer_group(name) in running]


@click.command(short_help="Run one relay: from the follow store to the queue.")
@metrics_option
@pass_session
def relay(session: Session, metrics_at: str | None) -> None:
    """Run one relay: from the outboxes of the follow store to the queue. Any number may run: one at a time relays a
    shard, and another one takes over when it ends.

    \b
    Examples:
      feedctl relay
      feedctl relay --metrics 127.0.0.1:9465
    """

    def loops(ports: Ports) -> list[Loop]:
        config = session.config
        looking: list[Loop] = []
        if metrics_at or config.metrics.listen:
            looking = [*wiring.gauges(ports, config, faults=True), *wiring.canaries(ports, config)]
        return [*wiring.relays(ports, config), wiring.housekeeping(ports, config), *looking]

    _run_part(session, loops, "relay", metrics_at)


@click.command()
@metrics_option
@pass_session
def expand(session: Session, metrics_at: str | None) -> None:
    """Run one expander: from actions to deliveries. Any number may run.

    \b
    Examples:
      feedctl expand
    """
    _run_part(session, lambda ports: [wiring.expander(ports, session.config)], "expand", metrics_at)


@click.command()
@click.option("--cluster", metavar="NAME", required=True, help="The cluster to write.")
@metrics_option
@pass_session
def write(session: Session, cluster: str, metrics_at: str | None) -> None:
    """Run one writer of one cluster: from deliveries to cells. Any number may run.

    It does not start if the tables or topics would break the rules: feedctl schema check and feedctl topics check name
    the differences. If the cluster does not answer, it waits.

    \b
    Examples:
      feedctl write --cluster a
    """
    session.config.cluster(cluster)  # refuses an unknown one
    _run_part(session, lambda ports: wiring.writing(ports, session.config, cluster), "write", metrics_at, [cluster])


def _run_part(
    session: Session,
    loops: Callable[[Ports], list[Loop]],
    program: Program,
    metrics_at: str | None,
    written: Sequence[str] = (),
) -> None:
    """Runs loops in this process until a signal comes or one ends by itself. written: the clusters that they write.
    Raises WorkerFailedError, and the errors of `wiring.refuse_unsafe`.
    """
    if wiring.is_embedded(session.config):
        raise ConfigError(
            f"{session.home}: the queue or a cluster of this home is a file, so the home has one worker: feedctl work"
        )
    memory_tuning.relax()
    memory_tuning.share_heap()
    with (
        stopping() as stop,
        metering.serving(session.config, metrics_at, program) as endpoint,
        contextlib.ExitStack() as opened,
    ):
        ports = _once_servers_answer(lambda: opened.enter_context(session.working_ports("write", program)), stop)
        if ports is None:
            return
        if endpoint is not None:
            opened.enter_context(endpoint.of(ports.meter))
        wiring.refuse_unsafe(ports, session.config, written)
        worker = Worker(loops(ports), ports.meter)
        wiring.warn_of_partitions(ports, session.config)
        every = worker.running()
        worker.run(lambda: stop.is_set() or worker.running() != every)


def _once_servers_answer(open_ports: Callable[[], Ports], stop: Stop) -> Ports | None:
    """Opens ports, and tries again while the servers of the queue or of the follow store do not answer: what is started
    in an outage works when it has ended. None: it was stopped before that.

    Raises ConfigError, and what `open_ports` raises that an operator must mend (MisconfiguredError).
    """
    away = Away(time.monotonic, UNCOUNTED, "start", "servers", "start.waits", RetryPolicy(longest_s=_START_AGAIN_S))
    while not stop.is_set():
        try:
            ports = open_ports()
        except (FollowStoreUnavailableError, QueueUnavailableError) as error:
            if isinstance(error, MisconfiguredError):
                raise
            away.noted(error)
        else:
            away.ended()
            return ports
        while away.is_resting() and not stop.wait(REST_S):
            pass
    return None
