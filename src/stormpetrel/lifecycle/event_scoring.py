"""Scoring the buckets that the current event model has not seen: score, alarm, what was expected, and why.

Site + EventModelInUse -> score_new_buckets -> rows of event_scores. A bucket is scored once per version of the model, when it was
seen whole; one that was a gap is scored when the gap is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import polars as pl

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.events.alarm_budget import DAY_S, RECENT_DAYS, daily_thresholds
from stormpetrel.events.contract import Forecast, Scores
from stormpetrel.events.counts.forecast import calm_for_training
from stormpetrel.events.finding import Finding, findings_as_json, findings_of_json
from stormpetrel.events.nodes_and_hosts import HARD, REACH, black_holes, silent_grid, silent_hosts
from stormpetrel.events.why import Placed, findings_at
from stormpetrel.lifecycle.event_models import EventModelInUse
from stormpetrel.lifecycle.frozen_spans import learning_series
from stormpetrel.records.event_series import MAINTENANCE, EventSeries
from stormpetrel.records.events import EVENT_SCORE_SCHEMA
from stormpetrel.store.site import Site

_MOST_PAST: Final = 20_000  # buckets before the new ones that are scored for the threshold: of a minute, the last 14 days


@dataclass(frozen=True, slots=True)
class ScoredBuckets:
    """What scoring did: the new rows of event_scores."""

    rows: pl.DataFrame

    @property
    def scored(self) -> int:
        """Buckets that have a score now and had none before."""
        return self.rows.height

    @property
    def alarms(self) -> int:
        """How many of them are alarms."""
        return int(self.rows["alarm"].sum())


def score_new_buckets(site: Site, used: EventModelInUse, *, progress: Progress = no_progress) -> ScoredBuckets:
    """Score every bucket that was seen whole and that this version of the model has not scored, in one commit."""
    if used.bucket_s != site.settings.events.bucket_minutes * 60:
        raise ModelError(
            f"The model in use counts per {used.bucket_s // 60} minutes, site.toml per {site.settings.events.bucket_minutes}.",
            hint="Train one for the new buckets: stormpetrel events train",
        )
    progress(0.0, "reading counts")
    known = site.event_scores.read(model=used.name, version=used.version).select("bucket_start").collect()
    series = learning_series(site, kinds=used.kinds)
    new = _pending(series, known)
    if not new.size:
        return ScoredBuckets(pl.DataFrame(schema=EVENT_SCORE_SCHEMA))
    first = max(0, int(new[0]) - _past_buckets(used) - used.history_buckets)  # what lies before it changes no score
    series, new = series.take(first, len(series)), new - first
    progress(0.2, f"scoring {new.size:,} buckets")
    rows = scored_rows(site, used, series, new, progress=progress)
    site.event_scores.append(rows)
    return ScoredBuckets(rows)


def scored_rows(
    site: Site,
    used: EventModelInUse,
    series: EventSeries,
    places: np.ndarray[tuple[int], np.dtype[np.intp]],
    *,
    progress: Progress = no_progress,
) -> pl.DataFrame:
    """What the model says of some buckets of a series, as a frame of EVENT_SCORE_SCHEMA.

    The threshold of a bucket comes from the weeks before its day, as far as the series has them and the model did not learn them.
    """
    scores = used.model.score(series, since=max(0, int(places[0]) - _past_buckets(used)))
    thresholds = _thresholds(used, series, scores)
    forecast = used.forecaster.forecast(series)
    since = series.moment(int(places[0])) - REACH
    counts = site.event_counts.read(since=since, places=True, bucket_s=used.bucket_s).collect()
    hard = rule_findings(counts, series.take(max(0, int(places[0]) - round(REACH.total_seconds() / used.bucket_s)), len(series)))
    placed = Placed(counts)
    quiet = series.label == MAINTENANCE
    above = np.nan_to_num(scores, nan=-np.inf) > thresholds
    why: list[list[Finding]] = []
    alarm: list[bool] = []
    for done, at in enumerate(places):
        findings = hard.get(series.moment(int(at)), [])
        alarm.append(bool(above[at] or findings) and not quiet[at])
        why.append(_all_findings(findings, findings_at(series, forecast, int(at), placed)) if alarm[-1] else findings)
        if done % 200 == 0:
            progress(0.2 + 0.8 * done / places.size, f"scoring {places.size:,} buckets")
    return _frame(used, series, (scores, thresholds), forecast, places, alarm, why, said_at=site.now())


def _thresholds(used: EventModelInUse, series: EventSeries, scores: Scores) -> Scores:
    """(buckets,) the threshold of each; labelled outages, maintenance and what was learnt from say nothing about calm scores."""
    calm = calm_for_training(series) & (series.start_s >= used.trained_until_s)
    return daily_thresholds(scores, calm, series.start_s, used.bucket_s, used.per_week, first=used.threshold)


def _past_buckets(used: EventModelInUse) -> int:
    """How many buckets before a bucket its threshold depends on."""
    return min(int((RECENT_DAYS + 1) * DAY_S // used.bucket_s), _MOST_PAST)


@dataclass(frozen=True, slots=True)
class OddBucket:
    """A bucket whose score is above the threshold; `model` is name and version of the model, `why` its reasons."""

    start: datetime
    score: float
    threshold: float
    model: str
    why: tuple[Finding, ...]


def stored_odd_buckets(site: Site, used: EventModelInUse, *, since: datetime) -> list[OddBucket]:
    """Return the buckets from `since` on that the stored scores of a model show above the threshold."""
    rows = site.event_scores.read(since=since, model=used.name, version=used.version)
    above = rows.filter("alarm", pl.col("score") > pl.col("threshold")).collect()
    return [
        OddBucket(row["bucket_start"], row["score"], row["threshold"], used.label, tuple(findings_of_json(row["why"])))
        for row in above.iter_rows(named=True)
    ]


def odd_buckets(used: EventModelInUse, series: EventSeries, first: int, counts: pl.DataFrame) -> list[OddBucket]:
    """Return the buckets of a series from place `first` on that are above the threshold, without those under maintenance.

    `counts` are counts by place from REACH before them on.
    """
    begin = max(0, first - _past_buckets(used) - used.history_buckets)  # what lies before it changes no score and no threshold
    series, first = series.take(begin, len(series)).of_kinds(used.kinds), first - begin
    scores = used.model.score(series, since=max(0, first - _past_buckets(used)))
    thresholds = _thresholds(used, series, scores)
    above = np.flatnonzero((np.nan_to_num(scores, nan=-np.inf) > thresholds) & (series.label != MAINTENANCE))
    above = above[above >= first]
    if not above.size:
        return []
    forecast, placed = used.forecaster.forecast(series), Placed(counts)
    return [
        OddBucket(
            series.moment(int(at)),
            float(scores[at]),
            float(thresholds[at]),
            used.label,
            tuple(findings_at(series, forecast, int(at), placed)),
        )
        for at in above
    ]


def _pending(series: EventSeries, known: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """The buckets that were seen whole and have no score; where there are scores, none from before the first of them."""
    scored = known["bucket_start"].dt.epoch("s").to_numpy() if known.height else np.empty(0, dtype=np.int64)
    waits = ~series.is_gap & ~np.isin(series.start_s, scored)
    if scored.size:
        waits &= series.start_s > scored.min()
    return np.flatnonzero(waits)


def _all_findings(hard: list[Finding], others: list[Finding]) -> list[Finding]:
    """What the rules found, and what the forecast adds; a silence is reported once."""
    known = {finding.kind for finding in hard}
    return [*hard, *(finding for finding in others if finding.kind not in HARD or finding.kind not in known)]


def rule_findings(counts: pl.DataFrame, series: EventSeries) -> dict[datetime, list[Finding]]:
    """Return black holes, silent hosts and a silent grid by bucket; of the first REACH of the counts only what they can tell."""
    findings = black_holes(counts, zone=series.zone, bucket_s=series.bucket_s)
    for silences in (silent_hosts(counts, series), silent_grid(series)):
        for moment, several in silences.items():
            findings.setdefault(moment, []).extend(several)
    return findings


def _frame(
    used: EventModelInUse,
    series: EventSeries,
    judged: tuple[Scores, Scores],  # scores and thresholds
    forecast: Forecast,
    places: np.ndarray[tuple[int], np.dtype[np.intp]],
    alarm: Sequence[bool],
    why: Sequence[Sequence[Finding]],
    *,
    said_at: datetime,
) -> pl.DataFrame:
    size, (scores, thresholds) = places.size, judged
    lists = {
        "counts": series.of_kinds(forecast.kinds).counts,
        "expected": forecast.expected,
        "low": forecast.low,
        "high": forecast.high,
        "surprise": forecast.surprise,
    }
    return pl.DataFrame(
        {
            "bucket_start": pl.Series(series.start_s[places] * 1_000_000).cast(pl.Datetime("us")).dt.replace_time_zone("UTC"),
            "bucket_s": [used.bucket_s] * size,
            "model": [used.name] * size,
            "model_version": [used.version] * size,
            "score": pl.Series(scores[places]).fill_nan(None),
            "threshold": thresholds[places],
            "alarm": list(alarm),
            "said_at": [said_at] * size,
            "kinds": [list(forecast.kinds)] * size,
            **{name: pl.Series(values[places].tolist(), dtype=pl.List(pl.Float64)) for name, values in lists.items()},
            "why": [findings_as_json(several) for several in why],
        },
        schema=EVENT_SCORE_SCHEMA,
    ).with_columns(pl.col("counts", "expected", "low", "high", "surprise").list.eval(pl.element().fill_nan(None)))
