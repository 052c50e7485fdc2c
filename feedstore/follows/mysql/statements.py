"""The SQL of a MySQL shard: texts, and how rows and keys become literals in them.

What is put in is integers, which are checked by `%d`, and bytes as hexadecimal literals. Statements that take many
rows come in chunks, sorted by primary key: transactions that write the same rows take their locks in the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple

from feedstore.clocks import APART_MAX_MS
from feedstore.domain import RESERVED_FROM
from feedstore.follows.shard import (
    BoardRow,
    EdgeKey,
    EdgeRow,
    FollowerKey,
    FollowerRow,
    KeyRow,
    NewestFrom,
    OutboxKey,
    PinIndexKey,
    PinIndexRow,
    PinRow,
    Place,
    SavedFrom,
    outbox_rows,
)
from feedstore.portions import chunks, portions

VALUES_A_LIST: Final = 900
"""MariaDB makes a sub-query of a list of a thousand values and more, and counts each column."""

ROWS_A_STATEMENT: Final = 1_000

PACKED_ROWS: Final = 20_000
"""The most rows that are asked for in one text; see `packed`."""

NOW_MS: Final = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000"


# Literals
# --------------------------------------------------------------------------------------------------------------------


def _bytes(value: bytes | None) -> str:
    # X'' is an empty text.
    return "NULL" if value is None else f"X'{value.hex()}'"


def _integer(value: int) -> str:
    return "%d" % value


def _nullable(value: int | None) -> str:
    return "NULL" if value is None else "%d" % value


def _key(key: str) -> str:
    return _bytes(key.encode())


_INTEGERS: Final = tuple("(" + ", ".join(["%d"] * width) + ")" for width in range(7))


def _integers(row: tuple[int, ...]) -> str:
    return _INTEGERS[len(row)] % row


def _pin(row: PinRow) -> str:
    return "(%d, %d, %d, %d, %d, %s)" % (*row[:5], _nullable(row[5]))


def _indexed_pin(row: PinIndexRow) -> str:
    return "(%d, %d, %d, %d, %d, %d, %d, %s)" % (*row[:7], _nullable(row[7]))


def _refill(asked: tuple[int, str]) -> str:
    return "(%d, %s)" % (asked[0], _key(asked[1]))


def _insert(into: str, rows: Iterable[str], then: str = "") -> Iterator[str]:
    for chunk in chunks(list(rows), ROWS_A_STATEMENT):
        yield f"INSERT INTO {into} VALUES {', '.join(chunk)}{then}"


# Without the hints a small table would be scanned, and rows locked that are not needed.


def _select(text: str, keys: Iterable[Any], literal: Callable[[Any], str], then: str) -> Iterator[str]:
    ordered = sorted(keys)
    width = len(ordered[0]) if ordered and isinstance(ordered[0], tuple) else 1
    for chunk in chunks(ordered, VALUES_A_LIST // width):
        yield f"{text} ({', '.join(map(literal, chunk))}){then}"


def _delete(
    table: str, key: str, keys: Iterable[Any], literal: Callable[[Any], str], still: str = "TRUE"
) -> Iterator[str]:
    """still: a condition on the rows. If it names a column outside of the primary key, both servers look rows up by
    their keys; if not, they may read all of a small table, and wait for rows that other transactions are inserting.
    """
    return _select(
        f"DELETE {table} FROM {table} FORCE INDEX (PRIMARY) WHERE {still} AND {key} IN", keys, literal, UNLOCKED
    )


# Records by their keys, under locks or without
# --------------------------------------------------------------------------------------------------------------------

LOCKED: Final = " FOR UPDATE"
UNLOCKED: Final = ""

_EDGE: Final = "SELECT follower, kind, followee, ts, active, committed_ms FROM edges FORCE INDEX (PRIMARY)"
_PIN: Final = "SELECT pin, owner, board, created_ms, saved_ms, deleted_ms FROM pins FORCE INDEX (PRIMARY)"


def clocks(followers: Iterable[int], lock: str) -> Iterator[str]:
    """(follower, last_ts, committed_ms)."""
    text = "SELECT follower, last_ts, committed_ms FROM clocks FORCE INDEX (PRIMARY) WHERE follower IN"
    return _select(text, followers, _integer, lock)


def edges(keys: Iterable[EdgeKey], lock: str) -> Iterator[str]:
    return _select(f"{_EDGE} WHERE (follower, kind, followee) IN", keys, _integers, lock)


def boards(keys: Iterable[int], lock: str) -> Iterator[str]:
    return _select("SELECT board, owner FROM boards FORCE INDEX (PRIMARY) WHERE board IN", keys, _integer, lock)


def pins(keys: Iterable[int], lock: str) -> Iterator[str]:
    return _select(f"{_PIN} WHERE pin IN", keys, _integer, lock)


PIN_COLUMNS: Final = "pin, owner, board, created_ms, saved_ms, COALESCE(deleted_ms, -1)"
"""A text has no nulls: a pin that is not deleted was deleted at -1."""


def pins_after(pin: int, limit: int) -> str:
    return packed(f"{_PIN} WHERE pin > {pin:d} ORDER BY pin LIMIT {limit:d}", PIN_COLUMNS)


def deletions(keys: Iterable[int]) -> Iterator[str]:
    text = "SELECT pin, deleted_ms FROM pins FORCE INDEX (PRIMARY) WHERE deleted_ms IS NOT NULL AND pin IN"
    return _select(text, keys, _integer, UNLOCKED)


def request_keys(keys: Iterable[str], lock: str) -> Iterator[str]:
    """(request_key, fingerprint, answer, committed_ms)."""
    text = "SELECT request_key, fingerprint, answer, committed_ms FROM request_keys FORCE INDEX (PRIMARY)"
    return _select(f"{text} WHERE request_key IN", keys, _key, lock)


def refills(keys: Iterable[tuple[int, str]], lock: str) -> Iterator[str]:
    """(user_id, cluster_name, asked_ms, served_before_ms)."""
    text = "SELECT user_id, cluster_name, asked_ms, served_before_ms FROM refills FORCE INDEX (PRIMARY)"
    return _select(f"{text} WHERE (user_id, cluster_name) IN", keys, _refill, lock)


# The state of the shard
# --------------------------------------------------------------------------------------------------------------------

STAMP: Final = f"SELECT latest_ms, {NOW_MS} FROM shard_state WHERE only_row = 1 LOCK IN SHARE MODE"
"""Until the transaction ends, no caller settles."""

NOW: Final = f"SELECT latest_ms, {NOW_MS} FROM shard_state WHERE only_row = 1"
LATEST: Final = "SELECT latest_ms FROM shard_state WHERE only_row = 1"
OLDEST_UNRELAYED: Final = "SELECT MIN(committed_ms) FROM outbox_unrelayed"
A_RELAYED: Final = (
    "SELECT 1 FROM (SELECT MIN(id) AS id FROM outbox) AS o LEFT JOIN outbox_unrelayed AS u ON u.id = o.id"
    " WHERE o.id IS NOT NULL AND u.id IS NULL"
)
OUTBOX_IS_WHOLE: Final = (
    "SELECT EXISTS (SELECT 1 FROM outbox WHERE id <= @@auto_increment_increment)"
    " OR NOT EXISTS (SELECT 1 FROM outbox UNION ALL SELECT 1 FROM clocks UNION ALL SELECT 1 FROM pins)"
)
BACKLOG: Final = "SELECT COUNT(*), COALESCE(SUM(actions), 0), MIN(committed_ms) FROM outbox_unrelayed"


def settle(now_ms: int | None, own_ms: int) -> str:
    """The reply's last_id is the time; 0 if the clock has stepped ahead (`clocks.step_ms`), and nothing is changed. It
    waits for every transaction that has stamped and not committed.

    If the clock is behind the time that was settled last, because it was ahead once, time takes a step of its own.
    """
    now = NOW_MS if now_ms is None else _integer(now_ms)
    settled = f"GREATEST({now}, latest_ms + ({now} < latest_ms))"
    stepped = f"{now} > GREATEST(latest_ms, {_integer(own_ms)}) + {APART_MAX_MS}"
    return f"UPDATE shard_state SET latest_ms = LAST_INSERT_ID({settled}) WHERE only_row = 1 AND NOT ({stepped})"


def bring_state_back(to_ms: int) -> str:
    return f"UPDATE shard_state SET latest_ms = {to_ms:d} WHERE only_row = 1 AND latest_ms > {to_ms:d}"


class Dated(NamedTuple):
    """A table whose rows may be written under a clock that was ahead: such rows must hold up no later transaction, and
    must expire. key: the first column of its primary key. time: what is the time of a row. first: is before all keys.
    """

    table: str
    key: str
    time: str = "committed_ms"
    first: str = "0"

    def back(self, part: str, later_ms: int, to_ms: int) -> str:
        """Sets the times of a part that are later than one back to another one. Rows with several times are dropped."""
        if self.time == "committed_ms":
            change = f"UPDATE {self.table} FORCE INDEX (PRIMARY) SET committed_ms = {to_ms:d}"
        else:
            change = f"DELETE {self.table} FROM {self.table} FORCE INDEX (PRIMARY)"
        return f"{change} WHERE {self.time} > {later_ms:d} AND {part}"


DATED: Final = (
    Dated("outbox", "id"),
    Dated("outbox_unrelayed", "id"),
    Dated("request_keys", "request_key", first=_bytes(b"")),
    Dated("clocks", "follower"),
    Dated("edges", "follower"),
    Dated("refills", "user_id", "GREATEST(asked_ms, served_before_ms)"),
)


def portion_end(dated: Dated, after: str, rows: int) -> str:
    """The key of the row that is `rows` rows past a key; none if there are fewer. Keys here are literals."""
    return (
        f"SELECT {dated.key} FROM {dated.table} FORCE INDEX (PRIMARY) WHERE {dated.key} > {after}"
        f" ORDER BY {dated.key} LIMIT 1 OFFSET {rows - 1:d}"
    )


def part(dated: Dated, after: str, end: str | None) -> str:
    """The condition on the rows past a key, up to another one with all of its rows, or up to the last one."""
    return f"{dated.key} > {after}" + ("" if end is None else f" AND {dated.key} <= {end}")


def latest_in(dated: Dated, part: str) -> str:
    """The latest time in a part, without locks."""
    return f"SELECT MAX({dated.time}) FROM {dated.table} FORCE INDEX (PRIMARY) WHERE {part}"


def literal(key: int | bytes) -> str:
    return _bytes(key) if isinstance(key, bytes) else _integer(key)


# What a transaction writes
# --------------------------------------------------------------------------------------------------------------------
# A missing row is inserted plainly: if another transaction was faster, this one fails and begins again.


def put_clocks(rows: Iterable[tuple[int, int]], now_ms: int, *, new: bool) -> Iterator[str]:
    then = "" if new else _update("last_ts", "committed_ms")
    return _insert(
        "clocks (follower, last_ts, committed_ms)", (_integers((*row, now_ms)) for row in sorted(rows)), then
    )


def put_edges(rows: Iterable[EdgeRow]) -> Iterator[str]:
    """New rows or not: each caller has locked the follower's clock."""
    into = "edges (follower, kind, followee, ts, active, committed_ms)"
    return _insert(into, map(_integers, sorted(rows)), _update("ts", "active", "committed_ms"))


