"""A home with its queue on a broker, whose topics somebody changes: what its worker and `feedctl status` say."""

import itertools
import shlex
import signal
from contextlib import closing, suppress
from pathlib import Path

import pytest
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType

from feedstore.app import config as configuration
from tests.cli.command import Cli, eventually
from tests.cli.steps import expand_all, relay_all
from tests.stack.own_brokers import Brokers
from tests.stack.own_home import home_on_broker, remove_topic
from workers.app import wiring
from workers.following.groups import EXPANDER, cluster_groups
from workers.following.topics import ACTIONS, DELIVERIES, TOPICS
from workers.queue.kafka import reading
from workers.queue.kafka.queue import connect
from workers.queue.port import PositionLostError, Topic

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("topics_of_a_home")]

LOST = "cluster {0} lost deliveries: rebuild it (feedctl rebuild --all --cluster {0})"


@pytest.fixture
def cli(own_broker: Brokers, tmp_path: Path) -> Cli:
    cli = home_on_broker(tmp_path / "home", own_broker)
    cli("topics", "apply")
    cli("save-pin", 7, "--owner", 2, "--board", 8)
    cli("follow", 1, "--user", 2)
    return cli


def name_of(cli: Cli, topic: Topic[object]) -> str:
    return wiring.kafka_address(configuration.load(cli.home, {})).named(topic.name)


def test_status_names_settings_that_became_unsafe(cli: Cli) -> None:
    cli.work()
    assert cli.json("status")["problems"] == []
    with closing(connect(wiring.kafka_address(configuration.load(cli.home, {})))) as admin:
        setting = ConfigResource(ConfigResourceType.TOPIC, name_of(cli, DELIVERIES), {"cleanup.policy": "compact"})
        admin.alter_configs([setting])
    (problem,) = eventually(lambda: cli.json("status", code=None)["problems"], "the broker has heard of it")
    assert problem == (
        f"acknowledged messages could be lost: {name_of(cli, DELIVERIES)}: cleanup.policy: expected delete, found"
        " compact (unsafe); feedctl topics apply mends it"
    )
    cli("topics", "apply")
    eventually(lambda: cli.json("status", code=None)["problems"] == [], "the broker has heard of it")


def test_what_only_an_operator_corrects_says_how(cli: Cli) -> None:
    cli.work()
    cli.set("replication", "2")
    said = "or set queue.replication in feed.toml to 1"
    assert said in cli("status", code=1).stdout
    assert said in cli("topics", "check", code=1).stderr
    cli.set("replication", "1")
    assert cli.json("status")["problems"] == []


def test_a_topic_that_was_made_again_while_no_worker_ran_is_noticed_whatever_came_since(cli: Cli) -> None:
    """The groups have begun in it, and it has more messages than the clusters had applied of the earlier one."""
    cli.work()
    remove_topic(cli, DELIVERIES)
    cli("topics", "apply")
    with cli.ports() as ports:
        ports.queue.publish(DELIVERIES, [b"x"] * 100, 0)
        for cluster in "ab":
            for topic, group in cluster_groups(cluster):
                ports.queue.consumer(topic, group).close()
    assert cli.json("status", code=1)["problems"][:2] == [LOST.format("a"), LOST.format("b")]


def test_a_worker_whose_topic_is_removed_waits_and_says_that_deliveries_are_lost_once_it_is_made_again(
    cli: Cli, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        worker = cli.spawn("work", stderr=stderr)
    try:
        for cluster in "ab":
            reads = f'"partitions.gained","topic":"{DELIVERIES}","group":"writer-{cluster}"'
            eventually(lambda reads=reads: reads in log.read_text(), "its writer reads")
        eventually(lambda: cli.json("status", code=None)["problems"] == [], "the worker runs, and all has landed")
        eventually(lambda: cli.feed(1) == [7], "all has landed")
        remove_topic(cli, DELIVERIES)
        eventually(lambda: log.read_text().count("the brokers know no topic") >= 2, "both writers say it")
        cli("topics", "apply")
        for cluster in "ab":
            said = f"cluster {cluster} lost deliveries: rebuild it"
            eventually(lambda said=said: said in log.read_text(), "its writer ends")
        assert worker.poll() is None, "what does not need them continues"
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert "ValueError" not in log.read_text()
    assert cli.json("status", code=1)["problems"][:2] == [LOST.format("a"), LOST.format("b")]


def test_a_worker_without_an_expander_expands_again_once_reindex_has_run(cli: Cli, tmp_path: Path) -> None:
    """It is not restarted."""
    log = tmp_path / "log"
    with log.open("wb") as stderr:
        worker = cli.spawn("work", stderr=stderr)
    try:
        eventually(lambda: cli.feed(1) == [7], "all has landed")
        remove_topic(cli, ACTIONS)
        cli("save-pin", 8, "--owner", 2, "--board", 8)
        cli("topics", "apply")
        eventually(lambda: "loop.position_lost" in log.read_text(), "the expander ends")
        assert cli.hint("reindex") in cli("status", code=1).stdout
        cli("reindex")
        eventually(lambda: cli.feed(1) == [8, 7], "the expander continues")
        eventually(lambda: cli.json("status", code=None)["problems"] == [], "nothing is wrong any more")
        assert worker.poll() is None
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=60)
    assert worker.returncode == 0
    assert log.read_text().count("loop.position_lost") == 1


