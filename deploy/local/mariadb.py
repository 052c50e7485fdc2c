"""One MariaDB server with two databases, which are two shards of the follow store."""

import os
import pwd
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from deploy.local import probes
from deploy.local.home import Home, write_conf
from deploy.local.ports import LOOPBACK
from deploy.local.processes import Command
from deploy.local.programs import installed, run
from deploy.local.servers import Say, Server

NAME = "mariadb"
PORTS = ("client",)
USER = "feed"
DATABASES = ("follows_0", "follows_1")

_BUFFER_POOL_MIB = 128
_INSTALL_S = 120.0


def server(home: Home, ports: Mapping[str, int]) -> Server:
    """A server of our own, apart from the system's: own data, own port, no file of /etc is read.

    Its user owns every database whose name begins with `follows_`, and may create more of them, for tests.
    """
    conf, data = home.conf(NAME), home.data(NAME)
    mark, port, as_user = f"--datadir={data}", ports["client"], f"--user={_user()}"

    def prepare(say: Say) -> None:
        password = home.password()
        write_conf(conf, "init.sql", init_sql(password, LOOPBACK))
        write_conf(conf, "client.cnf", client_conf(password, port))
        if not data.exists():
            say(f"{NAME}: making its data directory")
            install(data, as_user)

    def command() -> Command:
        argv = ("mariadbd", *arguments(data, conf / "init.sql", bind=LOOPBACK, port=port), as_user)
        return Command(argv, mark)

    def check() -> None:
        # The last database that the init file makes: with it everything is there.
        probes.mariadb_select(conf / "client.cnf", DATABASES[-1])

    return Server(NAME, ports, mark, prepare, command, check, patience_s=60.0)


def _user() -> str:
    """The user of this process, who owns what it writes: variables such as LOGNAME may name another one."""
    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)  # a user without a name


def install(data: Path, *options: str) -> None:
    """Makes a data directory, under another name first: an incomplete one must not look like a complete one. Each
    attempt has a name of its own: what an attempt that was killed had begun may still write.

    Raises StackError: it cannot be made.
    """
    for left in data.parent.glob(f"{data.name}.new*"):
        shutil.rmtree(left, ignore_errors=True)
    new = data.with_name(f"{data.name}.new-{secrets.token_hex(4)}")
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