def insert_boards(rows: Iterable[tuple[int, int]]) -> Iterator[str]:
    return _insert("boards (board, owner)", map(_integers, sorted(rows)))


def put_pins(rows: Iterable[PinRow], *, new: bool) -> Iterator[str]:
    then = "" if new else _update("saved_ms", "deleted_ms")
    into = "pins (pin, owner, board, created_ms, saved_ms, deleted_ms)"
    return _insert(into, map(_pin, sorted(rows, key=itemgetter(0))), then)


def put_keys(rows: Iterable[tuple[str, KeyRow]], now_ms: int, *, new: bool) -> Iterator[str]:
    """An answer for a key that was claimed keeps the time of the claim."""
    into = "request_keys (request_key, fingerprint, answer, committed_ms)"
    values = (
        f"({_key(key)}, {_bytes(fingerprint)}, {_bytes(answer)}, {now_ms:d})"
        for key, (fingerprint, answer) in sorted(rows, key=itemgetter(0))
    )
    return _insert(into, values, "" if new else _update("answer"))


def put_refills(rows: Iterable[tuple[tuple[int, str], int]], *, new: bool) -> Iterator[str]:
    values = ("(%d, %s, %d)" % (user, _key(cluster), asked_ms) for (user, cluster), asked_ms in sorted(rows))
    then = "" if new else _update("asked_ms")
    return _insert("refills (user_id, cluster_name, asked_ms)", values, then)


