"""Maps of texts, as in `extra`: one entry per field that says something.

columns of text -> as_map -> a column of maps; two columns of maps -> joined -> one.
"""

from __future__ import annotations

from typing import Final

import polars as pl

TEXT_MAP: Final = pl.Map(pl.String, pl.String)
_ENTRIES: Final = pl.List(pl.Struct({"key": pl.String, "value": pl.String}))


def as_map(columns: dict[str, pl.Series]) -> pl.Series:
    """Columns of strings as one column of maps; a null value has no entry, a row without entries is null."""
    filled = {name: column for name, column in columns.items() if column.null_count() < len(column)}
    height = len(next(iter(columns.values())))
    if not filled:
        return no_map(height)
    rows = pl.DataFrame(filled).with_row_index("_row")
    entries = (
        rows.unpivot(index="_row", variable_name="key", value_name="value")
        .drop_nulls("value")
        .group_by("_row", maintain_order=False)
        .agg(pl.struct("key", "value").alias("entries"))
        .with_columns(pl.col("entries").cast(TEXT_MAP))
    )
    return rows.select("_row").join(entries, on="_row", how="left", maintain_order="left")["entries"]


def no_map(height: int) -> pl.Series:
    """As many nulls."""
    return pl.Series([None], dtype=TEXT_MAP).new_from_index(0, height)


def joined(first: pl.Series, second: pl.Series) -> pl.Series:
    """The entries of both maps of each row; where both have a key, the second's; null where neither has an entry."""
    both = pl.DataFrame({"first": first.cast(_ENTRIES), "second": second.cast(_ENTRIES)})
    entries = pl.concat_list(pl.col("first").fill_null([]), pl.col("second").fill_null([]))
    return both.select(pl.when(entries.list.len() > 0).then(entries)).to_series().cast(TEXT_MAP).rename(first.name)
