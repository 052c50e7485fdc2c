"""One cluster as a reader sees it."""

from collections.abc import Mapping
from dataclasses import dataclass

from feedstore.widecolumn import WideColumnStore
from feedstore.widecolumn.progress import PROGRESS


@dataclass(frozen=True)
class Replica:
    """One cluster as a reader sees it. tables: by their names; the table of its progress is one of them."""

    name: str
    tables: Mapping[str, WideColumnStore]

    @property
    def progress(self) -> WideColumnStore:
        return self.tables[PROGRESS]