def insert_outbox(actions: Sequence[bytes], now_ms: int) -> Iterator[str]:
    for count, body in outbox_rows(actions):
        yield f"INSERT INTO outbox (committed_ms, actions, body) VALUES ({now_ms:d}, {count:d}, {_bytes(body)})"
        yield (
            f"INSERT INTO outbox_unrelayed (id, committed_ms, actions) VALUES (LAST_INSERT_ID(), {now_ms:d}, {count:d})"
        )


def _update(*columns: str) -> str:
    # VALUES() is what both servers know: row aliases are MySQL's only.
    return " ON DUPLICATE KEY UPDATE " + ", ".join(f"{column} = VALUES({column})" for column in columns)


def mark_refills_served(served: Mapping[tuple[int, str], int]) -> Iterator[str]:
    for (user, cluster), before_ms in sorted(served.items()):
        yield (
            f"UPDATE refills SET served_before_ms = GREATEST(served_before_ms, {before_ms:d})"
            f" WHERE user_id = {user:d} AND cluster_name = {_key(cluster)}"
        )


# The outbox
# --------------------------------------------------------------------------------------------------------------------


def unrelayed(limit: int) -> str:
    """In any order. The bodies of as many rows as it takes to have `limit` actions: they are large."""
    columns = "id, committed_ms, actions"
    first = f"SELECT {columns} FROM outbox_unrelayed AS u FORCE INDEX (PRIMARY) ORDER BY u.id LIMIT {limit:d}"
    counted = f"SELECT {columns}, SUM(actions) OVER (ORDER BY id) AS up_to FROM ({first}) AS first_rows"
    return (
        f"SELECT STRAIGHT_JOIN c.id, c.committed_ms, c.actions, o.body FROM ({counted}) AS c"
        f" JOIN outbox AS o FORCE INDEX (PRIMARY) ON o.id = c.id WHERE c.up_to - c.actions < {limit:d}"
    )


