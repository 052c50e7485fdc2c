"""The command line on the real servers: a home on the stack, its tables and topics, its workers process by process."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType

from deploy.local import Stack
from feedstore.app import config as configuration
from feedstore.app import wiring as feedstore_wiring
from feedstore.domain import Follow, user
from feedstore.following import FEEDS
from feedstore.follows.port import FollowStoreUnavailableError, Request
from feedstore.widecolumn.hbase import HBaseCluster
from feedstore.widecolumn.hbase.schema import PURGE, definition
from feedstore.widecolumn.progress import PROGRESS
from tests.cli.command import Cli, eventually
from tests.stack.administered import administer
from tests.stack.own_home import own_home, remove_tables
from workers.app import wiring
from workers.following.topics import ACTIONS
from workers.queue.kafka.queue import connect

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("feedctl")]

DEADLINE_S = 300.0


@pytest.fixture(scope="module")
def real(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    with own_home(stack, tmp_path_factory.mktemp("real") / "home") as cli:
        yield cli


def test_a_home_on_the_stack_is_complete_when_it_is_made(real: Cli) -> None:
    status = real.json("status")
    assert status["idle"]
    assert set(status["groups"].values()) == {0}
    assert list(status["groups"]) == ["relay", "expander", "writer-a", "retries-a", "writer-b", "retries-b"]
    assert "no difference" in real("schema", "check").stderr
    assert "no difference" in real("topics", "check").stderr
    assert "there is a home already" in real("init", code=2).stderr


# Tables.


def test_tables_that_are_there_are_not_made_again(real: Cli) -> None:
    for _ in range(2):
        assert real("schema", "apply").stderr.splitlines() == [
            "follow store: its tables are up to date",
            "a: nothing was missing",
            "b: nothing was missing",
        ]


@pytest.fixture
def elsewhere(real: Cli, tmp_path: Path) -> Iterator[tuple[Cli, HBaseCluster]]:
    """The same home, with cluster a in a namespace in which there is nothing."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    file = home / configuration.FILE_NAME
    text = (real.home / configuration.FILE_NAME).read_text()
    file.write_text(re.sub(r"(/feedtest_\w+)", r"\1_else", text, count=1))
    url = configuration.load(home, {}).clusters[0].url
    with closing(HBaseCluster.open(url, [], check=False)) as cluster:
        cluster.administration.create_namespace()
        try:
            yield Cli(home), cluster
        finally:
            remove_tables(url)


def test_missing_tables_are_named_and_made(elsewhere: tuple[Cli, HBaseCluster]) -> None:
    cli, _ = elsewhere
    missing = [f"a: {table}: the table is missing, expected there (unsafe)" for table in (FEEDS, PROGRESS)]
    assert cli("schema", "check", code=1).stdout.splitlines() == missing
    assert f"a: created {FEEDS}, {PROGRESS}" in cli("schema", "apply").stderr
    assert "no difference" in cli("schema", "check").stderr


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("of_family", "of_table", "said"),
    [
        ({"VERSIONS": "3"}, {}, "VERSIONS is 3, expected 1"),
        ({"KEEP_DELETED_CELLS": "TRUE"}, {}, "KEEP_DELETED_CELLS is TRUE, expected FALSE"),
        ({"NEW_VERSION_BEHAVIOR": "true"}, {}, "NEW_VERSION_BEHAVIOR is true, expected false"),
        ({}, {PURGE: str(DAY_MS)}, f"{PURGE} is {DAY_MS}, expected {5 * DAY_MS}"),
    ],
    ids=["versions", "keeps-deleted", "new-behaviour", "short-window"],
)
def test_no_writer_starts_on_an_unsafe_table(
    elsewhere: tuple[Cli, HBaseCluster], of_family: Mapping[str, str], of_table: Mapping[str, str], said: str
) -> None:
    cli, cluster = elsewhere
    feeds, progress = (definition(table) for table in feedstore_wiring.tables(configuration.load(cli.home, {})))
    ((name, settings),) = feeds.families.items()
    unsafe = replace(
        feeds, families={name: {**settings, **of_family}}, settings={**feeds.settings, **of_table}, split_keys=()
    )
    cluster.administration.create(unsafe)
    cluster.administration.create(progress)

    assert cli("schema", "check", code=1).stdout == f"a: {FEEDS}: {said} (unsafe)\n"
    cli("schema", "apply")  # what is unsafe stays as it is
    assert f"{FEEDS}: {said} (unsafe)" in cli("write", "--cluster", "a", code=2).stderr


