"""Units: sizes, durations and TRES strings as schedulers write them -> bytes, seconds and counts; sizes as text for people.

Each parser exists once, over a whole column, and sizes once more for a single word; columns of few distinct values go through
`by_distinct`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import polars as pl

# Words that schedulers print where there is no value. A field that holds one of them is empty, not damaged.
NO_VALUE: Final = ("", "Unknown", "None", "N/A", "n/a", "NONE", "(null)", "None assigned", "NULL")
# Words for "no limit of its own". They are values, but not numbers.
NO_LIMIT: Final = ("UNLIMITED", "Partition_Limit", "INFINITE")

_COUNT: Final = r"^(\d+(?:\.\d+)?)([KMGTP])$"
_SIZE: Final = r"^(\d+(?:\.\d+)?)([KMGTPEkmgtpe]?)(?:i?[Bb])?([nc]?)$"
_DURATION: Final = r"^(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)$"
_ENERGY: Final = r"^(\d{1,20}(?:\.\d{1,9})?)([KMGTPE]?)$"
# NO_VAL and INFINITE of 32 and of 64 bits, as they are printed without a unit.
_NO_VAL64: Final = 2.0**64
_NO_ENERGY: Final = [str(2**bits - less) for bits in (32, 64) for less in (1, 2)]
_MOST_JOULES: Final = 2**53  # 2.5 TWh
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_MAX_BYTES: Final = 2.0**63 - 1024


def by_distinct(column: pl.Series, parse: Callable[[pl.Series], pl.Series]) -> pl.Series:
    """Apply `parse` to the distinct values of a column only; equal to `parse(column)`, and faster where values repeat."""
    distinct = column.unique()
    if len(distinct) * 2 > len(column):
        return parse(column)
    parsed = parse(distinct)
    return column.replace_strict(distinct, parsed, return_dtype=parsed.dtype)


def duration_s(column: pl.Series) -> pl.Series:
    """`[D-]HH:MM:SS[.fff]` and `MM:SS[.fff]` as seconds; null where the text is no duration."""

    def parse(text: pl.Series) -> pl.Series:
        parts = text.str.extract_groups(_DURATION).struct.unnest()
        return parts.select(
            seconds=_number("1") * 86400.0
            + _number("2") * 3600.0
            + _number("3") * 60.0
            + pl.col("4").cast(pl.Float64, strict=False)
        ).to_series()

    return by_distinct(column, parse)


def whole_count(column: pl.Series) -> pl.Series:
    """Counts of CPUs and nodes as sacct prints them: plain, or with a unit (`4K`, `2.00K`, `1.50M`); null where it is neither.

    Slurm shortens counts by the same function as memory (`convert_num_unit`), so that K is 1024 for both: 2048 is printed as
    `2K`, 2047 as `2.00K`, and with --units=K a single node as `0.00K`. With a decimal point the number is a rounded one.
    """
    plain = column.cast(pl.Int64, strict=False)
    if plain.null_count() == column.null_count():
        return plain

    def parse(text: pl.Series) -> pl.Series:
        parts = text.str.extract_groups(_COUNT).struct.unnest()
        factor = pl.col("2").replace_strict(_POWERS, default=None, return_dtype=pl.Float64)
        count = pl.col("1").cast(pl.Float64, strict=False) * pl.lit(1024.0).pow(factor)
        return parts.select(pl.when(count < _MAX_BYTES).then(count.round().cast(pl.Int64, strict=False))).to_series()

    return plain.zip_with(plain.is_not_null(), by_distinct(column, parse))


def is_rounded(column: pl.Series) -> pl.Series:
    """Which counts are told with a decimal point, and so not to the last digit."""
    return column.str.contains(".", literal=True).fill_null(False)


def size_parts(column: pl.Series, *, default_unit: str = "") -> pl.DataFrame:
    """Sizes such as `4000Mn`, `62.50G`, `1294440K` as `bytes` and the suffix `per` (`n` node, `c` CPU, empty).

    A number without a unit is in `default_unit`. Null where the text is no size or does not fit in 63 bits.
    """

    def parse(text: pl.Series) -> pl.Series:
        parts = text.str.extract_groups(_SIZE).struct.unnest()
        unit = pl.when(pl.col("2") == "").then(pl.lit(default_unit)).otherwise(pl.col("2").str.to_uppercase())
        factor = unit.replace_strict(_POWERS, default=None, return_dtype=pl.Float64)
        size = pl.col("1").cast(pl.Float64, strict=False) * pl.lit(1024.0).pow(factor)
        fits = pl.when(size < _MAX_BYTES).then(size.round().cast(pl.Int64, strict=False))
        return parts.select(pl.struct(bytes=fits, per="3")).to_series()

    return by_distinct(column, parse).struct.unnest()


def bytes_of(text: str, *, default_unit: str = "") -> int | None:
    """One size as bytes, as `size_bytes` reads a column of them: for a word of a script a query takes a hundred times as long."""
    match = re.fullmatch(_SIZE, text, re.ASCII)
    if match is None:
        return None
    size = float(match[1]) * 1024.0 ** _POWERS[match[2].upper() or default_unit]
    return round(size) if size < _MAX_BYTES else None


def size_bytes(column: pl.Series, *, default_unit: str = "") -> pl.Series:
    """Sizes as bytes, whatever their suffix."""
    return size_parts(column, default_unit=default_unit)["bytes"]


def joules(column: pl.Series) -> pl.Series:
    """Energy as sacct prints it: plain, or with a unit of a thousand (`3.20M`); 0 for Slurm's marks for "no value".

    Null where the text is neither, or more than ten thousand nodes draw in a year.
    """

    def parse(text: pl.Series) -> pl.Series:
        parts = text.str.extract_groups(_ENERGY).struct.unnest()
        factor = pl.col("2").replace_strict(_POWERS, default=None, return_dtype=pl.Float64)
        energy = pl.col("1").cast(pl.Float64, strict=False) * pl.lit(1000.0).pow(factor)
        no_value = pl.col("1").is_in(_NO_ENERGY) | (energy >= _NO_VAL64 * 0.99)
        known = pl.when(energy <= _MOST_JOULES).then(energy.round().cast(pl.Int64, strict=False))
        return parts.select(pl.when(no_value).then(pl.lit(0, pl.Int64)).otherwise(known)).to_series()

    return by_distinct(column, parse)


def tres(column: pl.Series) -> pl.DataFrame:
    """TRES strings such as `cpu=8,gres/gpu:v100=2,mem=10G,node=1` as cpus, mem_bytes, nodes, gpus.

    slurmdb's raw form, `1=8,2=10240,4=1,1002=2` (memory in MB), reads the same; its GPU id is 1001 or 1002 by site and is
    not guessed.
    """

    def parse(text: pl.Series) -> pl.Series:
        named = text.to_frame("tres").select(
            cpus=_entry("(?:cpu|1)", r"\d+").cast(pl.Int64, strict=False),
            nodes=_entry("(?:node|4)", r"\d+").cast(pl.Int64, strict=False),
            gpus=_entry("gres/gpu", r"\d+").cast(pl.Int64, strict=False),
            typed_gpus=_sum_typed_gpus(),
            mem=_entry("mem", r"[0-9.]+[KMGTPE]?"),
            mem_raw=_entry("2", r"\d+"),
        )
        memory = size_bytes(named["mem"], default_unit="M").fill_null(size_bytes(named["mem_raw"], default_unit="M"))
        return named.select(pl.struct("cpus", "nodes", gpus=pl.coalesce("gpus", "typed_gpus"), mem_bytes=memory)).to_series()

    return by_distinct(column, parse).struct.unnest()


def _number(group: str) -> pl.Expr:
    return pl.col(group).cast(pl.Float64, strict=False).fill_null(0.0)


def _entry(key: str, value: str) -> pl.Expr:
    return pl.col("tres").str.extract(rf"(?:^|,){key}=({value})(?:,|$)")


def _sum_typed_gpus() -> pl.Expr:
    """GPUs named only by type (`gres/gpu:a100=2,gres/gpu:v100=1`), for sites that track no plain `gres/gpu`."""
    counts = (
        pl.col("tres")
        .str.extract_all(r"gres/gpu:[^=,]+=\d+")
        .list.eval(pl.element().str.extract(r"=(\d+)$").cast(pl.Int64, strict=False))
    )
    return pl.when(counts.list.len() > 0).then(counts.list.sum())


KB: Final = 1024
MB: Final = 1024**2
GB: Final = 1024**3
TB: Final = 1024**4
_UP: Final = 0.9995  # of the next unit: 1023.9 MB are said to be 1 GB


def format_memory(size_bytes: float) -> str:
    """A size of memory: `300 kB`, `512 MB`, `7.5 GB`, `16 GB`, `2 TB`."""
    for unit_bytes, unit in ((TB, "TB"), (GB, "GB")):
        if size_bytes >= _UP * unit_bytes:
            return f"{_short(size_bytes / unit_bytes)} {unit}"
    if size_bytes >= _UP * MB or size_bytes <= 0:
        return f"{size_bytes / MB:.0f} MB"
    return f"{max(1, round(size_bytes / KB))} kB"


def format_size(size_bytes: float) -> str:
    """A size of files or of a disk: `120 bytes`, `1.5 kB`, `88.1 GB`."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:,.0f} {unit}" if unit == "bytes" or size_bytes >= 100 else f"{size_bytes:.3g} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:,.3g} TB"


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:.1f}".removesuffix(".0")


MIB: Final = 1 << 20
PER_CPU_32: Final = 1 << 31
PER_CPU_64: Final = 1 << 63
MOST_MIB: Final = 1 << 30  # 1 PiB: what stands next to the flag is a request, not one of Slurm's marks for "no value"
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
