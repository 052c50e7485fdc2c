"""The storage port: HBase's cell model, cut down to sorted keys without values. Its adapters are in this package."""

from feedstore.widecolumn.port import (
    MAX_LIMIT,
    Access,
    Cell,
    Cluster,
    DamagedError,
    DeleteCells,
    DeleteColumns,
    Mutation,
    Put,
    PutCells,
    RefusedError,
    StoreError,
    Sweep,
    Table,
    Trim,
    UnavailableError,
    UnsafeTableError,
    WideColumnStore,
)
