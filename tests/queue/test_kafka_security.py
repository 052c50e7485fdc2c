"""A broker that asks who its clients are, and shows a certificate: as in production."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
from kafka_bench import wait_until
from queue_benches import after

from tests.stack import certificates
from tests.stack.own_brokers import PASSWORD, USER, Brokers, Listener, own_brokers
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.kafka import KafkaDeadLetters, KafkaQueue, parse, queue, topics
from workers.queue.kafka.address import PASSWORD as VARIABLE
from workers.queue.port import QueueUnavailableError

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("kafka_security")]

SCRAM = "mechanism=SCRAM-SHA-512"
PLAIN = "mechanism=PLAIN"
REFUSED = "Authentication failed|as if the broker refused the password"
"""On a busy machine the connection ends before its last word is read."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of certificates."""
    made = tmp_path_factory.mktemp("certificates")
    certificates.write(made)
    return made


@pytest.fixture(scope="module")
def broker(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with own_brokers(tmp_path_factory.mktemp("broker"), count=1, certificates=folder) as running:
        yield running


def url(broker: Brokers, listener: Listener, options: str) -> str:
    return f"kafka://{broker.at(listener)}?prefix=test-{uuid4().hex[:12]}.&{options}"


@pytest.mark.parametrize(
    ("listener", "options"),
    [
        ("SASL_PLAINTEXT", f"security=SASL_PLAINTEXT&user={USER}&{SCRAM}"),
        ("SASL_PLAINTEXT", f"security=SASL_PLAINTEXT&user={USER}&{PLAIN}"),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}&ca=ca.pem"),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{PLAIN}&ca=ca.pem"),
        ("SSL", "security=SSL&ca=ca.pem&cert=client.pem&key=client.key"),
    ],
)
def test_a_queue_works_with(listener: Listener, options: str, broker: Brokers, folder: Path) -> None:
    address = parse(url(broker, listener, options), folder, {VARIABLE: PASSWORD})
    wanted = topics.definitions(address, TOPICS, partitions=2, replication=1, action_age_ms=86_400_000)
    assert topics.apply(address, wanted) == []
    with closing(KafkaQueue.open(address, TOPICS)) as opened, closing(opened.tail(DELIVERIES)) as tail:
        opened.publish(DELIVERIES, [b"one", b"two"])
        read: list[bytes] = []
        with closing(opened.consumer(DELIVERIES, "a")) as member:

            def take() -> None:
                messages = member.poll(10, 0.1)
                read.extend(message.value for message in messages)
                member.commit(after(messages))

            wait_until(lambda: len(read) == 2, take)
        assert sorted(read) == [b"one", b"two"]
        assert sum(opened.positions(DELIVERIES, "a").values()) == 2
        tailed: list[bytes] = []
        wait_until(lambda: len(tailed) == 2, lambda: tailed.extend(each.value for each in tail.poll(10, 0.1)))
    with closing(KafkaDeadLetters.open(address)) as letters:
        assert letters.count() == 0


@pytest.mark.parametrize(
    ("listener", "options", "password", "why"),
    [
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}&ca=ca.pem", "wrong", REFUSED),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{PLAIN}&ca=ca.pem", "wrong", REFUSED),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}&ca=other.pem", PASSWORD, "CERTIFICATE_VERIFY_FAILED"),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}", PASSWORD, "CERTIFICATE_VERIFY_FAILED"),
        ("SSL", "security=SSL&ca=ca.pem", PASSWORD, "alert (bad certificate|certificate required)"),
    ],
)
def test_a_broker_that_refuses_says_why(
    listener: Listener,
    options: str,
    password: str,
    why: str,
    broker: Brokers,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue, "REQUEST_MS", 4_000)
    address = parse(url(broker, listener, options), folder, {VARIABLE: password})
    with pytest.raises(QueueUnavailableError, match=why) as refused:
        KafkaQueue.open(address, TOPICS)
    assert broker.at(listener) in str(refused.value)
    assert PASSWORD not in str(refused.value)
