"""A live feed: a recorded simulation and a clock, answering like sacct.

job frames -> record_feed -> a folder (Parquet and feed.json) -> Feed.rows -> the jobs as accounting would show them at the
simulated moment: pending, running or over, and nothing of what comes later. `write_fake_sacct` puts a `sacct` command next to it;
people submit to it and cancel in it through submitting.py.

Live ingest asks up to the site's time and moves its cursor there. A site whose `site.feed` names this folder lives by the feed's
clock, at any speed; another keeps real time, and its feed has to do so, too (speed 1).
Cancellations are files of their own: (job, moment, user) -> write_cancellation; job frame -> with_cancellations -> the same jobs,
ended by then, whenever the recording is read.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.errors import SourceFormatError
from stormpetrel.private_files import write_private, writing_private
from stormpetrel.records.times import FEED_FILE, FEED_FORMAT, FeedClock
from stormpetrel.simulate.spec import ClusterSpec, Fault

if TYPE_CHECKING:
    import polars as pl

_RECORDED: Final = "jobs-[0-9]*.parquet"  # what was submitted to the feed since lies in jobs-submitted-*.parquet
# Known only once a job has ended, or started.
_ONLY_ENDED: Final = (
    "end_time", "cancelled_by", "exit_code", "exit_signal", "failed_step", "failed_step_exit_code", "failed_step_exit_signal",
    "max_rss_bytes", "cpu_time_s", "user_cpu_s", "system_cpu_s", "disk_read_bytes", "disk_write_bytes",
    "energy_j",
)  # fmt: skip
_ONLY_STARTED: Final = ("start_time", "cpus", "nodes", "mem_bytes", "node_list", "alloc_tres")


def record_feed(frames: Iterable[pl.DataFrame], folder: Path, clock: FeedClock, *, spec: ClusterSpec | None = None) -> int:
    """Keep job frames in a folder that a Feed can be opened on. How many jobs.

    `spec` is the cluster the frames were simulated from: with it, a submitted job needs exactly what the same work needed before.
    """
    from stormpetrel.simulate.writing import SACCT_FIELDS

    folder.mkdir(parents=True, exist_ok=True)
    jobs, cluster = 0, ""
    for pattern in ("jobs-*.parquet", "cancelled-*.json", "needs.parquet"):
        for old in folder.glob(pattern):
            old.unlink()
    for number, frame in enumerate(frames):
        with writing_private(folder / f"jobs-{number:05d}.parquet") as file:
            frame.drop("extra").write_parquet(file)
        jobs += frame.height
        cluster = cluster or frame["cluster"][0]
    settings: dict[str, Any] = {"format": FEED_FORMAT, "cluster": cluster, "fields": SACCT_FIELDS, "clock": asdict(clock)}
    if spec is not None:
        settings["spec"] = {**asdict(spec), "start": spec.start.isoformat()}
    write_private(folder / FEED_FILE, json.dumps(settings, indent=1) + "\n")
    return jobs


def set_clock(folder: Path, clock: FeedClock) -> None:
    """Give a recorded feed another clock; readers see the old one or the new one, never half of it."""
    settings = {**_read_settings(folder), "clock": asdict(clock)}
    write_private(folder / FEED_FILE, json.dumps(settings, indent=1) + "\n")


def write_fake_sacct(folder: Path) -> Path:
    """Write a `sacct` command for the feed in `folder`; its path is what slurm.sacct in site.toml should say."""
    return write_command(folder, "sacct")


def write_command(folder: Path, name: str) -> Path:
    """Write a command of Slurm for the feed in `folder`, which `fakes/NAME.py` answers; its path."""
    command = folder / name
    # -P: what lies in the current folder must not be imported in place of us.
    arguments = [sys.executable, "-P", "-m", f"stormpetrel.simulate.fakes.{name}", "--feed", str(folder.resolve())]
    write_private(command, f'#!/bin/sh\nexec {shlex.join(arguments)} "$@"\n', mode=0o755)
    return command.resolve()


class Feed:
    """A recorded simulation seen at its own time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = _read_settings(folder)
        self.cluster: str = settings["cluster"]
        self.fields: list[str] = settings["fields"]
        self.spec: ClusterSpec | None = _read_spec(settings.get("spec"))
        self._clock = FeedClock(**settings["clock"])

    @property
    def speed(self) -> float:
        """Simulated seconds per real second; 0 while the clock stands still."""
        return self._clock.speed

    @property
    def first(self) -> datetime:
        """When the first of the recorded jobs was submitted."""
        import polars as pl

        submitted: datetime = pl.scan_parquet(self.folder / _RECORDED).select(pl.col("submit_time").min()).collect().item()
        return submitted

    @property
    def last(self) -> datetime:
        """When the last of the recorded jobs ends; what was submitted since does not count."""
        import polars as pl

        end: datetime = pl.scan_parquet(self.folder / _RECORDED).select(pl.col("end_time").max()).collect().item()
        return end

    def now(self) -> datetime:
        """The simulated time."""
        return self._clock.now()

    def truth(self, *, since: datetime | None = None) -> pl.LazyFrame:
        """Every job (that ends at `since` or later) as it will have been, which nobody on a site may see: it holds the future.

        `submitted` says whether somebody submitted the job to the feed, rather than its being recorded.
        """
        import polars as pl

        from stormpetrel.records.jobs import JOB_SCHEMA

        # A feed that an earlier version has recorded lacks columns that were added since.
        schema = {name: dtype for name, dtype in JOB_SCHEMA.items() if name != "extra"}
        files, path = self.folder / "jobs-*.parquet", "_path"
        jobs = pl.scan_parquet(files, schema=schema, missing_columns="insert", extra_columns="ignore", include_file_paths=path)
        jobs = jobs.with_columns(submitted=pl.col("_path").str.contains("jobs-submitted-", literal=True)).drop("_path")
        if since is None:
            return with_cancellations(jobs, read_cancellations(self.folder))
        ended = pl.col("end_time") >= since
        # Before as well as after: a cancellation only makes an end earlier, and the files need not be read whole.
        return with_cancellations(jobs.filter(ended), read_cancellations(self.folder)).filter(ended)

    def rows(self, since: datetime, until: datetime, *, now: datetime | None = None) -> pl.DataFrame:
        """The jobs that were waiting, running or ending between the two times, as they stand now, by id."""
        import polars as pl

        now = now or self.now()
        rows_now = (
            self.truth(since=since)
            .filter(pl.col("submit_time") <= now, pl.col("submit_time") < until)
            .drop("submitted")
            .sort("job_id_raw")
            .collect()
        )
        return as_of(rows_now, now)


