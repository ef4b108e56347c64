"""Text that a spreadsheet would run: frame -> the same frame, in which no cell and no heading is a formula.

Whoever names a partition or a column `=HYPERLINK(…)` has it run by whoever opens the file. Every CSV that leaves us for people
goes through here; plots.js does the same for figures, in the browser. A number stays one, with its sign.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

_FORMULA: Final = r"^[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"  # the wide signs too: Excel takes them for the same
_NUMBER: Final = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_IN_PYTHON: Final = re.compile(_FORMULA.replace("x{FF", "uFF").replace("}", ""))


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame for a CSV: text that begins like a formula gets a quote before it, which spreadsheets take for 'this is text'."""
    texts = [name for name, kind in frame.schema.items() if isinstance(kind, pl.String | pl.Categorical | pl.Enum)]
    safe = frame.with_columns(_as_text(name) for name in texts)
    return safe.rename({name: f"'{name}" for name in frame.columns if _IN_PYTHON.match(name)})


def _as_text(name: str) -> pl.Expr:
    text = pl.col(name).cast(pl.String)
    is_formula = text.str.contains(_FORMULA) & ~text.str.contains(_NUMBER)
    return pl.when(is_formula).then(pl.concat_str(pl.lit("'"), text)).otherwise(text).alias(name)
