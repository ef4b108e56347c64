"""Shadow mode: a challenger scores beside the model in use, for people to compare; it never alarms.

set_shadow, stop_shadow; Site -> run_shadows -> shadow_scores and ShadowFigures. A family has one shadow at most. Its scores are
made at night, in the process of `nightly`, of what neither model has learnt from: on the path of the live loop for jobs, highest
of a node at a moment for traces, bucket by bucket for events. They lie in a table of their own, which no watcher reads.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import ModelError, StormpetrelError, UsageError
from stormpetrel.jobs.predictor import known_by
from stormpetrel.jobs.training import counted_failed
from stormpetrel.learn.metrics import expected_calibration_error, pr_auc
from stormpetrel.lifecycle.event_models import EVENTS
from stormpetrel.lifecycle.families import family_named
from stormpetrel.lifecycle.job_models import load_fitted, training_settings
from stormpetrel.lifecycle.job_telemetry import FEWEST_JOBS, with_telemetry
from stormpetrel.lifecycle.retraining import forecasts_after
from stormpetrel.lifecycle.trace_learning import learning_windows
from stormpetrel.lifecycle.trace_models import TRACES
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.times import UTC_TIME
from stormpetrel.records.windows import join_windows
from stormpetrel.store.events.series import series_of
from stormpetrel.store.registry.models import Training
from stormpetrel.store.shadow_scores import SHADOW_SCHEMA
from stormpetrel.store.site import Site

SHADOW: Final = "models shadow"  # what stands in the audit trail
_FACT: Final = "shadow_"  # facts of the state store: the training in shadow, and how it did
_LONGEST: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ShadowFigures:
    """How a shadow did beside the model in use."""

    training: str
    champion: str
    since: str  # ISO
    until: str  # ISO
    rows: int
    flagged: int
    champion_flagged: int
    more: dict[str, float | None] = field(default_factory=dict)  # of the family: PR area, mean error

    def words(self) -> str:
        """As people read it."""
        more = "".join(f", {name.replace('_', ' ')} {value:.3g}" for name, value in self.more.items() if value is not None)
        return (
            f"beside {self.champion} on {self.rows:,} scores since {self.since[:16].replace('T', ' ')}: "
            f"{self.flagged:,} flagged against {self.champion_flagged:,}{more}"
        )


def set_shadow(site: Site, name: str, *, user: str) -> Training:
    """Let a training run in shadow, once its models have been read; one that was so before is no longer."""
    training = site.models.training(name)
    if training.family == ModelFamily.SYNTH:
        raise UsageError("A generator gives no scores: it cannot run in shadow.", hint="Compare it: stormpetrel synth compare")
    if training.current:
        raise UsageError(f"{name} is in use: it cannot run in shadow beside itself.", hint="See: stormpetrel models list")
    family_named(training.family).load(site, name)
    site.state.set_fact(_FACT + training.family, json.dumps({"training": name}))
    site.audit.record(user, SHADOW, {"training": name})
    return training


def stop_shadow(site: Site, name: str, *, user: str) -> None:
    """End the shadow of a training and delete its scores; UsageError where it runs in none."""
    training = site.models.training(name)
    if shadow_name(site, training.family) != name:
        raise UsageError(f"{name} does not run in shadow.", hint="See which does: stormpetrel models list")
    site.state.set_fact(_FACT + training.family, "")
    site.shadow_scores.replace(training.family, pl.DataFrame(schema=SHADOW_SCHEMA))
    site.audit.record(user, SHADOW, {"training": name, "stopped": True})


def shadow_name(site: Site, family: str) -> str | None:
    """The training that runs in shadow; None where none does."""
    return _noted(site, family).get("training")


def shadow_names(site: Site) -> set[str]:
    """The trainings of all families that run in shadow."""
    return {name for family in ModelFamily if (name := shadow_name(site, family))}


def shadow_figures(site: Site, family: str) -> ShadowFigures | None:
    """How the shadow of a family did at the last night; None where there is none, or no night came since."""
    figures = _noted(site, family).get("figures")
    return None if not figures else ShadowFigures(**figures)


def run_shadows(site: Site, *, now: datetime) -> list[str]:
    """Score beside the champion what is new to both, for each family with a shadow; a sentence for each."""
    return [_sentence(site, family, now) for family in _SCORERS if shadow_name(site, family)]


def _sentence(site: Site, family: str, now: datetime) -> str:
    name = shadow_name(site, family)
    assert name is not None
    try:
        training, champion = site.models.training(name), site.models.current_training(family)
        if champion is None or training.current:
            site.state.set_fact(_FACT + family, "")
            return f"{name} is no longer in shadow: {'it is in use' if training.current else 'nothing is in use beside it'}."
        since = max(training.trained_until, champion.trained_until, now - _LONGEST)
        rows, more = _SCORERS[family](site, training, champion, since, now)
        if not rows.height:
            return f"{name} in shadow: nothing new to score since {since:%Y-%m-%d %H:%M} UTC."
        site.shadow_scores.replace(family, rows)
        figures = ShadowFigures(
            name, champion.name, since.isoformat(), now.isoformat(), rows.height,
            int(rows["flagged"].sum()), int(rows["champion_flagged"].sum()), more,
        )  # fmt: skip
        site.state.set_fact(_FACT + family, json.dumps({"training": name, "figures": asdict(figures)}))
        return f"{name} in shadow {figures.words()}."
    except StormpetrelError as error:  # a shadow that cannot be read disturbs nobody
        return f"{name} in shadow could not be scored: {error.what}"


Scored = tuple[pl.DataFrame, dict[str, float | None]]


def _jobs(site: Site, shadow: Training, champion: Training, since: datetime, now: datetime) -> Scored:

    settings = training_settings(site.settings)
    jobs = with_telemetry(site, known_by(site.jobs.read_jobs(until=now).collect(), now), fewest=FEWEST_JOBS)
    mine, own = (load_fitted(site, training) for training in (shadow, champion))
    new, old = (forecasts_after(fitted, jobs, cut=since, now=now) for fitted in (mine, own))
    truth = new.select(counted_failed(settings)).to_series()
    parts = []
    for moment in mine.models:
        if moment in own.models:
            fixed = site.settings.jobs.threshold
            part = new.with_columns(
                subject=pl.lit(str(moment)),
                time=pl.col("submit_time"),
                score=new[str(moment)],
                flagged=new[str(moment)] >= (fixed or mine.models[moment].threshold),
                champion_score=old[str(moment)],
                champion_flagged=old[str(moment)] >= (fixed or own.models[moment].threshold),
                failed=truth,
            )
            parts.append(part.drop_nulls(["score", "champion_score"]))
    if not parts:
        return pl.DataFrame(schema=SHADOW_SCHEMA), {}
    rows = _named(pl.concat(parts), shadow, champion)
    first = rows.filter(pl.col("subject") == rows["subject"][0], pl.col("failed").is_not_null()) if rows.height else rows
    settled, risk, theirs = (first[name].to_numpy() for name in ("failed", "score", "champion_score"))
    if not settled.size:
        return rows, {}
    settled = settled.astype(bool)
    return rows, {
        "pr_auc": pr_auc(settled, risk),
        "champion_pr_auc": pr_auc(settled, theirs),
        "ece": expected_calibration_error(settled, risk),
        "champion_ece": expected_calibration_error(settled, theirs),
    }


def _traces(site: Site, shadow: Training, champion: Training, since: datetime, now: datetime) -> Scored:

    try:
        seen = learning_windows(site, since=since, until=now)
    except ModelError:  # too few windows since
        return pl.DataFrame(schema=SHADOW_SCHEMA), {}
    windows = join_windows([seen.train, seen.validation])
    mine, own = (TRACES.read(site, training) for training in (shadow, champion))
    new, old = (np.asarray(model.scorer.score(windows), dtype=np.float64) for model in (mine, own))
    frame = pl.DataFrame(
        {
            "subject": np.array(windows.nodes)[windows.node],
            "time": pl.Series((windows.start_s * 1e6).astype(np.int64)).cast(UTC_TIME),
            "score": new,
            "champion_score": old,
        }
    )
    rows = frame.group_by("subject", "time").agg(pl.col("score", "champion_score").max()).sort("time", "subject")
    limits = [np.inf if model.threshold is None else model.threshold for model in (mine, own)]
    rows = rows.with_columns(
        flagged=pl.col("score") > limits[0], champion_flagged=pl.col("champion_score") > limits[1], failed=pl.lit(None)
    )
    calm = ~windows.is_anomalous()
    means = {"re_normal": float(new[calm].mean()), "champion_re_normal": float(old[calm].mean())} if calm.any() else {}
    return _named(rows, shadow, champion), dict(means)


def _events(site: Site, shadow: Training, champion: Training, since: datetime, now: datetime) -> Scored:

    mine, own = (EVENTS.read(site, training) for training in (shadow, champion))
    series = series_of(site, until=now)
    later = np.flatnonzero(series.start_s > since.timestamp())
    scores = [model.model.score(series.of_kinds(model.kinds))[later] for model in (mine, own)]
    rows = pl.DataFrame(
        {
            "subject": ["bucket"] * later.size,
            "time": pl.Series(series.start_s[later].astype(np.int64) * 1_000_000).cast(UTC_TIME),
            "score": scores[0],
            "flagged": scores[0] > mine.threshold,
            "champion_score": scores[1],
            "champion_flagged": scores[1] > own.threshold,
        }
    ).with_columns(failed=pl.lit(None))
    return _named(rows.filter(pl.col("score").is_not_nan() & pl.col("champion_score").is_not_nan()), shadow, champion), {}


def _named(rows: pl.DataFrame, shadow: Training, champion: Training) -> pl.DataFrame:
    """The rows in the table's columns, with whose they are."""
    named = rows.with_columns(family=pl.lit(str(shadow.family)), training=pl.lit(shadow.name), champion=pl.lit(champion.name))
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in SHADOW_SCHEMA.items() if name not in named.columns]
    return named.with_columns(missing).select([pl.col(name).cast(dtype) for name, dtype in SHADOW_SCHEMA.items()])


_SCORERS: Final[dict[str, Callable[[Site, Training, Training, datetime, datetime], Scored]]] = {
    ModelFamily.JOBS: _jobs,
    ModelFamily.TRACES: _traces,
    ModelFamily.EVENTS: _events,
}


def _noted(site: Site, family: str) -> dict[str, Any]:
    try:
        noted = json.loads(site.state.fact(_FACT + family) or "{}")
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}
