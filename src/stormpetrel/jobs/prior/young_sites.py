"""Young sites: the first days of a log as a new site would have seen them, with nothing known before.

PriorLog -> young_site -> YoungSite (features from an empty history); sample_young_sites -> PriorRows to learn a prior from.

A log is begun at many times, so that the rows have the short histories of a new site. Jobs are left out at random until failures
are as rare or as frequent as on other sites: what is learnt is to lean on a site's own rates, not on those of the public logs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.outcomes import failed, outcome
from stormpetrel.records.states import DEFAULT_FAILURE_STATES

DAY_S: Final = 86_400.0
LONGEST_S: Final = 30 * DAY_S  # of a young site's life
_STARTS: Final = 40
_MOST_ROWS: Final = 20_000  # of one log
_FEWEST_JOBS: Final = 40
_THINNED: Final = 0.75  # share of the young sites whose failure rate is moved
_RATES: Final = (0.02, 0.6)  # to which it is moved, drawn evenly in log-odds
_EARLY_S: Final = 6 * 3600.0  # rows are drawn in proportion to 1 / (age of the site + this): early jobs count most
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PriorLog:
    """A job log that a prior is learnt from or judged on: jobs in the order of submission, and what counts as a failure."""

    name: str
    jobs: pl.DataFrame
    submit_s: NDArray[np.float64]
    failed: Mask
    usable: Mask  # ended, in a state that counts
    failure_states: tuple[str, ...]
    dropped_states: tuple[str, ...]
    time_zone: str = "UTC"

    @classmethod
    def of(
        cls,
        name: str,
        jobs: pl.DataFrame,
        failure_states: Sequence[str] = tuple(DEFAULT_FAILURE_STATES),
        dropped_states: Sequence[str] = (),
        time_zone: str = "UTC",
    ) -> Self:
        """The log of a job frame."""
        known = jobs.filter(pl.col("submit_time").is_not_null())
        ordered = known.sort("submit_time", "job_id", "array_task", maintain_order=True)
        label = ordered.select(failed(failure_states, dropped_states))["failed"]
        return cls(
            name=name,
            jobs=ordered.with_columns(profile=pl.lit(None, dtype=pl.Int64)),  # a new site has no profiles
            submit_s=ordered["submit_time"].dt.epoch("us").to_numpy() / 1e6,
            failed=label.fill_null(False).to_numpy(),
            usable=(label.is_not_null() & ordered["end_time"].is_not_null()).to_numpy(),
            failure_states=tuple(failure_states),
            dropped_states=tuple(dropped_states),
            time_zone=time_zone,
        )

    @property
    def fingerprint(self) -> str:
        """What tells this log from others: a digest of when its jobs were submitted."""
        return hashlib.sha256(self.submit_s.tobytes()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class YoungSite:
    """A log from `start_s` on: the features of each moment, labels and times of the jobs that count."""

    start_s: float
    features: Mapping[Moment, FeatureMatrix]
    failed: Mask
    outcome: pl.Series
    age_s: NDArray[np.float64]  # of the site when the job was submitted
    end_s: NDArray[np.float64]  # age of the site when it ended


def young_site(
    log: PriorLog,
    start_s: float,
    *,
    moments: Collection[Moment] = (Moment.SUBMIT,),
    longest_s: float = LONGEST_S,
    keep: Mask | None = None,
    similar_names: bool = False,
) -> YoungSite:
    """The log from `start_s` (Unix seconds) on, as if nothing had been before; `keep` (one per job) leaves jobs out."""
    first, last = np.searchsorted(log.submit_s, [start_s, start_s + longest_s])
    chosen = np.arange(first, last) if keep is None else first + np.flatnonzero(keep[first:last])
    jobs = log.jobs[chosen]
    history = History(log.failure_states, log.dropped_states, similar_names=similar_names)
    features = features_at(jobs, history, moments, time_zone=log.time_zone)
    counted = log.usable[chosen]
    return YoungSite(
        start_s=start_s,
        features={moment: matrix.rows(counted) for moment, matrix in features.items()},
        failed=log.failed[chosen][counted],
        outcome=jobs.select(outcome())["outcome"].filter(pl.Series(counted)),
        age_s=log.submit_s[chosen][counted] - start_s,
        end_s=jobs["end_time"].dt.epoch("us").cast(pl.Float64).to_numpy()[counted] / 1e6 - start_s,
    )


@dataclass(frozen=True, slots=True)
class PriorRows:
    """Jobs of young sites to learn from: the features of each moment, with the labels of those that reached it."""

    features: Mapping[Moment, FeatureMatrix]
    failed: Mapping[Moment, Mask]
    outcome: Mapping[Moment, pl.Series]


def sample_young_sites(
    log: PriorLog, *, moments: Collection[Moment] = MOMENTS, starts: int = _STARTS, most_rows: int = _MOST_ROWS, seed: int = 0
) -> PriorRows:
    """At most `most_rows` jobs of the log out of young sites that begin at `starts` times."""
    rng = np.random.default_rng(seed)
    parts: list[tuple[YoungSite, NDArray[np.int64]]] = []
    begin, end = log.submit_s[0], max(log.submit_s[0], log.submit_s[-1] - 2 * DAY_S)
    for start_s in rng.uniform(begin, end, starts):
        first, last = np.searchsorted(log.submit_s, [start_s, start_s + LONGEST_S])
        if log.usable[first:last].sum() < _FEWEST_JOBS:
            continue
        site = young_site(log, float(start_s), moments=moments, keep=_thinned(log, slice(first, last), rng))
        rows = site.failed.size
        if rows < _FEWEST_JOBS // 2:
            continue
        weight = 1.0 / (site.age_s + _EARLY_S)
        chosen = rng.choice(rows, min(most_rows // starts, rows), replace=False, p=weight / weight.sum())
        parts.append((site, np.sort(chosen)))
    of_moments = {moment: [_reached(site, moment, chosen) for site, chosen in parts] for moment in moments}
    return PriorRows(
        features={moment: _joined(moment, several) for moment, several in of_moments.items()},
        failed={moment: np.concatenate([part[1] for part in several]) for moment, several in of_moments.items()},
        outcome={moment: pl.concat([part[2] for part in several]) for moment, several in of_moments.items()},
    )


def _thinned(log: PriorLog, span: slice, rng: np.random.Generator) -> Mask:
    """Which jobs stay so that the failure rate of a span becomes one that is drawn; jobs that do not count stay."""
    bad, counted = log.failed[span], log.usable[span]
    rate = float(np.clip(bad[counted].mean(), 0.002, 0.998))
    low, high = (np.log(edge / (1.0 - edge)) for edge in _RATES)
    shift = rng.uniform(low, high) - np.log(rate / (1.0 - rate)) if rng.random() < _THINNED else 0.0
    stays = np.where(bad, min(1.0, np.exp(shift)), min(1.0, np.exp(-shift)))
    keep = np.ones(log.failed.size, dtype=bool)
    keep[span] = ~counted | (rng.random(bad.size) < stays)
    return keep


def _reached(site: YoungSite, moment: Moment, chosen: NDArray[np.int64]) -> tuple[FeatureMatrix, Mask, pl.Series]:
    """The chosen jobs that lived to see the moment."""
    matrix = site.features[moment]
    lived = ~np.isnan(matrix.values[:, matrix.names.index("site.failed_rate_1h")])
    rows = chosen[lived[chosen]]
    return matrix.rows(rows), site.failed[rows], site.outcome[rows]


def _joined(moment: Moment, parts: Sequence[tuple[FeatureMatrix, Mask, pl.Series]]) -> FeatureMatrix:
    return FeatureMatrix(moment, parts[0][0].names, np.concatenate([part[0].values for part in parts]))
