"""Servers and workers killed in turn while a trace runs: nothing that was acknowledged is lost, nothing extra appears,
the clusters are equal (rules 1, 11 and 12). What must be there is computed from the notes of the recorder.
"""

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from deploy.local import Stack
from feedstore.following import FEEDS, entries_of, is_witness
from feedstore.widecolumn import DeleteColumns
from tests.cli.command import Cli
from tests.feed_rows import user_of
from tests.stack import homes, traces
from tests.stack.homes import Part
from tests.stack.own_home import own_home
from tests.stack.recording import Recorder
from workers.following.groups import EXPANDER
from workers.following.ports import Ports
from workers.following.topics import ACTIONS, DELIVERIES
from workers.queue.port import Topic, lag_of

pytestmark = [pytest.mark.stack, pytest.mark.alone, pytest.mark.timeout(600)]

SERVERS = {
    # What is killed; what is at work then; what is left undone while it is away.
    "hbase-a": ("writer-a", "writer-a"),
    "thrift2-a": ("writer-a", "writer-a"),
    "kafka": ("expander", "relay"),
}
PARTS = ("relay", "expander", "writer-a", "writer-b")
SUSPENDED = {
    # What is suspended: its command, and what it reads.
    "expander": (("expand",), ACTIONS),
    "writer-b": (("write", "--cluster", "b"), DELIVERIES),
}
POLL_INTERVAL_MS = 12_000
"""Of those; more than the session that a silent member has, so that both are over."""
TICKS = 32
"""More messages than the ticks that may be under way with actions."""
SHARE_MAX = 1_000
DRILLS = len(SERVERS) + 1 + len(PARTS) + 2 + 2 * len(SUSPENDED) + 1


