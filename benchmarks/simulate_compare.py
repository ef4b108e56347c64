"""Is the simulated cluster believable? The mix of its jobs beside that of real logs.

JobFrame -> job_mix -> {figure: value}; logs in a folder, a simulated frame -> compare_with_logs -> table with one row per figure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.errors import SourceFormatError
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, UNFINISHED, JobState

LOGS: Final = {
    "KTH": "jobs/KTH-SP2-1996-2.1-cln.swf.gz",
    "HPC2N": "jobs/HPC2N-2002-2.1-cln.swf.gz",
    "Curie": "jobs/CEA-Curie-2011-2.1-cln.swf.gz",
    "Mira": "jobs/mira.csv.gz",
    "Theta": "jobs/theta.csv.gz",
}
_QUANTILES: Final = (0.25, 0.5, 0.75, 0.9)
_FEWEST: Final = 20  # jobs of a user for a rate of his own
_NEEDED: Final = ["submit_time", "start_time", "elapsed_s", "cpus", "req_cpus", "user", "state", "time_limit_s"]
_BAD: Final = [state.value for state in DEFAULT_FAILURE_STATES]


def job_mix(jobs: pl.DataFrame) -> dict[str, float]:
    """What characterises a log: intervals, run times, sizes, states, and how all that hangs together in time and by user.

    Cores are shares of the largest job, since machines differ in size; logs that know no failures give none.
    """
    ordered = _over(jobs)
    values = distributions(jobs)
    intervals = values["interval_s"]
    return {
        **_quantiles("interval_s", intervals),
        **_quantiles("runtime_s", values["runtime_s"]),
        **_sizes(values["cores"]),
        **_waits(ordered),
        **_states(ordered),
        "lag-1 of log interval": _autocorrelation(np.log1p(intervals), 1),
        "lag-10 of log interval": _autocorrelation(np.log1p(intervals), 10),
        "dispersion of hourly counts": _dispersion(ordered),
        "same user as previous": _share(ordered["user"] == ordered["user"].shift(1)),
        "share of the busiest tenth of users": _busiest(ordered),
        "by night (22-6) per hour, of mean": _relative(ordered, pl.col("hour").is_in([22, 23, 0, 1, 2, 3, 4, 5]), 8 / 24),
        "at weekends per day, of mean": _relative(ordered, pl.col("day") >= 6, 2 / 7),
    }


def distributions(jobs: pl.DataFrame) -> dict[str, NDArray[np.float64]]:
    """Intervals between submissions, run times, and cores: the values themselves."""
    ordered = _over(jobs)
    cores = ordered.select(pl.coalesce("cpus", "req_cpus")).to_series()
    return {
        "interval_s": ordered["submit_time"].diff().drop_nulls().dt.total_seconds().to_numpy().astype(np.float64),
        "runtime_s": ordered["elapsed_s"].drop_nulls().to_numpy().astype(np.float64),
        "cores": cores.drop_nulls().to_numpy().astype(np.float64),
    }


def read_logs(folder: Path) -> dict[str, pl.DataFrame]:
    """The public logs of STORMPETREL_DATA as frames of the columns that are compared."""
    from stormpetrel.sources.formats import ReadOptions, open_source

    frames = {}
    for name, path in LOGS.items():
        if not (folder / path).exists():
            raise SourceFormatError(f"{folder / path} is not there.", hint="Set STORMPETREL_DATA to the folder of public logs.")
        chunks = [
            chunk.translate(chunk.records, chunk.steps)[0].select(_NEEDED)
            for chunk in open_source(str(folder / path), None, ReadOptions()).chunks()
            if chunk.records.height
        ]
        # Theta has 46 stray jobs of the year before (data/README.md).
        since = pl.datetime(2023, 1, 1, time_zone="UTC") if name == "Theta" else pl.datetime(1980, 1, 1, time_zone="UTC")
        frames[name] = pl.concat(chunks).filter(pl.col("submit_time") >= since)
    return frames


def compare_with_logs(simulated: pl.DataFrame, logs: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per figure: each log, the simulation, and whether it lies within the range of the logs."""
    mixes = {name: job_mix(frame) for name, frame in logs.items()}
    ours = job_mix(simulated)
    table = pl.DataFrame(
        {
            "figure": list(ours),
            **{name: [mix.get(figure, float("nan")) for figure in ours] for name, mix in mixes.items()},
            "simulated": list(ours.values()),
        }
    ).with_columns(pl.col(pl.Float64).fill_nan(None))
    low, high = pl.min_horizontal(list(mixes)), pl.max_horizontal(list(mixes))
    return table.with_columns(within=pl.col("simulated").is_between(low, high))


_COLOURS: Final = ("#4c78a8", "#72b7b2", "#54a24b", "#b279a2", "#9d755d", "#e45756")
_LEFT, _TOP, _WIDE, _HIGH = 50, 30, 480, 240  # of the plot, in pixels


