"""Where flags begin on a watched site: corrected by predictions that have settled, chosen by cost and by flags a day.

Site -> renew_working_points -> WorkingPoint of each moment, noted in the state store; read_working_points -> those of the models
in use. Everything is worked out anew from tables that are committed: a watch that is killed loses nothing. Nothing comes from the
future: a prediction has settled when its job ended, and counts for what is predicted afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.jobs.model import JobOutcomeModel
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.learn.metrics import expected_calibration_error
from stormpetrel.learn.recalibration import log_odds
from stormpetrel.learn.working_point import BUSY_DAY, RECENT, Costs, Stream, walk
from stormpetrel.lifecycle.job_models import model_name
from stormpetrel.lifecycle.running_quality import settled
from stormpetrel.store.site import Site

FEWEST_SETTLED: Final = 50  # predictions of the model in use: with fewer its own threshold holds
MOST_SETTLED: Final = 5_000
_FACT: Final = "working_points"  # of the state store
_BUDGET_DAYS: Final = 7.0


@dataclass(frozen=True, slots=True)
class WorkingPoint:
    """From which risk on jobs are flagged at one moment, and why; risks are the model's own unless `corrected` says otherwise."""

    moment: str
    model_version: int
    as_of: str  # ISO
    settled: int
    slope: float
    level: float
    threshold: float  # in force
    by_cost: float  # what the costs alone would say
    by_budget: float | None  # what the flags a day would say; None where the site names none
    corrected: float  # the corrected risk at the threshold in force
    ece: float  # of the settled predictions as they were made
    ece_corrected: float  # of the same, each corrected by what had settled before it
    flags_last_day: int
    flags_per_day: float  # that the site allows; 0: as many as the costs say

    @property
    def flags_left(self) -> int | None:
        """How many flags are left of this day's; None where there is no limit."""
        if not self.flags_per_day:
            return None
        return max(0, int(max(1.0, BUSY_DAY * self.flags_per_day)) - self.flags_last_day)

    def words(self) -> str:
        """As people read it."""
        budget = "no limit of flags a day"
        if self.by_budget is not None:
            budget = f"{self.flags_per_day:g} flags a day: from {self.by_budget:.0%} on"
        return (
            f"flagged from a risk of {self.threshold:.0%} on, which comes true {self.corrected:.0%} of the time lately "
            f"({self.settled:,} settled; by cost: from {self.by_cost:.0%} on; {budget}; calibration error {self.ece:.3f}, "
            f"corrected {self.ece_corrected:.3f})"
        )


def renew_working_points(site: Site, *, now: datetime) -> list[WorkingPoint]:
    """Work out where flags begin at each moment, from what has settled by now, and note it; none without `jobs.recalibrate`."""
    points: list[WorkingPoint] = []
    if site.settings.jobs.recalibrate and not site.settings.jobs.threshold:
        rows = settled(site, since=now - timedelta(days=site.settings.watch.quality_days)).filter(pl.col("end_time") <= now)
        in_use = site.models.in_use()
        for moment in MOMENTS:
            entry = in_use.get(model_name(moment))
            mine = rows.filter(pl.col("moment") == str(moment), pl.col("model_version") == (entry.version if entry else -1))
            if entry is not None and mine.height >= FEWEST_SETTLED:
                model = JobOutcomeModel.load(site.models.verified_folder(entry.name, entry.version))
                latest = mine.sort("moment_time", "end_time", "risk", "failed").tail(MOST_SETTLED)
                points.append(_point(site, moment, entry.version, model, latest, now))
    site.state.set_fact(_FACT, json.dumps([asdict(point) for point in points]))
    return points


def read_working_points(site: Site) -> dict[Moment, WorkingPoint]:
    """What was noted last, of the models that are in use; cheap."""
    try:
        points = [WorkingPoint(**noted) for noted in json.loads(site.state.fact(_FACT) or "[]")]
        in_use = site.models.in_use()
        return {
            Moment(point.moment): point
            for point in points
            if (entry := in_use.get(model_name(Moment(point.moment)))) and entry.version == point.model_version
        }
    except (TypeError, ValueError):  # of another version
        return {}


