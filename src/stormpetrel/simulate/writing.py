"""Job frames as the text that `sacct -P` would print of them, steps included.

job frames -> write_sacct -> a file; job frames -> sacct_text -> lines without a header.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Final

import polars as pl

from stormpetrel.errors import UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.states import JobState
from stormpetrel.simulate.frames import memory_text
from stormpetrel.sources.slurm.live import WANTED

_MIB: Final = 1 << 20
_MIB_PER_KIB: Final = 1024
_UNKNOWN: Final = "Unknown"
_FIRST_PRIORITY: Final = 4_294_901_760  # where Slurm's priority/basic begins to count down


def write_sacct(frames: Iterable[pl.DataFrame], path: Path, *, fields: Sequence[str] = WANTED) -> int:
    """Write job frames as `sacct -P` prints them, header first (gzip where the name ends in .gz). How many jobs."""
    jobs = 0
    with writing_private(path) as raw, _packed(raw) if path.suffix == ".gz" else nullcontext(raw) as out:
        out.write(("|".join(fields) + "\n").encode())
        for frame in frames:
            out.write(sacct_text(frame, fields=fields).encode())
            jobs += frame.height
    return jobs


def _packed(raw: IO[bytes]) -> gzip.GzipFile:
    # Neither time nor name in the gzip header: the same jobs make the same file.
    return gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0, compresslevel=3)


def sacct_text(
    jobs: pl.DataFrame,
    *,
    fields: Sequence[str] = WANTED,
    delimiter: str = "|",
    times: str = "%Y-%m-%dT%H:%M:%S",
    steps: bool = True,
) -> str:
    """The lines of sacct for these jobs and their steps, without a header. `times` is SLURM_TIME_FORMAT."""
    unknown = [name for name in fields if name.lower() not in _BY_LOWER]
    if unknown:
        raise UsageError(f'Invalid field requested: "{unknown[0]}".', hint="See --helpformat.")
    names = [_BY_LOWER[name.lower()] for name in fields]
    whole = _prepared(jobs, times)
    lines = [part.select("_at", "_step", pl.concat_str(names, separator=delimiter).alias("line")) for part in _rows(whole, steps)]
    ordered = pl.concat(lines).sort("_at", "_step")["line"]
    return "\n".join(ordered) + "\n" if len(ordered) else ""


def _rows(whole: pl.DataFrame, steps: bool) -> Iterator[pl.DataFrame]:
    """The job rows, then the rows of each kind of step; steps exist of jobs that ran."""
    yield whole.select("_at", _step=pl.lit(0), **_texts(_JOB))
    if not steps:
        return
    # In one piece each: on a frame that begins with an empty piece polars' `format` panics.
    ran = whole.filter(pl.col("_ran")).rechunk()
    yield ran.select("_at", _step=pl.lit(1), **_texts(_BATCH))
    yield ran.select("_at", _step=pl.lit(2), **_texts(_EXTERN))
    yield ran.filter(pl.col("_wide")).rechunk().select("_at", _step=pl.lit(3), **_texts(_SRUN))


def _texts(expressions: dict[str, pl.Expr]) -> dict[str, pl.Expr]:
    return {name: expressions.get(name, pl.lit("")).cast(pl.String).fill_null("") for name in SACCT_FIELDS}


def _prepared(jobs: pl.DataFrame, times: str) -> pl.DataFrame:
    """Columns that several kinds of rows share, as text."""
    ran = pl.col("start_time").is_not_null()
    ended = pl.col("end_time").is_not_null()
    failed_signal = pl.col("failed_step_exit_signal").fill_null(0)
    task = pl.col("array_task").cast(pl.String)
    run_state = pl.col("state").replace({"TIMEOUT": "CANCELLED", "NODE_FAIL": "CANCELLED"})
    return (
        jobs.rechunk()
        .with_row_index("_at")
        .with_columns(
            _ran=ran,
            _wide=pl.col("nodes") > 1,
            _id=pl.col("job_id").cast(pl.String) + pl.when(pl.col("array_task").is_null()).then(pl.lit("")).otherwise("_" + task),
            _raw=pl.col("job_id_raw").cast(pl.String),
            _submit=_moment("submit_time", times),
            _start=_moment("start_time", times),
            _end=_moment("end_time", times),
            _elapsed=_clock(pl.col("elapsed_s").fill_null(0)),
            _exit=pl.format("{}:{}", pl.col("exit_code").fill_null(0), pl.col("exit_signal").fill_null(0)),
            _step_exit=pl.format("{}:{}", pl.col("failed_step_exit_code").fill_null(0), failed_signal),
            _step_state=pl.when(ended).then(run_state).otherwise("state"),
            _done=pl.when(ended).then(pl.lit(True)),
            _cpus=pl.when(ran).then("cpus").otherwise(0),
        )
    )


def _moment(name: str, times: str) -> pl.Expr:
    text = pl.col(name).dt.epoch("s").cast(pl.String) if times == "%s" else pl.col(name).dt.strftime(times)
    return text.fill_null(_UNKNOWN)


def _clock(seconds: pl.Expr) -> pl.Expr:
    """`[D-]HH:MM:SS`."""
    whole = seconds.cast(pl.Int64)
    days = whole // 86_400
    parts = [_two(whole // 3600 % 24), _two(whole // 60 % 60), _two(whole % 60)]
    clock = pl.format("{}:{}:{}", *parts)
    return pl.when(days > 0).then(pl.format("{}-{}", days, clock)).otherwise(clock)


def _cpu_clock(name: str) -> pl.Expr:
    """CPU time as sacct prints it: `MM:SS.mmm` below an hour, `[D-]HH:MM:SS` above."""
    seconds = pl.col(name).fill_null(0.0)
    millis = (seconds * 1000).round().cast(pl.Int64)
    short = pl.format("{}:{}.{}", _two(millis // 60_000), _two(millis // 1000 % 60), (millis % 1000).cast(pl.String).str.zfill(3))
    return pl.when(seconds < 3600).then(short).otherwise(_clock(seconds))


def _two(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.String).str.zfill(2)


_CPU_RAW: Final = pl.col("elapsed_s").fill_null(0).cast(pl.Int64) * pl.col("_cpus")
_RSS: Final = pl.when("_done").then(pl.format("{}K", pl.col("max_rss_bytes") // _MIB_PER_KIB))
_READ: Final = pl.when("_done").then(pl.format("{}M", pl.col("disk_read_bytes") // _MIB))
_WRITTEN: Final = pl.when("_done").then(pl.format("{}M", pl.col("disk_write_bytes") // _MIB))
_ENERGY: Final = pl.when("_done").then(pl.col("energy_j").fill_null(0))  # of every step: meters are of nodes
_CPU: Final = {
    "TotalCPU": pl.when("_done").then(_cpu_clock("cpu_time_s")).otherwise(pl.lit("00:00:00")),
    "UserCPU": pl.when("_done").then(_cpu_clock("user_cpu_s")).otherwise(pl.lit("00:00:00")),
    "SystemCPU": pl.when("_done").then(_cpu_clock("system_cpu_s")).otherwise(pl.lit("00:00:00")),
}
_JOB: Final = {
    "JobID": pl.col("_id"),
    "JobIDRaw": pl.col("_raw"),
    "Cluster": pl.col("cluster"),
    "JobName": pl.col("job_name"),
    "User": pl.col("user"),
    "UID": pl.col("uid"),
    "Group": pl.col("group"),
    "GID": pl.col("gid"),
    "Account": pl.col("account"),
    "Partition": pl.col("partition"),
    "QOS": pl.col("qos"),
    "Submit": pl.col("_submit"),
    "Eligible": pl.col("_submit"),
    "Start": pl.col("_start"),
    "End": pl.col("_end"),
    "Elapsed": pl.col("_elapsed"),
    "State": pl.col("state_raw"),
    "ExitCode": pl.col("_exit"),
    "DerivedExitCode": pl.when(pl.col("failed_step") == "0").then("_step_exit").otherwise(pl.lit("0:0")),
    "Timelimit": _clock(pl.col("time_limit_s")),
    "ReqCPUS": pl.col("req_cpus"),
    "AllocCPUS": pl.col("_cpus"),
    "ReqNodes": pl.col("req_nodes"),
    "NNodes": pl.coalesce("nodes", "req_nodes"),
    "ReqMem": memory_text(pl.col("req_mem_bytes") // _MIB),
    "CPUTimeRAW": _CPU_RAW,
    **_CPU,
    "ConsumedEnergyRaw": _ENERGY,
    "ReqTRES": pl.col("req_tres"),
    "AllocTRES": pl.col("alloc_tres"),
    "NodeList": pl.col("node_list").fill_null("None assigned"),
    "WorkDir": pl.col("work_dir"),
    "Reason": pl.when(pl.col("state") == JobState.PENDING.value).then(pl.lit("Resources")).otherwise(pl.lit("None")),
    "Priority": _FIRST_PRIORITY - pl.col("job_id_raw"),
    "Restarts": pl.lit("0"),
    "SubmitLine": pl.col("submit_line"),
}
_STEP: Final = {
    "Cluster": pl.col("cluster"),
    "Account": pl.col("account"),
    "Submit": pl.col("_start"),
    "Eligible": pl.col("_start"),
    "Start": pl.col("_start"),
    "End": pl.col("_end"),
    "Elapsed": pl.col("_elapsed"),
    "ReqCPUS": pl.col("_cpus"),
    "AllocCPUS": pl.col("_cpus"),
    "ReqNodes": pl.col("nodes"),
    "NNodes": pl.col("nodes"),
    "CPUTimeRAW": _CPU_RAW,
    "AllocTRES": pl.col("alloc_tres"),
    "NodeList": pl.col("node_list"),
    "ConsumedEnergyRaw": _ENERGY,
}
# The work of a job on several nodes is done in the step that srun starts; the script only waits for it.
_BATCH: Final = {
    **_STEP,
    "JobID": pl.col("_id") + ".batch",
    "JobIDRaw": pl.col("_raw") + ".batch",
    "JobName": pl.lit("batch"),
    "State": pl.col("_step_state"),
    "ExitCode": pl.col("_step_exit"),
    "MaxRSS": pl.when("_wide").then(pl.when("_done").then(pl.lit("900K"))).otherwise(_RSS),
    "MaxDiskRead": pl.when("_wide").then(pl.when("_done").then(pl.lit("0"))).otherwise(_READ),
    "MaxDiskWrite": pl.when("_wide").then(pl.when("_done").then(pl.lit("0"))).otherwise(_WRITTEN),
    **{name: pl.when("_wide").then(pl.lit("00:00:00")).otherwise(clock) for name, clock in _CPU.items()},
}
_EXTERN: Final = {
    **_STEP,
    "JobID": pl.col("_id") + ".extern",
    "JobIDRaw": pl.col("_raw") + ".extern",
    "JobName": pl.lit("extern"),
    "State": pl.when("_done").then(pl.lit("COMPLETED")).otherwise(pl.lit("RUNNING")),
    "ExitCode": pl.lit("0:0"),
    "MaxRSS": pl.when("_done").then(pl.lit("0")),
    **dict.fromkeys(_CPU, pl.lit("00:00:00")),
}
_SRUN: Final = {
    **_STEP,
    "JobID": pl.col("_id") + ".0",
    "JobIDRaw": pl.col("_raw") + ".0",
    "JobName": pl.col("job_name").str.split("-").list.first(),
    "State": pl.col("_step_state"),
    "ExitCode": pl.col("_step_exit"),
    "MaxRSS": _RSS,
    "MaxDiskRead": _READ,
    "MaxDiskWrite": _WRITTEN,
    **_CPU,
}
# What the simulated sacct knows: everything that live ingest asks for, and the fields that have no value here.
SACCT_FIELDS: Final = tuple(WANTED)
_BY_LOWER: Final = {name.lower(): name for name in SACCT_FIELDS}
