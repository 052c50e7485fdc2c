"""verify: finds out whether the feeds are right."""

import contextlib
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

import click

from feedstore.app.wiring import monotonic_s
from feedstore.errors import MisconfiguredError
from feedstore.following import FEEDS, Limits
from feedstore.follows.store import FollowStore
from feedstore.settings import duration_ms
from feedstore.widecolumn import UnavailableError
from workers.app import memory_tuning, wiring
from workers.cli.output import ProgressLine, answer, emit_json, note, plural, say, when
from workers.cli.session import ID, REFUSED, Parsed, Session, TryLaterError, json_option, pass_session, read_id
from workers.following.expected import followers
from workers.following.faults import fault
from workers.following.landed import Waiting, lags, landed_before, waiting
from workers.following.ports import Ports
from workers.following.verify import EVERYBODY, Finding, Seen, UserRange, Verifier

_AGAIN_S = 0.1
_AGAIN_MAX_S = 1.0
"""The time between two looks at how far the clusters are, at first and later: each look is work for the stores."""


def _users(text: str) -> Sequence[UserRange]:
    """Ids and ranges of ids: 5,10-20."""
    spans: list[UserRange] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        span = UserRange(read_id(first), read_id(last if dash else first))
        if span.first > span.last:
            raise ValueError(f"{part!r}: expected the smaller id first, as in 10-20")
        spans.append(span)
    return _ascending(spans)


def _ascending(spans: Sequence[UserRange]) -> list[UserRange]:
    """The same users in ascending order, each once."""
    found: list[UserRange] = []
    for first, last in sorted(spans):
        if found and first <= found[-1].last:
            found[-1] = UserRange(found[-1].first, max(last, found[-1].last))
        else:
            found.append(UserRange(first, last))
    return found


def spelled(spans: Sequence[UserRange]) -> str:
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


cluster_option = click.option("--cluster", metavar="NAME", help="Only in this cluster.  [default: in all]")
users_option = click.option("--users", type=Parsed("ids", _users), help="Only these ids, or ranges of ids: 5,10-20.")


def _wait_s(text: str) -> float:
    """A duration, or a number of seconds, which may be 0."""
    try:
        seconds = float(text)
    except ValueError:
        return duration_ms(text) / 1_000
    if not 0 <= seconds < math.inf:
        raise ValueError(f"expected a duration such as '90s', or a number of seconds from 0, got {text!r}")
    return seconds


wait_option = click.option(
    "--wait",
    "wait_s",
    type=Parsed("duration", _wait_s),
    default="120s",
    show_default=True,
    help="How long to wait for a running worker, such as 90s or 5m; 0: do not wait.",
)


@contextlib.contextmanager
def saying_how_to_ask_one(session: Session, cluster: str | None, command: str) -> Iterator[None]:
    """If a cluster does not answer, the error says how to leave it out. cluster: the one that was asked for alone, if
    any.
    """
    try:
        yield
    except UnavailableError as error:
        if cluster is not None or len(session.config.clusters) == 1 or isinstance(error, MisconfiguredError):
            raise
        raise TryLaterError(f"{error}; to leave out what does not answer: feedctl {command} --cluster NAME") from error