def mark_relayed(rows: Iterable[OutboxKey]) -> Iterator[str]:
    return _delete("outbox_unrelayed", "(id, committed_ms)", rows, _integers, "actions >= 0")


def lock(name: str) -> str:
    """1 if this connection has the lock of that name, or gets it now; 0 if another one has it."""
    return f"SELECT IF(IS_USED_LOCK('{name}') <=> CONNECTION_ID(), 1, GET_LOCK('{name}', 0))"


def outbox_before(before: int, limit: int) -> str:
    """Until the transaction ends, none of these rows expires."""
    return (
        f"SELECT id, committed_ms, actions FROM outbox WHERE id < {before:d} ORDER BY id DESC LIMIT {limit:d}"
        " LOCK IN SHARE MODE"
    )


def mark_unrelayed(rows: Iterable[tuple[int, int, int]]) -> Iterator[str]:
    return _insert("outbox_unrelayed (id, committed_ms, actions)", map(_integers, rows), _update("committed_ms"))


def mark_refills_unserved(since_ms: int) -> str:
    return f"UPDATE refills SET served_before_ms = {since_ms:d} WHERE served_before_ms > {since_ms:d}"


# Index writes
# --------------------------------------------------------------------------------------------------------------------
# Assignments take effect from left to right: what an earlier one changed, a later one sees.


