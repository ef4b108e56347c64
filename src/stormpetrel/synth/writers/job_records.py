"""Jobs of a workload as accounting would have recorded them.

workload frames in order -> JobFrames.frame -> job frames (records.jobs.JOB_SCHEMA): ids, arrays and their tasks, names by what is
asked for, exit codes that go with the outcome. Times are whole seconds. What nobody knows of a synthetic job (memory used, CPU
time) stays unknown.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.records.jobs import conform
from stormpetrel.records.states import FINISHED, SLURM_OUT_OF_MEMORY, JobState
from stormpetrel.records.times import UTC_TIME
from stormpetrel.records.workload_columns import ARRAY, KNOWN, STATE, SUBMIT, WAIT
from stormpetrel.simulate.frames import memory_text

SOURCE: Final = "synthetic"
PROGRAM: Final = "executable"  # what SWF calls the number of a program: the one own column of a log that names the work
_FIRST_UID: Final = 10_001
_MIB: Final = 1 << 20
_REQUEST: Final = ("cores", "nodes", "gpus", "mem_bytes", "time_limit_s")
_MIX: Final = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio in 64 bits: spreads what is multiplied by it
_NAMES: Final = 1 << 12
# (exit code, signal) of the job; what Slurm writes for a job out of memory is no real signal.
_CODE: Final = {JobState.FAILED.value: 1, JobState.BOOT_FAIL.value: 1}
_SIGNAL: Final = {JobState.OUT_OF_MEMORY.value: SLURM_OUT_OF_MEMORY}


class JobFrames:
    """Makes job frames of the frames of one workload; counts ids and knows the users so far."""

    def __init__(self, cluster: str = SOURCE, *, first_id: int = 1) -> None:
        self._cluster, self._next_id = cluster, first_id
        self._uids: dict[str, int] = {}
        # The arrays of the last two frames: (array, first id, tasks so far, frame). One that goes on later begins anew.
        self._arrays = pl.DataFrame(
            schema={ARRAY: pl.Int64, "_first": pl.Int64, "_so_far": pl.Int64, "_frame": pl.Int64},
        )
        self._frames = 0

    def frame(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """The job frame of the next jobs; they start when they are submitted where no `wait_s` says otherwise."""
        raw = pl.int_range(self._next_id, self._next_id + jobs.height, dtype=pl.Int64, eager=True)
        self._next_id += jobs.height
        absent = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in KNOWN.items() if name not in jobs.columns]
        whole = self._numbered(jobs.with_columns(*absent, job_id_raw=raw, job_name=work_names(jobs)))
        whole = whole.with_columns(
            state=_known_state(),
            uid=self._uid_of(whole["user"]),
            submit=pl.col(SUBMIT).dt.truncate("1s"),
            elapsed=pl.col("runtime_s").fill_null(0.0).round(),
            wait=pl.col(WAIT).fill_null(0.0).round(),
        )
        return conform(self._recorded(whole))

    def _recorded(self, jobs: pl.DataFrame) -> pl.DataFrame:
        by_user = pl.col(STATE) == JobState.CANCELLED.value
        ran = ~(by_user & (pl.col("elapsed") == 0))
        began = pl.col("submit") + pl.duration(seconds=pl.col("wait").cast(pl.Int64))
        ended = began + pl.duration(seconds=pl.col("elapsed").cast(pl.Int64))
        who = pl.col("uid").cast(pl.String)
        return jobs.select(
            "job_id", "array_task", "job_id_raw", "job_name", "user", "uid", "group", "account", "partition", "qos", STATE,
            "time_limit_s",
            cluster=pl.lit(self._cluster),
            submit_time=pl.col("submit").cast(UTC_TIME),
            eligible_time=pl.col("submit").cast(UTC_TIME),
            restart=pl.lit(0),
            start_time=pl.when(ran).then(began),
            end_time=ended,
            elapsed_s="elapsed",
            cpu_limit_s=pl.col("elapsed") * pl.col("cores"),
            state_raw=pl.when(by_user & who.is_not_null()).then(pl.lit("CANCELLED by ") + who).otherwise(STATE),
            cancelled_by=pl.when(by_user).then(who),
            exit_code=pl.col(STATE).replace_strict(_CODE, default=0, return_dtype=pl.Int32),
            exit_signal=pl.col(STATE).replace_strict(_SIGNAL, default=0, return_dtype=pl.Int32),
            req_cpus="cores", cpus=pl.when(ran).then("cores"),
            req_nodes="nodes", nodes=pl.when(ran).then("nodes"),
            req_gpus="gpus", gpus=pl.when(ran).then("gpus"),
            req_mem_bytes="mem_bytes", mem_bytes=pl.when(ran).then("mem_bytes"),
            req_tres=_tres(), alloc_tres=pl.when(ran).then(_tres()),
            script_path=pl.col("job_name") + ".sh",
            submit_line=pl.lit("sbatch ") + pl.col("job_name") + ".sh",
            source=pl.lit(SOURCE),
        )  # fmt: skip

    def _numbered(self, jobs: pl.DataFrame) -> pl.DataFrame:
        """With `job_id` and `array_task`: the tasks of an array share the id of its first one."""
        self._frames += 1
        if jobs[ARRAY].null_count() == jobs.height:
            return jobs.with_columns(job_id="job_id_raw", array_task=pl.lit(None, dtype=pl.Int64))
        in_array = pl.col(ARRAY).is_not_null()
        joined = jobs.join(self._arrays, on=ARRAY, how="left", maintain_order="left").with_columns(
            _first=pl.coalesce("_first", pl.col("job_id_raw").min().over(ARRAY)),
            _task=pl.col("_so_far").fill_null(0) + pl.int_range(pl.len(), dtype=pl.Int64).over(ARRAY),
        )
        now = joined.filter(in_array).group_by(ARRAY, maintain_order=True)
        seen = now.agg(pl.col("_first").first(), _so_far=pl.col("_task").max() + 1, _frame=pl.lit(self._frames, dtype=pl.Int64))
        before = self._arrays.join(seen, on=ARRAY, how="anti").filter(pl.col("_frame") >= self._frames - 1)
        self._arrays = pl.concat([before, seen])
        return joined.with_columns(
            job_id=pl.when(in_array).then("_first").otherwise("job_id_raw"), array_task=pl.when(in_array).then("_task")
        ).drop("_first", "_so_far", "_frame", "_task")

    def _uid_of(self, users: pl.Series) -> pl.Series:
        for user in users.drop_nulls().unique(maintain_order=True):
            self._uids.setdefault(user, _FIRST_UID + len(self._uids))
        return users.replace_strict(self._uids, default=None, return_dtype=pl.Int64)


def work_names(jobs: pl.DataFrame) -> pl.Series:
    """A name for each job that says which are alike: the same program, or else the same request. None is of the real log."""
    if PROGRAM in jobs.columns and jobs[PROGRAM].null_count() < jobs.height:
        number = jobs[PROGRAM].cast(pl.String).str.replace_all(r"[^0-9A-Za-z_.-]", "_").str.slice(0, 40).fill_null("other")
        return ("program-" + number).rename("job_name")
    mixed: NDArray[np.uint64] = np.zeros(jobs.height, dtype=np.uint64)
    for name in _REQUEST:
        if name in jobs.columns:
            values = jobs[name].fill_null(-1).round().cast(pl.Int64).to_numpy().view(np.uint64)
            mixed = (mixed ^ values) * _MIX
            mixed ^= mixed >> np.uint64(29)
    number = pl.Series((mixed % np.uint64(_NAMES)).astype(np.int64)).cast(pl.String).str.zfill(4)
    return ("work-" + number).rename("job_name")


def _known_state() -> pl.Expr:
    """The state where it is one that a job can end in, else UNKNOWN."""
    return pl.when(pl.col(STATE).is_in([state.value for state in FINISHED])).then(STATE).otherwise(pl.lit(JobState.UNKNOWN.value))


def _tres() -> pl.Expr:
    """Trackable resources as Slurm writes them, of what is known."""
    parts = {
        "cpu": pl.col("cores"),
        "mem": memory_text(pl.col("mem_bytes") // _MIB),
        "node": pl.col("nodes"),
        "gres/gpu": pl.col("gpus"),
    }
    return pl.concat_str(
        [pl.lit(f"{name}=") + value.cast(pl.String) for name, value in parts.items()], separator=",", ignore_nulls=True
    )