@click.command(short_help="Compare every feed with what the follow store says.")
@cluster_option
@users_option
@click.option("--sample", type=click.IntRange(1, 100_000), metavar="N", help="Check N users, chosen at random.")
@click.option("--seed", type=int, help="Seed of the sample: the same seed chooses the same users.  [default: random]")
@click.option("--resume", type=ID, metavar="ID", help="Continue after this user: an interrupted verify prints it.")
@wait_option
@json_option
@pass_session
def verify(
    session: Session,
    cluster: str | None,
    users: Sequence[UserRange] | None,
    sample: int | None,
    seed: int | None,
    resume: int | None,
    wait_s: float,
    *,
    as_json: bool,
) -> None:
    """Compare every feed of every cluster with what the follow store says it must hold.

    The command names each wrong entry, with the action or the delete marker that explains it. The kinds of
    wrong entries are: missing, masked, extra, displaced, of an unknown user, and differs, which is a pin at another
    time (docs/recovering.md). Actions may be recorded while the command runs: if an action that is still on its way
    explains an entry, the entry is not wrong. The exit status is 1 if there are wrong entries. It is 3 if there is no
    answer yet, because work is waiting. After Ctrl-C, the command prints how to continue.

    \b
    Examples:
      feedctl verify
      feedctl verify --users 12,100-199
      feedctl verify --sample 1000 --seed 7
      feedctl verify --cluster a
      feedctl verify --json > differences.jsonl
    """
    if users is not None and sample is not None:
        raise click.UsageError("give either --users or --sample")
    if seed is not None and sample is None:
        raise click.UsageError("--seed chooses a sample: give --sample with it")
    memory_tuning.relax()
    progress = ProgressLine("verify")
    chosen_cluster = [] if cluster is None else [f"--cluster {cluster}"]
    with (
        saying_how_to_ask_one(session, cluster, "verify"),
        session.ports("read", session.clusters(cluster)) as ports,
    ):
        _refuse_faults(ports, running=session.worker() is not None, as_json=as_json)
        left = settle(session, ports, progress, wait_s)
        words: list[str] = []
        if sample is not None:
            seed = random.SystemRandom().randrange(2**32) if seed is None else seed
            users = chosen(ports.follows, sample, seed)
            words = [f"--sample {sample} --seed {seed}"]
            note(f"{plural(len(users), 'user')}, chosen with the seed {seed}")
        elif users is not None:
            words = [f"--users {spelled(users)}"]
        spans = EVERYBODY if users is None else users
        total = Total(resume or 0)
        try:
            for finding in found(ports, session.config.limits, spans, total, progress):
                show(finding, as_json=as_json)
        except KeyboardInterrupt:
            progress.clear()
            mark = [f"--resume {total.up_to}"] if total.up_to else []
            note(" ".join(["continue with: feedctl verify", *chosen_cluster, *words, *mark]))
            raise
    _report(total, left, as_json=as_json)


def _refuse_faults(ports: Ports, *, running: bool, as_json: bool) -> None:
    """Ends the command if a cluster cannot be compared, because its own notes say that it lacks something."""
    faults = [(name, fault(replica, ports.queue, monotonic_s, 0.0)) for name, replica in ports.replicas.items()]
    mended = [found.message for _, found in faults if found is not None and found.is_mended_by_writers]
    if mended and not running:
        raise TryLaterError("; ".join(mended))
    damaged = [(name, found.message) for name, found in faults if found is not None and not found.is_mended_by_writers]
    for name, message in damaged:
        value = {"cluster": name, "kind": "damaged", "detail": message}
        answer(value, f"{name}  damaged  {message}", as_json=as_json)
    if damaged:
        sys.exit(REFUSED)


MANY_USERS = 1_000
"""After this many users a message says if most of them lack entries in a cluster."""


class Total:
    """The counts of a look so far. up_to: all users up to it are done. lacking: how many lack entries, by cluster."""

    def __init__(self, after_user: int = 0) -> None:
        self.users = self.entries = self.suspects = self.differences = 0
        self.up_to = after_user
        self.lacking: Counter[str] = Counter()
        self._told: set[str] = set()

    def add(self, seen: Seen) -> None:
        self.users, self.entries, self.suspects = seen.users, seen.entries, seen.suspects
        self.differences += len(seen.findings)
        self.up_to = max(self.up_to, seen.up_to)
        # All findings about a user come together.
        self.lacking.update(
            cluster for cluster, _ in {(f.cluster, f.user) for f in seen.findings if f.kind == "missing"}
        )

    def newly_lost(self) -> list[str]:
        """The clusters in which most feeds are found to lack entries, each once. The user should know: looking at each
        entry takes long, and a rebuild need not look.
        """
        lost = [
            name
            for name, lacking in self.lacking.items()
            if self.users >= MANY_USERS and 2 * lacking > self.users and name not in self._told
        ]
        self._told.update(lost)
        return lost


