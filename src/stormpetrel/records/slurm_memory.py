"""Slurm's flag for memory per CPU: the top bit of a number of MiB, which some versions print as part of the number.

`2147486648Mn` is 0x80000000 + 3000: 3,000 MiB per CPU. Newer versions have 64 bits, and the flag is 0x8000000000000000. A request
that holds the flag is read as what it means; nothing that large has ever been asked for.
"""

from __future__ import annotations

from typing import Final

import polars as pl

MIB: Final = 1 << 20
PER_CPU_32: Final = 1 << 31
PER_CPU_64: Final = 1 << 63
MOST_MIB: Final = 1 << 30  # 1 PiB: what stands beside the flag is a request, not one of Slurm's marks for "no value"
_DIGITS: Final = r"^(\d{10,20})M?[nc]?$"


def without_flag(mib: int) -> tuple[int, bool]:
    """A number of MiB without the flag, and whether it had it.

    >>> without_flag(2147486648), without_flag(9223372036854778808), without_flag(4000)
    ((3000, True), (3000, True), (4000, False))
    """
    for flag in (PER_CPU_32, PER_CPU_64):
        if flag <= mib <= flag + MOST_MIB:
            return mib - flag, True
    return mib, False


def unflagged_texts(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    """ReqMem as sacct prints it, with `3000Mc` for `2147486648Mn`; and which of the values held the flag."""
    digits = column.to_frame("text").select("text", digits=pl.col("text").str.extract(_DIGITS).cast(pl.UInt64, strict=False))
    if digits["digits"].null_count() == digits.height:  # of most logs
        return column, pl.Series([False]).new_from_index(0, len(column))
    plain = pl.coalesce(*(_less(flag) for flag in (PER_CPU_32, PER_CPU_64)))
    read = digits.with_columns(plain=plain).select(
        text=pl.when(pl.col("plain").is_not_null()).then(pl.format("{}Mc", "plain")).otherwise("text"),
        flagged=pl.col("plain").is_not_null(),
    )
    return read["text"].rename(column.name), read["flagged"]


def holds_flag(bytes_column: str) -> pl.Expr:
    """Whether a number of bytes is a number of MiB with the flag of 32 bits; 64 bits do not fit into bytes."""
    return (pl.col(bytes_column) // MIB).is_between(PER_CPU_32, PER_CPU_32 + MOST_MIB).fill_null(False)


def _less(flag: int) -> pl.Expr:
    bound = pl.lit(flag, dtype=pl.UInt64)
    rest = pl.when(pl.col("digits") >= bound).then(pl.col("digits") - bound)
    return pl.when(rest <= MOST_MIB).then(rest)