def index_followers(rows: Sequence[FollowerRow]) -> Iterator[str]:
    """A row with a later ts wins. Tombstones are noted first, as their expiry removes them first."""
    yield from _note(
        "follower_tombstones (ts, kind, followee, follower)",
        ((ts, kind, followee, follower) for kind, followee, follower, ts, active in rows if not active),
    )
    yield from _insert(
        "followers (kind, followee, follower, ts, active)",
        map(_integers, sorted(rows)),
        " ON DUPLICATE KEY UPDATE active = IF(VALUES(ts) > ts, VALUES(active), active), ts = GREATEST(ts, VALUES(ts))",
    )


def index_pins(rows: Sequence[PinIndexRow]) -> Iterator[str]:
    """The larger saved_ms and the larger deleted_ms win, each for itself."""
    yield from _note(
        "pin_index_deleted (deleted_ms, kind, followee, created_ms, pin)",
        ((row[7], *row[:4]) for row in rows if row[7] is not None),
    )
    yield from _insert(
        "pin_index (kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms)",
        map(_indexed_pin, sorted(rows, key=_feed_order)),
        " ON DUPLICATE KEY UPDATE saved_ms = GREATEST(saved_ms, VALUES(saved_ms)),"
        " deleted_ms = NULLIF(GREATEST(COALESCE(deleted_ms, 0), COALESCE(VALUES(deleted_ms), 0)), 0)",
    )


def _note(into: str, rows: Iterable[tuple[int, ...]]) -> Iterator[str]:
    column = into.partition("(")[2].partition(",")[0]
    return _insert(into, map(_integers, sorted(set(rows))), f" ON DUPLICATE KEY UPDATE {column} = VALUES({column})")


def _feed_order(row: PinIndexRow) -> tuple[int, int, int, int]:
    return row[0], row[1], -row[2], row[3]


# Pages
# --------------------------------------------------------------------------------------------------------------------


def packed(select: str, columns: str) -> str:
    """One row instead of many: (number of rows, their integers in one text). Taking a result set apart costs the client
    five times as much as splitting a text.
    """
    return f"SELECT COUNT(*), GROUP_CONCAT(CONCAT_WS(',', {columns}) SEPARATOR ',') FROM ({select}) AS page"


def unpacked(reply: tuple[int, str | bytes | None], width: int) -> list[tuple[int, ...]]:
    """The rows of a packed page, sorted. Raises ValueError where the server cut the text off."""
    count, text = reply
    if text is None:
        return []
    numbers = map(int, text.split(b"," if isinstance(text, bytes) else ","))  # type: ignore[arg-type]
    rows = sorted(zip(*[numbers] * width, strict=True))
    if len(rows) != count:
        raise ValueError(f"{count} rows were packed and {len(rows)} came")
    return rows


FOLLOWER_COLUMNS: Final = "kind, followee, follower, ts, active"


def _of_kinds(followees: Iterable[tuple[int, int]], also: str = "") -> list[str]:
    """The ranges of all rows of some followees, each (kind, id): one for each kind. also: a further condition."""
    by_kind: dict[int, list[int]] = {}
    for kind, followee in followees:
        by_kind.setdefault(kind, []).append(followee)
    return [
        f"(kind = {kind:d} AND followee IN ({', '.join(map(_integer, some))}){also})" for kind, some in by_kind.items()
    ]


