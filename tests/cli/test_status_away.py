"""What `status` and `top` still say if a part of a system is away, or hangs."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import pytest

from feedstore.app import config as configuration
from feedstore.errors import NotNowError
from feedstore.following import FEEDS
from feedstore.follows.port import FollowStoreUnavailableError
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import UnavailableError
from feedstore.widecolumn.progress import PROGRESS
from tests.cli.command import DEADLINE_S, Cli, eventually
from tests.replicas.files import empty as emptied
from workers.cli.condition import Condition, look, problems
from workers.cli.looks import BegunLook, Looks, NoAnswer
from workers.cli.top import LastLook, rendered
from workers.following.ports import Ports
from workers.following.topics import DELIVERIES
from workers.queue.port import PartitionsAwayError, QueueUnavailableError, Topic

NO_QUEUE = "kafka://127.0.0.1:1"
NO_SHARDS = '["mysql://feed@127.0.0.1:1/f0", "mysql://feed@127.0.0.1:1/f1"]'
T = TypeVar("T")
GROUPS = ["relay", "expander", "writer-a", "retries-a", "writer-b", "retries-b"]


class Failing:
    """A port of which some calls raise, or hang; None: all."""

    def __init__(self, real: Any, call: Callable[..., Any], *names: str) -> None:
        self._real = real
        self._call = call
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return self._call if not self._names or name in self._names else getattr(self._real, name)


def raising(error: Exception) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> None:
        raise error

    return call


QUEUE_AWAY: Any = Failing(None, raising(QueueUnavailableError("the brokers are gone")))


def looked(cli: Cli, ports: Ports, *, looks: Looks | None = None) -> Condition:
    config = configuration.load(cli.home, {})
    return look(ports, config, 0.0, looks or Looks(DEADLINE_S))


class HastyLooks(Looks):
    """Only for some parts it waits as long as they take to answer."""

    def __init__(self, within_s: float, answer: Collection[str]) -> None:
        super().__init__(within_s)
        self._answer = answer
        self._patient = Looks(DEADLINE_S)

    def begin(self, part: str, look: Callable[[], T]) -> BegunLook[T]:
        return self._patient.begin(part, look) if part in self._answer else super().begin(part, look)


def with_tables(ports: Ports, table: str, change: Callable[[str, Any], Any]) -> Ports:
    """The ports, with another table in each cluster."""
    replicas = {
        name: Replica(name, {**each.tables, table: change(name, each.tables[table])})
        for name, each in ports.replicas.items()
    }
    return replace(ports, replicas=replicas)


@contextmanager
def hanging() -> Iterator[Callable[..., Any]]:
    """A call that hangs until the block ends."""
    ended = threading.Event()

    def call(*_: object, **__: object) -> None:
        ended.wait(DEADLINE_S)
        raise NotNowError("it hung")

    try:
        yield call
    finally:
        ended.set()


@pytest.fixture
def _no_brokers(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_QUEUE_URL", NO_QUEUE)
    monkeypatch.setattr("workers.queue.kafka.queue.REQUEST_MS", 100)
    monkeypatch.setattr("workers.queue.kafka.dead_letters.REQUEST_MS", 100)


@pytest.mark.usefixtures("_no_brokers")
def test_without_brokers_status_shows_everything_else(filled: Cli) -> None:
    said = filled("status", code=1).stdout
    found = filled.json("status", code=1)

    assert "cluster   a: has everything before" in said
    assert "cluster   b: has everything before" in said
    assert "follows   2 edges" in said
    assert "to do     relay 0, expander unknown, writer-a unknown" in said
    assert "dead      unknown" in said
    assert f"problem   the queue does not answer: {NO_QUEUE}" in said
    assert list(found["groups"]) == GROUPS
    assert found["groups"] == {"relay": 0, **dict.fromkeys(GROUPS[1:])}
    assert (found["idle"], found["dead_letters"], found["members"]) == (None, None, {})
    assert found["counts"]["edges_active"] == 2
    assert all(each["behind_ms"] is not None for each in found["clusters"].values())
    assert list(found["away"]) == ["queue"], "the dead letters are in the queue"
    assert found["problems"] == list(found["away"].values())


class Leaderless:
    """A queue of which a partition of the deliveries is led by no broker. others: the ends of the others, which begin
    with 1.
    """

    def __init__(self, real: Any, others: dict[int, int]) -> None:
        self._real = real
        self._others = others

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def ends(self, topic: Topic[object]) -> dict[int, int]:
        if topic == DELIVERIES:
            raise PartitionsAwayError(f"no broker leads {topic}/0", self._others)
        return dict(self._real.ends(topic))

    def earliest(self, topic: Topic[object]) -> dict[int, int]:
        if topic == DELIVERIES:
            raise PartitionsAwayError(f"no broker leads {topic}/0", dict.fromkeys(self._others, 1))
        return dict(self._real.earliest(topic))


def test_a_partition_that_nobody_leads_hides_nothing_of_the_others_and_is_named(filled: Cli) -> None:
    with filled.ports() as ports:
        queue: Any = Leaderless(ports.queue, {1: 3})
        found = looked(filled, replace(ports, queue=queue))
        queue = Leaderless(ports.queue, {})
        assert looked(filled, replace(ports, queue=queue)).groups["writer-a"] is None
    assert found.groups == dict.fromkeys(GROUPS, 0) | {"writer-a": 2, "writer-b": 2}
    assert (found.quiet, found.lost) == (None, False)
    said = "a part of the queue does not answer, and what is in it waits: no broker leads feed.deliveries/0"
    assert found.away == {"feed.deliveries": said}
    assert said in problems(found, None)


@pytest.mark.usefixtures("_no_brokers")
def test_without_brokers_top_shows_everything_else(filled: Cli) -> None:
    said = filled("top", "--once", "--every", "10ms", code=1).stdout
    assert f"! the queue does not answer: {NO_QUEUE}" in said
    assert "dead letters    unknown" in said
    assert "disk " in said


@pytest.mark.usefixtures("_no_brokers")
def test_other_commands_end_without_brokers(filled: Cli) -> None:
    assert NO_QUEUE in filled("dead", "list", code=3).stderr


def test_without_databases_status_shows_everything_else(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_FOLLOWS_SHARDS", NO_SHARDS)

    said = filled("status", code=1).stdout
    found = filled.json("status", code=1)

    assert "cluster   a: has everything before" in said
    assert "follows   unknown: mysql://feed@127.0.0.1:1/f" in said
    assert "to do     relay unknown, expander 0" in said
    assert "dead      no letters" in said
    assert "problem   shard 1 of the follow store does not answer: mysql://feed@127.0.0.1:1/f1" in said
    assert found["groups"] == {"relay": None, **dict.fromkeys(GROUPS[1:], 0)}
    assert (found["counts"], found["waits_ms"], found["idle"], found["dead_letters"]) == (None, None, None, 0)
    assert list(found["away"]) == ["shard_0", "shard_1"]


def test_a_home_of_which_nothing_is_away_says_so(filled: Cli) -> None:
    assert filled.json("status")["away"] == {}


def test_of_two_shards_one_may_be_away(empty: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEED_FOLLOWS_SHARDS", '["sqlite:data/f0.db","sqlite:data/f1.db"]')
    empty("init")
    empty.set("shards", '["sqlite:data/f0.db","sqlite:data/f1.db"]')
    with empty.ports() as ports:
        backlog = ports.follows.backlog

        def away(shard: int) -> Any:
            if shard == 1:
                raise FollowStoreUnavailableError("gone")
            return backlog(shard)

        follows: Any = Failing(ports.follows, away, "backlog")
        found = looked(empty, replace(ports, follows=follows))

    assert problems(found, None) == ["shard 1 of the follow store does not answer: gone"]
    assert found.groups["relay"] is None, "a sum of which a part is unknown"
    assert found.quiet is None


def test_a_cluster_is_damaged_though_the_queue_is_away(filled: Cli) -> None:
    with filled.ports(access="write") as ports:
        emptied(ports.replicas["b"].tables[FEEDS])
    with filled.ports() as ports:
        found = looked(filled, replace(ports, queue=QUEUE_AWAY))
    assert "cluster b is damaged" in (found.clusters["b"].error or "")
    assert found.clusters["a"].error is None
    assert found.away == {"queue": "the queue does not answer: the brokers are gone"}
    assert found.dead == 0, "the dead letters answer"


def test_clusters_are_looked_at_at_the_same_time(filled: Cli) -> None:
    both = threading.Barrier(2)

    def meeting(_: str, feeds: Any) -> Any:
        def read(*arguments: Any) -> Any:
            both.wait(DEADLINE_S)
            return feeds.read(*arguments)

        return Failing(feeds, read, "read")

    with filled.ports() as ports:
        found = looked(filled, with_tables(ports, FEEDS, meeting))
    assert problems(found, None) == []


@pytest.mark.parametrize("table", [FEEDS, PROGRESS])
def test_a_cluster_that_hangs_hides_nothing_of_the_other(filled: Cli, table: str) -> None:
    def of_b(call: Callable[..., Any], name: str, real: Any) -> Any:
        return Failing(real, call) if name == "b" else real

    answer = ["state of a", "faults of a", *(["state of b"] if table == FEEDS else [])]
    with hanging() as hangs, filled.ports() as ports:
        looked(filled, ports)  # it is open
        found = looked(filled, with_tables(ports, table, partial(of_b, hangs)), looks=HastyLooks(0.5, answer))
    assert found.clusters["a"].error is None
    said = found.clusters["b"].error or ""
    assert said.endswith("no answer within 0.5 s")
    if table == FEEDS:
        assert found.clusters["b"].behind_ms is not None, "its notes are in another table"
        assert said.startswith("cluster b answers, but could not be looked at as a whole: ")
    else:
        assert said.startswith("cluster b does not answer: ")


def test_a_part_of_a_cluster_that_is_away_does_not_hide_how_far_it_is(filled: Cli) -> None:
    def away(_: str, feeds: Any) -> Any:
        return Failing(feeds, raising(UnavailableError("its server hangs")), "read")

    with filled.ports() as ports:
        found = looked(filled, with_tables(ports, FEEDS, away))
    assert found.clusters["a"].behind_ms is not None
    assert "rows 00..: its server hangs" in (found.clusters["a"].error or "")


def test_a_screen_says_what_is_unknown(filled: Cli) -> None:
    def away(name: str, progress: Any) -> Any:
        return Failing(progress, raising(UnavailableError("cut off"))) if name == "b" else progress

    dead: Any = Failing(None, raising(QueueUnavailableError("the brokers\n are gone")))
    with filled.ports() as ports:
        found = looked(filled, replace(with_tables(ports, PROGRESS, away), queue=QUEUE_AWAY, dead=dead))
    lines = list(rendered("/srv/home", None, LastLook(0.0, found)))
    assert "! the queue does not answer: the brokers are gone" in lines
    assert len([line for line in lines if "the brokers are gone" in line]) == 1, "the dead letters are in the queue"
    assert [line.split()[1] for line in lines if line.startswith("writer-")] == ["unknown", "unknown"]
    [of_b] = [line.split() for line in lines if line.startswith("b ")]
    assert of_b == ["b", "unknown", "-", *["unknown"] * 4]


def test_a_disk_that_fails_is_a_problem(filled: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> Sequence[Any]:
        raise OSError(5, "Input/output error", "/srv/data")

    monkeypatch.setattr("workers.cli.condition.os.statvfs", failing)
    found = filled.json("status", code=1)
    assert found["problems"] == ["the disks do not answer: [Errno 5] Input/output error: '/srv/data'"]
    assert found["disks"] is None
    assert found["groups"]["expander"] == 0


def test_a_look_that_hangs_is_not_begun_again_and_its_answer_is_taken_when_it_comes() -> None:
    began: list[int] = []
    may_end = threading.Event()

    def slow() -> str:
        began.append(1)
        may_end.wait(DEADLINE_S)
        return "late"

    hasty, patient = Looks(0.01), Looks(DEADLINE_S)
    assert hasty.begin("queue", slow).found() == NoAnswer("no answer within 0.01 s")
    assert isinstance(hasty.begin("queue", slow).found(), NoAnswer)
    assert len(began) == 1
    may_end.set()
    assert eventually(lambda: hasty.begin("queue", slow).answer(), "it has ended") == "late"
    assert len(began) == 1
    assert patient.begin("queue", slow).found() == "late"
    assert len(began) == 2


def test_an_error_of_the_program_is_no_answer_that_is_away() -> None:
    with pytest.raises(KeyError):
        Looks(DEADLINE_S).begin("queue", raising(KeyError("a mistake"))).found()
