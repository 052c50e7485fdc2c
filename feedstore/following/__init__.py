"""The following feed: cell layout, mutations, pages and cursors, the service, its HTTP endpoints and its site."""

from feedstore.following.export import feeds_ascending, rows_ascending
from feedstore.following.layout import (
    FEEDS,
    ROW_BYTES,
    bucket,
    columns,
    entries_of,
    feed_table,
    pins_and_times,
    row_key,
)
from feedstore.following.pages import MAX_PAGE, Cursor, Page, decode_cursor, encode_cursor
from feedstore.following.settings import MAX_CHUNK, Limits
from feedstore.following.witnesses import Witnesses, is_witness, trusted_watermark

__all__ = [
    "FEEDS",
    "MAX_CHUNK",
    "MAX_PAGE",
    "ROW_BYTES",
    "Cursor",
    "Limits",
    "Page",
    "Witnesses",
    "bucket",
    "columns",
    "decode_cursor",
    "encode_cursor",
    "entries_of",
    "feed_table",
    "feeds_ascending",
    "is_witness",
    "pins_and_times",
    "row_key",
    "rows_ascending",
    "trusted_watermark",
]
