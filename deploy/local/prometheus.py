"""One Prometheus: it scrapes the targets that homes on this stack name, and those of the stack's servers that show
metrics, and evaluates the rules of `deploy/monitoring`.
"""

from collections.abc import Mapping
from pathlib import Path

from deploy import monitoring
from deploy.local import probes
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command
from deploy.local.servers import Say, Server

NAME = "prometheus"
PORTS = ("client",)

CONF = "prometheus.yml"
_RETENTION = ("--storage.tsdb.retention.time=7d", "--storage.tsdb.retention.size=512MB")


def server(home: Home, ports: Mapping[str, int], watched: Mapping[str, int]) -> Server:
    """Its targets are files in the stack's `targets`: each process that offers metrics writes one. watched: the ports
    where servers show theirs, by their names.
    """
    conf, data = home.conf(NAME), home.data(NAME)

    def prepare(_: Say) -> None:
        servers = [monitoring.Target(f"{LOOPBACK}:{port}", {"server": name}) for name, port in watched.items()]
        text = monitoring.prometheus_yml([f"{home.targets}/*.json"], servers=servers)
        write_conf(conf, CONF, text)

    def command() -> Command:
        argv = arguments(conf / CONF, data, f"{LOOPBACK}:{ports['client']}")
        return Command(argv, _data(data))

    def check() -> None:
        probes.answers_ok(ports["client"], "/-/ready")

    return Server(NAME, ports, _data(data), prepare, command, check)


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
