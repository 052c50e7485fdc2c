"""The following feed on the storage port: cell layout, mutations, pages and cursors, replicas."""

from feedstore.feeds.canaries import Canaries, is_canary, trusted_watermark
from feedstore.feeds.cursors import Cursor, MalformedCursorError, decode_cursor, encode_cursor, sealed, unsealed
from feedstore.feeds.export import feeds_ascending, rows_ascending
from feedstore.feeds.layout import (
    FEEDS,
    ROW_BYTES,
    bucket,
    columns,
    entries_of,
    feed_table,
    pins_and_times,
    row_key,
    user_of,
)
from feedstore.feeds.limits import MAX_CHUNK, Limits
from feedstore.feeds.pages import MAX_PAGE, Page, Start, page_of, start_of
from feedstore.feeds.progress import PROGRESS, Progress, Through, Watermark, progress_table
from feedstore.feeds.reader import FeedReader, Replica

__all__ = [
    "FEEDS",
    "MAX_CHUNK",
    "MAX_PAGE",
    "PROGRESS",
    "ROW_BYTES",
    "Canaries",
    "Cursor",
    "FeedReader",
    "Limits",
    "MalformedCursorError",
    "Page",
    "Progress",
    "Replica",
    "Start",
    "Through",
    "Watermark",
    "bucket",
    "columns",
    "decode_cursor",
    "encode_cursor",
    "entries_of",
    "feed_table",
    "feeds_ascending",
    "is_canary",
    "page_of",
    "pins_and_times",
    "progress_table",
    "row_key",
    "rows_ascending",
    "sealed",
    "start_of",
    "trusted_watermark",
    "unsealed",
    "user_of",
]
