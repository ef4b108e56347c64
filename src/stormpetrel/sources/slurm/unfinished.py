"""One form of a job that waits or runs, whichever of Slurm's commands told of it.

chunk of a live source -> in_one_form -> the same chunk: of unfinished jobs only what says something, in one way of writing.

sacct and squeue write the same request in another order, print an exit code before there is one, and count seconds and
priorities up. Asked every few seconds, such a job would be another record each time. What is left out comes with its end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from stormpetrel.records import units
from stormpetrel.records.jobs import CLOSED_BY_ABSENCE, KEY, conform
from stormpetrel.records.quality import no_rejects
from stormpetrel.records.states import UNFINISHED, JobState, slurm_state
from stormpetrel.records.unread import UNREAD
from stormpetrel.sources.contract import Chunk, LiveSource, Translation

# Why a job waits its turn: the scheduler says another of these words at each of its rounds, for thousands of jobs at once.
# They are one reason here, the one that Slurm's manual explains as "higher priority jobs exist".
WAITS_ITS_TURN: Final = "Priority"
_TURNS: Final = frozenset({"None", "Priority", "Resources", ""})

_WORDS: Final = sorted(
    {str(state) for state in UNFINISHED}
    | {"COMPLETING", "CONFIGURING", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD", "STAGE_OUT"}
)
# As sacct names them, and as the job frame does.
_LEFT_OUT: Final = frozenset(
    """elapsed elapsedraw cputimeraw totalcpu usercpu systemcpu maxrss maxdiskread maxdiskwrite priority flags exitcode
    derivedexitcode elapsed_s cpu_limit_s cpu_time_s user_cpu_s system_cpu_s max_rss_bytes disk_read_bytes disk_write_bytes
    exit_code exit_signal end_time suspended tresusageintot tresusageinmax ntasks busy_gpus gpu_mem_bytes consumedenergyraw
    consumedenergy energy_j""".split()
)
_TRES: Final = ("reqtres", "alloctres", "req_tres", "alloc_tres")
# Besides what is fixed at submission, what says why a job waits: it changes when that does.
_KEPT_EXTRA: Final = (
    "comment", "dependency", "command", "restarts", "constraints", "reservation", "wckey", "pending_tasks", "licenses",
    "required_nodes", "reason_detail",
)  # fmt: skip
_MEMORY: Final = re.compile(r"^(\d+(?:\.\d+)?)([KMGTP]?)$")
_IN_MIB: Final = {"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}


def in_one_form(chunk: Chunk) -> Chunk:
    """The same records, those of unfinished jobs in one form and without their steps."""
    records = chunk.records
    if not records.height or "state" not in records.columns:
        return chunk
    goes_on = is_unfinished(records)
    if not goes_on.any():
        return chunk
    records = records.with_columns(
        pl.when(~goes_on).then(pl.col(name)).alias(name) for name in records.columns if name in _LEFT_OUT
    )
    records = records.with_columns(
        records[name].zip_with(~goes_on, units.by_distinct(records[name], _canonical_tres))
        for name in _TRES
        if name in records.columns
    )
    records = _typed_form(records, goes_on) if "extra" in records.columns else _text_form(records, goes_on)
    if chunk.steps is None:
        return replace(chunk, records=records)
    steps = chunk.steps.join(records.filter(~goes_on).select("record"), on="record", how="semi")
    return replace(chunk, records=records, steps=steps if steps.height else None)


def is_unfinished(records: pl.DataFrame) -> pl.Series:
    """Which records (of sacct's text or of typed rows) are of jobs that wait or run."""
    return records["state"].str.split(" ").list.first().is_in(_WORDS).fill_null(False)


def reason_class(reason: str | None) -> str:
    """Why a job waits, in one word that changes when something really does; details such as names of nodes are dropped.

    >>> reason_class("Resources"), reason_class("ReqNodeNotAvail, UnavailableNodes:n[1-9]"), reason_class("JobHeldUser")
    ('Priority', 'ReqNodeNotAvail', 'JobHeldUser')
    """
    word = (reason or "").partition(",")[0].partition("(")[0].strip()
    return WAITS_ITS_TURN if word in _TURNS else word


def tres_text(text: str | None) -> str | None:
    """Trackable resources in one order, memory in MiB.

    >>> tres_text("cpu=2,mem=1G,node=1,billing=2")
    'billing=2,cpu=2,mem=1024M,node=1'
    """
    if not text:
        return None
    words = dict(word.partition("=")[::2] for word in text.split(","))
    memory = _MEMORY.match(words.get("mem", ""))
    if memory:
        words["mem"] = f"{float(memory[1]) * _IN_MIB[memory[2]]:.0f}M"
    return ",".join(f"{name}={count}" for name, count in sorted(words.items()))


def _canonical_tres(column: pl.Series) -> pl.Series:
    return pl.Series([tres_text(text) for text in column], dtype=pl.String)


def _reasons(column: pl.Series) -> pl.Series:
    return pl.Series([reason_class(text) for text in column], dtype=pl.String)


def _text_form(records: pl.DataFrame, goes_on: pl.Series) -> pl.DataFrame:
    """Of sacct's text: the reason in its class; a job that runs has no reason to wait."""
    if "reason" not in records.columns:
        return records
    waits = records["state"].fill_null("").str.starts_with("PENDING")
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, records.height)
    own = units.by_distinct(records["reason"], _reasons).zip_with(waits, nothing)
    return records.with_columns(reason=records["reason"].zip_with(~goes_on, own))


