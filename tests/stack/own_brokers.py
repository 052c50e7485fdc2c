"""Brokers of a test's own: several, as in production, where each partition has copies and its leader moves; or one that
asks its clients who they are.
"""

import random
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal, get_args

from deploy.local import jars, java, kafka, logs, ports, probes, processes
from deploy.local.errors import NotReadyError
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command, HeldProcess
from deploy.local.programs import run
from deploy.local.waiting import becomes

Listener = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
LISTENERS: Final[tuple[Listener, ...]] = get_args(Listener)
CONTROLLER: Final = "CONTROLLER"

COUNT: Final = 3
USER: Final = "feed"
PASSWORD: Final = "no secret of anything"
_HEAP_MIB: Final = 256
_READY_S: Final = 120.0
_ENDS_S: Final = 60.0
_SHOWN_LINES: Final = 40
_JARS: Final = "kafka"
_CLUSTER_ID: Final = "c2V2ZXJhbC1icm9rZXJzIQ"
"""Any id, the same for all of them."""
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Brokers:
    """They are numbered from 1, and each is a controller too: whichever of three is away, the others elect leaders."""

    def __init__(self, directory: Path, count: int, certificates: Path | None) -> None:
        """For `own_brokers`. Starts nothing."""
        self._home = Home(directory)
        self._home.create()
        self._certificates = certificates
        self._listeners = LISTENERS if certificates is not None else ("PLAINTEXT",)
        named = [*self._listeners, CONTROLLER]
        free = iter(ports.choose(len(named) * count, random.SystemRandom()))
        self._ports = {number: {name: next(free) for name in named} for number in range(1, count + 1)}
        self._running: dict[int, HeldProcess] = {}

    @property
    def numbers(self) -> Sequence[int]:
        return list(self._ports)

    @property
    def servers(self) -> str:
        """All of them, as a url names them."""
        return self.at("PLAINTEXT")

    def at(self, listener: Listener) -> str:
        """Where all of them listen for clients of a kind, as a url names them."""
        return ",".join(f"{LOOPBACK}:{places[listener]}" for places in self._ports.values())

    def log(self, number: int) -> Path:
        return self._home.log(_name(number))

    def start(self, *numbers: int) -> None:
        """Starts them together, and returns when each of them answers."""
        jars.ensure(_JARS, lambda _: None)
        for number in numbers:
            self._format(number)
            command = self._command(number, "kafka.Kafka", self._file(number), flags=(java.STARTS_FAST,))
            pid = processes.spawn(command, self.log(number), self._home.pid_file(_name(number)))
            held = processes.hold(pid, command.mark)
            assert held is not None, f"broker {number} has ended: {self.log(number)}"
            self._running[number] = held
        for number in numbers:
            gone = self._running[number].wait_gone
            assert becomes(lambda number=number, gone=gone: self._answers(number) or gone(0), _READY_S), (
                f"no answer: {self.log(number)}"
            )
            assert not gone(0), f"broker {number} has ended: {logs.tail(self.log(number), _SHOWN_LINES)}"

    def stop(self, number: int) -> None:
        """Asks it to end, as one restarts a broker: it hands its partitions to others first."""
        held = self._running.pop(number)
        with held:
            held.ask_to_end()
            assert held.wait_gone(_ENDS_S), f"broker {number} does not end: {self.log(number)}"

    def kill(self, number: int) -> None:
        with self._running.pop(number) as held:
            held.kill()

    def suspend(self, number: int) -> None:
        """It keeps its connections, and answers nothing until `resume`."""
        self._running[number].suspend()

    def resume(self, number: int) -> None:
        self._running[number].send(signal.SIGCONT)

    def close(self) -> None:
        for number in list(self._running):
            self.kill(number)

    def _answers(self, number: int) -> bool:
        try:
            probes.kafka_metadata(self._ports[number]["PLAINTEXT"])
        except NotReadyError:
            return False
        return True

    def _file(self, number: int) -> str:
        return str(self._home.conf(_name(number)) / "server.properties")

    def _format(self, number: int) -> None:
        name = _name(number)
        conf, data = self._home.conf(name), self._home.data(name)
        if (data / "meta.properties").exists():
            return
        write_conf(conf, java.LOG_CONF, java.log_conf())
        own = {"node.id": str(number), "log.dirs": str(data), **self._of(number), **self._copies()}
        write_conf(conf, "server.properties", kafka.properties(own))
        users = [f"{mechanism}=[name={USER},password={PASSWORD}]" for mechanism in _MECHANISMS[1:]]
        words = kafka.format_words(self._file(number), _CLUSTER_ID)
        adds = [word for user in users for word in ("--add-scram", user)]
        run(*self._command(number, *words, *adds).argv, failed=f"no data of broker {number}", timeout_s=_READY_S)

    def _of(self, number: int) -> dict[str, str]:
        """Where a broker listens, and what it asks of clients."""
        at = {name: f"{name}://{LOOPBACK}:{port}" for name, port in self._ports[number].items()}
        settings = {
            "controller.quorum.voters": ",".join(
                f"{each}@{LOOPBACK}:{of[CONTROLLER]}" for each, of in self._ports.items()
            ),
            "listeners": ",".join(at.values()),
            "advertised.listeners": ",".join(at[name] for name in self._listeners),
            "listener.security.protocol.map": ",".join(
                [f"{CONTROLLER}:PLAINTEXT", *(f"{name}:{name}" for name in self._listeners)]
            ),
            "inter.broker.listener.name": "PLAINTEXT",
        }
        return settings | ({} if self._certificates is None else _asks(self._certificates))

    def _copies(self) -> Mapping[str, str]:
        """What the brokers remember themselves has as many copies as the topics."""
        names = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        copies = {f"{name}.replication.factor": str(len(self._ports)) for name in names}
        return copies | {f"{name}.min.isr": str(min(2, len(self._ports))) for name in names[1:]}

    def _command(self, number: int, *main: str, flags: Sequence[str] = ()) -> Command:
        folders = [jars.folder(_JARS)]
        return java.command(self._home, _name(number), jars=folders, heap_mib=_HEAP_MIB, flags=flags, main=main)


def _asks(certificates: Path) -> dict[str, str]:
    """certificates: the folder of server.pem and ca.pem."""
    modules = "org.apache.kafka.common.security"
    plain = f'{modules}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = f"{modules}.scram.ScramLoginModule required;"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        **{
            f"listener.name.{listener}.{mechanism.lower()}.sasl.jaas.config": plain if mechanism == "PLAIN" else scram
            for listener in ("sasl_plaintext", "sasl_ssl")
            for mechanism in _MECHANISMS
        },
    }


def _name(number: int) -> str:
    return f"broker-{number}"


@contextmanager
def own_brokers(directory: Path, count: int = COUNT, certificates: Path | None = None) -> Iterator[Brokers]:
    """All of them run. certificates: a folder with server.pem and ca.pem; with it they have all of LISTENERS, and a
    user.
    """
    brokers = Brokers(directory, count, certificates)
    try:
        brokers.start(*brokers.numbers)
        yield brokers
    finally:
        brokers.close()
