"""A large log of `sacct -P` text for measurements, from a seed."""

from __future__ import annotations

from pathlib import Path
from typing import IO

import numpy as np
import polars as pl

SEED = 1
_PIECE = 250_000
FIELDS = (
    "JobID,JobIDRaw,Cluster,Partition,QOS,Account,Group,GID,User,UID,Submit,Eligible,Start,End,Elapsed,ExitCode,State,NNodes,NCPUS,"
    "ReqCPUS,ReqMem,ReqTRES,AllocTRES,Timelimit,NodeList,JobName"
).split(",")
_STATES = ["COMPLETED", "FAILED", "TIMEOUT", "CANCELLED by 1234", "OUT_OF_MEMORY"]


def write_log(path: Path, rows: int, *, strewn: float = 0.0, appended: float = 0.0) -> None:
    """Write `rows` jobs of a year or more, and that share of new ones, strewn evenly among them or after their end."""
    rng = np.random.default_rng(SEED)
    late = np.random.default_rng(SEED + 1)
    clock = 1_672_531_200  # 2023-01-01
    with path.open("wb") as out:
        out.write(("|".join(FIELDS) + "\n").encode())
        for start in range(0, rows, _PIECE):
            count = min(_PIECE, rows - start)
            gaps = rng.exponential(31, count)
            submit = clock + np.cumsum(gaps).astype(np.int64)
            clock = int(submit[-1])
            frame = _jobs(rng, 1_000_000 + start + np.arange(count), submit)
            if strewn:
                more = int(count * strewn)
                when = submit[np.sort(late.choice(count, more, replace=False))] + 1
                fresh = _jobs(late, 900_000_000 + start + np.arange(more), when)
                frame = pl.concat([frame, fresh]).sort("Submit", maintain_order=True)
            _write(out, frame)
        if appended:
            more = int(rows * appended)
            _write(out, _jobs(late, 900_000_000 + np.arange(more), clock + 31 * np.arange(more)))


def _write(out: IO[bytes], frame: pl.DataFrame) -> None:
    out.write(frame.write_csv(separator="|", include_header=False, quote_style="never").encode())


def _jobs(rng: np.random.Generator, job_id: np.ndarray, submit: np.ndarray) -> pl.DataFrame:
    count = len(job_id)
    user = rng.zipf(1.5, count) % 800
    cpus = 2 ** rng.integers(0, 8, count)
    frame = pl.DataFrame(
        {
            "id": job_id,
            "submit": submit,
            "wait": rng.exponential(3600, count).astype(np.int64),
            "run": rng.lognormal(7, 2, count).astype(np.int64) % 600_000,
            "user": user,
            "cpus": cpus,
            "mem": rng.integers(1, 256, count),
            "state": rng.choice(_STATES, count, p=[0.8, 0.1, 0.04, 0.05, 0.01]),
        }
    )
    lab = pl.col("user") % 50
    tres = pl.format("billing={},cpu={},mem={}G,node=1", "cpus", "cpus", "mem")
    code = pl.when(pl.col("state") == "FAILED").then(pl.lit("1:0")).otherwise(pl.lit("0:0"))
    start = pl.col("submit") + pl.col("wait")
    values = [
        pl.col("id"), pl.col("id"), pl.lit("petrel"), pl.lit("batch"), pl.lit("normal"), pl.format("acct{}", lab),
        pl.format("grp{}", lab), 5000 + lab, pl.format("user{}", "user"), 10000 + pl.col("user"), _iso(pl.col("submit")),
        _iso(pl.col("submit")), _iso(start), _iso(start + pl.col("run")), _span(pl.col("run")), code, pl.col("state"), pl.lit(1),
        pl.col("cpus"), pl.col("cpus"), pl.format("{}G", "mem"), tres, tres, pl.lit("1-00:00:00"),
        pl.format("n{}", pl.col("id") % 1000), pl.format("job{}_{}", "user", pl.col("id") % 7),
    ]  # fmt: skip
    return frame.select(value.alias(name) for name, value in zip(FIELDS, values, strict=True))


def _iso(seconds: pl.Expr) -> pl.Expr:
    return pl.from_epoch(seconds, "s").dt.strftime("%Y-%m-%dT%H:%M:%S")


def _span(seconds: pl.Expr) -> pl.Expr:
    clock = pl.from_epoch(seconds % 86400, "s").dt.strftime("%H:%M:%S")
    return pl.when(seconds >= 86400).then(pl.format("{}-{}", seconds // 86400, clock)).otherwise(clock)
