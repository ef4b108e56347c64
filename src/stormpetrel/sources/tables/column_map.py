"""Column maps: which column of a foreign table is which of ours, written down as TOML.

name or path -> load_map -> ColumnMap -> translate -> job frame. Three maps are shipped; a path to a file is a map too.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final, Literal

import polars as pl
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from stormpetrel.errors import SourceFormatError
from stormpetrel.records import units
from stormpetrel.records.jobs import JOB_SCHEMA, as_map
from stormpetrel.records.quality import REJECT_SCHEMA, no_rejects
from stormpetrel.records.states import JobState, slurm_state, swf_state
from stormpetrel.records.times import from_unix, to_utc
from stormpetrel.records.unread import DECISIVE, UNREAD
from stormpetrel.sources.contract import Translation, with_schema

UNNAMED: Final = "unnamed column "  # what stands for a column whose header is empty
SHIPPED: Final = ("lumos", "alcf-djc", "supercloud")
Kind = Literal[
    "text", "identifier", "integer", "number", "seconds", "minutes", "hours", "unix", "local", "duration", "size", "bytes",
    "kib", "mib", "gib", "tres", "list", "wait_status",
]  # fmt: skip
_FACTOR: Final = {"seconds": 1.0, "number": 1.0, "minutes": 60.0, "hours": 3600.0}
_NUMERIC: Final = frozenset("integer number seconds minutes hours duration size bytes kib mib gib wait_status".split())
_BYTES: Final = {"bytes": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ColumnRule(_Strict):
    """Where one of our columns comes from, and how it is written there."""

    source: str = Field(alias="from")
    kind: Kind = Field("text", alias="as")
    plus: str = ""  # for times: columns with seconds to add, separated by commas
    missing: list[str] = []  # values that stand for "not known"

    def added(self) -> list[str]:
        """The columns with seconds to add."""
        return [name.strip() for name in self.plus.split(",") if name.strip()]


class TimeoutRule(_Strict):
    """A job whose state is `word` (any but COMPLETED, if empty) and that ran this share of its limit was timed out."""

    word: str = ""
    share_of_limit: float = Field(gt=0)


class StateRule(_Strict):
    """How states are written: words of the file's own, or those of a scheduler."""

    source: str = Field(alias="from")
    words: dict[str, JobState] = {}
    scheduler: Literal["", "slurm", "swf"] = ""
    otherwise: JobState | None = None
    timeout: TimeoutRule | None = None


class ColumnMap(_Strict):
    """A whole map."""

    needs: list[str] = []
    columns: dict[str, ColumnRule]
    state: StateRule
    delimiter: str = Field(default=",", min_length=1, max_length=1)

    def names(self) -> tuple[str, ...]:
        """The names of the file's columns that the map reads."""
        rules = self.columns.values()
        names = [*self.needs, self.state.source, *(name for rule in rules for name in (rule.source, *rule.added()))]
        return tuple(dict.fromkeys(names))

    def fields(self) -> frozenset[str]:
        """The job columns that the map fills."""
        columns = set(self.columns) | {"state", "state_raw", "extra"}
        columns |= {"exit_signal"} if "exit_code" in columns else set()
        columns |= {"elapsed_s"} if {"start_time", "end_time"} <= columns else set()
        columns -= {"restart"}
        for name, prefix in (("alloc_tres", ""), ("req_tres", "req_")):
            if name in self.columns:
                columns |= {f"{prefix}{part}" for part in ("cpus", "nodes", "gpus", "mem_bytes")}
        return frozenset(columns)


def load_map(name: str) -> ColumnMap:
    """A shipped map by its name, or one of the site's own by its path."""
    if name in SHIPPED:
        text = resources.files("stormpetrel.sources.tables").joinpath("maps", f"{name}.toml").read_text("utf-8")
    else:
        path = Path(name)
        if path.suffix != ".toml" or not path.is_file():
            close = difflib.get_close_matches(name, SHIPPED, n=1)
            hint = f"Did you mean '{close[0]}'? " if close else ""
            raise SourceFormatError(
                f"There is no column map '{name}'.", hint=f"{hint}Known: {', '.join(SHIPPED)}, or a path to a .toml file."
            )
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceFormatError(f"The column map {name} cannot be read: {error}.") from error
    return _parse(text, name)


