"""Ended jobs -> job frames: what accounting would have recorded of them, column by column.

EndedJobs, Population -> FrameMaker.frame -> job frame (records.jobs.JOB_SCHEMA). Everything that accounting measures (CPU time,
resident memory, disk) is computed here from the application and how far the run got.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.records.jobs import conform
from stormpetrel.records.states import JobState
from stormpetrel.simulate.arrivals import Submission
from stormpetrel.simulate.population import Population
from stormpetrel.simulate.scheduler import EndedJob
from stormpetrel.simulate.spec import ClusterSpec

PARTITION: Final = "batch"
QOS: Final = "normal"
SOURCE: Final = "simulated"
_MIB: Final = 1 << 20
_IDLE_WATTS: Final = 2.5  # of a node for each of its cores, and what each adds when it is busy
_BUSY_WATTS: Final = 4.0
_NUMBERS: Final = [name for name in Submission._fields if name not in ("crash_s", "cancel_s", "patience_s")]


class FrameMaker:
    """Makes job frames of ended jobs; knows the names behind the numbers."""

    def __init__(self, spec: ClusterSpec, population: Population) -> None:
        self._spec = spec
        self._users = _table("user", [(u.name, u.uid, u.group, u.gid, u.account) for u in population.users],
                             ("user", "uid", "group", "gid", "account"))  # fmt: skip
        self._applications = _table(
            "application",
            [(a.name, a.cpu_share, a.system_share, a.io_mib_s) for a in population.applications],
            ("app_name", "cpu_share", "system_share", "io_mib_s"),
        )
        width = max(3, len(str(spec.nodes)))
        self._names = [f"n{number + 1:0{width}d}" for number in range(spec.nodes)]
        self._width = width

    def frame(self, jobs: Sequence[EndedJob]) -> pl.DataFrame:
        """The job frame of some ended jobs, in their order."""
        raw = self._numbers(jobs).join(self._users, on="number", how="left", maintain_order="left")
        raw = raw.join(self._applications, on="application", how="left", maintain_order="left")
        return conform(self._named(self._measured(self._allocated(raw))))

    def node_list(self, nodes: Sequence[int]) -> str | None:
        """Nodes as Slurm writes them: `n007`, `n[003,007-009]`."""
        if len(nodes) < 2:
            return self._names[nodes[0]] if nodes else None
        parts = []
        ordered = sorted(nodes)
        first = last = ordered[0]
        for node in [*ordered[1:], -2]:
            if node != last + 1:
                low, high = self._names[first][1:], self._names[last][1:]
                parts.append(low if first == last else f"{low}-{high}")
                first = node
            last = node
        text = ",".join(parts)
        return f"n[{text}]"

    def _numbers(self, jobs: Sequence[EndedJob]) -> pl.DataFrame:
        job_ids, raw_ids, submissions, starts, ends, outcomes, nodes, _ = zip(*jobs, strict=True)
        columns: dict[str, Any] = {
            name: np.fromiter((job[position] for job in submissions), dtype=np.int64, count=len(jobs))
            for position, name in enumerate(Submission._fields)
            if name in _NUMBERS
        }
        _, states, codes, signals, step_codes, step_signals = zip(*outcomes, strict=True)
        return pl.DataFrame(
            {
                **columns,
                "number": columns["user"],
                "job_id": np.array(job_ids, dtype=np.int64),
                "raw_id": np.array(raw_ids, dtype=np.int64),
                "start_s": np.array(starts, dtype=np.int64),
                "end_s": np.array(ends, dtype=np.int64),
                "state": pl.Series(states, dtype=pl.String),
                "code": np.array(codes, dtype=np.int32),
                "signal": np.array(signals, dtype=np.int32),
                "step_code": np.array(step_codes, dtype=np.int32),
                "step_signal": np.array(step_signals, dtype=np.int32),
                "first_node": np.array([min(held, default=-1) for held in nodes], dtype=np.int64),
                "node_list": pl.Series([self.node_list(held) for held in nodes], dtype=pl.String),
            }
        ).drop("user")

    def _allocated(self, raw: pl.DataFrame) -> pl.DataFrame:
        whole = pl.col("nodes") > 0
        node_mib = self._spec.mem_per_node_mib
        asked_nodes = pl.when(whole).then("nodes").otherwise(1)
        return raw.with_columns(
            ran=pl.col("start_s") >= 0,
            asked_nodes=asked_nodes,
            asked_cpus=pl.when(whole).then(pl.col("nodes") * self._spec.cores_per_node).otherwise("cores"),
            asked_mib=asked_nodes * pl.col("mem_mib").clip(0, node_mib),
            elapsed=pl.when(pl.col("start_s") >= 0).then(pl.col("end_s") - pl.col("start_s")).otherwise(0),
        )

    def _measured(self, raw: pl.DataFrame) -> pl.DataFrame:
        """What accounting measures: memory grows along the run up to what is needed or allowed, the rest with time."""
        progress = (0.35 + 0.65 * pl.col("elapsed") / pl.col("need_s")).clip(0.0, 1.0)
        # Below an hour sacct prints milliseconds, above it seconds; quarters of a second survive the way there and back.
        exact = pl.col("elapsed") * pl.col("asked_cpus") * pl.col("cpu_share") * _unevenness()
        busy = pl.when(exact < 3500).then((exact * 4).round(0) / 4).otherwise(exact.round(0))
        moved = pl.col("elapsed") * pl.col("io_mib_s") * _MIB
        return raw.with_columns(
            rss=((pl.col("need_mib") * progress).clip(1, pl.col("mem_mib")) * 1024).cast(pl.Int64) * 1024,
            cpu_time_s=busy,
            system_cpu_s=(busy * pl.col("system_share")).round(0),
            disk_read_bytes=((moved * 0.7).cast(pl.Int64) // _MIB) * _MIB,
            disk_write_bytes=((moved * 0.3).cast(pl.Int64) // _MIB) * _MIB,
            energy_j=self._energy(),
        ).with_columns(user_cpu_s=busy - pl.col("system_cpu_s"))

    def _energy(self) -> pl.Expr:
        """Joules of whole nodes, as Slurm gives them to every job on a node; the upper half of the nodes has meters."""
        first_metered = len(self._names) // 2
        metered = pl.col("first_node") >= first_metered
        watts = self._spec.cores_per_node * (_IDLE_WATTS + _BUSY_WATTS * pl.col("cpu_share") * _unevenness())
        joules = (pl.col("asked_nodes") * watts * pl.col("elapsed")).round(0).cast(pl.Int64)
        return pl.when(metered & (joules > 0)).then(joules)

    def _named(self, raw: pl.DataFrame) -> pl.DataFrame:
        ran = pl.col("ran")
        by_user = pl.col("state") == JobState.CANCELLED.value
        step_failed = ran & ((pl.col("step_code") != 0) | (pl.col("step_signal") != 0))
        is_task = pl.col("array_size") > 0
        script = pl.col("app_name") + ".sh"
        last_task = (pl.col("array_size") - 1).cast(pl.String)
        return raw.select(
            "job_id", "state", "node_list", "user", "uid", "group", "gid", "account",
            cluster=pl.lit(self._spec.name),
            array_task=pl.when(is_task).then("array_task"),
            submit_time=self._time("submit_s"),
            restart=pl.lit(0),
            job_id_raw="raw_id",
            job_name=pl.col("app_name") + "-" + pl.col("campaign").cast(pl.String).str.zfill(2),
            partition=pl.lit(PARTITION),
            qos=pl.lit(QOS),
            eligible_time=self._time("submit_s"),
            start_time=pl.when(ran).then(self._time("start_s")),
            end_time=self._time("end_s"),
            state_raw=pl.when(by_user).then(pl.lit("CANCELLED by ") + pl.col("uid").cast(pl.String)).otherwise("state"),
            cancelled_by=pl.when(by_user).then(pl.col("uid").cast(pl.String)),
            exit_code="code",
            exit_signal="signal",
            failed_step=pl.when(step_failed).then(pl.when(pl.col("nodes") > 1).then(pl.lit("0")).otherwise(pl.lit("batch"))),
            failed_step_exit_code=pl.when(step_failed).then("step_code"),
            failed_step_exit_signal=pl.when(step_failed).then("step_signal"),
            time_limit_s="limit_s",
            elapsed_s="elapsed",
            cpu_limit_s=pl.col("elapsed") * pl.when(ran).then("asked_cpus").otherwise(0),
            req_cpus="asked_cpus",
            cpus=pl.when(ran).then("asked_cpus"),
            req_nodes="asked_nodes",
            nodes=pl.when(ran).then("asked_nodes"),
            req_mem_bytes=pl.col("asked_mib") * _MIB,
            mem_bytes=pl.when(ran).then(pl.col("asked_mib") * _MIB),
            max_rss_bytes=pl.when(ran).then("rss"),
            cpu_time_s="cpu_time_s",
            user_cpu_s="user_cpu_s",
            system_cpu_s="system_cpu_s",
            disk_read_bytes=pl.when(ran).then("disk_read_bytes"),
            disk_write_bytes=pl.when(ran).then("disk_write_bytes"),
            work_dir=pl.lit("/home/") + pl.col("user") + "/" + pl.col("app_name"),
            script_path=script,
            submit_line=pl.lit("sbatch ")
            + pl.when(is_task).then(pl.lit("--array=0-") + last_task + " ").otherwise(pl.lit(""))
            + script,
            req_tres=_tres(),
            alloc_tres=pl.when(ran).then(_tres()),
            energy_j=pl.when(ran).then("energy_j"),
            source=pl.lit(SOURCE),
        )  # fmt: skip

    def _time(self, name: str) -> pl.Expr:
        micros = (pl.col(name) + self._spec.start_unix_s) * 1_000_000
        return micros.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def memory_text(mib: pl.Expr) -> pl.Expr:
    """Memory as Slurm prints it: `16G` where it is whole, else `500M`."""
    whole = pl.when(mib % 1024 == 0)
    return whole.then((mib // 1024).cast(pl.String) + "G").otherwise(mib.cast(pl.String) + "M")


def _tres() -> pl.Expr:
    cpus, nodes = pl.col("asked_cpus").cast(pl.String), pl.col("asked_nodes").cast(pl.String)
    return pl.format("billing={},cpu={},mem={},node={}", cpus, cpus, memory_text(pl.col("asked_mib")), nodes)


def _unevenness() -> pl.Expr:
    """No two runs use their cores alike: a factor between .85 and 1.0 out of the job's id."""
    return 1.0 - (pl.col("raw_id") * 2_654_435_761 % 1000) / 1000 * 0.15


def _table(key: str, rows: list[tuple[Any, ...]], names: tuple[str, ...]) -> pl.DataFrame:
    number = "number" if key == "user" else key
    return pl.DataFrame(rows, schema=list(names), orient="row").with_columns(
        pl.int_range(len(rows), dtype=pl.Int64).alias(number)
    )