@dataclass(frozen=True)
class Pipeline:
    """A home on the stack with a process for each part of a worker. share: how many lines each drill records."""

    stack: Stack
    cli: Cli
    ports: Ports
    parts: dict[str, Part]
    recorder: Recorder
    share: int

    def waiting(self, name: str) -> int:
        """How much is left for a part to do."""
        if name == "relay":
            return self.ports.follows.backlog().actions
        if name == "expander":
            return lag_of(self.ports.queue, ACTIONS, EXPANDER)
        return lag_of(self.ports.queue, DELIVERIES, name)

    def positions(self, topic: Topic[object], group: str) -> dict[int, int]:
        """Where a group continues, by partition."""
        return homes.eventually(lambda: self.ports.queue.positions(topic, group), "the broker answers")

    def begin(self, busy: str) -> None:
        """Returns in the middle of the work on the first half of this drill's actions, or at its end where the work is
        too fast to be caught.
        """
        self.recorder.allow(self.share // 2)
        homes.eventually(lambda: self.waiting(busy) > TICKS or self.recorder.done(), f"{busy} has something to do")

    def go_on(self) -> None:
        """Returns when the second half is acknowledged."""
        self.recorder.allow(self.share - self.share // 2)
        homes.eventually(self.recorder.done, "all actions are acknowledged")

    def check(self) -> None:
        homes.landed(self.ports)
        assert [part.name for part in self.parts.values() if not part.running()] == []
        cap = homes.config_of(self.cli).limits.cap
        homes.check(self.cli, traces.model(self.recorder.acknowledged(), cap))

    def drill(self, busy: str, kill: Callable[[], None], undone: str, start: Callable[[], None]) -> None:
        with homes.telling(self.stack, list(self.parts.values())):
            self.begin(busy)
            kill()
            try:
                self.go_on()
                homes.eventually(lambda: self.waiting(undone) > TICKS, f"something waits for {undone}")
            finally:
                start()
            self.check()


@pytest.fixture(scope="module")
def pipeline(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    directory = tmp_path_factory.mktemp("kills")
    trace = traces.made_up()
    with own_home(stack, directory / "home") as cli:
        parts = homes.parts_of(cli)
        recorder = Recorder(homes.config_of(cli), trace, directory / "acks")
        with cli.ports() as ports, homes.running(list(parts.values())), recorder:
            with homes.telling(stack, list(parts.values())):
                homes.landed(ports)
            yield Pipeline(stack, cli, ports, parts, recorder, min(SHARE_MAX, len(trace) // DRILLS))


@pytest.mark.parametrize("server", SERVERS)
def test_rule_11_a_server_that_is_killed(pipeline: Pipeline, server: str) -> None:
    busy, undone = SERVERS[server]
    stack = pipeline.stack
    pipeline.drill(busy, lambda: stack.kill(server), undone, stack.up)


def test_rule_11_the_database_killed(pipeline: Pipeline) -> None:
    recorder = pipeline.recorder
    with homes.telling(pipeline.stack, list(pipeline.parts.values())):
        pipeline.begin("expander")
        before = recorder.unanswered
        pipeline.stack.kill("mariadb")
        try:
            recorder.allow(pipeline.share - pipeline.share // 2)
            homes.eventually(lambda: recorder.unanswered > before, "the database is missed")
            assert not recorder.done()
        finally:
            pipeline.stack.up("mariadb")
        homes.eventually(recorder.done, "all actions are acknowledged")
        pipeline.check()


@pytest.mark.parametrize("name", PARTS)
def test_rule_11_a_worker_that_is_killed(pipeline: Pipeline, name: str) -> None:
    part = pipeline.parts[name]
    pipeline.drill(name, part.kill, name, part.start)


@pytest.mark.parametrize("server", ["mariadb", "kafka"])
def test_rule_12_workers_that_are_started_while_a_server_is_away(pipeline: Pipeline, server: str) -> None:
    started = [pipeline.parts[name] for name in PARTS]
    before = {part.name: part.waits() for part in started}
    with homes.telling(pipeline.stack, started):
        pipeline.begin("expander")
        for part in started:
            part.kill()
        pipeline.stack.kill(server)
        try:
            for part in started:
                part.start()
            for part in started:
                homes.eventually(lambda part=part: part.waits() > before[part.name], f"{part.name} waits for {server}")
        finally:
            pipeline.stack.up(server)
        pipeline.go_on()
        pipeline.check()


@pytest.mark.parametrize("name", SUSPENDED)
def test_rule_1_a_worker_suspended_past_its_poll_interval(pipeline: Pipeline, name: str) -> None:
    """Others take its work over; when it comes back it leaves theirs alone, and is one of them again."""
    part = pipeline.parts[name]
    words, topic = SUSPENDED[name]
    hasty = Part(pipeline.cli, f"{name}-hasty", *words, environ={"FEED_QUEUE_URL": hasty_url(pipeline.cli)})
    with homes.telling(pipeline.stack, [*pipeline.parts.values(), hasty]), homes.running([hasty]):
        homes.eventually(hasty.gained, f"{hasty.name} has partitions")
        homes.landed(pipeline.ports)
        gained, gave_up = hasty.gained(), hasty.gave_up()
        pipeline.begin(name)
        hasty.signal(signal.SIGSTOP)
        until_s = time.monotonic() + 1.25 * POLL_INTERVAL_MS / 1_000
        pipeline.go_on()
        # A watermark takes a tick through each partition: all of them have gone to the other one.
        homes.landed(pipeline.ports)
        homes.eventually(lambda: time.monotonic() > until_s, "the poll interval is over")

        before = pipeline.positions(topic, name)
        hasty.signal(signal.SIGCONT)

        def back() -> bool:
            nonlocal before
            now = pipeline.positions(topic, name)
            assert all(now[place] >= at for place, at in before.items()), (before, now)
            before = now
            return hasty.gave_up() > gave_up and hasty.gained() > gained

        homes.eventually(back, f"{hasty.name} has joined again")
        pipeline.check()

        # From now on everything has to come through the one that was suspended.
        assert part.end() == 0
        try:
            pipeline.go_on()
            homes.landed(pipeline.ports)
        finally:
            part.start()
        pipeline.check()
        assert hasty.end() == 0


def hasty_url(cli: Cli) -> str:
    """The queue of a home, for a worker that has to ask sooner than others."""
    return f"{homes.config_of(cli).queue}&max_poll_interval_ms={POLL_INTERVAL_MS}"


def test_the_check_notices_a_removed_cell(pipeline: Pipeline) -> None:
    """The last one of this module: it leaves cluster b as it must not be."""
    with homes.telling(pipeline.stack, list(pipeline.parts.values())):
        pipeline.begin("relay")
        pipeline.go_on()
        pipeline.check()
        cap = homes.config_of(pipeline.cli).limits.cap
        wanted = traces.model(pipeline.recorder.acknowledged(), cap)
        feeds = pipeline.ports.replicas["b"].tables[FEEDS]
        row = next(row for row, _ in feeds.scan() if not is_witness(row))
        cell = feeds.cells(row)[0]
        [entry] = entries_of([cell.column])
        feeds.apply([DeleteColumns([(row, cell.timestamp)], [cell.column])])

        found = pipeline.cli("verify", code=1)

        [difference] = found.stdout.splitlines()
        named = difference.split()
        assert named[:6] == ["b", "user", str(user_of(row)), "masked", "pin", str(entry.pin)]
        homes.assert_same(homes.exported(pipeline.cli, "a"), wanted, "cluster a")
        with pytest.raises(AssertionError, match="the first difference is in line"):
            homes.assert_same(homes.exported(pipeline.cli, "b"), wanted, "cluster b")