def followers(places: Sequence[EdgeKey], limit: int, *, tombstones: bool) -> str:
    """One range over the primary key, in whose order the rows come; it ends where the page is full. Each place is
    (after this follower, kind, followee).
    """
    ranges = [
        "(kind = %d AND followee = %d AND follower > %d)" % (kind, followee, after)
        for after, kind, followee in places
        if after > 0
    ]
    ranges += _of_kinds((kind, followee) for after, kind, followee in places if after <= 0)
    active = "" if tombstones else " AND active = 1"
    return packed(
        f"SELECT {FOLLOWER_COLUMNS} FROM followers FORCE INDEX (PRIMARY) WHERE ({' OR '.join(ranges)}){active}"
        f" ORDER BY kind, followee, follower LIMIT {limit:d}",
        FOLLOWER_COLUMNS,
    )


PLACES_A_STATEMENT: Final = 128

WHOLE_ROWS_A_FOLLOWEE: Final = 16
"""This many pins cost the server no more than a part of a statement does."""

WHOLE_COLUMNS: Final = "kind, followee, order_ms, pin, owner, board, saved_ms, hidden"


def whole_pins(followees: Iterable[tuple[int, int]], saved_before_ms: int, limit: int) -> str:
    """All pins of some followees, each (kind, id), in one range over the primary key, in whose order the rows come; it
    ends where the page is full. hidden: 1 if a pin is deleted, or was saved too late. They are in the page, as a board
    may have millions of deleted pins: the server looks at no more rows than the page has.
    """
    return (
        "SELECT kind, followee, -created_ms AS order_ms, pin, owner, board, saved_ms,"
        f" (deleted_ms IS NOT NULL OR saved_ms >= {saved_before_ms:d}) AS hidden FROM pin_index"
        f" FORCE INDEX (PRIMARY) WHERE {' OR '.join(_of_kinds(followees))}"
        f" ORDER BY kind, followee, created_ms DESC, pin LIMIT {limit:d}"
    )


NEWEST_COLUMNS: Final = "place, order_ms, pin, owner, board, saved_ms"
"""order_ms is the negative of created_ms: sorted, the rows are in feed order."""


def newest_chunks(places: Sequence[NewestFrom]) -> Iterator[list[NewestFrom]]:
    """The places for one statement each: together at most PACKED_ROWS rows, or a single place that has more."""
    return portions(places, lambda place: place.limit, PACKED_ROWS, PLACES_A_STATEMENT)


def newest_pins(places: Sequence[NewestFrom], saved_before_ms: int) -> str:
    """Each place has a limit of its own, and so a part of its own."""
    parts = (
        "(SELECT %d AS place, -created_ms AS order_ms, pin, owner, board, saved_ms"
        " FROM pin_index FORCE INDEX (PRIMARY) WHERE kind = %d AND followee = %d AND created_ms BETWEEN %d AND %d"
        " AND (created_ms < %d OR pin > %d) AND saved_ms < %d AND deleted_ms IS NULL"
        " ORDER BY created_ms DESC, pin LIMIT %d)"
        % (
            number,
            place.kind,
            place.followee,
            place.created_from_ms,
            place.created_ms,
            place.created_ms,
            place.pin,
            saved_before_ms,
            place.limit,
        )
        for number, place in enumerate(places)
    )
    return " UNION ALL ".join(parts)


def pins_saved_since(places: Sequence[SavedFrom], since_ms: int, limit: int) -> str:
    """One range over the index by saving time, in whose order the rows come; it ends where the page is full."""
    ranges = [
        "(kind = %d AND followee = %d AND saved_ms >= %d AND (saved_ms > %d OR pin > %d))"
        % (kind, followee, max(since_ms, saved_ms), saved_ms, pin)
        for kind, followee, saved_ms, pin in places
        if saved_ms > 0
    ]
    whole = ((each.kind, each.followee) for each in places if each.saved_ms <= 0)
    ranges += _of_kinds(whole, f" AND saved_ms >= {since_ms:d}")
    return (
        "SELECT kind, followee, saved_ms, pin, owner, board, created_ms FROM pin_index FORCE INDEX (pin_index_saved)"
        f" WHERE ({' OR '.join(ranges)}) AND deleted_ms IS NULL ORDER BY kind, followee, saved_ms, pin LIMIT {limit:d}"
    )