def as_of(jobs: pl.DataFrame, now: datetime) -> pl.DataFrame:
    """Recorded jobs as accounting shows them at a moment: those still running or waiting have no end and no outcome yet."""
    import polars as pl

    from stormpetrel.records.states import JobState

    moment = pl.lit(now)
    ended = pl.col("end_time") <= moment
    started = (pl.col("start_time") <= moment).fill_null(False)
    so_far = pl.when(started).then((moment - pl.col("start_time")).dt.total_seconds()).otherwise(0).cast(pl.Float64)
    state = pl.when(started).then(pl.lit(JobState.RUNNING.value)).otherwise(pl.lit(JobState.PENDING.value))
    elapsed = pl.when(ended).then("elapsed_s").otherwise(so_far)
    return jobs.filter(pl.col("submit_time") <= moment).with_columns(
        *(pl.when(ended).then(name).alias(name) for name in _ONLY_ENDED),
        *(pl.when(started).then(name).alias(name) for name in _ONLY_STARTED),
        state=pl.when(ended).then("state").otherwise(state),
        state_raw=pl.when(ended).then("state_raw").otherwise(state),
        elapsed_s=elapsed,
        cpu_limit_s=pl.when(started).then(elapsed * pl.col("cpus")).otherwise(0.0),
    )


def _read_settings(folder: Path) -> dict[str, Any]:
    try:
        settings: dict[str, Any] = json.loads((folder / FEED_FILE).read_text())
    except (OSError, ValueError):
        raise SourceFormatError(f"{folder} is no recorded feed.", hint="Make one with record_feed.") from None
    if settings.get("format") != FEED_FORMAT:
        raise SourceFormatError(f"The feed in {folder} was recorded by another version.", hint="Record it again.")
    return settings


def _read_spec(stored: dict[str, Any] | None) -> ClusterSpec | None:
    if stored is None:
        return None
    faults = tuple(Fault(**fault) for fault in stored["faults"])
    return ClusterSpec(**{**stored, "start": datetime.fromisoformat(stored["start"]), "faults": faults})


