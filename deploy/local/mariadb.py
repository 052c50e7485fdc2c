"""One MariaDB server with two databases, which are two shards of the follow store."""

import getpass
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deploy.local import probes
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command
from deploy.local.programs import installed, run
from deploy.local.servers import Say

NAME = "mariadb"
PORTS = ("client",)
USER = "feed"
DATABASES = ("follows_0", "follows_1")

_BUFFER_POOL_MIB = 128
_INSTALL_S = 120.0


@dataclass(frozen=True)
class MariaDb:
    """A server of our own, apart from the system's: own data, own port, no file of /etc is read.

    Its user owns every database whose name begins with `follows_`, and may create more of them, for tests.
    """

    home: Home
    ports: Mapping[str, int]
    name: str = NAME
    needs: tuple[str, ...] = ()
    patience_s: float = 60.0

    @property
    def mark(self) -> str:
        return f"--datadir={self.home.data(self.name)}"

    def prepare(self, say: Say) -> None:
        conf = self.home.conf(self.name)
        password = self.home.password()
        write_conf(conf, "init.sql", init_sql(password, LOOPBACK))
        write_conf(conf, "client.cnf", client_conf(password, self.ports["client"]))
        data = self.home.data(self.name)
        if not data.exists():
            say(f"{self.name}: making its data directory")
            install(data, f"--user={getpass.getuser()}")

    def command(self) -> Command:
        argv = (
            "mariadbd",
            *arguments(
                self.home.data(self.name),
                self.home.conf(self.name) / "init.sql",
                bind=LOOPBACK,
                port=self.ports["client"],
            ),
            f"--user={getpass.getuser()}",
        )
        return Command(argv, self.mark, dict(os.environ))

    def check(self) -> None:
        # The last database that the init file makes: with it everything is there.
        probes.mariadb_select(self.home.conf(self.name) / "client.cnf", DATABASES[-1])


def install(data: Path, *options: str) -> None:
    """Makes a data directory, under another name first: an incomplete one must not look like a complete one.

    Raises:
        StackError: it cannot be made.
    """
    new = data.with_name(f"{data.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    run(
        installed("mariadb-install-db"), "--no-defaults", f"--datadir={new}", "--skip-test-db", *options,
        failed=f"{data}: the database's directory could not be made", timeout_s=_INSTALL_S,
    )  # fmt: skip
    new.rename(data)


def client_conf(password: str, port: int) -> str:
    """The configuration of a client of this machine, as the user."""
    return f'[client]\nhost={LOOPBACK}\nport={port}\nuser={USER}\npassword="{password}"\n'


def arguments(data: Path, init: Path, *, bind: str, port: int) -> tuple[str, ...]:
    """The arguments of a server, behind the name of the program; the first of them must stay the first."""
    return (
        "--no-defaults",
        f"--datadir={data}",
        f"--bind-address={bind}",
        f"--port={port}",
        # Relative to the data directory: a socket's whole path must not exceed 107 bytes.
        "--socket=mariadb.sock",
        f"--pid-file={data / 'mariadbd.pid'}",
        f"--init-file={init}",
        "--skip-name-resolve",
        "--character-set-server=utf8mb4",
        f"--innodb-buffer-pool-size={_BUFFER_POOL_MIB}M",
        "--innodb-flush-log-at-trx-commit=1",
        "--max-connections=200",
    )


def init_sql(password: str, callers: str) -> str:
    """Run by the server at every start, one statement a line. The password has no character that needs escaping.

    callers: the hosts that the user may come from, as MariaDB writes them.
    """
    return "".join(
        f"{statement};\n"
        for statement in (
            f"CREATE USER IF NOT EXISTS '{USER}'@'{callers}' IDENTIFIED BY '{password}'",
            f"ALTER USER '{USER}'@'{callers}' IDENTIFIED BY '{password}'",
            rf"GRANT ALL PRIVILEGES ON `follows\_%`.* TO '{USER}'@'{callers}'",
            *(f"CREATE DATABASE IF NOT EXISTS {name}" for name in DATABASES),
        )
    )
