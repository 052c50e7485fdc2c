"""repair: mends what verify finds."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path

import click
import msgspec

from feedstore import durable
from feedstore.app.wiring import monotonic_s
from feedstore.clocks import wall_ms
from workers.app import metering, wiring
from workers.app.home import HomeBusyError
from workers.app.metering import MetricsEndpoint
from workers.app.writer_process import WriterProcess
from workers.cli.output import ProgressLine, emit_json, heartbeat, note, plural, say
from workers.cli.session import REFUSED, CommandRefusedError, Parsed, Session, TryLaterError, json_option, pass_session
from workers.cli.signals import stopping
from workers.cli.verify import (
    Total,
    cluster_option,
    found,
    saying_how_to_ask_one,
    settle,
    show,
    users_option,
    verifier,
    wait_option,
)
from workers.cli.work import refuse_shards_apart, work_until_landed
from workers.following import repair as repairing
from workers.following.faults import fault
from workers.following.ports import Ports
from workers.following.repair import Repairer
from workers.following.verify import EVERYBODY, Finding, UserRange

_ROUNDS = 5
"""Repair looks again at the feeds that it has mended at most this often: one fault may have hidden another."""

_MENDED_MAX = 20_000
"""The most findings that are kept for the next look. If there are more, everything is looked at again."""

_AT_ONCE = 100
"""This many findings are mended between two checks of the rate."""

_AUDIT = "repairs.jsonl"
_RATE_MIN = 0.001


def _rate(text: str) -> float:
    """How many a second. For a smaller number the system could not wait long enough; `nan` is none."""
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not rate >= _RATE_MIN:
        raise ValueError(f"expected a number of entries, {_RATE_MIN} or more, got {text!r}")
    return rate


Land = Callable[[], None]
"""Waits until all that was recorded and published before has landed. Raises TryLaterError."""


@click.command(short_help="Repair what verify finds.")
@cluster_option
@users_option
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@click.option("--rate", type=Parsed("rate", _rate), metavar="N", help="How many entries to repair a second at most.")
@click.option(
    "--audit",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The file that records each entry before it is repaired, as JSON lines.  [default: {_AUDIT} in the home]",
)
@wait_option
@json_option
@pass_session
def repair(
    session: Session,
    cluster: str | None,
    users: Sequence[UserRange] | None,
    rate: float | None,
    audit: Path | None,
    wait_s: float,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Repair what verify finds, through the same writers, and check again until nothing is left.

    Delete markers remove the wrong entries, and refills bring the missing ones back. If a delete marker hides the
    entries of a follow, that follow gets a new time of its follower's clock. If a worker runs, it does the writing.
    Otherwise this command works until everything has landed. If the command is killed, run it again. The exit status is
    1 if a difference is left or, with --dry-run, if there is something to repair. With --dry-run it is 3 if nothing is
    wrong so far but work is waiting, so that there is no answer yet.

    \b
    Examples:
      feedctl repair --dry-run
      feedctl repair --cluster b --users 12,100-199
      feedctl repair --rate 500 --audit /var/log/feed-repairs.jsonl
    """
    clusters = session.clusters(cluster)
    spans = EVERYBODY if users is None else users
    with saying_how_to_ask_one(session, cluster, "repair"):
        if dry_run:
            _dry_run(session, clusters, spans, wait_s, as_json=as_json)
            return
        with _landing(session, clusters, wait_s) as (ports, land), _audit_log(audit or session.home / _AUDIT) as write:

            def told(some: Sequence[tuple[Finding, str]]) -> None:
                write(some)
                for finding, what in some:
                    _tell(finding, what, as_json=as_json)

            repairer = Repairer(ports.follows, ports.queue, told)
            left, mended = _rounds(session, ports, repairer, spans, land, rate)
    note(f"{plural(mended, 'entry', 'entries')} repaired, {plural(len(left), 'difference')} left")
    if left:
        for finding in left:
            show(finding, as_json=as_json)
        sys.exit(REFUSED)


def _dry_run(
    session: Session, clusters: Sequence[str], spans: Sequence[UserRange], wait_s: float, *, as_json: bool
) -> None:
    progress, total = ProgressLine("repair"), Total()
    heartbeat()
    with session.ports("read", clusters) as ports:
        waits = settle(session, ports, progress, wait_s)
        now_ms = ports.follows.now()
        for finding in found(ports, session.config.limits, spans, total, progress):
            _tell(finding, repairing.plan(finding, now_ms) or repairing.left(finding), as_json=as_json)
    if waits is not None:
        if not total.differences:
            raise TryLaterError(f"nothing is wrong with what has landed; {waits}")
        note(f"what has not landed was not compared; {waits}")
    note(f"{plural(total.differences, 'difference')}; nothing was done")
    if total.differences:
        sys.exit(REFUSED)