def test_no_writer_starts_on_a_table_that_keeps_less_than_a_reader_may_reach(
    elsewhere: tuple[Cli, HBaseCluster],
) -> None:
    """As a table is whose cap was raised in feed.toml and nowhere else."""
    cli, cluster = elsewhere
    feeds, progress = (definition(table) for table in feedstore_wiring.tables(configuration.load(cli.home, {})))
    short = {key: value.replace("cap=1000", "cap=700") for key, value in feeds.settings.items()}
    cluster.administration.create(replace(feeds, settings=short, split_keys=()))
    cluster.administration.create(progress)

    said = f"{FEEDS}: trim cap is 700, expected 1000 (unsafe)"
    assert cli("schema", "check", code=1).stdout == f"a: {said}\n"
    assert said in cli("write", "--cluster", "a", code=2).stderr
    assert f"a: corrected this difference: {said}" in cli("schema", "apply").stderr
    assert "no difference" in cli("schema", "check").stderr


# Topics.


def test_a_retention_that_rule_8_forbids_is_named_and_repaired(real: Cli) -> None:
    address = wiring.kafka_address(configuration.load(real.home, {}))
    topic = address.named(ACTIONS.name)
    with closing(connect(address)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"retention.ms": str(DAY_MS)})])

    named = f"{topic}: retention.ms: expected {4 * DAY_MS}, found {DAY_MS} (unsafe)\n"
    try:
        # A broker says what was set once it has heard of it.
        eventually(lambda: real("topics", "check", code=None).stdout == named, "the retention is named", DEADLINE_S)
        said = real("topics", "check", code=1).stderr
        assert said == f"Error: 1 difference: {real.hint('topics apply')} corrects all of them\n"
    finally:
        mended = real("topics", "apply").stderr
    assert f"corrected this difference: {named}" in mended
    eventually(lambda: "no difference" in real("topics", "check", code=None).stderr, "it is repaired", DEADLINE_S)


@pytest.mark.parametrize(
    "words", [["relay"], ["expand"], ["write", "--cluster", "a"], ["work"]], ids=lambda each: each[0]
)
def test_no_worker_starts_on_topics_that_could_lose_what_they_acknowledged(real: Cli, words: list[str]) -> None:
    address = wiring.kafka_address(configuration.load(real.home, {}))
    topic, setting = address.named(ACTIONS.name), "unclean.leader.election.enable"
    with closing(connect(address)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {setting: "true"})])
    named = f"{topic}: {setting}: expected false, found true (unsafe)"
    try:
        eventually(lambda: named in real("topics", "check", code=None).stdout, "the setting is named", DEADLINE_S)
        refused = real.process(*words, code=2).stderr
        assert f"{named}; {real.hint('topics apply')} mends it" in refused
    finally:
        eventually(lambda: real("topics", "apply", code=None).exit_code == 0, "it is repaired", DEADLINE_S)


