"""Snapshots, as an operator takes and restores them in HBase's own shell: no gateway offers them."""

from typing import Final

from tests.cli.command import eventually
from tests.widecolumn.hbase_wire import Ask, conversation, fields, number, text

TIMEOUT_S: Final = 120.0
_FLUSH: Final = 1
_FINISHED: Final = 2


class Snapshots:
    """Those of one cluster. master: where its master listens."""

    def __init__(self, master: tuple[str, int]) -> None:
        self._master = master

    def take(self, name: str, table: str) -> None:
        """As the table is at some moment of the call, region by region. table: with its namespace."""
        snapshot = text(1, _described(name, table))
        with conversation(self._master, "MasterService") as ask:
            ask("Snapshot", snapshot)
            eventually(
                lambda: dict(fields(ask("IsSnapshotDone", snapshot))).get(1, 0) == 1, f"snapshot {name}", TIMEOUT_S
            )

    def restore(self, name: str, table: str) -> None:
        """The table is away meanwhile."""
        namespace, _, qualifier = table.encode().partition(b":")
        of_table = text(1, text(1, namespace) + text(2, qualifier))
        with conversation(self._master, "MasterService") as ask:
            for method, request in (
                ("DisableTable", of_table),
                ("RestoreSnapshot", text(1, _described(name, table))),
                ("EnableTable", of_table),
            ):
                _finish(ask, dict(fields(ask(method, request)))[1], f"{method} of {table}")

    def delete(self, name: str, table: str) -> None:
        with conversation(self._master, "MasterService") as ask:
            ask("DeleteSnapshot", text(1, _described(name, table)))


def _described(name: str, table: str) -> bytes:
    return text(1, name.encode()) + text(2, table.encode()) + number(4, _FLUSH)


def _finish(ask: Ask, procedure: int, what: str) -> None:
    def is_finished() -> bool:
        answer = dict(fields(ask("getProcedureResult", number(1, procedure))))
        assert 5 not in answer, (what, answer[5])
        return bool(answer[1] == _FINISHED)

    eventually(is_finished, what, TIMEOUT_S)
