"""Several brokers of a test's own, as in production: each partition has copies, and its leader moves."""

import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deploy.local import jars, java, kafka, ports, probes, processes
from deploy.local.errors import NotReadyError
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command, HeldProcess
from deploy.local.programs import run
from deploy.local.waiting import becomes

COUNT: Final = 3
_HEAP_MIB: Final = 256
_READY_S: Final = 120.0
_ENDS_S: Final = 60.0
_JARS: Final = "kafka"
_CLUSTER_ID: Final = "c2V2ZXJhbC1icm9rZXJzIQ"
"""Any id, the same for all of them."""

_COPIES: Final = {
    # What they remember themselves has as many copies as the topics.
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
}


@dataclass(frozen=True)
class _Places:
    client: int
    controller: int


class Brokers:
    """COUNT brokers, numbered from 1, each of them a controller too: whichever is away, the others elect leaders."""

    def __init__(self, directory: Path) -> None:
        """Starts nothing."""
        self._home = Home(directory)
        self._home.create()
        free = iter(ports.choose(2 * COUNT, random.SystemRandom()))
        self._places = {number: _Places(next(free), next(free)) for number in self.numbers}
        self._running: dict[int, HeldProcess] = {}

    @property
    def numbers(self) -> Sequence[int]:
        return range(1, COUNT + 1)

    @property
    def servers(self) -> str:
        """All of them, as a url names them."""
        return ",".join(f"{LOOPBACK}:{places.client}" for places in self._places.values())

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
            assert becomes(lambda number=number: self._answers(number), _READY_S), f"no answer: {self.log(number)}"

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
            probes.kafka_metadata(self._places[number].client)
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
        own = self._places[number]
        listeners = f"PLAINTEXT://{LOOPBACK}:{own.client}"
        write_conf(conf, java.LOG_CONF, java.log_conf())
        text = kafka.properties(
            {
                "controller.quorum.voters": ",".join(
                    f"{each}@{LOOPBACK}:{places.controller}" for each, places in self._places.items()
                ),
                "listeners": f"{listeners},CONTROLLER://{LOOPBACK}:{own.controller}",
                "advertised.listeners": listeners,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": str(data),
            }
        )
        settings = dict(line.split("=", 1) for line in text.splitlines()) | {"node.id": str(number)} | _COPIES
        write_conf(conf, "server.properties", "".join(f"{key}={value}\n" for key, value in settings.items()))
        words = (
            "kafka.tools.StorageTool", "format", f"--cluster-id={_CLUSTER_ID}", "--config", self._file(number),
        )  # fmt: skip
        run(*self._command(number, *words).argv, failed=f"broker {number} has no data directory", timeout_s=_READY_S)

    def _command(self, number: int, *main: str, flags: Sequence[str] = ()) -> Command:
        folders = [jars.folder(_JARS)]
        return java.command(self._home, _name(number), jars=folders, heap_mib=_HEAP_MIB, flags=flags, main=main)


def _name(number: int) -> str:
    return f"broker-{number}"


@contextmanager
def own_brokers(directory: Path) -> Iterator[Brokers]:
    """All of them run."""
    brokers = Brokers(directory)
    try:
        brokers.start(*brokers.numbers)
        yield brokers
    finally:
        brokers.close()
