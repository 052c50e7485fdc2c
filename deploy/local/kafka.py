"""One Kafka broker, which is its own controller."""

import base64
import uuid
from collections.abc import Mapping, Sequence

from deploy.local import jars, java, probes
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command
from deploy.local.programs import run
from deploy.local.servers import Say, Server
from deploy.monitoring import servers

NAME = "kafka"
PORTS = ("client", "controller", "metrics")

_PROFILE = "kafka"
_HEAP_MIB = 384
_FORMAT_S = 120.0


def server(home: Home, ports: Mapping[str, int]) -> Server:
    """Survives a kill of its process: the records that it acknowledged are in the system's page cache.

    Topics are not created by being named: a misspelt one must fail.
    """
    conf, data = home.conf(NAME), home.data(NAME)
    path = str(conf / "server.properties")

    def java_command(*main: str, flags: Sequence[str] = ()) -> Command:
        folders = [jars.folder(_PROFILE)]
        return java.command(home, NAME, jars=folders, heap_mib=_HEAP_MIB, flags=(*flags, java.STARTS_FAST), main=main)

    def prepare(say: Say) -> None:
        write_conf(conf, java.LOG_CONF, java.log_conf())
        client, controller = (f"{LOOPBACK}:{ports[purpose]}" for purpose in ("client", "controller"))
        own = {
            "controller.quorum.voters": f"1@{controller}",
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(data),
        }
        write_conf(conf, "server.properties", properties(own))
        write_conf(conf, java.AGENT_CONF, servers.agent_yml(servers.KAFKA))
        jars.ensure(_PROFILE, say)
        jars.ensure(jars.AGENT, say)
        if not (data / "meta.properties").exists():
            say(f"{NAME}: formatting its data directory")
            tool = java_command(*format_words(path, new_cluster()))
            # The mark belongs to the server: a second command would find this one and take it for the broker.
            argv = [argument for argument in tool.argv if argument != tool.mark]
            run(*argv, failed=f"{NAME}: its data directory could not be formatted", timeout_s=_FORMAT_S)

    def command() -> Command:
        agent = java.watched(jars.folder(jars.AGENT), conf, f"{LOOPBACK}:{ports['metrics']}")
        return java_command("kafka.Kafka", path, flags=(agent,))

    def check() -> None:
        probes.kafka_metadata(ports["client"])

    return Server(NAME, ports, java.mark(home, NAME), prepare, command, check, patience_s=30.0)


def new_cluster() -> str:
    """An id for a new cluster, as Kafka writes them."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def format_words(properties_path: str, cluster: str) -> tuple[str, ...]:
    """The class that formats the data directory of a new broker, which a configuration names, and its arguments.

    cluster: the id of the cluster that the broker belongs to.
    """
    # One word with its option: one identifier in 64 begins with a hyphen, and would be taken for another option.
    return (
        "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", properties_path,
        "--ignore-formatted",
    )  # fmt: skip


def properties(own: Mapping[str, str]) -> str:
    """The configuration of a broker that is alone and its own controller, the first of its quorum.

    own: where it listens, where its data is, and whatever is otherwise for this broker.
    """
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "auto.create.topics.enable": "false",
        # One broker: every inner topic has one replica.
        "offsets.topic.replication.factor": "1",
        # A group that is forgotten starts again, unnoticed (rule 8). It is remembered as long as a production broker
        # should.
        "offsets.retention.minutes": "129600",
        "offsets.topic.num.partitions": "8",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # A broker that was killed may come back when its session has ended; the default lets it wait 9 s.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # A group of one consumer need not wait for others, and tests of lost members need not wait for long.
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        # The default takes a third of this heap.
        "log.cleaner.dedupe.buffer.size": "16777216",
        "num.network.threads": "2",
        "num.io.threads": "4",
        "background.threads": "4",
        **own,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())