@contextmanager
def database_set(stack: Stack, name: str, value: int, usual: int) -> Iterator[None]:
    """A setting of the database has another value."""
    administer(stack, f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        administer(stack, f"SET GLOBAL {name} = {usual}")


@pytest.mark.alone
def test_nothing_opens_a_database_that_could_lose_what_it_commits(real: Cli, stack: Stack) -> None:
    said = "innodb_flush_log_at_trx_commit is 2, expected 1: what it commits could be lost"
    with database_set(stack, "innodb_flush_log_at_trx_commit", 2, usual=1):
        for words in (["relay"], ["expand"], ["follow", "1", "--user", "2"]):
            assert said in real(*words, code=2).stderr
    real("follow", "1", "--user", "2")
    real.process("work", "--until-idle")


@pytest.mark.alone
def test_nothing_is_read_from_a_replica_of_a_database(real: Cli, stack: Stack) -> None:
    """What it has may be older than what was committed (rule 4)."""
    with database_set(stack, "read_only", 1, usual=0):
        for words in (["follow", "1", "--user", "2"], ["verify"]):
            assert "read_only is ON: it is not the primary" in real(*words, code=3).stderr
    real("follow", "1", "--user", "2")
    real.process("work", "--until-idle")


@pytest.mark.alone
def test_a_primary_that_becomes_a_replica_is_away_until_it_is_the_primary_again(real: Cli, stack: Stack) -> None:
    """As after a failover that leaves connections open: one of them serves reads until a write is refused."""
    with real.ports() as ports:

        def record(action: Follow) -> None:
            ports.follows.record([Request(action)])

        record(Follow(1, user(2)))
        with database_set(stack, "read_only", 1, usual=0):
            ports.follows.edges([(1, user(2))])
            # Refused over the open connection, and once more over a new one.
            with pytest.raises(FollowStoreUnavailableError, match="read_only is ON"):
                record(Follow(1, user(3)))
            with pytest.raises(FollowStoreUnavailableError, match="read_only is ON"):
                ports.follows.edges([(1, user(2))])
        record(Follow(1, user(3)))
    real.process("work", "--until-idle")


# Writes that were lost.


def test_rule_10_a_cluster_that_lost_what_it_had_is_rewound(real: Cli) -> None:
    saved = [{"type": "save_pin", "ts": 100 + pin, "pin": pin, "owner": 777, "board": 770} for pin in range(901, 921)]
    follow = {"type": "follow", "ts": 1, "follower": 77, "user": 777}
    real("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in [follow, *saved]))
    real.process("work", "--until-idle")
    with ExitStack() as workers:
        log = real.home / "writer.log"
        writer = workers.enter_context(running(real, ["write", "--cluster", "b"], log))
        eventually(lambda: started(writer, "writer-b", log), "a writer starts", DEADLINE_S)
        refused = eventually(
            lambda: (found := real("rewind", "--cluster", "b", "--by", "1h", code=None)).exit_code == 3 and found,
            "it is refused while a writer runs",
            DEADLINE_S,
        )
        assert "stop the writers of cluster b first" in refused.stderr
        writer.send_signal(signal.SIGTERM)
        assert writer.wait(DEADLINE_S) == 0

    config = configuration.load(real.home, {})
    with closing(HBaseCluster.open(config.clusters[1].url, [], check=False)) as cluster:
        cluster.administration.empty(FEEDS)
    # For a moment its gateways still look for the regions that are gone.
    eventually(lambda: "cluster b is damaged" in real("status", code=1).stdout, "the loss is noticed", DEADLINE_S)
    assert "cluster b is damaged" in real("write", "--cluster", "b", code=1).stderr
    said = real.json("rewind", "--cluster", "b", "--by", "1h")
    assert said["again"]["writer-b"] > 0
    assert real.json("status", code=None)["clusters"]["b"]["behind_ms"] >= 3_600_000
    real.process("work", "--until-idle")
    assert "no difference" in real("verify").stderr
    assert real.export("b") == real.export("a")


# Workers.


ROLES = {
    "relay-0": ["relay"],
    "expander": ["expand"],
    "writer-a": ["write", "--cluster", "a"],
    "writer-b": ["write", "--cluster", "b"],
}
"""What runs each loop."""


@contextmanager
def running(cli: Cli, words: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of one role."""
    with log.open("wb") as stderr:
        process = cli.spawn(*words, stderr=stderr)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


def started(process: subprocess.Popen[bytes], loop: str, log: Path) -> bool:
    """Whether it runs its loop, and takes signals."""
    assert process.poll() is None, log.read_text()
    return said(log, "loop.started", loop)


def said(log: Path, event: str, loop: str | None = None) -> bool:
    """Whether this event, of this loop or of none, is in a log, in which libraries may write too."""
    for line in log.read_text(errors="replace").splitlines():
        with suppress(ValueError):  # a library's
            logged = json.loads(line)
            if (logged.get("event"), logged.get("loop")) == (event, loop):
                return True
    return False


def feeds(cli: Cli, cluster: str, users: range) -> dict[int, list[int]]:
    """Those of these users that are not empty."""
    exported = cli.export(cluster).items()
    return {user: [pin for pin, _ in entries] for user, entries in exported if entries and user in users}


def test_two_workers_of_each_role_do_the_work_and_end_when_they_are_asked_to(real: Cli, tmp_path: Path) -> None:
    users = range(1, 31)
    owners = {pin: {"owner": 100 + pin % 3, "board": 7 + pin % 3} for pin in range(1, 61)}
    actions = [
        *({"type": "follow", "ts": user, "follower": user, "user": 100 + user % 3} for user in users),
        *({"type": "save_pin", "ts": 100 + pin, "pin": pin, **of} for pin, of in owners.items()),
        {"type": "unfollow", "ts": 500, "follower": 1, "user": 101},
        {"type": "delete_pin", "ts": 501, "pin": 60},
    ]
    # Nothing is left of what user 1 had.
    expected = {user: [pin for pin in range(59, 0, -1) if pin % 3 == user % 3] for user in users[1:]}
    with ExitStack() as workers:
        copies = [
            (workers.enter_context(running(real, words, log)), loop, log)
            for loop, words in ROLES.items()
            for log in (tmp_path / f"{loop}-1.log", tmp_path / f"{loop}-2.log")
        ]
        for copy in copies:
            eventually(lambda copy=copy: started(*copy), f"a {copy[1]} starts", DEADLINE_S)
        real("replay", "-", stdin="".join(json.dumps(action) + "\n" for action in actions))
        for cluster in ("a", "b"):
            eventually(
                lambda cluster=cluster: feeds(real, cluster, users) == expected, f"{cluster} has it all", DEADLINE_S
            )
        for process, _, _ in copies:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(DEADLINE_S) for process, _, _ in copies]
    assert codes == [0] * len(copies), [log.read_text() for _, _, log in copies]
    assert real.feed(2) == expected[2]
    assert [log.name for _, loop, log in copies if not said(log, "loop.stopped", loop)] == []
    # One worker continues where they ended.
    real.process("work", "--until-idle")
    assert "no difference" in real("verify").stderr


def test_a_relay_that_is_killed_is_replaced_by_one_that_waited(real: Cli, tmp_path: Path) -> None:
    first_log, second_log = tmp_path / "first.log", tmp_path / "second.log"
    with running(real, ["relay"], first_log) as first, ExitStack() as later:
        real("follow", 901, "--user", 902)
        eventually(lambda: real.json("status", code=None)["groups"]["relay"] == 0, "the first relays", DEADLINE_S)
        second = later.enter_context(running(real, ["relay"], second_log))
        eventually(lambda: said(second_log, "relay.waits"), "the second waits", DEADLINE_S)
        assert not said(second_log, "relay.took_over")

        first.kill()
        eventually(lambda: said(second_log, "relay.took_over"), "the second takes over", DEADLINE_S)
        real("follow", 901, "--user", 903)
        eventually(lambda: real.json("status", code=None)["groups"]["relay"] == 0, "the second relays", DEADLINE_S)
        second.send_signal(signal.SIGTERM)
        assert second.wait(DEADLINE_S) == 0
    assert not said(first_log, "relay.waits")
    real.process("work", "--until-idle")
    assert "no difference" in real("verify").stderr


def test_a_writer_of_a_cluster_that_is_not_there_is_refused(real: Cli) -> None:
    assert "no cluster 'c'; there are: a, b" in real("write", "--cluster", "c", code=2).stderr


@pytest.mark.parametrize(("name", "first"), [("c", None), ("d", "schema apply")])
def test_a_cluster_that_is_added_to_a_home_in_use_says_how_it_is_filled(
    real: Cli, tmp_path: Path, name: str, first: str | None
) -> None:
    """The processes with the earlier feed.toml run meanwhile."""
    third = Cli(tmp_path / "third")
    third.home.mkdir()
    text = (real.home / configuration.FILE_NAME).read_text()
    [_, b, *_] = re.findall(r"^\[\[clusters\]\].*\n(?:.+\n)+", text, re.MULTILINE)
    added = re.sub(r"(/feedtest_\w+)", rf"\1_{name}", b.replace('name = "b"', f'name = "{name}"'))
    (third.home / configuration.FILE_NAME).write_text(text.replace(b, f"{b}\n{added}"))
    real("follow", 78, "--user", 778)
    real("save-pin", 930, "--owner", 778, "--board", 780)
    real.process("work", "--until-idle")
    try:
        with ExitStack() as workers:
            logs = {loop: tmp_path / loop for loop in ROLES}
            for loop, words in ROLES.items():
                process = workers.enter_context(running(real, words, logs[loop]))
                eventually(partial(started, process, loop, logs[loop]), f"{loop} starts", DEADLINE_S)
            rebuild = f"rebuild it ({third.hint(f'rebuild --all --cluster {name}')})"
            if first:
                assert f"{name}: created {FEEDS}, {PROGRESS}" in third(*first.split()).stderr
                problem = f"cluster {name} lost deliveries: {rebuild}"
                assert problem in third.process("write", "--cluster", name, code=1).stderr
            else:
                problem = f"cluster {name} has no tables: {rebuild}"
            assert problem in third("status", code=1).stdout
            third.process("rebuild", "--all", "--cluster", name)
            log = tmp_path / f"writer-{name}"
            writer = workers.enter_context(running(third, ["write", "--cluster", name], log))
            eventually(partial(started, writer, f"writer-{name}", log), "its writer starts", DEADLINE_S)
            real("save-pin", 931, "--owner", 778, "--board", 780)
            assert "no difference" in third("verify").stderr
            assert third.json("status")["problems"] == []
        assert third.export(name) == third.export("a")
    finally:
        remove_tables(configuration.load(third.home, {}).cluster(name).url)