_PATTERN: Final = "cancelled-{}.json"
_SIGTERM: Final = 15
_MIB: Final = 1 << 20


def write_cancellation(folder: Path, job_id_raw: int, moment: datetime, uid: int) -> None:
    """Note that a job was cancelled; the file is there whole or not at all, and the first to cancel a job is the one."""
    record = json.dumps({"job_id_raw": job_id_raw, "at_s": int(moment.timestamp()), "uid": uid}) + "\n"
    with suppress(FileExistsError):
        write_private(folder / _PATTERN.format(job_id_raw), record, overwrite=False)


def read_cancellations(folder: Path) -> list[dict[str, int]]:
    """Every cancellation of a feed, as written."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob(_PATTERN.format("*")))]


def with_cancellations(jobs: pl.LazyFrame, cancellations: list[dict[str, int]]) -> pl.LazyFrame:
    """The jobs with those that were cancelled ended at that time: without a start if they had none by then."""
    import polars as pl

    from stormpetrel.records.jobs import JOB_SCHEMA
    from stormpetrel.records.states import JobState

    if not cancellations:
        return jobs
    schema = {"job_id_raw": pl.Int64, "at_s": pl.Int64, "uid": pl.Int64}
    moments = pl.LazyFrame(cancellations, schema=schema).select(
        "job_id_raw",
        _at=(pl.col("at_s") * 1_000_000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
        _by=pl.col("uid").cast(pl.String),
    )
    cut = (pl.col("_at") < pl.col("end_time")).fill_null(False)
    ran = (pl.col("start_time") <= pl.col("_at")).fill_null(False)
    elapsed = (pl.col("_at") - pl.col("start_time")).dt.total_seconds().cast(pl.Float64)
    wide = pl.col("nodes") > 1
    changed = {
        **_measured(elapsed / pl.col("elapsed_s")),
        "start_time": pl.col("start_time"),
        "elapsed_s": elapsed,
        "cpu_limit_s": elapsed * pl.col("cpus"),
        "failed_step": pl.when(wide).then(pl.lit("0")).otherwise(pl.lit("batch")),
        "failed_step_exit_code": pl.lit(0),
        "failed_step_exit_signal": pl.lit(_SIGTERM),
        **{name: pl.col(name) for name in ("cpus", "nodes", "mem_bytes", "node_list", "alloc_tres")},
    }
    # A job that never ran has no step, and has used nothing.
    nothing = dict.fromkeys(("elapsed_s", "cpu_limit_s", "cpu_time_s", "user_cpu_s", "system_cpu_s"), pl.lit(0.0))
    values = {name: pl.when(ran).then(value).otherwise(nothing.get(name, pl.lit(None))) for name, value in changed.items()}
    values |= {
        "end_time": pl.col("_at"),
        "state": pl.lit(JobState.CANCELLED.value),
        "state_raw": pl.lit(f"{JobState.CANCELLED.value} by ") + pl.col("_by"),
        "cancelled_by": pl.col("_by"),
        "exit_code": pl.lit(0),
        "exit_signal": pl.lit(0),
    }
    overlay = {name: pl.when(cut).then(value.cast(JOB_SCHEMA[name])).otherwise(name) for name, value in values.items()}
    return jobs.join(moments, on="job_id_raw", how="left", maintain_order="left").with_columns(**overlay).drop("_at", "_by")


def _measured(share: pl.Expr) -> dict[str, pl.Expr]:
    """What accounting measures of the part of a run that there was; memory grows along it as in frames.py."""
    import polars as pl

    exact = pl.col("cpu_time_s") * share
    busy = pl.when(exact < 3500).then((exact * 4).round() / 4).otherwise(exact.round())
    system = pl.min_horizontal((pl.col("system_cpu_s") * share).round(), busy)
    return {
        "max_rss_bytes": (pl.col("max_rss_bytes") * (0.35 + 0.65 * share)).cast(pl.Int64) // 1024 * 1024,
        "cpu_time_s": busy,
        "system_cpu_s": system,
        "user_cpu_s": busy - system,
        "energy_j": (pl.col("energy_j") * share).cast(pl.Int64),
        **{name: (pl.col(name) * share).cast(pl.Int64) // _MIB * _MIB for name in ("disk_read_bytes", "disk_write_bytes")},
    }