def boards_of(owners: Sequence[int], after: BoardRow, limit: int) -> str:
    """After a place, which is of the first of the owners or before them."""
    first = f" AND (owner > {after[0]:d} OR board > {after[1]:d})" if owners[0] == after[0] else ""
    return (
        "SELECT owner, board FROM boards FORCE INDEX (boards_owner)"
        f" WHERE owner IN ({', '.join(map(_integer, owners))}){first} ORDER BY owner, board LIMIT {limit:d}"
    )


def active_edges_after(places: Sequence[EdgeKey], limit: int) -> str:
    """One range over the primary key, in whose order the rows come; it ends where the page is full."""
    ranges = [
        f"(follower = {follower:d} AND (kind > {kind:d} OR (kind = {kind:d} AND followee > {followee:d})))"
        for follower, kind, followee in places
        if kind >= 0
    ]
    whole = [follower for follower, kind, _ in places if kind < 0]
    if whole:
        ranges.append(f"follower IN ({', '.join(map(_integer, whole))})")
    return f"{_EDGE} WHERE ({' OR '.join(ranges)}) AND active = 1 ORDER BY follower, kind, followee LIMIT {limit:d}"


def ended_edges_after(follower: int, since_ms: int, after: Place, limit: int) -> str:
    kind, followee = after
    past = f"kind > {kind:d} OR (kind = {kind:d} AND followee > {followee:d})"
    ended = f"active = 0 AND committed_ms >= {since_ms:d}"
    return f"{_EDGE} WHERE follower = {follower:d} AND ({past}) AND {ended} ORDER BY kind, followee LIMIT {limit:d}"


def all_edges_after(after: EdgeKey, limit: int, *, tombstones: bool) -> str:
    past = _past(("follower", "kind", "followee"), after)
    active = "" if tombstones else " AND active = 1"
    return f"{_EDGE} WHERE {past}{active} ORDER BY follower, kind, followee LIMIT {limit:d}"


def all_followers_after(after: FollowerKey, limit: int) -> str:
    past = _past(("kind", "followee", "follower"), after)
    return f"{_FOLLOWER} WHERE {past} ORDER BY kind, followee, follower LIMIT {limit:d}"


def all_lines_after(after: PinIndexKey, limit: int) -> str:
    *place, created_ms, pin = after
    of_place = "kind = %d AND followee = %d" % tuple(place)
    within = f"created_ms < {created_ms:d} OR (created_ms = {created_ms:d} AND pin > {pin:d})"
    return (
        f"{_LINE} WHERE {_past(('kind', 'followee'), place)} OR ({of_place} AND ({within}))"
        f" ORDER BY kind, followee, created_ms DESC, pin LIMIT {limit:d}"
    )


def _past(columns: Sequence[str], place: Sequence[int]) -> str:
    """What comes after a place in the order of some columns. Comparing them as a row would use no index."""
    equal = ""
    ranges: list[str] = []
    for column, value in zip(columns, place, strict=True):
        ranges.append(f"({equal}{column} > {value:d})")
        equal += f"{column} = {value:d} AND "
    return f"({' OR '.join(ranges)})"


_FOLLOWER: Final = "SELECT kind, followee, follower, ts, active FROM followers FORCE INDEX (PRIMARY)"
_LINE: Final = (
    "SELECT kind, followee, created_ms, pin, owner, board, saved_ms, deleted_ms FROM pin_index FORCE INDEX (PRIMARY)"
)


def follower_rows(keys: Iterable[FollowerKey]) -> Iterator[str]:
    return _select(f"{_FOLLOWER} WHERE (kind, followee, follower) IN", keys, _integers, UNLOCKED)