def _rounds(
    session: Session,
    ports: Ports,
    repairer: Repairer,
    spans: Sequence[UserRange],
    land: Land,
    rate: float | None,
) -> tuple[list[Finding], int]:
    """Mends and looks again, until nothing is left or nothing helps. Returns what is left, and how many were mended."""
    limits = session.config.limits
    progress = ProgressLine("repair")
    pace = _Pace(rate)
    again: list[Finding] | None = None
    # By cluster, since the last look at everything: a look at some rows again may not meet the damage.
    damaged: dict[str, Finding] = {}
    count = 0
    for _ in range(_ROUNDS):
        land()
        mended = 0
        # All findings, and those for which nothing was done; if there are too many, none are kept.
        found_now: list[Finding] = []
        left: list[Finding] = []
        too_many = False
        seen: Iterator[Finding]
        if again is None:
            damaged.clear()
            seen = found(ports, limits, spans, Total(), progress)
        else:
            seen = iter(verifier(ports, limits).again(again))
        while some := list(islice(seen, _AT_ONCE)):
            done = repairer.mend(some)
            mended += len(done)
            damaged.update((finding.cluster, finding) for finding in some if finding.kind == "damaged")
            too_many = too_many or len(found_now) + len(some) > _MENDED_MAX
            if too_many:
                found_now, left = [], []
            else:
                found_now += some
                left += [finding for finding in some if finding not in done and finding.kind != "damaged"]
            pace.wait(len(some))
        count += mended
        if not mended and not too_many:
            return [*damaged.values(), *left], count
        if not mended:
            break
        again = None if too_many else found_now
    land()
    return [*found(ports, limits, spans, Total(), progress)], count


class _Pace:
    """Waits so that no more is done per second than a rate allows."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._free_s = time.monotonic()

    def wait(self, count: int) -> None:
        if self._rate is not None:
            self._free_s = max(self._free_s, time.monotonic()) + count / self._rate
            time.sleep(max(0.0, self._free_s - time.monotonic()))


@contextmanager
def _landing(session: Session, clusters: Sequence[str], wait_s: float) -> Iterator[tuple[Ports, Land]]:
    """Opens a home with some of its clusters; gives its ports, and a function that waits until all that was published
    has landed in these. If no worker runs, the function runs one.
    """
    with ExitStack() as stack:
        writers: Sequence[WriterProcess] | None = None
        endpoint: MetricsEndpoint | None = None
        if wiring.is_embedded(session.config):
            with suppress(HomeBusyError):
                stack.enter_context(session.lock())
                writers = stack.enter_context(session.writers())
                endpoint = stack.enter_context(metering.serving(session.config, None, "work"))
        heartbeat()
        ports = stack.enter_context(session.ports("read", clusters))
        progress = ProgressLine("repair")
        _refuse_damaged(ports)
        if writers is not None:
            refuse_shards_apart(ports)
            yield ports, partial(_work, session, clusters, writers, endpoint)
            return

        def wait() -> None:
            waits = settle(session, ports, progress, wait_s)
            if waits is not None:
                raise TryLaterError(f"the worker has ended: {waits}; then run this again")

        yield ports, wait


def _refuse_damaged(ports: Ports) -> None:
    """Raises if a cluster is damaged: messages for it would wait until it is created again."""
    for replica in ports.replicas.values():
        wrong = fault(replica, ports.queue, monotonic_s, 0.0)
        if wrong is not None and not wrong.is_mended_by_writers:
            raise CommandRefusedError(wrong.message)


def _work(
    session: Session, clusters: Sequence[str], writers: Sequence[WriterProcess], endpoint: MetricsEndpoint | None
) -> None:
    with stopping() as stop, session.ports("read", feeds=False) as ports:
        work_until_landed(session, ports, clusters, writers, stop, endpoint)


@contextmanager
def _audit_log(path: Path) -> Iterator[repairing.Note]:
    """Opens the audit log; gives a function that appends lines, which are on disk when it returns."""
    encoder = msgspec.json.Encoder()
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:

        def write(some: Sequence[tuple[Finding, str]]) -> None:
            now_ms = wall_ms()
            lines = memoryview(encoder.encode_lines([repairing.audited(*each, now_ms) for each in some]))
            with durable.named(path):
                while lines:
                    lines = lines[os.write(file, lines) :]
                os.fdatasync(file)

        yield write
    finally:
        os.close(file)


def _tell(finding: Finding, what: str, *, as_json: bool) -> None:
    if as_json:
        emit_json(repairing.audited(finding, what, wall_ms()))
    elif finding.kind == "damaged":
        say(f"{finding.cluster}  damaged: {finding.why}: {what}")
    else:
        say(f"{finding.cluster}  user {finding.user}  {finding.kind:<7}  pin {finding.pin}: {what}")
