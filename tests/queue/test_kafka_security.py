"""A broker that asks who its clients are, and shows a certificate: as in production."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import uuid4

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from kafka_bench import wait_until
from queue_benches import after

from tests.stack.own_brokers import PASSWORD, USER, Brokers, Listener, own_brokers
from workers.following.topics import DELIVERIES, TOPICS
from workers.queue.kafka import KafkaDeadLetters, KafkaQueue, parse, topics
from workers.queue.kafka.address import PASSWORD as VARIABLE
from workers.queue.port import QueueUnavailableError

pytestmark = [pytest.mark.stack, pytest.mark.xdist_group("kafka_security")]

SCRAM = "mechanism=SCRAM-SHA-512"
PLAIN = "mechanism=PLAIN"


def pkcs8(key: bytes) -> bytes:
    """A private key in the form that Java reads."""
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return serialization.load_pem_private_key(key, None).private_bytes(*form)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem; server.pem, a certificate of 127.0.0.1 with its key; client.pem and client.key."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = authority.issue_cert("127.0.0.1")
    chain = b"".join(pem.bytes() for pem in server.cert_chain_pems)
    (folder / "server.pem").write_bytes(pkcs8(server.private_key_pem.bytes()) + chain)
    client = authority.issue_cert("client.test")
    client.private_key_pem.write_to_path(str(folder / "client.key"))
    client.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    trustme.CA().cert_pem.write_to_path(str(folder / "other.pem"))
    return folder


@pytest.fixture(scope="module")
def broker(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with own_brokers(tmp_path_factory.mktemp("broker"), count=1, certificates=certificates) as running:
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
def test_a_queue_works_with(listener: Listener, options: str, broker: Brokers, certificates: Path) -> None:
    address = parse(url(broker, listener, options), certificates, {VARIABLE: PASSWORD})
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
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}&ca=ca.pem", "wrong", "Authentication failed"),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{PLAIN}&ca=ca.pem", "wrong", "Authentication failed"),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}&ca=other.pem", PASSWORD, "CERTIFICATE_VERIFY_FAILED"),
        ("SASL_SSL", f"security=SASL_SSL&user={USER}&{SCRAM}", PASSWORD, "CERTIFICATE_VERIFY_FAILED"),
        ("SSL", "security=SSL&ca=ca.pem", PASSWORD, "alert (bad certificate|certificate required)"),
    ],
)
def test_a_broker_that_refuses_says_why(
    listener: Listener, options: str, password: str, why: str, broker: Brokers, certificates: Path
) -> None:
    address = parse(url(broker, listener, options), certificates, {VARIABLE: password})
    with pytest.raises(QueueUnavailableError, match=why) as refused:
        KafkaQueue.open(address, TOPICS)
    assert broker.at(listener) in str(refused.value)
    assert PASSWORD not in str(refused.value)
