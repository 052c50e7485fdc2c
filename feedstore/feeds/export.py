"""Streams whole clusters, users ascending."""

import heapq
from collections.abc import Iterator
from itertools import islice

from feedstore.domain import MAX_ID
from feedstore.feeds.layout import bucket_range, user_of
from feedstore.widecolumn import WideColumnStore


def feeds_ascending(store: WideColumnStore, cap: int, after_user: int = 0) -> Iterator[tuple[int, list[bytes]]]:
    """Every feed that is not empty, as (user, columns newest first, at most `cap`), users ascending.

    The 256 buckets of row keys are scanned side by side: each is in the order of user ids. Memory is bounded by 256
    rows.

    Raises:
        UnavailableError: at any step; begin again after the last user that arrived.
    """
    if after_user >= MAX_ID:
        return
    scans = [store.scan(*bucket_range(number, after_user + 1)) for number in range(256)]
    for row, columns in heapq.merge(*scans, key=lambda item: item[0][1:]):
        yield user_of(row), columns if len(columns) <= cap else list(islice(columns, cap))
