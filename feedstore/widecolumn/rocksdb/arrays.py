"""Keys of cells that come in arrays. It needs numpy: only what writes such cells loads this module."""

import numpy as np

from feedstore.widecolumn.port import DeleteCells, PutCells


def keys(cells: PutCells | DeleteCells, reversed_from: int, kind: int) -> list[bytes]:
    """The key of each cell (`row | column | reversed_from - timestamp | kind`), neighbours together: RocksDB takes
    0.7 us to enter a key next to the one before, and 2.1 us to enter one anywhere.
    """
    rows, columns, timestamps = cells
    layout = [("row", f"V{rows.shape[1]}"), ("column", f"V{columns.shape[1]}"), ("reversed", ">i8"), ("kind", "u1")]
    made = np.empty(len(rows), layout)
    made["row"] = rows.view(layout[0][1]).ravel()
    made["column"] = columns.view(layout[1][1]).ravel()
    made["reversed"] = reversed_from - timestamps
    made["kind"] = kind
    # Near is enough, and numbers sort in a third of the time: a key has more than 8 bytes.
    beginnings = np.ndarray(len(rows), ">u8", made, strides=made.strides)
    in_order = made[np.argsort(beginnings, kind="stable")]
    found: list[bytes] = in_order.view(f"V{made.dtype.itemsize}").tolist()
    return found
