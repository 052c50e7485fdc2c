"""Witnesses: cells in the table of the feeds that tell whether the table, or a part of it, was emptied or put back.

A cluster says how far it is in a table of its own, `progress`. That table may survive what the feeds do not: a region
that was restored from a snapshot, a table that was truncated. So each part of the feeds' table holds a witness, a cell
whose timestamp is a number that grows. The writer of progress writes the witnesses first, then notes their number in
`progress`. From then on every witness is at that number or above, unless its part of the table has gone back.

A witness is in the row of a user who does not exist (id 0). Readers of feeds, scans of users and the trim never meet
more of it than one visible column.
"""

from typing import Final

from feedstore.following.layout import COLUMN_BYTES, FEEDS, ROW_BYTES
from feedstore.replicas.replicas import Replica
from feedstore.widecolumn import DamagedError, Put, UnavailableError, WideColumnStore
from feedstore.widecolumn.progress import Progress

PARTS: Final = 16
"""How many witnesses there are: one for each region that the table is made with (`schemas/hbase.json`)."""

ROWS: Final = tuple(bytes([256 // PARTS * part]).ljust(ROW_BYTES, b"\0") for part in range(PARTS))
_COLUMN: Final = bytes(COLUMN_BYTES)


def is_witness(row: bytes) -> bool:
    """Whether a row of the feeds' table is a witness's, and no user's."""
    return row[1:] == bytes(ROW_BYTES - 1)


class Witnesses:
    """Those of one cluster."""

    def __init__(self, feeds: WideColumnStore, progress: Progress) -> None:
        self._feeds = feeds
        self._progress = progress
        self._newest = 0

    def refuse_lost(self) -> None:
        """Looks at every witness. Raises:
        DamagedError: parts of the feeds' table hold less than `progress` says.
        UnavailableError: it cannot be said now.
        """
        noted, numbers = self._look()
        lost = [row for row, number in numbers.items() if number < noted]
        if lost:
            parts = "all of it" if len(lost) == PARTS else "at rows " + ", ".join(f"{row[0]:02x}.." for row in lost)
            raise DamagedError(f"damaged: its table {FEEDS} was emptied or is older than its table progress ({parts})")

    def mark(self) -> int:
        """Gives every witness a number that none had at the last look, and returns it, to be noted in `progress`."""
        number = self._newest + 1
        self._feeds.apply([Put([(row, number) for row in ROWS], [_COLUMN])])
        self._newest = number
        return number

    def renew(self) -> None:
        """Takes the table as it is from now on. The caller has just made sure that what the table may lack is written
        again, and that the watermark says so. Raises UnavailableError: do it again.
        """
        self._look()
        self._progress.note_applied({}, self.mark())

    def _look(self) -> tuple[int, dict[bytes, int]]:
        """The number that is noted, and that of each witness."""
        # Noted after the witnesses, so it is read before them: they only grow.
        noted = self._progress.witness()
        found = self._feeds.cells_of(ROWS)
        numbers = {
            row: max((cell.timestamp for cell in cells), default=0) for row, cells in zip(ROWS, found, strict=True)
        }
        self._newest = max(noted, *numbers.values())
        return noted, numbers


def trusted_watermark(replica: Replica) -> int | None:
    """A cluster's watermark, if the table of its feeds holds what it says; None if nothing is known yet.

    Raises:
        DamagedError: the table of the feeds was emptied, or put back from a copy.
        UnavailableError
    """
    progress = Progress(replica.progress)
    mark = progress.watermark()
    try:
        Witnesses(replica.tables[FEEDS], progress).refuse_lost()
    except DamagedError:
        raise
    except UnavailableError:
        pass  # a region is away: its own pages come from elsewhere, and the others are as good as they were
    return mark