def found(
    ports: Ports,
    limits: Limits,
    spans: Sequence[UserRange],
    total: Total,
    progress: ProgressLine,
) -> Iterator[Finding]:
    """Yields the faults in the feeds of some users, as they are found."""
    for seen in verifier(ports, limits).look(spans, total.up_to):
        progress.clear()
        yield from seen.findings
        # Only now: findings that were not told yet must be found again if this ends.
        total.add(seen)
        for name in total.newly_lost():
            note(
                f"{total.lacking[name]:,} of {total.users:,} users lack entries in cluster {name}: to refill all feeds"
                f" there without comparing each, end this (Ctrl-C), and then: feedctl rebuild --all --cluster {name}"
            )
        if progress.due():
            rate = total.entries / max(0.001, progress.elapsed_s())
            counts = f"{total.users:,} users, {total.entries:,} entries, {rate:,.0f} a second"
            progress.show(f"{counts}, {plural(total.differences, 'difference')}")
    progress.clear()


def verifier(ports: Ports, limits: Limits) -> Verifier:
    tables = {name: each.tables[FEEDS] for name, each in ports.replicas.items()}
    return Verifier(ports.follows, tables, limits.cap, lambda: landed_before(ports))


def settle(session: Session, ports: Ports, progress: ProgressLine, wait_s: float) -> str | None:
    """Waits until everything that committed before now has landed in every cluster. If there is no worker that could
    land it, returns at once what waits.

    Raises TryLaterError: a worker runs, or may run elsewhere, and it has not landed in time.
    """
    now_ms = ports.follows.now()
    deadline = time.monotonic() + wait_s
    again_s = _AGAIN_S
    while True:
        alone = session.worker() is None and wiring.is_embedded(session.config)
        before_ms = landed_before(ports)
        left = waiting(ports) if alone else Waiting({}, None)
        if left.work:
            return f"work is waiting, and no worker runs ({counted(left.work)}): {_WORK}"
        # While refills wait, the outbox and the settled times stay as they are.
        until_ms = min(now_ms, left.refills_ms or now_ms)
        late = [name for name, before in before_ms.items() if before < until_ms]
        if not late:
            return None
        if alone and left.refills_ms is not None:
            return f"cluster {', '.join(late)} waits for a refill after an unfollow, and no worker runs: {_WORK}"
        if time.monotonic() >= deadline:
            left_now = counted(lags(ports)) or "nothing"
            why = session.worker_stopped()
            raise TryLaterError(
                f"cluster {', '.join(late)} is still behind after {wait_s:g} s (left to do: {left_now}): "
                + ("check that workers run, then look again" if why is None else f"the worker has stopped: {why}")
            )
        if progress.due():
            progress.show(f"waits until cluster {', '.join(late)} has everything before {when(until_ms)} UTC")
        time.sleep(again_s)
        again_s = min(2 * again_s, _AGAIN_MAX_S)


_WORK = "first run feedctl work --until-idle"


def counted(work: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in work.items() if count)


def chosen(follows: FollowStore, count: int, seed: int) -> list[UserRange]:
    """Chooses `count` of the users who follow anything, at random, each with the same chance."""
    rng = random.Random(seed)  # noqa: S311 - one seed must always give the same users
    users: list[int] = []
    for number, user in enumerate(chain.from_iterable(followers(follows))):
        place = number if number < count else rng.randrange(number + 1)
        if place == len(users):
            users.append(user)
        elif place < count:
            users[place] = user
    return [UserRange(user, user) for user in sorted(users)]


def show(finding: Finding, *, as_json: bool) -> None:
    if as_json:
        emit_json(finding._asdict() | {"row": finding.row.hex()})
    elif finding.kind == "damaged":
        say(f"{finding.cluster}  damaged: {finding.why}")
    else:
        user, cluster, kind, pin, created_ms = finding[:5]
        say(f"{cluster}  user {user}  {kind:<7}  pin {pin}  of {when(created_ms)}: {finding.why}")


def _report(total: Total, left: str | None, *, as_json: bool) -> None:
    if as_json:
        counts = {"users": total.users, "entries": total.entries}
        emit_json(counts | {"differences": total.differences, "suspects": total.suspects})
    seen = f"{plural(total.users, 'user')}, {plural(total.entries, 'entry', 'entries')} compared"
    differences = plural(total.differences, "difference") if total.differences else "no difference"
    if left is not None:
        if not total.differences:
            raise TryLaterError(f"{seen}: nothing is wrong with what has landed; {left}")
        note(f"what has not landed was not compared; {left}")
    if not as_json:
        note(f"{seen}: {differences}")
    if total.differences:
        sys.exit(REFUSED)
