"""Fewer points for a line, without losing what the eye sees: of each column of pixels its lowest and its highest point.

values over time -> extremes (which points to draw), envelope (the band around them). A hole in the line stays a hole.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def extremes(values: Values, most: int) -> Places:
    """Which points of a line to draw, in order: at most about `most`, among them every peak; NaN where the line is broken.

    >>> extremes(np.array([1.0, 9.0, 2.0, 3.0, np.nan, 3.0, 3.0, 0.0]), 4).tolist()
    [0, 1, 4, 5, 7]
    """
    if values.size <= most:
        return np.arange(values.size)
    rows = _columns(values, most // 2)  # (columns, points of each)
    first = np.arange(rows.shape[0]) * rows.shape[1]
    broken = np.isnan(rows)
    lowest = first + np.where(broken, np.inf, rows).argmin(axis=1)
    highest = first + np.where(broken, -np.inf, rows).argmax(axis=1)
    holes = (first + broken.argmax(axis=1))[broken.any(axis=1)]
    places = np.unique(np.concatenate([lowest, highest, holes]))
    return places[places < values.size]


def envelope(low: Values, high: Values, most: int) -> tuple[Places, Values, Values]:
    """A band in at most `most` columns: where each begins, its lowest and its highest edge; NaN where there is no band."""
    if low.size <= most:
        return np.arange(low.size), low, high
    lows, highs = _columns(low, most), _columns(high, most)
    nothing = np.isnan(lows).all(axis=1)
    edges = (np.where(np.isnan(lows), np.inf, lows).min(axis=1), np.where(np.isnan(highs), -np.inf, highs).max(axis=1))
    places = np.arange(lows.shape[0]) * lows.shape[1]
    return places, *(np.where(nothing, np.nan, edge) for edge in edges)


def _columns(values: Values, most: int) -> Values:
    """(columns, points): the values in rows of equal length, the last one filled up with NaN."""
    width = -(-values.size // max(1, most))
    count = -(-values.size // width)
    padded = np.full(count * width, np.nan)
    padded[: values.size] = values
    return padded.reshape(count, width)