def _parse(text: str, name: str) -> ColumnMap:
    try:
        column_map = ColumnMap.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise SourceFormatError(f"The column map {name} is not valid TOML: {error}.") from error
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise SourceFormatError(
            f"The column map {name} is wrong at '{where}': {problem['msg']}.", hint="docs/sources shows one."
        ) from None
    reserved = ("state", "state_raw", "extra", "source")
    unknown = next((column for column in column_map.columns if column not in JOB_SCHEMA or column in reserved), None)
    if unknown:
        close = difflib.get_close_matches(unknown, [name for name in JOB_SCHEMA if name not in reserved], n=1)
        hint = f"Did you mean '{close[0]}'?" if close else "docs/store lists the columns."
        raise SourceFormatError(f"The column map {name} names a column '{unknown}' that the job table does not have.", hint=hint)
    for column, rule in column_map.columns.items():
        if rule.kind not in _kinds_for(column):
            raise SourceFormatError(
                f"The column map {name} reads {column} as '{rule.kind}', which it cannot be.",
                hint=f"Write one of: {', '.join(sorted(_kinds_for(column)))}.",
            )
    missing = [column for column in ("job_id", "submit_time") if column not in column_map.columns]
    if missing:
        raise SourceFormatError(
            f"The column map {name} does not say where {missing[0]} comes from.", hint=f"Add columns.{missing[0]}."
        )
    return column_map


def _kinds_for(column: str) -> frozenset[str]:
    dtype = JOB_SCHEMA[column]
    if dtype == pl.String:
        return frozenset({"text", "identifier", "list", "tres"})
    return frozenset({"unix", "local"}) if isinstance(dtype, pl.Datetime) else _NUMERIC


def translate(records: pl.DataFrame, table: ColumnMap, *, time_zone: str, cluster: str) -> Translation:
    """Rows of text as job frame rows, by the map; refused where identity, submit time or state cannot be read."""
    columns: dict[str, pl.Series] = {}
    bad: list[tuple[str, pl.Series]] = []
    unread: dict[str, pl.Series] = {}
    for name, rule in table.columns.items():
        if rule.source not in records.columns:
            continue
        text = records[rule.source].replace(rule.missing, [None] * len(rule.missing)) if rule.missing else records[rule.source]
        parsed = _parse_column(records, text, rule, time_zone).cast(JOB_SCHEMA[name], strict=False)
        columns[name] = parsed
        odd = _odd(text, parsed, rule)
        if odd is None:
            continue
        if name in DECISIVE:
            bad.append((rule.source, odd))
        else:
            unread[name] = _shown_text(records, rule).zip_with(
                odd, pl.Series([None], dtype=pl.String).new_from_index(0, len(odd))
            )
    columns |= _from_tres(columns)
    if "exit_code" in columns and table.columns["exit_code"].kind == "wait_status":
        status = columns["exit_code"]
        columns["exit_code"], columns["exit_signal"] = status // 256 % 256, status % 128
    jobs = pl.DataFrame({name: column.rename(name) for name, column in columns.items()}).with_columns(
        records["record"], records["line"], extra=_extra(records, table)
    )
    if unread:
        jobs = jobs.with_columns(as_map(unread).alias(UNREAD))
    jobs = _with_defaults(jobs)
    named = pl.col("cluster").fill_null(cluster) if "cluster" in columns else pl.lit(cluster)
    jobs = jobs.with_columns(named.alias("cluster"))
    jobs = _with_state(jobs, records[table.state.source], table.state)
    bad.append((table.state.source, jobs["state"].is_null()))
    refused = _refuse(records, bad)
    good = jobs.join(refused.select("line"), on="line", how="anti", maintain_order="left") if refused.height else jobs
    return with_schema(good), refused


def _odd(text: pl.Series, parsed: pl.Series, rule: ColumnRule) -> pl.Series | None:
    """Which values are told and cannot be read; None where all can."""
    if rule.kind in ("text", "identifier", "list", "tres") or parsed.null_count() == text.null_count():
        return None
    odd = text.is_not_null() & ~text.is_in(list(units.NO_VALUE)) & parsed.is_null() & ~_is_zero_time(text, rule)
    return odd if odd.any() else None


def _shown_text(records: pl.DataFrame, rule: ColumnRule) -> pl.Series:
    """What a table says of a column; of a time with spans to add, all of them."""
    parts = [pl.col(name).fill_null("") for name in (rule.source, *rule.added())]
    return records.select(pl.concat_str(parts, separator=" + ")).to_series()


def _with_defaults(jobs: pl.DataFrame) -> pl.DataFrame:
    """What follows where the map does not say it: no restarts, and the run time from start and end."""
    if "restart" not in jobs.columns:
        jobs = jobs.with_columns(restart=pl.lit(0))
    if "elapsed_s" not in jobs.columns and {"start_time", "end_time"} <= set(jobs.columns):
        ran = pl.col("end_time") >= pl.col("start_time")
        jobs = jobs.with_columns(
            elapsed_s=pl.when(ran).then((pl.col("end_time") - pl.col("start_time")).dt.total_microseconds() / 1e6)
        )
    return jobs


