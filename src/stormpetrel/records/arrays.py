"""Arrays by what they hold, as signatures name them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[np.float32]  # features: (rows, columns)
