"""The fields of sacct -> the columns of the job frame: typed, in UTC, steps merged into their job.

Foreign names are translated here and nowhere else; a field that is not listed goes to `extra` under its own name. A value that
cannot be read is null and noted as unread; only that of the id, the submit time and the state refuses its record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import polars as pl

from stormpetrel.records import units
from stormpetrel.records.doubts import MEMORY_PER_CPU_FLAG, with_rules
from stormpetrel.records.jobs import as_map, joined
from stormpetrel.records.nodes import is_node_list
from stormpetrel.records.quality import REJECT_SCHEMA, no_rejects
from stormpetrel.records.states import OVER_BEFORE_START, cancelled_by, slurm_state
from stormpetrel.records.times import to_utc
from stormpetrel.records.units import unflagged_texts
from stormpetrel.records.unread import DECISIVE, UNREAD, no_unread
from stormpetrel.sources.contract import Translation, with_schema
from stormpetrel.sources.slurm import energy
from stormpetrel.sources.slurm.step_use import suspended_seconds, with_step_use
from stormpetrel.sources.slurm.submit_line import script_of as script_of
from stormpetrel.sources.slurm.submit_line import script_paths


@dataclass(frozen=True, slots=True)
class Context:
    """What the file does not say itself."""

    time_zone: str
    cluster: str


# sacct field (lower case) -> (column, kind). Where two fields fill one column, the first that is there wins.
_TEXT: Final = {
    "cluster": "cluster",
    "jobname": "job_name",
    "user": "user",
    "group": "group",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "nodelist": "node_list",
    "workdir": "work_dir",
    "submitline": "submit_line",
    "reqtres": "req_tres",
    "alloctres": "alloc_tres",
}
_NUMBERS: Final = {"uid": "uid", "gid": "gid"}
_COUNTS: Final = {
    "reqcpus": "req_cpus",
    "alloccpus": "cpus",
    "ncpus": "cpus",
    "reqnodes": "req_nodes",
    "allocnodes": "nodes",
    "nnodes": "nodes",
}
_TIMES: Final = {"submit": "submit_time", "eligible": "eligible_time", "start": "start_time", "end": "end_time"}
_DURATIONS: Final = {
    "elapsed": "elapsed_s",
    "timelimit": "time_limit_s",
    "cputime": "cpu_limit_s",
    "totalcpu": "cpu_time_s",
    "usercpu": "user_cpu_s",
    "systemcpu": "system_cpu_s",
}
_SECONDS: Final = {"elapsedraw": ("elapsed_s", 1.0), "cputimeraw": ("cpu_limit_s", 1.0), "timelimitraw": ("time_limit_s", 60.0)}
_SIZES: Final = {
    "maxrss": ("max_rss_bytes", ""),
    "maxdiskread": ("disk_read_bytes", "M"),
    "maxdiskwrite": ("disk_write_bytes", "M"),
}
# Fields that are used up without being a column of their own; listed so that they do not land in `extra` as well.
_SPECIAL: Final = {
    "jobid": ("array_task", "het_job_id", "het_offset"),
    "jobidraw": ("job_id_raw",),
    "state": ("state", "state_raw", "cancelled_by"),
    "exitcode": ("exit_code", "exit_signal", "failed_step", "failed_step_exit_code", "failed_step_exit_signal"),
    "reqmem": ("req_mem_bytes",),
    # Read by `step_use`: CPU time and GPUs of steps, whether MaxRSS is of one task, why a job ran for less than its span.
    "tresusageintot": ("cpu_time_s", "busy_gpus", "gpu_mem_bytes", "energy_j"),
    "tresusageinmax": ("busy_gpus", "gpu_mem_bytes"),
    "consumedenergyraw": ("energy_j",),
    "consumedenergy": ("energy_j",),
    "ntasks": (),
    "suspended": (),
}
_DERIVED: Final = {
    "reqtres": ("req_gpus", "req_cpus", "req_nodes", "req_mem_bytes"),
    "alloctres": ("gpus", "cpus", "nodes", "mem_bytes", "energy_j"),
    "submitline": ("script_path",),
    "tresusageintot": ("cpu_time_s", "busy_gpus", "gpu_mem_bytes", "energy_j"),
}
_NEVER_STARTED: Final = ("None assigned", "None", "Unknown", "(null)")
_EXIT: Final = r"^(\d{1,9}):(\d{1,9})$"
_JOB_ID: Final = r"^(\d+)(?:_(?:(\d+)|\[([^\]]*)\])|\+(\d+))?$"


def _is_run_time_derived(names: Iterable[str]) -> bool:
    """Whether run times are from start to end, since no field tells them; not where one tells how long jobs were suspended."""
    fields = set(names)
    return {"start", "end"} <= fields and not fields & {"elapsed", "elapsedraw", "suspended"}


def columns_from(names: Iterable[str]) -> frozenset[str]:
    """The job columns that these sacct fields fill."""
    names = list(names)
    fields = {"elapsed_s"} if _is_run_time_derived(names) else set[str]()
    for name in names:
        fields.update(
            column
            for column in (
                _TEXT.get(name),
                _NUMBERS.get(name),
                _COUNTS.get(name),
                _TIMES.get(name),
                _DURATIONS.get(name),
                _SECONDS.get(name, (None,))[0],
                _SIZES.get(name, (None,))[0],
                *_SPECIAL.get(name, ()),
                *_DERIVED.get(name, ()),
            )
            if column
        )
        if not _is_known(name):
            fields.add("extra")
    return frozenset(fields)


def translate(records: pl.DataFrame, steps: pl.DataFrame | None, context: Context) -> Translation:
    """Job records of sacct as rows of the job frame; those without a readable id, submit time or state are refused."""
    reader = _Reader(records, context)
    jobs = reader.read()
    if steps is not None and steps.height:
        jobs = energy.with_step_energy(with_step_use(_merge_steps(jobs, steps), steps), steps)
    refused = reader.refused()
    if refused.height:
        jobs = jobs.join(refused.select("line"), on="line", how="anti", maintain_order="left")
    return with_schema(jobs), refused


class _Reader:
    """Reads one frame of strings column by column, remembering which fields did not parse."""

    def __init__(self, records: pl.DataFrame, context: Context) -> None:
        self.raw = records
        self.context = context
        self.columns: dict[str, pl.Series] = {}
        self.unread: dict[str, pl.Series] = {}  # job column -> the texts that could not be read, null elsewhere
        self.bad: list[tuple[str, pl.Series]] = []  # sacct field -> which rows it refuses
        self.doubts: dict[str, pl.Series] = {}  # rules of data quality that only the raw text tells

    def read(self) -> pl.DataFrame:
        self._texts()
        self._numbers()
        self._identity()
        self._state()
        self._exit_codes()
        self._resources()
        self._energy()
        self._submit_line()
        self._extra()
        frame = pl.DataFrame({name: column.rename(name) for name, column in self.columns.items()})
        unread = [as_map(self.unread).alias(UNREAD)] if self.unread else []
        return with_rules(frame.with_columns(self.raw["record"], self.raw["line"], *unread), self.doubts)

    def refused(self) -> pl.DataFrame:
        """One reject for each row whose id, submit time or state could not be read, naming the first such field."""
        parts = []
        for name, flags in self.bad:
            rows = self.raw.filter(flags)
            parts.append(
                rows.select(
                    "line",
                    rule=pl.lit("bad_value"),
                    reason=pl.lit(f"{name} cannot be read: ") + pl.col(name).str.slice(0, 60),
                    raw=pl.concat_str(
                        [pl.col(c).fill_null("") for c in rows.columns if c not in ("record", "line")], separator="|"
                    ).str.slice(0, 4096),
                )
            )
        return pl.concat(parts).unique("line", keep="first", maintain_order=True).cast(REJECT_SCHEMA) if parts else no_rejects()

    def _texts(self) -> None:
        for name, column in _TEXT.items():
            if name in self.raw.columns:
                self.columns.setdefault(column, self.raw[name])
        if "node_list" in self.columns:
            names = self.columns["node_list"].replace(list(_NEVER_STARTED), [None] * len(_NEVER_STARTED))
            self.columns["node_list"] = self._kept("nodelist", "node_list", names, is_node_list(names))
        named = self.columns.get("cluster")
        default = pl.Series([self.context.cluster], dtype=pl.String)
        self.columns["cluster"] = (
            named.fill_null(self.context.cluster) if named is not None else default.new_from_index(0, self.raw.height)
        )

    def _numbers(self) -> None:
        for name, column in _NUMBERS.items():
            self._put(name, column, lambda text: text.cast(pl.Int64, strict=False))
        for name, column in _COUNTS.items():
            self._put(name, column, units.whole_count)
        for name, column in _TIMES.items():
            self._put(name, column, lambda text: to_utc(text, self.context.time_zone))
        for name, column in _DURATIONS.items():
            self._put(name, column, units.duration_s, allowed=units.NO_LIMIT)
        for name, (column, factor) in _SECONDS.items():
            self._put(name, column, lambda text, f=factor: text.cast(pl.Float64, strict=False) * f, allowed=units.NO_LIMIT)
        for name, (column, unit) in _SIZES.items():
            self._put(name, column, lambda text, u=unit: units.size_bytes(text, default_unit=u))

    def _put(self, name: str, column: str, parse: object, *, allowed: tuple[str, ...] = ()) -> None:
        """Parse a field into a column, and note the values that are neither; where another field fills the column, that wins."""
        values = self.columns.get(column)
        if name not in self.raw.columns or (values is not None and column not in self.unread):
            return
        parsed = parse(self.raw[name])  # type: ignore[operator]
        self._note(name, column, parsed, allowed)
        self.columns[column] = parsed if values is None else values.zip_with(values.is_not_null(), parsed)

    def _note(self, name: str, column: str, parsed: pl.Series, allowed: tuple[str, ...] = ()) -> None:
        """Remember the texts of a field that became null and are no word for that; a decisive column's refuse their row."""
        text = self.raw[name]
        if parsed.null_count() == text.null_count():
            return
        odd = parsed.is_null() & text.is_not_null() & ~text.is_in([*units.NO_VALUE, *allowed])
        if not odd.any():
            return
        if column in DECISIVE:
            self.bad.append((name, odd))
            return
        texts = text.zip_with(odd, self.unread.get(column, _nothing(len(text))))
        self.unread[column] = texts

    def _kept(self, name: str, column: str, parsed: pl.Series, sound: pl.Series) -> pl.Series:
        """The values that are sound; the texts of the others are noted."""
        if sound.all():
            return parsed
        kept = parsed.zip_with(sound, parsed.clear(len(parsed)))
        self._note(name, column, kept, _NEVER_STARTED)
        return kept

    def _was_odd(self, column: str) -> pl.Series:
        """Which rows said something in a column that could not be read."""
        return self.unread.get(column, _nothing(self.raw.height)).is_not_null()

    def _identity(self) -> None:
        empty = pl.Series([None], dtype=pl.Int64).new_from_index(0, self.raw.height)
        raw_id = self.raw["jobidraw"].cast(pl.Int64, strict=False) if "jobidraw" in self.raw.columns else None
        if raw_id is not None:
            self._note("jobidraw", "job_id_raw" if "jobid" in self.raw.columns else "job_id", raw_id)
            self.columns["job_id_raw"] = raw_id
        if "jobid" not in self.raw.columns:
            self.columns["job_id"], self.columns["array_task"] = raw_id if raw_id is not None else empty, empty
        else:
            plain = self.raw["jobid"].cast(pl.Int64, strict=False)
            if plain.null_count():
                self._composed_ids()
            else:
                self.columns["job_id"], self.columns["array_task"] = plain, empty
        # Slurm gives a requeued job a new submit time, so its runs are told apart without a count (ADR 1).
        self.columns["restart"] = pl.Series([0], dtype=pl.Int32).new_from_index(0, self.raw.height)

    def _composed_ids(self) -> None:
        """`123_4` (array task), `123_[5-9%2]` (tasks still pending), `123+1` (component of a heterogeneous job)."""
        words = self.raw["jobid"].str.extract_groups(_JOB_ID).struct.unnest()
        parts = words.cast({"1": pl.Int64, "2": pl.Int64, "4": pl.Int32}, strict=False)
        too_large = (parts["2"].is_null() & words["2"].is_not_null()) | (parts["4"].is_null() & words["4"].is_not_null())
        self._note("jobid", "job_id", parts["1"].zip_with(~too_large, parts["1"].clear(parts.height)))
        self.columns["array_task"] = parts["2"]
        self.columns["het_offset"] = parts["4"].cast(pl.Int32, strict=False)
        self.columns["het_job_id"] = parts.select(pl.when(pl.col("4").is_not_null()).then("1")).to_series()
        # The components of a heterogeneous job have consecutive ids, the leader's first.
        self.columns["job_id"] = parts.select(pl.col("1") + pl.col("4").fill_null(0)).to_series()
        if parts["3"].null_count() < parts.height:
            self.columns["_pending_tasks"] = parts["3"]

    def _state(self) -> None:
        if "state" not in self.raw.columns:
            return
        raw = self.raw["state"]
        states = raw.unique().drop_nulls()
        state = pl.Series([slurm_state(word) for word in states], dtype=pl.String)
        by_whom = pl.Series([cancelled_by(word) for word in states], dtype=pl.String)
        self.columns["state"] = raw.replace_strict(states, state, default=None, return_dtype=pl.String)
        self.columns["cancelled_by"] = raw.replace_strict(states, by_whom, default=None, return_dtype=pl.String)
        self.columns["state_raw"] = raw
        self._note("state", "state", self.columns["state"])

    def _exit_codes(self) -> None:
        if "exitcode" not in self.raw.columns:
            return
        code, signal = _exit_parts(self.raw["exitcode"])
        self._note("exitcode", "exit_code", code)
        self.columns["exit_code"], self.columns["exit_signal"] = code, signal

    def _resources(self) -> None:
        for name, prefix in (("reqtres", "req_"), ("alloctres", "")):
            if name in self.raw.columns:
                counts = units.tres(self.raw[name])
                for part in ("gpus", "cpus", "nodes", "mem_bytes"):
                    self._fill(f"{prefix}{part}", counts[part])
        if "reqmem" in self.raw.columns:
            of_tres = self.columns.pop("req_mem_bytes", None)
            self.columns["req_mem_bytes"] = self._requested_memory()
            if of_tres is not None and "req_mem_bytes" in self.unread:
                self._fill("req_mem_bytes", of_tres)
        self._no_start_without_nodes()
        if _is_run_time_derived(self.raw.columns):
            span = self.columns["end_time"] - self.columns["start_time"]
            self.columns["elapsed_s"] = span.dt.total_microseconds() / 1e6
        self._nothing_allocated_before_the_start()

    def _fill(self, column: str, exact: pl.Series) -> None:
        """Take a count out of the trackable resources where its own field does not tell it, or only a rounded one."""
        values = self.columns.get(column)
        if values is None:
            self.columns[column] = exact
            return
        is_filled = values.is_not_null()
        own = next((name for name, filled in _COUNTS.items() if filled == column and name in self.raw.columns), None)
        if own and (rounded := units.is_rounded(self.raw[own])).any():
            is_filled &= ~(rounded & exact.is_not_null())
        self.columns[column] = values.zip_with(is_filled, exact)

    def _no_start_without_nodes(self) -> None:
        """Of an array that was cancelled while it waited sacct prints the time of that as its start, but it never had a node."""
        if not {"start_time", "node_list", "state"} <= self.columns.keys():
            return
        over = self.columns["state"].is_in([str(state) for state in OVER_BEFORE_START]) & self.columns["node_list"].is_null()
        if "node_list" in self.unread:
            over &= ~self._was_odd("node_list")
        if "elapsed_s" in self.columns:
            over &= self.columns["elapsed_s"].fill_null(0.0) <= 0.0
        if over.any():
            start = self.columns["start_time"]
            self.columns["start_time"] = start.zip_with(~over.fill_null(False), start.clear(len(start)))

    def _nothing_allocated_before_the_start(self) -> None:
        """Of a job that never started sacct prints what was asked for (NNodes) or 0 (AllocCPUS): neither was allocated."""
        if "start_time" not in self.columns:
            return
        started = self.columns["start_time"].is_not_null()
        if "start_time" in self.unread:
            started |= self._was_odd("start_time")
        if started.all():
            return
        nothing = pl.Series([None], dtype=pl.Int64).new_from_index(0, self.raw.height)
        for allocated in ("nodes", "cpus"):
            if allocated in self.columns:
                self.columns[allocated] = self.columns[allocated].zip_with(started, nothing)

    def _requested_memory(self) -> pl.Series:
        """ReqMem of the whole job: `4000Mn` is per node, `2Gc` per CPU, no suffix (Slurm 21.08 on) already the total."""
        text, flagged = unflagged_texts(self.raw["reqmem"])
        self.doubts[MEMORY_PER_CPU_FLAG] = flagged
        parts = units.size_parts(text, default_unit="M")
        self._note("reqmem", "req_mem_bytes", parts["bytes"], units.NO_LIMIT)
        cpus = self._first_of("cpus", "req_cpus")
        nodes = self._first_of("nodes", "req_nodes")
        factor = pl.when(pl.col("per") == "n").then(nodes).when(pl.col("per") == "c").then(cpus).otherwise(1).fill_null(1)
        total = pl.col("bytes").cast(pl.Float64) * factor.clip(1)
        fitting = parts.select(pl.when(total < 9e18).then(total.cast(pl.Int64, strict=False)).otherwise(pl.col("bytes")))
        return fitting.to_series()

    def _first_of(self, *names: str) -> pl.Expr:
        there = [pl.lit(self.columns[name]) for name in names if name in self.columns]
        return pl.coalesce([pl.when(column > 0).then(column) for column in there]) if there else pl.lit(1)

    def _energy(self) -> None:
        """Energy by the job's own line; sacct prints 0 where nobody measured it."""
        for name in energy.FIELDS:
            self._put(name, "energy_j", units.joules)
        values = self.columns.get("energy_j")
        if values is not None:
            self.columns["energy_j"] = values.set(values <= 0, None)
        if "alloctres" in self.raw.columns:
            of_tres = energy.job_energy(self.raw["alloctres"])
            if of_tres.null_count() < len(of_tres):
                self._fill("energy_j", of_tres)

    def _submit_line(self) -> None:
        if "submit_line" in self.columns:
            self.columns["script_path"] = units.by_distinct(self.columns["submit_line"], script_paths)

    def _extra(self) -> None:
        others = {name: self.raw[name] for name in self.raw.columns if not _is_known(name) and name not in ("record", "line")}
        if "suspended" in self.raw.columns:
            others["suspended_s"] = suspended_seconds(self.raw["suspended"])
        pending = self.columns.pop("_pending_tasks", None)
        if pending is not None:
            others["pending_tasks"] = pending
        for name in ("timelimit", "reqmem", "eligible"):  # words such as UNLIMITED are no number, but say something
            column = self.raw[name] if name in self.raw.columns else None
            if column is not None and column.is_in(list(units.NO_LIMIT)).any():
                others[name] = column.to_frame("v").select(pl.when(pl.col("v").is_in(list(units.NO_LIMIT))).then("v")).to_series()
        if others:
            self.columns["extra"] = as_map(others)


