"""The storage port: HBase's cell model, cut down to what a feed needs. Adapters live beside it."""

from feedstore.widecolumn.port import (
    MAX_LIMIT,
    Access,
    Cell,
    Cluster,
    DamagedError,
    DeleteColumns,
    Mutation,
    Put,
    RefusedError,
    StoreError,
    Sweep,
    Table,
    Trim,
    UnavailableError,
    UnsafeTableError,
    WideColumnStore,
)

__all__ = [
    "MAX_LIMIT",
    "Access",
    "Cell",
    "Cluster",
    "DamagedError",
    "DeleteColumns",
    "Mutation",
    "Put",
    "RefusedError",
    "StoreError",
    "Sweep",
    "Table",
    "Trim",
    "UnavailableError",
    "UnsafeTableError",
    "WideColumnStore",
]