def _parse_column(records: pl.DataFrame, text: pl.Series, rule: ColumnRule, time_zone: str) -> pl.Series:
    if rule.kind in _TEXTS:
        return _TEXTS[rule.kind](text)
    if rule.kind in _FACTOR:
        number = (text.cast(pl.Float64, strict=False) * _FACTOR[rule.kind]).to_frame("n")
        return number.select(pl.when(pl.col("n").is_finite()).then("n")).to_series()
    if rule.kind in _BYTES:
        size = (text.cast(pl.Float64, strict=False) * _BYTES[rule.kind]).to_frame("s")
        return size.select(pl.when(pl.col("s") < 2.0**62).then(pl.col("s").cast(pl.Int64, strict=False))).to_series()
    if rule.kind == "local":
        return to_utc(text, time_zone)
    seconds = text.cast(pl.Float64, strict=False)  # unix
    for name in rule.added():
        seconds = seconds + records[name].cast(pl.Float64, strict=False)
    return from_unix(seconds)


def _whole(text: pl.Series) -> pl.Series:
    """Integers, also where a table has turned them into floats (`8192.0`, `16051200000000.0`)."""
    plain = text.cast(pl.Int64, strict=False)
    if plain.null_count() == text.null_count():
        return plain
    number = text.cast(pl.Float64, strict=False).to_frame("n")
    whole = number.select(
        pl.when((pl.col("n").abs() < 2.0**62) & (pl.col("n") == pl.col("n").round())).then(
            pl.col("n").cast(pl.Int64, strict=False)
        )
    ).to_series()
    return plain.zip_with(plain.is_not_null(), whole)


_TEXTS: Final[dict[str, Callable[[pl.Series], pl.Series]]] = {
    "text": lambda text: text,
    "tres": lambda text: text,
    # A number that names something: 35012304659472.0 and 35012304659472 are the same user.
    "identifier": lambda text: text.str.replace(r"\.0+$", ""),
    "list": lambda text: text.str.replace_all(r"[\[\]'\" ]", ""),  # "['n1', 'n2']"
    "integer": _whole,
    "wait_status": _whole,
    "duration": units.duration_s,
    "size": units.size_bytes,
}


def _is_zero_time(text: pl.Series, rule: ColumnRule) -> pl.Series:
    """Zero stands for "has not happened" in a column of Unix times."""
    if rule.kind != "unix" or rule.plus:
        return pl.Series([False]).new_from_index(0, len(text))
    return (text.cast(pl.Float64, strict=False) == 0).fill_null(False)


def _from_tres(columns: dict[str, pl.Series]) -> dict[str, pl.Series]:
    series: dict[str, pl.Series] = {}
    for name, prefix in (("alloc_tres", ""), ("req_tres", "req_")):
        if name in columns:
            counts = units.tres(columns[name])
            series |= {f"{prefix}{part}": counts[part] for part in counts.columns if f"{prefix}{part}" not in columns}
    return series


def _with_state(jobs: pl.DataFrame, raw: pl.Series, rule: StateRule) -> pl.DataFrame:
    words = raw.unique().drop_nulls()
    states = pl.Series([_state(word, rule) for word in words], dtype=pl.String)
    known = raw.replace_strict(words, states, default=None, return_dtype=pl.String)
    jobs = jobs.with_columns(state=known, state_raw=raw)
    if rule.timeout and {"elapsed_s", "time_limit_s"} <= set(jobs.columns):
        at_limit = (pl.col("elapsed_s") >= rule.timeout.share_of_limit * pl.col("time_limit_s")) & (pl.col("time_limit_s") > 0)
        concerned = pl.col("state_raw") == rule.timeout.word if rule.timeout.word else pl.col("state") != JobState.COMPLETED.value
        jobs = jobs.with_columns(
            state=pl.when(concerned & at_limit.fill_null(False)).then(pl.lit(JobState.TIMEOUT.value)).otherwise("state")
        )
    return jobs


def _state(word: str, rule: StateRule) -> str | None:
    if word in rule.words:
        return rule.words[word].value
    if rule.scheduler:
        translated = slurm_state(word.removesuffix(".0")) if rule.scheduler == "slurm" else swf_state(word)
        if translated:
            return translated.value
    return rule.otherwise.value if rule.otherwise else None


def _extra(records: pl.DataFrame, table: ColumnMap) -> pl.Series:
    used = {rule.source for rule in table.columns.values()} | {table.state.source, "record", "line", ""}
    others = {name: records[name] for name in records.columns if name not in used and not name.startswith(UNNAMED)}
    if not others:
        return pl.Series([None], dtype=pl.Map(pl.String, pl.String)).new_from_index(0, records.height)
    return as_map(others)


def _refuse(records: pl.DataFrame, bad: list[tuple[str, pl.Series]]) -> pl.DataFrame:
    parts = [
        records.filter(flags).select(
            "line",
            rule=pl.lit("bad_value"),
            reason=pl.lit(f"{name} cannot be read: ") + pl.col(name).fill_null("(empty)").str.slice(0, 60),
            raw=pl.concat_str(
                [pl.col(c).fill_null("") for c in records.columns if c not in ("record", "line")], separator=","
            ).str.slice(0, 4096),
        )
        for name, flags in bad
        if flags.fill_null(False).any()
    ]
    return pl.concat(parts).unique("line", keep="first", maintain_order=True).cast(REJECT_SCHEMA) if parts else no_rejects()
