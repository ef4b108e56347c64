"""Entities: the users, applications, partitions and requests that jobs belong to, as row numbers of compiled tables.

frame with the columns of the spaces -> EntityCodes.of -> (job, space) numbers: −1 where the frame does not say, 0 for a stranger.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.history.keys import Space, key, keys_of_few

FEW: Final = 32  # jobs up to which looking them up in Python is faster than a query


class EntityCodes:
    """Numbers of the entities of some spaces, given out as they are first seen; 0 stands for whoever was never seen."""

    def __init__(self, spaces: Sequence[Space]) -> None:
        self._spaces = tuple(spaces)
        self._known: list[dict[str, int]] = [{} for _ in self._spaces]
        self.count = 1

    def of(self, frame: pl.DataFrame, *, take_in: bool) -> NDArray[np.int64]:
        """The numbers of each job's entities; with `take_in` new ones get a number."""
        keys = frame.select(key(space).alias(str(column)) for column, space in enumerate(self._spaces))
        codes = np.empty((frame.height, len(self._spaces)), np.int64)
        for column in range(len(self._spaces)):
            values = keys[:, column]
            distinct = values.unique(maintain_order=True).drop_nulls()
            texts = distinct.to_list()
            known = self._known[column]
            for text in texts if take_in else ():
                if text not in known:
                    known[text] = self.count
                    self.count += 1
            numbers = pl.Series([known.get(text, 0) for text in texts], dtype=pl.Int64)
            table = pl.DataFrame({"key": distinct, "code": numbers})
            joined = pl.DataFrame({"key": values}).join(table, on="key", how="left", maintain_order="left")
            codes[:, column] = joined["code"].fill_null(-1).to_numpy()
        return codes

    def of_few(self, columns: Mapping[str, Sequence[object]]) -> NDArray[np.int64]:
        """The numbers of a few jobs' entities, out of the values of `key_columns`; a query would take longer than a look."""
        keys = keys_of_few(columns, self._spaces)
        codes = [
            [-1 if text is None else known.get(text, 0) for known, text in zip(self._known, row, strict=True)] for row in keys
        ]
        return np.array(codes, np.int64).reshape(-1, len(self._spaces))

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The entities as plain arrays: of each space the texts of its keys, their lengths and their numbers."""
        arrays: dict[str, NDArray[Any]] = {}
        for space, known in zip(self._spaces, self._known, strict=True):
            texts = [text.encode() for text in known]
            arrays[f"{prefix}.text.{space.name}"] = np.frombuffer(b"".join(texts), np.uint8)
            arrays[f"{prefix}.length.{space.name}"] = np.array([len(text) for text in texts], np.int64)
            arrays[f"{prefix}.code.{space.name}"] = np.array(list(known.values()), np.int64)
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]], prefix: str) -> None:
        """Know the entities that `to_arrays` has written; KeyError or ValueError where they are not whole."""
        known = []
        for space in self._spaces:
            lengths, codes = arrays[f"{prefix}.length.{space.name}"], arrays[f"{prefix}.code.{space.name}"]
            text = arrays[f"{prefix}.text.{space.name}"].tobytes()
            bounds = [0, *np.cumsum(lengths).tolist()]
            if len(lengths) != len(codes) or bounds[-1] != len(text) or (lengths < 0).any() or (codes < 1).any():
                raise ValueError("its texts are not those of its keys")
            texts = (text[begin:end].decode() for begin, end in pairwise(bounds))
            known.append(dict(zip(texts, codes.tolist(), strict=True)))
        numbers = [code for codes in known for code in codes.values()]
        if len(set(numbers)) != len(numbers) or (numbers and max(numbers) != len(numbers)):
            raise ValueError("two of its keys have one number, or a number is missing")
        self._known, self.count = known, len(numbers) + 1


def grown(arrays: Sequence[NDArray[np.generic]], count: int, fills: Sequence[float]) -> list[NDArray[np.generic]]:
    """The arrays with room for `count` rows; doubled, so that growth is paid for once."""
    if count <= len(arrays[0]):
        return list(arrays)
    rows = max(count, 2 * len(arrays[0]))
    out = []
    for array, fill in zip(arrays, fills, strict=True):
        whole = np.full((rows, *array.shape[1:]), fill, array.dtype)
        whole[: len(array)] = array
        out.append(whole)
    return out