def cdf_svg(title: str, series: dict[str, NDArray[np.float64]]) -> str:
    """Cumulative distributions on a logarithmic axis as one SVG; the last of the series is drawn thick."""
    decades = max(1, int(np.ceil(np.log10(max(values.max() for values in series.values()) + 1))))
    parts = [f'<text x="{_LEFT}" y="18">{title}: share of jobs at or below</text>']
    for decade in range(decades + 1):
        x = _LEFT + _WIDE * decade / decades
        parts.append(f'<path d="M{x:.0f} {_TOP}V{_TOP + _HIGH}" stroke="#ddd"/>')
        parts.append(f'<text x="{x:.0f}" y="{_TOP + _HIGH + 16}" text-anchor="middle">{10**decade:,}</text>')
    shares = np.linspace(0, 1, 201)
    for row, ((name, values), colour) in enumerate(zip(series.items(), _COLOURS, strict=False)):
        xs = _LEFT + _WIDE * np.log10(np.quantile(values, shares) + 1) / decades
        points = " ".join(f"{x:.1f},{_TOP + _HIGH * (1 - share):.1f}" for x, share in zip(xs, shares, strict=True))
        width = 3 if row == len(series) - 1 else 1.3
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts.append(f'<text x="{_LEFT + _WIDE + 12}" y="{_TOP + 14 + 18 * row}" fill="{colour}">{name}</text>')
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 300" font-family="sans-serif" font-size="12">'
    return "\n".join([head, *parts, "</svg>", ""])


def _quantiles(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    return {f"{name} q{share * 100:.0f}": float(np.quantile(values, share)) for share in _QUANTILES}


def _over(jobs: pl.DataFrame) -> pl.DataFrame:
    unfinished = [JobState.PENDING.value, JobState.RUNNING.value]
    return jobs.filter(~pl.col("state").is_in(unfinished)).sort("submit_time", maintain_order=True)


def _sizes(cores: NDArray[np.float64]) -> dict[str, float]:
    return {
        "share of jobs of the smallest size": float((cores == cores.min()).mean()),
        **_quantiles("cores, of the largest job:", cores / cores.max()),
    }


def _waits(jobs: pl.DataFrame) -> dict[str, float]:
    waits = (jobs["start_time"] - jobs["submit_time"]).dt.total_seconds().drop_nulls().to_numpy().astype(float)
    asked = jobs.select(pl.col("elapsed_s") / pl.col("time_limit_s")).to_series().drop_nulls().drop_nans().to_numpy()
    return {"wait_s q50": float(np.quantile(waits, 0.5)), "wait_s q90": float(np.quantile(waits, 0.9)),
            "run time / limit q50": float(np.quantile(asked[np.isfinite(asked)], 0.5))}  # fmt: skip


def _states(jobs: pl.DataFrame) -> dict[str, float]:
    known = jobs.filter(~pl.col("state").is_in([state.value for state in UNFINISHED]))
    shares = {state: _share(known["state"] == state) for state in ("FAILED", "TIMEOUT", "CANCELLED")}
    bad = known.select("user", bad=pl.col("state").is_in(_BAD).cast(pl.Float64))
    result = {f"share {state}": share for state, share in shares.items()}
    if not bad["bad"].sum():  # a log that knows no failures says nothing about them
        return {name: float("nan") for name in (*result, *_BY_USER)}
    rates = bad.group_by("user").agg(pl.len(), pl.col("bad").mean()).filter(pl.col("len") >= _FEWEST)["bad"]
    pairs = bad.with_columns(before=pl.col("bad").shift(1).over("user")).drop_nulls()
    values = (
        float(bad["bad"].mean() or 0.0),  # type: ignore[arg-type]
        float(rates.std() or 0.0),  # type: ignore[arg-type]
        float(rates.quantile(0.9) or 0.0),
        float(pairs.select(pl.corr("bad", "before")).item()),
    )
    return {**result, **dict(zip(_BY_USER, values, strict=True))}


_BY_USER: Final = (
    "share failed (FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL)",
    "failure rate by user: standard deviation",
    "failure rate by user: q90",
    "failure, correlation with the user's job before",
)


def _share(true: pl.Series) -> float:
    known = true.drop_nulls()
    return int(known.sum()) / max(1, len(known))


def _autocorrelation(values: NDArray[np.float64], lag: int) -> float:
    centred = values - values.mean()
    if len(values) <= lag or not np.ptp(values):
        return float("nan")
    return float((centred[:-lag] * centred[lag:]).mean() / centred.var())


def _dispersion(jobs: pl.DataFrame) -> float:
    hours = jobs["submit_time"].dt.epoch("s").to_numpy() // 3600
    counts = np.bincount(hours - hours.min())
    return float(counts.var() / counts.mean())


def _busiest(jobs: pl.DataFrame) -> float:
    counts = jobs["user"].value_counts(sort=True)["count"]
    return int(counts.head(max(1, len(counts) // 10)).sum()) / int(counts.sum())


def _relative(jobs: pl.DataFrame, when: pl.Expr, share: float) -> float:
    # Mira and Theta are kept in UTC, the others too: what is night there is only roughly night here.
    moments = jobs.select(hour=pl.col("submit_time").dt.hour(), day=pl.col("submit_time").dt.weekday())
    return float(moments.select(when.mean()).item()) / share
