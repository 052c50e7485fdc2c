"""Keys in arrays."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def lines(keys: "NDArray[np.uint8]") -> list[bytes]:
    """The lines of a two-dimensional array of bytes, each as one `bytes`."""
    found: list[bytes] = keys.view(f"V{keys.shape[1]}").ravel().tolist()
    return found
