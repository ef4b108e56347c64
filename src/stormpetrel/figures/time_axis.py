"""A time axis: times, numbers and a legend as Plotly takes them quickly.

arrays over buckets of time -> stamps_of, numbers_of, edges_of.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Times = npt.NDArray[np.datetime64]
Stamps = npt.NDArray[np.str_]

MOST_POINTS: Final = 1_000  # of a line: the lowest and the highest of each column of pixels or two
NEAR_PX: Final = 60  # a click this near to a line is meant for it
LEGEND: Final[dict[str, Any]] = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom", "font": {"size": 11}, "traceorder": "normal",
}  # fmt: skip


def edges_of(times: Times) -> list[str] | None:
    """From the first bucket to the end of the last."""
    if not times.size:
        return None
    step = times[1] - times[0] if times.size > 1 else np.timedelta64(0, "s")
    return [str(text) for text in stamps_of(np.array([times[0], times[-1] + step]))]


def stamps_of(times: Times) -> Stamps:
    """Times as an axis takes them. An array, not a list: Plotly looks at every element of a list, and a year has many."""
    return np.array([text.replace("T", " ") for text in np.datetime_as_string(times, unit="m").tolist()], dtype=np.str_)


def numbers_of(values: Numbers) -> npt.NDArray[np.object_]:
    """Numbers as JSON says them, null where there is none; as an array of numbers they would be missing from downloads."""
    return np.array([None if value != value else value for value in np.round(values, 3).tolist()], dtype=np.object_)