def _typed_form(records: pl.DataFrame, goes_on: pl.Series) -> pl.DataFrame:
    """Of job rows: held jobs are pending ones with that reason, as sacct has it; of the rest what does not drift."""
    state = pl.when(pl.col("state") == JobState.HELD.value).then(pl.lit(JobState.PENDING.value)).otherwise("state")
    state = pl.when(goes_on).then(state).otherwise("state")
    extra = [
        _kept(entries, state) if on else entries
        for entries, state, on in zip(records["extra"].to_list(), records["state"].to_list(), goes_on, strict=True)
    ]
    records = records.with_columns(state=state, extra=pl.Series(extra, dtype=records.schema["extra"]))
    if UNREAD in records.columns:
        records = records.with_columns(_lasting_unread(records[UNREAD], goes_on))
    return records.with_columns(state_raw=pl.when(goes_on).then("state").otherwise("state_raw"))


def _lasting_unread(unread: pl.Series, goes_on: pl.Series) -> pl.Series:
    """What could not be read, of a job that goes on without the columns that are left out of it."""
    if unread.null_count() == len(unread):
        return unread
    lasting = [
        {name: text for name, text in dict(texts).items() if not (on and name in _LEFT_OUT)} or None if texts else None
        for texts, on in zip(unread.to_list(), goes_on, strict=True)
    ]
    return pl.Series(UNREAD, lasting, dtype=unread.dtype)


def _kept(entries: object, state: str) -> dict[str, str] | None:
    """What is kept of `extra` while a job goes on, its reason in its class while it waits."""
    extras = dict(entries or {})  # type: ignore[call-overload]
    kept = {name: extras[name] for name in _KEPT_EXTRA if extras.get(name)}
    if slurm_state(state) in (JobState.PENDING, JobState.HELD):
        kept["reason"] = reason_class(extras.get("reason"))
    return kept or None


class ClosedJobs(LiveSource):
    """Rows (KEY, `state`, `end_time`) of jobs that are closed because nobody lists them any more."""

    format = CLOSED_BY_ABSENCE

    def __init__(self, rows: pl.DataFrame) -> None:
        super().__init__("jobs on no list any more", None)
        self._rows = rows
        self._columns = frozenset({"state", "state_raw", "end_time"})

    def chunks(self) -> Iterator[Chunk]:
        """The rows as one chunk."""
        rows = conform(self._rows.select(*KEY, "state", "end_time", state_raw="state"))
        numbers = pl.int_range(rows.height, eager=True)
        records = rows.with_columns(record=numbers.cast(pl.UInt32), line=numbers)
        yield Chunk(records=records, translate=_already_rows, read=rows.height)


def _already_rows(records: pl.DataFrame, _steps: pl.DataFrame | None) -> Translation:
    return records, no_rejects()
