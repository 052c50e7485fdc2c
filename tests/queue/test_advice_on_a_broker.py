"""Two faults at once of a home whose queue is on a broker, or one while a worker runs. Nothing is known of them, and
the messages lead out. With SIMULATION=full every pair is tried, for an hour.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.structs import OffsetAndMetadata, TopicPartition

from feedstore.app import config as configuration
from tests.cli.advice import CLUSTERS, Fault, leads_out, leads_out_of_what_a_worker_meets, put_back
from tests.cli.command import Cli
from tests.cli.writer_thread import threads
from tests.effort import FULL
from tests.stack.own_brokers import Brokers
from tests.stack.own_home import home_on_broker
from workers.app import wiring, writer_process
from workers.following.groups import EXPANDER, cluster_groups
from workers.following.topics import ACTIONS, DELIVERIES, RETRIES, TOPICS
from workers.queue.kafka.address import KafkaAddress
from workers.queue.kafka.dead_letters import DEAD
from workers.queue.kafka.queue import connect
from workers.queue.port import Topic

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("topics_of_a_home")]


@pytest.fixture
def cli(own_broker: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setattr(writer_process, "forked", threads)
    cli = home_on_broker(tmp_path / "home", own_broker)
    cli.set("tick", '"250ms"')
    cli.set("partitions", "2")
    cli("topics", "apply")
    return cli


def _address(cli: Cli) -> KafkaAddress:
    return wiring.kafka_address(configuration.load(cli.home, {}))


def _removed(*names: str) -> Fault:
    def remove(cli: Cli) -> None:
        address = _address(cli)
        with closing(connect(address)) as admin:
            for name in names:
                admin.delete_topics([address.named(name)], raise_errors=False)

    return remove


def _made_again(*names: str) -> Fault:
    def make_again(cli: Cli) -> None:
        _removed(*names)(cli)
        cli("topics", "apply", code=None)

    return make_again


def _expired(topic: Topic[object], partitions: Sequence[int] = (0, 1)) -> Fault:
    """Its messages are dropped, read or not."""

    def expire(cli: Cli) -> None:
        address = _address(cli)
        with cli.ports() as ports, closing(connect(address)) as admin:
            ends = ports.queue.ends(topic)
            admin.delete_records({TopicPartition(address.named(topic.name), each): ends[each] for each in partitions})

    return expire


def _forgotten(*groups: tuple[Topic[object], str]) -> Fault:
    """Brokers drop the positions of a group that has had no member for a while."""

    def forget(cli: Cli) -> None:
        address = _address(cli)
        with closing(connect(address)) as admin:
            admin.delete_groups([address.group(topic.name, group) for topic, group in groups])

    return forget


def _moved(topic: Topic[object], group: str, to: Callable[[int], int]) -> Fault:
    """As with `kafka-consumer-groups.sh --reset-offsets`. to: makes the new position from the end."""

    def move(cli: Cli) -> None:
        address = _address(cli)
        with cli.ports() as ports, closing(connect(address)) as admin:
            ends = ports.queue.ends(topic)
            positions = {
                TopicPartition(address.named(topic.name), each): OffsetAndMetadata(to(end), "", -1)
                for each, end in ends.items()
            }
            admin.alter_group_offsets(address.group(topic.name, group), positions)

    return move


def _compacted(topic: Topic[object]) -> Fault:
    def compact(cli: Cli) -> None:
        address = _address(cli)
        with closing(connect(address)) as admin:
            setting = ConfigResource(ConfigResourceType.TOPIC, address.named(topic.name), {"cleanup.policy": "compact"})
            admin.alter_configs([setting])

    return compact


def _more_partitions(cli: Cli) -> None:
    address = _address(cli)
    with closing(connect(address)) as admin:
        for topic in TOPICS:
            admin.create_partitions({address.named(topic.name): 3})


NAMES = [topic.name for topic in TOPICS]
B_WRITES, B_RETRIES = cluster_groups("b")
OF_GROUPS: dict[str, Fault] = {
    # Brokers refuse these while the group has members.
    "expander forgotten": _forgotten((ACTIONS, EXPANDER)),
    "b's groups forgotten": _forgotten(B_WRITES, B_RETRIES),
    "expander past the end": _moved(ACTIONS, EXPANDER, lambda end: end + 10),
    "b's writer past the end": _moved(*B_WRITES, lambda end: end + 10),
    "b's writer at the end": _moved(*B_WRITES, lambda end: end),
}
FAULTS: dict[str, Fault] = {
    # Those that need topics come first.
    "partitions added": _more_partitions,
    "actions expired": _expired(ACTIONS),
    "half of the actions expired": _expired(ACTIONS, [1]),
    "half of the deliveries expired": _expired(DELIVERIES, [0]),
    "deliveries compacted": _compacted(DELIVERIES),
    "actions made again": _made_again(ACTIONS.name),
    "deliveries made again": _made_again(DELIVERIES.name),
    "retries made again": _made_again(RETRIES.name),
    "all made again": _made_again(*NAMES, DEAD),
    "b put back": put_back,
    **CLUSTERS,
    "actions removed": _removed(ACTIONS.name),
    "deliveries removed": _removed(DELIVERIES.name),
    "dead letters removed": _removed(DEAD),
    "all removed": _removed(*NAMES, DEAD),
}
SOME = [("half of the actions expired", "deliveries made again")]
"""A pair takes half a minute, and others two: all of them take hours."""


@pytest.mark.parametrize("pair", [*itertools.combinations(OF_GROUPS | FAULTS, 2)] if FULL else SOME, ids=" and ".join)
def test_whatever_two_things_are_wrong_the_messages_lead_out(cli: Cli, pair: tuple[str, str]) -> None:
    leads_out(cli, [(OF_GROUPS | FAULTS)[each] for each in pair])


@pytest.mark.parametrize("fault", FAULTS if FULL else ["deliveries made again"])
def test_the_messages_lead_out_of_what_happens_while_a_worker_runs(cli: Cli, fault: str) -> None:
    leads_out_of_what_a_worker_meets(cli, [FAULTS[fault]])
