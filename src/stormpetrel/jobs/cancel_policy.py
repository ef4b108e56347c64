"""The cancel policy, replayed: what "cancel two minutes in if the risk is above τ" would have saved, and whom it would have hurt.

frame of risk, failed, elapsed_s and cpus (or core_seconds) -> cancel_curve -> CancelCurve -> policy_at -> CancelPoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import UsageError

CANCEL_AT_S: Final = 120
MOST_POINTS: Final = 500
CURVE_SCHEMA: Final = pl.Schema(
    {
        "tau": pl.Float64,
        "cancelled": pl.Int64,
        "failed_cancelled": pl.Int64,
        "wrong_kills": pl.Int64,
        "saved_core_seconds": pl.Int64,
        "wrong_core_seconds": pl.Int64,
        "redo_core_seconds": pl.Int64,
        "net_core_seconds": pl.Float64,
        "wrong_share": pl.Float64,
    }
)
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CancelPoint:
    """What one threshold would have done: jobs it stops, and core-seconds it saves and destroys.

    `saved` is what the failed jobs that it stops still held after the check; `wrong` the same of jobs that would have succeeded;
    `redo` what those had held until the check, which they hold again when they are resubmitted. `wrong_share` is the part of all
    jobs that would have succeeded which it stops. net = saved − redo − price × wrong.
    """

    tau: float
    cancelled: int
    failed_cancelled: int
    wrong_kills: int
    saved_core_seconds: int
    wrong_core_seconds: int
    redo_core_seconds: int
    net_core_seconds: float
    wrong_share: float


@dataclass(frozen=True, slots=True)
class CancelCurve:
    """Every threshold (or up to 500 of them, evenly in rank) with what it would have done, lowest threshold first.

    `jobs` were still running at the check and could be judged, `failed_jobs` of them failed; `ended_before` had ended by then,
    `unjudged` lack a risk, an outcome or a size. `best` is chosen among all thresholds, before any are thinned out.
    """

    points: pl.DataFrame
    best: CancelPoint
    jobs: int
    failed_jobs: int
    ended_before: int
    unjudged: int
    cancel_at_s: int
    wrong_kill_price: float


def cancel_curve(
    frame: pl.DataFrame,
    *,
    wrong_kill_price: float = 1.0,
    cancel_at_s: int = CANCEL_AT_S,
    most_points: int | None = MOST_POINTS,
) -> CancelCurve:
    """Replay the policy at every distinct risk, at 0 (cancel all that have any) and at 1 (cancel none).

    A job is cancelled where its risk is above the threshold. A wrong kill costs the time until the check, which has to be
    run again, and `wrong_kill_price` for each core-second of the result that its user loses. The best threshold has the
    highest net, the higher of two equals; it flatters itself on the rows it was chosen on, so judge it on later ones.
    """
    _check(frame, wrong_kill_price, most_points)
    known = _sized(frame)
    running = known.filter(pl.col("elapsed") > cancel_at_s)
    points = _replay(running, wrong_kill_price, cancel_at_s)
    net = points["net_core_seconds"].to_numpy()
    best = points.height - 1 - int(np.argmax(net[::-1]))
    return CancelCurve(
        points=points if most_points is None else points[_evenly(points.height, most_points, best)],
        best=CancelPoint(**points.row(best, named=True)),
        jobs=running.height,
        failed_jobs=int(running["failed"].sum()),
        ended_before=known.height - running.height,
        unjudged=frame.height - known.height,
        cancel_at_s=cancel_at_s,
        wrong_kill_price=wrong_kill_price,
    )


def policy_at(curve: CancelCurve, tau: float) -> CancelPoint:
    """What a threshold would have done: the curve's point at or below it.

    A full curve (`most_points=None`) answers exactly, since no risk lies between the two; on a thinned one the point's own
    `tau` says how near it is.
    """
    if not 0.0 <= tau <= 1.0:
        raise UsageError(f"The threshold {tau} is not a probability.", hint="Give one from 0 (cancel all) to 1 (cancel none).")
    row = int(np.searchsorted(curve.points["tau"].to_numpy(), tau, side="right")) - 1
    return CancelPoint(**curve.points.row(row, named=True))


def _check(frame: pl.DataFrame, price: float, most_points: int | None) -> None:
    missing = [name for name in ("risk", "failed", "elapsed_s") if name not in frame.columns]
    if missing or not {"cpus", "core_seconds"} & set(frame.columns):
        lacking = ", ".join(missing) or "cpus or core_seconds"
        raise UsageError(f"The jobs to replay lack {lacking}.", hint="Give risk, failed, elapsed_s, and cpus or core_seconds.")
    if not 0.0 <= price < np.inf:
        raise UsageError(f"The price of a wrong kill cannot be {price}.", hint="Give 0 or more; 1 counts it like saved time.")
    if most_points is not None and most_points < 3:
        raise UsageError(f"A curve cannot have {most_points} points.", hint="Give 3 or more, or None for all.")
    risk = frame["risk"].cast(pl.Float64).drop_nulls().drop_nans()
    if not risk.is_between(0.0, 1.0).all():
        raise UsageError("A risk lies outside 0 to 1, so it is no probability.", hint="Calibrate the scores first.")


def _sized(frame: pl.DataFrame) -> pl.DataFrame:
    """The jobs that can be judged: risk, failed, elapsed and held, the last two whole."""
    elapsed = pl.col("elapsed_s").cast(pl.Float64).round().cast(pl.Int64, strict=False)
    measured = [pl.col("core_seconds").cast(pl.Int64)] if "core_seconds" in frame.columns else []
    counted = [elapsed * pl.when(pl.col("cpus") > 0).then(pl.col("cpus").cast(pl.Int64))] if "cpus" in frame.columns else []
    judged = frame.select(
        risk=pl.col("risk").cast(pl.Float64).fill_nan(None),
        failed=pl.col("failed"),
        elapsed=pl.when(elapsed >= 0).then(elapsed),
        held=pl.coalesce(*measured, *counted),
    )
    return judged.drop_nulls()


def _replay(running: pl.DataFrame, price: float, cancel_at_s: int) -> pl.DataFrame:
    """One row per threshold: sums over the jobs above it, from the highest risk down."""
    by_risk = running.sort("risk", descending=True)
    risk, failed = by_risk["risk"].to_numpy(), by_risk["failed"].to_numpy()
    held, elapsed = by_risk["held"].to_numpy(), by_risk["elapsed"].to_numpy()
    early = np.rint(held * (cancel_at_s / elapsed)).astype(np.int64)  # a job holds its cores evenly
    later = held - early
    taus = np.unique(np.concatenate([[0.0, 1.0], risk]))
    above = np.searchsorted(-risk, -taus, side="left")  # how many jobs have a higher risk

    def summed(values: Integers) -> Integers:
        return np.concatenate([[0], np.cumsum(values, dtype=np.int64)])[above]

    saved, wrong, redo = summed(later * failed), summed(later * ~failed), summed(early * ~failed)
    kills = summed((~failed).astype(np.int64))
    return pl.DataFrame(
        {
            "tau": taus,
            "cancelled": above,
            "failed_cancelled": above - kills,
            "wrong_kills": kills,
            "saved_core_seconds": saved,
            "wrong_core_seconds": wrong,
            "redo_core_seconds": redo,
            "net_core_seconds": saved - redo - price * wrong,
            "wrong_share": kills / max(1, int((~failed).sum())),
        },
        schema=CURVE_SCHEMA,
    )


def _evenly(height: int, most: int, best: int) -> Integers:
    """Rows to keep: both ends, the best, and others evenly between."""
    if height <= most:
        return np.arange(height, dtype=np.int64)
    return np.unique(np.append(np.linspace(0, height - 1, most - 1).round().astype(np.int64), best))