def dropped(cli: Cli, topic: Topic[object]) -> None:
    """Drops all messages of a topic, as retention does."""
    address = wiring.kafka_address(configuration.load(cli.home, {}))
    with cli.ports() as ports, closing(connect(address)) as admin:
        ends = ports.queue.ends(topic)
        admin.delete_records({TopicPartition(name_of(cli, topic), each): end for each, end in ends.items()})


@pytest.mark.parametrize("loss", ["expired", "topic made again"])
def test_lost_actions_come_back_as_the_message_says(cli: Cli, loss: str) -> None:
    """While no expander ran. A tick that comes before `reindex` says that they are in the topic."""
    cli.work()
    cli("save-pin", 8, "--owner", 2, "--board", 8)
    cli("unfollow", 1, "--user", 2)
    cli("follow", 1, "--user", 3)
    cli("save-pin", 9, "--owner", 3, "--board", 9)
    relay_all(cli)
    if loss == "expired":
        dropped(cli, ACTIONS)
    else:
        remove_topic(cli, ACTIONS)
        cli("topics", "apply")
    said = f"actions were lost before they were expanded: end all expanders, then: {cli.hint('reindex')}"
    assert said in cli("status", code=1).stdout
    assert said in cli.process("work", "--until-idle", code=1).stderr
    assert said in cli.process("rebuild", "--all", code=1).stderr

    cli("reindex")
    cli.work()

    assert cli.feed(1) == [9]
    cli("verify")
    assert cli.json("status")["problems"] == []
    assert "nothing was changed" in cli("reindex").stderr


def test_an_expander_that_has_not_heard_of_the_new_topic_hides_no_loss(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic has more messages than it had read of the earlier one: it reads on from the middle, and commits."""
    cli.work()
    monkeypatch.setattr(reading, "METADATA_MS", 3_600_000)
    with (
        cli.ports(access="write") as ports,
        closing(wiring.expander(ports, configuration.load(cli.home, {}))) as expander,
    ):
        expander.step()
        read = ports.queue.positions(ACTIONS, EXPANDER)
        remove_topic(cli, ACTIONS)
        cli("topics", "apply")
        pins = itertools.count(10)
        while ports.queue.ends(ACTIONS)[0] <= read[0] + 1:
            cli("save-pin", next(pins), "--owner", 2, "--board", 8)
            relay_all(cli)
        with suppress(PositionLostError):  # a fetch that was under way may have failed, so that it has heard
            eventually(expander.step, "it reads the last messages")
    assert cli.hint("reindex") in cli("status", code=1).stdout

    cli("reindex")
    cli.work()

    assert sorted(cli.feed(1)) == [7, *range(10, next(pins))]
    cli("verify")
    assert cli.json("status")["problems"] == []


def test_the_group_of_an_expander_that_runs_is_not_moved(cli: Cli) -> None:
    """It would lose what the expander commits."""
    cli.work()
    with cli.ports() as ports, closing(ports.queue.consumer(ACTIONS, EXPANDER)) as member:
        member.poll(1, 0.1)
        eventually(lambda: ports.queue.members(ACTIONS, EXPANDER), "it has joined")
        cli("save-pin", 8, "--owner", 2, "--board", 8)
        relay_all(cli)
        dropped(cli, ACTIONS)
        assert "end all expanders first" in cli("reindex", code=3).stderr
        assert ports.follows.backlog().actions == 0, "nothing was changed"


@pytest.mark.parametrize("began", [True, False], ids=["writers had begun", "before any writer began"])
@pytest.mark.parametrize("loss", ["deliveries expired", "deliveries made again", "all topics made again"])
def test_clusters_that_lost_deliveries_are_made_again_as_the_messages_say(cli: Cli, loss: str, *, began: bool) -> None:
    """While no worker ran; actions were on their way to the expander, and others to the writers."""
    if began:
        cli.work()
    cli("save-pin", 8, "--owner", 2, "--board", 8)
    cli("unfollow", 1, "--user", 2)
    expand_all(cli)
    cli("follow", 1, "--user", 3)
    cli("save-pin", 9, "--owner", 3, "--board", 9)
    relay_all(cli)
    if loss == "deliveries expired":
        dropped(cli, DELIVERIES)
    else:
        for topic in [DELIVERIES] if loss == "deliveries made again" else TOPICS:
            remove_topic(cli, topic)
        cli("topics", "apply")
    said = cli("status", code=1).stdout
    assert (cli.hint("reindex") in said) == (loss == "all topics made again")
    if cli.hint("reindex") in said:
        cli("reindex")
    for cluster in "ab":
        rebuild = f"rebuild --all --cluster {cluster}"
        # What a cluster gets that has nothing comes again with all actions.
        assert (cli.hint(rebuild) in said) == (began or loss != "all topics made again")
        if cli.hint(rebuild) in said:
            cli.process(*shlex.split(rebuild))
        else:
            cli.work()

    assert cli.feed(1) == [9]
    cli("verify")
    cli.work()
    assert cli.json("status")["problems"] == []