def use_working_points(predictor: JobPredictor, points: Iterable[WorkingPoint]) -> None:
    """Let a predictor flag as these points say, where they are of its models."""
    of_its_models = {Moment(point.moment): point for point in points if _is_of(predictor, point)}
    predictor.thresholds = {moment: point.threshold for moment, point in of_its_models.items()}
    predictor.flags_left = {moment: left for moment, point in of_its_models.items() if (left := point.flags_left) is not None}


def _is_of(predictor: JobPredictor, point: WorkingPoint) -> bool:
    return predictor.versions.get(Moment(point.moment)) == point.model_version


def _point(site: Site, moment: Moment, version: int, model: JobOutcomeModel, rows: pl.DataFrame, now: datetime) -> WorkingPoint:
    section = site.settings.jobs
    costs = Costs(section.missed_cost, section.flags_per_day)
    truth, risk = rows["failed"].to_numpy(), rows["risk"].cast(pl.Float64).to_numpy()
    made_s, known_s = (rows[name].dt.epoch("us").to_numpy() / 1e6 for name in ("moment_time", "end_time"))
    walked = walk(Stream(risk, truth, made_s, known_s), _before(model, made_s.min()), costs, until_s=now.timestamp())
    calibration = walked.calibration
    by_cost = calibration.forecast_of(costs.threshold(calibration.probability(risk[-RECENT:])))
    budget, last_day = _by_budget(site, moment, section.flags_per_day, now)
    threshold = float(np.clip(by_cost if budget is None else max(budget, by_cost if costs.missed else 0.0), 0.0, 1.0))
    return WorkingPoint(
        moment=str(moment),
        model_version=version,
        as_of=now.isoformat(),
        settled=rows.height,
        slope=calibration.slope,
        level=calibration.level,
        threshold=threshold,
        by_cost=by_cost,
        by_budget=budget,
        corrected=float(calibration.probability(np.array([threshold]))[0]),
        ece=expected_calibration_error(truth, risk),
        ece_corrected=expected_calibration_error(truth, walked.probability),
        flags_last_day=last_day,
        flags_per_day=section.flags_per_day,
    )


def _before(model: JobOutcomeModel, first_s: float) -> Stream:
    """The out-of-time risks that were saved with a model, as settled before the first prediction; none of earlier versions."""
    kept: dict[str, Any] = model.metadata.get("out_of_time") or {}
    risk, failed = np.array(kept.get("risk", []), dtype=np.float64), np.array(kept.get("failed", []), dtype=bool)
    if risk.size != failed.size:
        risk, failed = risk[:0], failed[:0]
    then = np.full(risk.size, first_s)
    return Stream(risk, failed, then, then)


def _by_budget(site: Site, moment: Moment, per_day: float, now: datetime) -> tuple[float | None, int]:
    """The risk that as many predictions of the last week reached as may be flagged, and the flags of the last day.

    What is left of the week's budget, or was spent too much, is spent or saved within a day.
    """
    since = now - timedelta(days=_BUDGET_DAYS)
    recent = site.predictions.read(since=since - timedelta(days=32)).filter(
        pl.col("moment") == str(moment), pl.col("moment_time").is_between(since, now)
    )
    rows = recent.select("moment_time", "risk", "flagged").collect()
    last_day = int(rows.filter(pl.col("moment_time") > now - timedelta(days=1))["flagged"].sum())
    if not per_day or not rows.height:
        return None, last_day
    first = rows["moment_time"].min()
    assert isinstance(first, datetime)
    days = max(1.0, (now - first).total_seconds() / 86_400.0)
    owed = per_day * days - int(rows["flagged"].sum())
    wanted = float(np.clip(per_day + owed, 0.5 * per_day, 2.0 * per_day))
    share = min(1.0, wanted * days / rows.height)
    odds = np.quantile(log_odds(rows["risk"].cast(pl.Float64).to_numpy()), 1.0 - share)
    return float(1.0 / (1.0 + np.exp(-odds))), last_day
