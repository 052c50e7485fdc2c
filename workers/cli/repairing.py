"""repair, rebuild, rewind: making feeds right."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from threading import Event

import click
import msgspec

from feedstore.serving.config import duration_ms
from feedstore.serving.wiring import wall_ms
from feedstore.widecolumn import UnavailableError
from workers import rebuild as rebuilding
from workers import repair as repairing
from workers import rewind as rewinding
from workers import wiring
from workers.cli.output import Progress, emit_json, note, plural, say, when
from workers.cli.running import run_until_landed, run_worker, stopping
from workers.cli.session import ID, REFUSED, NotNowError, RefusedError, Session, json_option, pass_session
from workers.cli.verifying import (
    Total,
    found,
    settle,
    show,
    spelled,
    users_option,
    verifier,
    wait_option,
)
from workers.faults import fault
from workers.home import HomeBusyError
from workers.queue.port import GroupBusyError
from workers.repair import Repairer
from workers.verify import EVERYBODY, Finding, Span
from workers.wiring import Ports

_ROUNDS = 5
"""How often repair looks again at what it has mended: what one fault hid may be the next one."""
_MENDED_MAX = 20_000
"""How many findings are kept to be looked at again; after more, everything is."""
_AT_ONCE = 100
"""How many findings are mended between two looks at the rate."""
_AUDIT = "repairs.jsonl"

Land = Callable[[], None]
"""Returns once all that was recorded and published before has landed. Raises NotNowError."""


@click.command()
@click.option("--cluster", help="Only in this cluster.  [default: in all]")
@users_option
@click.option("--dry-run", is_flag=True, help="Say what would be done, and do nothing.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), metavar="N", help="Entries a second, at most.")
@click.option(
    "--audit",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"Where each entry is noted before it is mended, as JSON lines.  [default: {_AUDIT} in the home]",
)
@wait_option
@json_option
@pass_session
def repair(
    session: Session,
    cluster: str | None,
    users: Sequence[Span] | None,
    rate: float | None,
    audit: Path | None,
    wait_s: float,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Mends what verify finds, through the same writers, and looks again until nothing is left.

    Entries that must not be there are removed by markers; what is missing is refilled; a follow whose entries a marker
    hides gets a new time of its follower's clock. Beside a running worker it leaves the writing to it; without one it
    works until everything has landed. It may be killed at any moment: run it again. The exit status is 1 if something
    is left, and with --dry-run if there is something to mend.

    \b
    Examples:
      feedctl repair --dry-run
      feedctl repair --cluster b --users 12,100-199
      feedctl repair --rate 500 --audit /var/log/feed-repairs.jsonl
    """
    if cluster is not None:
        session.refuse_unknown(cluster)
    clusters = [] if cluster is None else [cluster]
    spans = EVERYBODY if users is None else users
    if dry_run:
        _dry_run(session, clusters, spans, wait_s, as_json=as_json)
        return
    with _landing(session, wait_s) as (ports, land), _audit_log(audit or session.home / _AUDIT) as write:

        def told(some: Sequence[tuple[Finding, str]]) -> None:
            write(some)
            for finding, what in some:
                _tell(finding, what, as_json=as_json)

        repairer = Repairer(ports.follows, ports.queue, told)
        left, mended = _rounds(session, ports, repairer, clusters, spans, land, rate)
    note(f"{plural(mended, 'entry', 'entries')} mended, {plural(len(left), 'difference')} left")
    if left:
        for finding in left:
            show(finding, as_json=as_json)
        sys.exit(REFUSED)


def _dry_run(session: Session, clusters: Sequence[str], spans: Sequence[Span], wait_s: float, *, as_json: bool) -> None:
    progress, total = Progress("repair"), Total()
    with session.ports("beside") as ports:
        waits = settle(session, ports, progress, wait_s)
        now_ms = ports.follows.now()
        for finding in found(ports, session.config.limits, spans, total, progress, clusters):
            _tell(finding, repairing.plan(finding, now_ms) or repairing.left(finding), as_json=as_json)
    if waits is not None:
        note(f"what has not landed was left out; {waits}")
    note(f"{plural(total.differences, 'difference')}; nothing was done")
    if total.differences:
        sys.exit(REFUSED)


def _rounds(
    session: Session,
    ports: Ports,
    repairer: Repairer,
    clusters: Sequence[str],
    spans: Sequence[Span],
    land: Land,
    rate: float | None,
) -> tuple[list[Finding], int]:
    """Mends and looks again, until nothing is left or nothing helps. Returns what is left, and how many were mended."""
    limits = session.config.limits
    progress = Progress("repair")
    pace = _Pace(rate)
    again: list[Finding] | None = None
    count = 0
    for _ in range(_ROUNDS):
        land()
        left: list[Finding] = []
        mended: list[Finding] = []
        seen: Iterator[Finding]
        if again is None:
            seen = found(ports, limits, spans, Total(), progress, clusters)
        else:
            seen = iter(verifier(ports, limits, clusters).again(again))
        for some in _batches(seen):
            done = repairer.mend(some)
            count += len(done)
            mended += done
            left += [finding for finding in some if finding not in done]
            pace.wait(len(some))
        if not mended:
            return left, count
        again = [*mended, *left] if len(mended) + len(left) <= _MENDED_MAX else None
    land()
    return [*found(ports, limits, spans, Total(), progress, clusters)], count


