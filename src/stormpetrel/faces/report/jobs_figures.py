"""The drawings of each study of jobs, for the report and for `--plot`.

ProfileStudy, FeatureStudy, TrendStudy, WasteStudy, PolicyReplay -> Drawing: a figure, its height and a sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stormpetrel.answers.studies.job_studies import weekly_ledger
from stormpetrel.faces.report.blocks import Drawing
from stormpetrel.faces.report.job_tables import breakdown_label
from stormpetrel.figures import profiles, quality, trends, waste
from stormpetrel.figures.answer_rows import frame_of
from stormpetrel.figures.palette import BLACK
from stormpetrel.jobs.trends import TREND_SCHEMA
from stormpetrel.jobs.waste import SUMS

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.job_studies import (
        CorrelationMatrix,
        FeatureStudy,
        PolicyReplay,
        ProfileStudy,
        TrendStudy,
        WasteStudy,
    )
    from stormpetrel.answers.studies.job_evaluation import JobInput
    from stormpetrel.jobs.cancel_policy import CancelCurve

_ROW: Final = 26  # pixels of a bar with its name
_MOST_POINTS: Final = 500
_LEDGER: Final = {"group": pl.String, **dict.fromkeys(SUMS, pl.Int64), "share": pl.Float64}


def labels_drawing(study: ProfileStudy) -> Drawing:
    """How jobs ended."""
    return Drawing(profiles.label_distribution_figure(frame_of(study.labels)), height=380)


def elbow_drawing(study: ProfileStudy) -> Drawing:
    """How many profiles there are."""
    return Drawing(profiles.elbow_figure(frame_of(study.elbow), study.k), height=380)


def composition_drawings(study: ProfileStudy) -> dict[str, Drawing]:
    """What the profiles are made of, by the title of its table; without what the log does not tell."""
    tables = {
        "Duration": (study.duration, "jobs"),
        "User activity": (study.activity, "users"),
        "Status": (study.status, "jobs"),
        "Type": (study.type, "jobs"),
    }
    return {
        title: Drawing(
            profiles.profile_composition_figure(pl.DataFrame(lines), f"Profiles by {title.lower()}", unit=unit), height=360
        )
        for title, (lines, unit) in tables.items()
        if any(count for line in lines for name, count in line.items() if name not in ("profile", "Unknown"))
    }


def profile_drawings(study: ProfileStudy) -> tuple[Drawing, ...]:
    """Everything there is to draw about profiles."""
    resources = Drawing(profiles.profile_resources_figure(frame_of(study.resources)), height=520)
    return (labels_drawing(study), elbow_drawing(study), resources, *composition_drawings(study).values())


def importance_drawing(study: FeatureStudy, top: int = 20) -> Drawing:
    """What moves the forecast."""
    height = 90 + _ROW * min(top, max(1, len(study.importance)))
    return Drawing(quality.importance_figure(frame_of(study.importance), top=top), height=height)


def feature_drawings(study: FeatureStudy) -> tuple[Drawing, ...]:
    """The heat map of the features that hang together with failing most, and what moves the forecast."""
    caption = "Blue: one falls as the other rises; vermilion: they rise together."
    return (heat_drawing(study.matrix, caption, 720), importance_drawing(study))


def heat_drawing(matrix: CorrelationMatrix, caption: str, height: int) -> Drawing:
    """Correlations of all pairs as colour, blank where a column is constant."""
    return Drawing(quality.correlation_heatmap(matrix.names, np.array(matrix.r, dtype=np.float64)), caption, height)


def trend_drawings(study: TrendStudy) -> tuple[Drawing, ...]:
    """Failure rates over time: lines of the groups with the most failures, and all of them as colour."""
    trend = pl.DataFrame([point.model_dump() for point in study.trend], TREND_SCHEMA)
    groups = trend["group"].n_unique() if trend.height else 1
    few = _most_failures(trend, 5)
    caption = "The five with the most failures, each in the band of its 95 % interval." if groups > 5 else ""
    return (
        Drawing(trends.failure_trend_figure(few), caption, 440),
        Drawing(trends.trend_heatmap_figure(trend), height=140 + _ROW * groups),
    )


def waste_drawings(data: JobInput, study: WasteStudy) -> tuple[Drawing, ...]:
    """The loss week by week, and by group unless the groups are weeks."""
    weeks = Drawing(waste.waste_by_week_figure(weekly_ledger(data)), height=440)
    if study.by == "week":
        return (weeks,)
    losing = min(15, max(1, sum(line.lost_core_seconds > 0 for line in study.groups)))
    rows = [line.model_dump(include=set(_LEDGER)) for line in study.groups]
    groups = pl.DataFrame(rows, _LEDGER).rename({"group": breakdown_label(study.by)})
    return (weeks, Drawing(waste.waste_by_group_figure(groups), height=130 + _ROW * losing))


def policy_drawings(replay: PolicyReplay, curve: CancelCurve) -> tuple[Drawing, ...]:
    """What each threshold of the later splits would have done (`curve`), with the one marked that was chosen before."""
    step = max(1, -(-curve.points.height // _MOST_POINTS))
    points = pl.concat([curve.points.gather_every(step), curve.points.tail(1)]).unique("tau", maintain_order=True)
    figure = waste.cancel_policy_figure(replace(curve, points=points))
    figure.add_vline(x=replay.tau, line={"color": BLACK, "width": 2}, annotation_text=f"chosen before: {replay.tau:.2f}")
    return (Drawing(figure, "The dash-dotted line is the best in hindsight, not known in advance.", 480),)


def _most_failures(trend: pl.DataFrame, most: int) -> pl.DataFrame:
    sums = trend.group_by("group").agg(pl.col("failed").sum()).sort(["failed", "group"], descending=[True, False])
    return trend.join(sums.head(most).select("group"), on="group", how="semi", maintain_order="left")
