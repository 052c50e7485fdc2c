"""Streams whole clusters, users ascending."""

import heapq
from collections.abc import Iterator

from feedstore.domain import MAX_ID
from feedstore.following.layout import bucket_range, row_key
from feedstore.widecolumn import WideColumnStore


def feeds_ascending(store: WideColumnStore, cap: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yields every feed that is not empty, as (user, columns newest first, at most `cap`), users ascending. Rows that
    are no user's feed are left out.

    The 256 buckets of row keys are each in the order of user ids, and are scanned in parallel and merged. A chunk of
    each scan is in memory: on HBase about 2,000 cells.

    Raises UnavailableError: at any step.
    """
    for row, columns in rows_ascending(store):
        user = int.from_bytes(row[1:])
        if 1 <= user <= MAX_ID and row == row_key(user):
            yield user, columns[:cap]


def rows_ascending(
    store: WideColumnStore, after_user: int = 0, until_user: int = MAX_ID
) -> Iterator[tuple[bytes, list[bytes]]]:
    """Yields whole rows, ascending by the id in their keys: ids larger than `after_user` and up to `until_user`.
    Includes rows whose first byte does not fit the id.
    """
    if after_user >= MAX_ID:
        return
    scans = [store.scan(*bucket_range(number, after_user + 1)) for number in range(256)]
    for row, columns in heapq.merge(*scans, key=lambda item: item[0][1:]):
        if int.from_bytes(row[1:]) > until_user:
            return
        yield row, columns
