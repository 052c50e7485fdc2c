"""Witnesses: cells in the table of the feeds that show if the table, or a part of it, was emptied or put back.

A cluster notes how far it is in another table, `progress`. That table may survive when the feeds are lost: if a region
is restored from a snapshot, or the feeds' table is truncated. So each part of the feeds' table has a witness, a cell
whose timestamp is a growing number. The writer of progress writes the witnesses first, then notes their number in
`progress`. From then on every witness is at that number or above, unless its part of the table was put back.

A witness is in the row of a user who does not exist (id 0). Readers of feeds, scans of users and the trim see at most
one visible column of it.
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
    """The witnesses of one cluster."""

    def __init__(self, feeds: WideColumnStore, progress: Progress) -> None:
        self._feeds = feeds
        self._progress = progress
        self._newest = 0

    def refuse_lost(self) -> None:
        """Checks every witness. Raises:
        DamagedError: parts of the feeds' table hold less than `progress` says.
        UnavailableError: a witness cannot be read now.
        """
        noted, numbers = self._look()
        lost = [row for row, number in numbers.items() if number < noted]
        if lost:
            parts = "all of it" if len(lost) == PARTS else "at rows " + ", ".join(f"{row[0]:02x}.." for row in lost)
            raise DamagedError(f"damaged: its table {FEEDS} was emptied or is older than its table progress ({parts})")

    def mark(self) -> int:
        """Gives every witness a new, higher number, and returns it, to be noted in `progress`."""
        number = self._newest + 1
        self._feeds.apply([Put([(row, number) for row in ROWS], [_COLUMN])])
        self._newest = number
        return number

    def renew(self) -> None:
        """Accepts the table as it is now. Before this, the caller makes sure that what the table may lack is written
        again, and that the watermark says so. Raises UnavailableError: repeat the call.
        """
        self._look()
        self._progress.note_applied({}, self.mark())

    def _look(self) -> tuple[int, dict[bytes, int]]:
        """The noted number, and the number of each witness."""
        # The number is noted after the witnesses are written, so it is read before them: they only grow.
        noted = self._progress.witness()
        found = self._feeds.cells_of(ROWS)
        numbers = {
            row: max((cell.timestamp for cell in cells), default=0) for row, cells in zip(ROWS, found, strict=True)
        }
        self._newest = max(noted, *numbers.values())
        return noted, numbers


def trusted_watermark(replica: Replica) -> int | None:
    """A cluster's watermark, after a check that the table of its feeds was not put back; None if nothing is known yet.

    Raises UnavailableError; DamagedError: the table of the feeds was emptied, or put back from a copy.
    """
    progress = Progress(replica.progress)
    mark = progress.watermark()
    try:
        Witnesses(replica.tables[FEEDS], progress).refuse_lost()
    except DamagedError:
        raise
    except UnavailableError:
        pass  # a region is away: its pages are read from another cluster, and the other regions are unaffected
    return mark
