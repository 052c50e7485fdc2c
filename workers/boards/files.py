"""A board in a file, for backups and analyses elsewhere: Parquet, in the board's order."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

from feedstore import durable
from feedstore.boards import MAX_PAGE, Boards, Place
from feedstore.errors import needing_extra


def export(boards: Boards, board: int, path: Path, on_progress: Callable[[int], None]) -> int:
    """Writes every pin of a board from the top: `pin`, `created_ms` and `moved_ms` (0: never) as int64, `sequence` as
    decimal128(38, 0), which holds all its digits. Returns how many pins. A pin that is moved meanwhile may be in the
    file twice, or not at all. The file is replaced as a whole, or stays as it was.

    Raises ConfigError if Parquet's library is missing; OSError, FollowStoreUnavailableError.
    """
    with needing_extra(f"{path}: Parquet", "parquet"):
        import pyarrow as pa  # noqa: PLC0415 - its library is an extra
        from pyarrow import parquet  # noqa: PLC0415
    schema = pa.schema(
        [
            ("pin", pa.int64()),
            ("created_ms", pa.int64()),
            ("sequence", pa.decimal128(38, 0)),
            ("moved_ms", pa.int64()),
        ]
    )
    path = path.resolve()  # a link stays a link
    new = path.with_name(path.name + ".new")
    pins, more = 0, True
    after: Place | None = None
    try:
        # Opened here: a file's name may be no text, and then Parquet's library does not take it.
        with new.open("wb") as file, parquet.ParquetWriter(file, schema) as writer:
            while more:
                page = boards.page(board, MAX_PAGE, after)
                columns = zip(*((p.pin, p.created_ms, Decimal(p.sequence), p.moved_ms) for p in page.pins), strict=True)
                if page.pins:
                    writer.write_table(pa.table(list(columns), schema=schema))
                pins += len(page.pins)
                on_progress(pins)
                after = page.after
                more = after is not None
        durable.sync(new)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    return pins
