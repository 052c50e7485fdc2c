"""Every queue adapter, with one and with three partitions; Kafka's needs the local stack."""

from collections.abc import Callable, Iterator
from pathlib import Path

import kafka_bench
import pytest
from queue_benches import Bench, embedded_bench, memory_bench, metered_bench

from deploy.local import Stack
from tests.queue.memory_queue import MemoryDeadLetters
from tests.stack.own_brokers import Brokers, own_brokers
from workers.following.topics import TOPICS
from workers.queue.embedded import EmbeddedQueue, open_dead_letters
from workers.queue.kafka import consumer
from workers.queue.port import DeadLetters

ADAPTERS = [
    pytest.param(memory_bench, id="memory"),
    pytest.param(metered_bench, id="metered"),
    pytest.param(embedded_bench, id="embedded"),
    pytest.param(kafka_bench.kafka_bench, id="kafka", marks=pytest.mark.stack),
]


@pytest.fixture(scope="session")
def broker(stack: Stack) -> Iterator[None]:
    """The broker of the stack. Members hear of each other soon: most of these tests wait for that and nothing else."""
    kafka_bench.use(stack)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer, "HEARTBEAT_MS", 300)
        yield


@pytest.fixture(scope="session")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """A broker that tests may mistreat. Names are its users' own."""
    with own_brokers(tmp_path_factory.mktemp("broker"), count=1) as running:
        yield running


@pytest.fixture(params=ADAPTERS)
def make_bench(request: pytest.FixtureRequest) -> Callable[[int, Path], Bench]:
    if request.param is kafka_bench.kafka_bench:
        request.getfixturevalue("broker")
    return request.param


@pytest.fixture(params=[1, 3], ids=["1-partition", "3-partitions"])
def bench(make_bench: Callable[[int, Path], Bench], request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = make_bench(request.param, tmp_path)
    yield bench
    bench.close()


@pytest.fixture(params=["memory", "embedded", "embedded-in-queue", pytest.param("kafka", marks=pytest.mark.stack)])
def letters(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DeadLetters]:
    if request.param == "memory":
        yield MemoryDeadLetters()
        return
    if request.param == "kafka":
        request.getfixturevalue("broker")
        with kafka_bench.kafka_letters() as letters:
            yield letters
        return
    path = tmp_path / "letters.db"
    if request.param == "embedded-in-queue":
        EmbeddedQueue.create(path, dict.fromkeys(TOPICS, 1))
    letters = open_dead_letters(path)
    yield letters
    letters.close()
