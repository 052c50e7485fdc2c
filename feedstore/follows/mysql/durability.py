"""Which settings of a MySQL or MariaDB server lose commits that it has acknowledged, when its machine loses its power.

Rule 11: acknowledged means durable. A server is asked by each new connection, in the packet that sets the session up.

One window stays open on a server without a binary log, and is not refused: InnoDB shows a commit before its log is on
the disk, so a repetition may be answered with an action that a crash then takes back. With a synced binary log, a
commit is on the disk before it shows.
"""

from collections.abc import Mapping
from typing import Final

from feedstore.follows.mysql.servers import MySQLServer
from feedstore.follows.port import UnsafeStoreError

_SAFE: Final[Mapping[str, tuple[str, ...]]] = {
    # 3, of MariaDB alone, syncs at each commit as 1 does, and once more.
    "innodb_flush_log_at_trx_commit": ("1", "3"),
    # MySQL's other words for ON; MariaDB's FAST syncs less often, and loses nothing. Without it a page that was half
    # written when the power went cannot be recovered.
    "innodb_doublewrite": ("ON", "1", "DETECT_AND_RECOVER", "FAST"),
    # MariaDB's, for tests.
    "debug_no_sync": ("OFF", "0"),
}
_UNSAFE_FLUSH_METHODS: Final = frozenset({"NOSYNC", "LITTLESYNC"})
NAMES: Final = (*_SAFE, "innodb_flush_method", "log_bin", "sync_binlog")
"""The settings that `unsafe` looks at."""


def refuse_unsafe(server: MySQLServer, settings: Mapping[str, str]) -> None:
    """Raises UnsafeStoreError; the message names each setting and says what it must be."""
    if found := unsafe(settings):
        raise UnsafeStoreError(f"{server}: {'; '.join(found)}: what it commits could be lost; set it there (my.cnf)")


def unsafe(settings: Mapping[str, str]) -> list[str]:
    """Every setting that is unsafe, with what it must be. Pure. settings: those that the server has, by its names."""
    has = {name.lower(): value.upper() for name, value in settings.items()}
    found = [
        f"{name} is {has[name]}, expected {safe[0]}"
        for name, safe in _SAFE.items()
        if has.get(name, safe[0]) not in safe
    ]
    if has.get("innodb_flush_method") in _UNSAFE_FLUSH_METHODS:
        found.append(f"innodb_flush_method is {has['innodb_flush_method']}, expected one that syncs, such as O_DIRECT")
    # With a binary log, a commit is durable when it is there: what is missing there is rolled back at the start.
    if has.get("log_bin") in {"ON", "1"} and has.get("sync_binlog") != "1":
        found.append(f"sync_binlog is {has.get('sync_binlog')}, expected 1, because log_bin is ON")
    return found