def _batches(findings: Iterator[Finding]) -> Iterator[list[Finding]]:
    some: list[Finding] = []
    for finding in findings:
        some.append(finding)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    if some:
        yield some


class _Pace:
    """Waits so that no more is done a second than a rate allows."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_s = time.monotonic()

    def wait(self, count: int) -> None:
        if self._rate is not None:
            self._free_s = max(self._free_s, time.monotonic()) + count / self._rate
            time.sleep(max(0.0, self._free_s - time.monotonic()))


@contextmanager
def _landing(session: Session, wait_s: float) -> Iterator[tuple[Ports, Land]]:
    """The ports of a home, and what lands what was published: a worker of our own if nobody else can."""
    with ExitStack() as stack:
        ports = stack.enter_context(session.ports("beside"))
        progress = Progress("repair")
        _refuse_damaged(ports)
        if wiring.is_embedded(session.config):
            try:
                lock = stack.enter_context(session.lock())
            except HomeBusyError:
                pass
            else:
                yield ports, partial(_work, session, lock)
                return

        def wait() -> None:
            waits = settle(session, ports, progress, wait_s)
            if waits is not None:
                raise NotNowError(f"the worker has ended: {waits}; then run this again")

        yield ports, wait


def _refuse_damaged(ports: Ports) -> None:
    """What is published for a damaged cluster would wait until it is made anew."""
    for replica in ports.replicas.values():
        wrong = fault(replica, ports.queue, lambda: False)
        if wrong is not None and not wrong.is_mended_by_writers:
            raise RefusedError(wrong.message)


def _work(session: Session, lock: int) -> None:
    with stopping() as stop, session.ports("beside", feeds=False) as ports:
        run_worker(session, ports, lock, stop, until_idle=True)


@contextmanager
def _audit_log(path: Path) -> Iterator[repairing.Note]:
    """Appends lines to a file; they are on disk when the call returns."""
    encoder = msgspec.json.Encoder()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:

        def write(some: Sequence[tuple[Finding, str]]) -> None:
            now_ms = wall_ms()
            lines = memoryview(encoder.encode_lines([repairing.audited(*each, now_ms) for each in some]))
            while lines:
                lines = lines[os.write(file, lines) :]
            os.fdatasync(file)

        yield write
    finally:
        os.close(file)


def _tell(finding: Finding, what: str, *, as_json: bool) -> None:
    if as_json:
        emit_json(repairing.audited(finding, what, wall_ms()))
    else:
        say(f"{finding.cluster}  user {finding.user}  {finding.kind:<7}  pin {finding.pin}: {what}")


@click.command()
@click.argument("user", type=ID, required=False)
@click.option("--all", "everybody", is_flag=True, help="The feeds of all users.")
@click.option("--cluster", help="Only in this cluster.  [default: in all]")
@pass_session
def rebuild(session: Session, user: int | None, *, everybody: bool, cluster: str | None) -> None:
    """Writes the feed of USER, or all feeds, again from the follow store.

    While a worker holds the home this is queued to it; otherwise it is done at once, and the exit status is 1 if a
    difference is left that no refill mends (feedctl repair does). With --all and --cluster, a
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
        _refuse_left(session, EVERYBODY if user is None else [Span(user, user)], [] if cluster is None else [cluster])
        note("rebuilt")
    except HomeBusyError as error:
        with session.ports("beside") as ports:
            gone = [name for name in _named(ports, cluster) if rebuilding.needs_new(ports, session.config, name)]
            if gone:
                raise HomeBusyError(f"{error}; to make {', '.join(gone)} anew, stop it first", error.pid) from error
            _ask(ports, user, cluster)
        note(f"asked; the worker (pid {error.pid or 'unknown'}) does it: feedctl verify says whether anything is left")


def _refuse_left(session: Session, spans: Sequence[Span], clusters: Sequence[str]) -> None:
    """Names the differences that are left, and what mends them. Raises RefusedError if there are any."""
    total = Total()
    with session.ports("beside") as ports:
        for finding in found(ports, session.config.limits, spans, total, Progress("verify"), clusters):
            show(finding, as_json=False)
    if total.differences:
        words = ["feedctl repair", *(f"--cluster {name}" for name in clusters)]
        words += [f"--users {spelled(spans)}"] if spans is not EVERYBODY else []
        raise RefusedError(f"{plural(total.differences, 'difference')} left, which no refill mends: {' '.join(words)}")


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


COMMANDS = (repair, rebuild, rewind)
