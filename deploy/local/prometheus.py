"""One Prometheus: it scrapes what homes on this stack name, and evaluates the rules of `deploy/monitoring`."""

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

_RETENTION = ("--storage.tsdb.retention.time=7d", "--storage.tsdb.retention.size=512MB")


@dataclass(frozen=True)
class Prometheus:
    """Its targets are files in the stack's `targets`: each process that offers metrics writes one."""

    home: Home
    ports: Mapping[str, int]
    name: str = NAME
    needs: tuple[str, ...] = ()
    patience_s: float = 10.0

    @property
    def mark(self) -> str:
        return f"--storage.tsdb.path={self.home.data(self.name)}"

    def prepare(self, say: Say) -> None:  # noqa: ARG002 - it is quick
        text = monitoring.prometheus_yml(str(monitoring.RULES), [f"{self.home.targets}/*.json"])
        write_conf(self.home.conf(self.name), "prometheus.yml", text)

    def command(self) -> Command:
        argv = (
            "prometheus",
            f"--config.file={self._conf}",
            self.mark,
            f"--web.listen-address={LOOPBACK}:{self.ports['client']}",
            *_RETENTION,
            # What was scraped in the last minutes of a killed process is replayed from the log at the next start.
            "--storage.tsdb.wal-compression",
            "--log.level=warn",
        )
        return Command(argv, self.mark, dict(os.environ))

    def check(self) -> None:
        probes.answers_ok(self.ports["client"], "/-/ready")

    @property
    def _conf(self) -> Path:
        return self.home.conf(self.name) / "prometheus.yml"
