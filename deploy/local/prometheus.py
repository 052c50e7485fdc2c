"""One Prometheus: it scrapes the targets that homes on this stack name, and those of the stack's servers that show
metrics, and evaluates the rules of `deploy/monitoring`.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy import monitoring
from deploy.local import probes
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command
from deploy.local.servers import Say

NAME = "prometheus"
PORTS = ("client",)

CONF = "prometheus.yml"
_RETENTION = ("--storage.tsdb.retention.time=7d", "--storage.tsdb.retention.size=512MB")


@dataclass(frozen=True)
class Prometheus:
    """Its targets are files in the stack's `targets`: each process that offers metrics writes one. watched: the ports
    where servers show theirs, by their names.
    """

    home: Home
    ports: Mapping[str, int]
    watched: Mapping[str, int]
    name: str = NAME
    needs: tuple[str, ...] = ()
    patience_s: float = 10.0

    @property
    def mark(self) -> str:
        return _data(self.home.data(self.name))

    def prepare(self, say: Say) -> None:  # noqa: ARG002 - it is quick
        servers = [monitoring.Target(f"{LOOPBACK}:{port}", {"server": server}) for server, port in self.watched.items()]
        text = monitoring.prometheus_yml(str(monitoring.RULES), [f"{self.home.targets}/*.json"], servers=servers)
        write_conf(self.home.conf(self.name), CONF, text)

    def command(self) -> Command:
        argv = arguments(self._conf, self.home.data(self.name), f"{LOOPBACK}:{self.ports['client']}")
        return Command(argv, self.mark, dict(os.environ))

    def check(self) -> None:
        probes.answers_ok(self.ports["client"], "/-/ready")

    @property
    def _conf(self) -> Path:
        return self.home.conf(self.name) / CONF


def arguments(conf: Path, data: Path, address: str) -> tuple[str, ...]:
    """The command line. conf: its configuration. data: where its samples are, which are kept for a week at most.
    address: HOST:PORT where it listens.
    """
    return (
        "prometheus",
        f"--config.file={conf}",
        _data(data),
        f"--web.listen-address={address}",
        *_RETENTION,
        # The samples of the last minutes of a killed process are replayed from the log at the next start.
        "--storage.tsdb.wal-compression",
        "--log.level=warn",
    )


def _data(folder: Path) -> str:
    return f"--storage.tsdb.path={folder}"