def lines(keys: Iterable[PinIndexKey]) -> Iterator[str]:
    return _select(f"{_LINE} WHERE (kind, followee, created_ms, pin) IN", keys, _integers, UNLOCKED)


# Expiry
# --------------------------------------------------------------------------------------------------------------------
# Old rows are looked for without locks, and dropped by their keys if they are still old.


def old_follower_tombstones(before_ms: int, limit: int) -> str:
    return (
        f"SELECT ts, kind, followee, follower FROM follower_tombstones WHERE ts < {before_ms:d}"
        f" ORDER BY ts, kind, followee, follower LIMIT {limit:d}"
    )


def drop_follower_tombstones(rows: Sequence[tuple[int, int, int, int]], before_ms: int) -> Iterator[str]:
    yield from _delete("follower_tombstones", "(ts, kind, followee, follower)", rows, _integers)
    keys = {row[1:] for row in rows}
    yield from _delete("followers", "(kind, followee, follower)", keys, _integers, f"active = 0 AND ts < {before_ms:d}")


def old_deleted_pins(before_ms: int, limit: int) -> str:
    return (
        f"SELECT deleted_ms, kind, followee, created_ms, pin FROM pin_index_deleted WHERE deleted_ms < {before_ms:d}"
        f" ORDER BY deleted_ms, kind, followee, created_ms, pin LIMIT {limit:d}"
    )


def drop_deleted_pins(rows: Sequence[tuple[int, int, int, int, int]], before_ms: int) -> Iterator[str]:
    yield from _delete("pin_index_deleted", "(deleted_ms, kind, followee, created_ms, pin)", rows, _integers)
    keys = {row[1:] for row in rows}
    still = f"deleted_ms < {before_ms:d}"
    yield from _delete("pin_index", "(kind, followee, created_ms, pin)", keys, _integers, still)


def outbox_after(after: int, limit: int) -> str:
    """(id, committed_ms, actions, 1 if it is relayed) of the next rows past an id."""
    return (
        "SELECT STRAIGHT_JOIN o.id, o.committed_ms, o.actions, u.id IS NULL FROM outbox AS o FORCE INDEX (PRIMARY)"
        f" LEFT JOIN outbox_unrelayed AS u ON u.id = o.id WHERE o.id > {after:d} ORDER BY o.id LIMIT {limit:d}"
    )


def drop_outbox(ids: Sequence[int]) -> Iterator[str]:
    """Also the mark of a row that was to be relayed again after it was found to be relayed. In one transaction."""
    yield from _delete("outbox", "id", ids, _integer, "actions >= 0")
    yield from _delete("outbox_unrelayed", "id", ids, _integer, "actions >= 0")


def drop_keys(before_ms: int, limit: int) -> str:
    return f"DELETE FROM request_keys WHERE committed_ms < {before_ms:d} ORDER BY committed_ms LIMIT {limit:d}"


def drop_refills(before_ms: int, limit: int) -> str:
    return f"DELETE FROM refills WHERE asked_ms < {before_ms:d} ORDER BY asked_ms LIMIT {limit:d}"


COUNTS: Final = (
    f"SELECT (SELECT COUNT(*) FROM edges WHERE active = 1 AND follower < {RESERVED_FROM}),"
    f" (SELECT COUNT(*) FROM edges WHERE active = 0 AND follower < {RESERVED_FROM}),"
    f" (SELECT COUNT(*) FROM boards) - (SELECT COUNT(*) FROM boards WHERE board >= {RESERVED_FROM}),"
    f" (SELECT COUNT(*) FROM pins) - (SELECT COUNT(*) FROM pins WHERE pin >= {RESERVED_FROM}),"
    " (SELECT COUNT(*) FROM pins WHERE deleted_ms IS NOT NULL),"
    " (SELECT COALESCE(SUM(actions), 0) FROM outbox_unrelayed)"
)