def _is_known(name: str) -> bool:
    return any(name in table for table in (_TEXT, _NUMBERS, _COUNTS, _TIMES, _DURATIONS, _SECONDS, _SIZES, _SPECIAL))


def _nothing(height: int) -> pl.Series:
    return pl.Series([None], dtype=pl.String).new_from_index(0, height)


def _exit_parts(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    def parse(text: pl.Series) -> pl.Series:
        parts = text.str.extract_groups(_EXIT).struct.unnest()
        return parts.select(pl.struct(pl.all().cast(pl.Int32, strict=False))).to_series()

    both = units.by_distinct(column, parse).struct.unnest()
    return both["1"], both["2"]


def _merge_steps(jobs: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """What only steps know, in their job: largest MaxRSS and disk I/O, summed CPU time, exit code of the one that failed."""
    typed = steps.select("record", "line", pl.col("jobid" if "jobid" in steps.columns else "jobidraw").alias("id"))
    typed = typed.with_columns(_step=pl.col("id").str.extract(r"\.(.+)$"))
    odd: dict[str, pl.Series] = {}
    for name, (column, unit) in _SIZES.items():
        if name in steps.columns:
            typed = typed.with_columns(units.size_bytes(steps[name], default_unit=unit).alias(column))
            _note_in_steps(odd, column, steps[name], typed[column])
    for name in ("totalcpu", "usercpu", "systemcpu"):
        if name in steps.columns:
            column = _DURATIONS[name]
            typed = typed.with_columns(units.duration_s(steps[name]).alias(column))
            _note_in_steps(odd, column, steps[name], typed[column])
    largest = [column for column, _ in _SIZES.values() if column in typed.columns]
    summed = [column for column in ("cpu_time_s", "user_cpu_s", "system_cpu_s") if column in typed.columns]
    totals = typed.group_by("record").agg(pl.col(largest).max(), pl.col(summed).sum())
    jobs = jobs.join(totals, on="record", how="left", suffix="_steps", maintain_order="left")
    for column in (*largest, *summed):
        if f"{column}_steps" in jobs.columns:
            # The job's own row wins where it says something: newer Slurm sums CPU time there already.
            own = pl.when(pl.col(column) > 0).then(pl.col(column))
            jobs = jobs.with_columns(pl.coalesce(own, f"{column}_steps", column).alias(column)).drop(f"{column}_steps")
    if "exitcode" in steps.columns:
        jobs = _first_failed_step(jobs, typed, steps["exitcode"])
    return _with_unread_steps(jobs, steps["record"], odd) if odd else jobs


def _note_in_steps(odd: dict[str, pl.Series], column: str, text: pl.Series, parsed: pl.Series) -> None:
    """Add the texts of a field of steps that cannot be read, null elsewhere, where there are any."""
    if parsed.null_count() > text.null_count():
        flags = parsed.is_null() & text.is_not_null() & ~text.is_in([*units.NO_VALUE, *units.NO_LIMIT])
        if flags.any():
            odd[column] = text.zip_with(flags, _nothing(len(text)))


def _with_unread_steps(jobs: pl.DataFrame, record: pl.Series, odd: dict[str, pl.Series]) -> pl.DataFrame:
    """The jobs with what could not be read in their steps, of each field that of the first such step."""
    firsts = pl.DataFrame({"record": record, **odd}).group_by("record").agg(pl.all().drop_nulls().first())
    of_jobs = jobs.select("record").join(firsts, on="record", how="left", maintain_order="left")
    noted = as_map({column: of_jobs[column] for column in odd})
    known = jobs[UNREAD] if UNREAD in jobs.columns else no_unread(jobs.height)
    return jobs.with_columns(joined(noted, known).alias(UNREAD))


def _first_failed_step(jobs: pl.DataFrame, typed: pl.DataFrame, exit_codes: pl.Series) -> pl.DataFrame:
    code, signal = _exit_parts(exit_codes)
    failed = (
        typed.select("record", "line", failed_step="_step", failed_step_exit_code=code, failed_step_exit_signal=signal)
        .filter((pl.col("failed_step_exit_code") != 0) | (pl.col("failed_step_exit_signal") != 0))
        .filter(pl.col("failed_step") != "extern")
        # The batch step repeats the exit code of what ran in it: a numbered step says more.
        .with_columns(_is_batch=pl.col("failed_step") == "batch")
        .sort("record", "_is_batch", "line")
        .unique("record", keep="first", maintain_order=True)
        .drop("_is_batch", "line")
    )
    return jobs.join(failed, on="record", how="left", maintain_order="left")
