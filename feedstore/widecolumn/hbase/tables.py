"""Administration of tables through a Thrift2 gateway: definitions in and out, as plain values."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from feedstore.widecolumn.hbase.gateways import Gateways
from feedstore.widecolumn.hbase.thrift2 import Thrift2Connection, structs
from feedstore.widecolumn.port import RefusedError, UnavailableError

WITHIN_MS = 60_000
"""Creating a table of many regions takes seconds, disabling a large one longer."""

T = TypeVar("T")


@dataclass(frozen=True)
class TableDefinition:
    """A table as HBase has it.

    families: the settings of each family, by its name. They take precedence over the table's.
    split_keys: where a new table is split; not known of a table that exists.
    """

    name: str
    families: Mapping[str, Mapping[str, str]]
    settings: Mapping[str, str]
    split_keys: Sequence[bytes] = field(default=())


class Tables:
    """The tables of one namespace. Every method raises UnavailableError, or RefusedError if HBase says so."""

    def __init__(self, gateways: Gateways[Thrift2Connection], namespace: str) -> None:
        self._gateways = gateways
        self._namespace = namespace

    def names(self) -> list[str]:
        return [_text(each.qualifier) for each in self._ask(lambda to: to.getTableNamesByNamespace(self._namespace))]

    def definition(self, name: str) -> TableDefinition | None:
        """A table as HBase has it; None if there is no such table."""
        if not self.exists(name):
            return None
        found = self._ask(lambda to: to.getTableDescriptor(self._named(name)))
        return TableDefinition(
            name,
            {_text(each.name): _texts(each.attributes) | _texts(each.configuration) for each in found.columns or ()},
            _texts(found.attributes),
        )

    def exists(self, name: str, deadline_s: float | None = None) -> bool:
        """Whether there is such a table. deadline_s: a time of `time.monotonic`."""
        return bool(self._ask(lambda to: to.tableExists(self._named(name)), deadline_s))

    def is_enabled(self, name: str, deadline_s: float | None = None) -> bool:
        """Whether a table is neither being made nor disabled. deadline_s: a time of `time.monotonic`."""
        return bool(self._ask(lambda to: to.isTableEnabled(self._named(name)), deadline_s))

    def create(self, wanted: TableDefinition) -> None:
        """Makes a table, and its namespace; a table of that name that is there stays as it is."""
        families = [structs.TColumnFamilyDescriptor(each.encode(), _bytes(s)) for each, s in wanted.families.items()]
        descriptor = structs.TTableDescriptor(self._named(wanted.name), families, _bytes(wanted.settings))
        # A try that broke off may have made it: the next one looks before it acts.
        self._unless(self.exists, wanted.name, lambda to: to.createTable(descriptor, list(wanted.split_keys) or None))

    def create_namespace(self) -> None:
        def exists(name: str) -> bool:
            return name in self._ask(lambda to: to.listNamespaces())

        self._unless(
            exists, self._namespace, lambda to: to.createNamespace(structs.TNamespaceDescriptor(self._namespace))
        )

    def drop_namespace(self) -> None:
        """Deletes the namespace. HBase refuses while there are tables in it."""
        self._ask(lambda to: to.deleteNamespace(self._namespace))

    def change(self, name: str, settings: Mapping[str, str | None]) -> None:
        """Sets settings of a table, or removes them (None); everything else in it stays. HBase opens the regions again,
        a few at a time: each is away for a moment.

        HBase takes only whole definitions: a change that somebody else makes between the read of the definition and its
        write is lost.
        """
        descriptor = self._ask(lambda to: to.getTableDescriptor(self._named(name)))
        there = {_text(key): value for key, value in (descriptor.attributes or {}).items()}
        kept = {key: value for key, value in there.items() if key not in settings}
        put = {key: value for key, value in settings.items() if value is not None}
        descriptor.attributes = {key.encode(): value for key, value in kept.items()} | _bytes(put)

        def is_changed(changed: str) -> bool:
            found = self.definition(changed)
            return found is not None and all(found.settings.get(key) == value for key, value in settings.items())

        self._unless(is_changed, name, lambda to: to.modifyTable(descriptor))

    def drop(self, name: str) -> None:
        """Deletes a table with everything in it; one that is not there is fine."""
        if self.exists(name):
            self._disable(name)
            self._unless(lambda each: not self.exists(each), name, lambda to: to.deleteTable(self._named(name)))

    def empty(self, name: str) -> None:
        """Deletes everything in a table; its definition and its splits stay."""
        self._disable(name)
        self._unless(self.is_enabled, name, lambda to: to.truncateTable(self._named(name), preserveSplits=True))

    def _disable(self, name: str) -> None:
        # A table that is still being made is neither enabled nor disabled: HBase makes it first, and disables it then.
        def is_disabled(there: str) -> bool:
            return bool(self._ask(lambda to: to.isTableDisabled(self._named(there))))

        self._unless(is_disabled, name, lambda to: to.disableTable(self._named(name)))

    def _named(self, name: str) -> Any:
        return structs.TTableName(self._namespace.encode(), name.encode())

    def _unless(self, done: Callable[[str], bool], name: str, act: Callable[[Any], None]) -> None:
        if done(name):
            return
        try:
            self._ask(act)
        except (UnavailableError, RefusedError):
            if not done(name):  # by an earlier try, or by another process
                raise

    def _ask(self, ask: Callable[[Any], T], deadline_s: float | None = None) -> T:
        return self._gateways.call(lambda to: ask(to.tables), WITHIN_MS, deadline_s=deadline_s, may_refuse=True)


def _bytes(settings: Mapping[str, str]) -> dict[bytes, bytes]:
    return {key.encode(): value.encode() for key, value in settings.items()}


def _texts(settings: Mapping[Any, Any] | None) -> dict[str, str]:
    return {_text(key): _text(value) for key, value in (settings or {}).items()}


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
