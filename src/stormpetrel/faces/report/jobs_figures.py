"""The drawings of each study of jobs, for the report and for `--plot`.

ProfileStudy, FeatureStudy, WasteStudy, PolicyReplay, trends -> Drawing: a figure, its height and a sentence.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.job_studies import weekly_ledger
from stormpetrel.faces.report.blocks import Drawing
from stormpetrel.figures import profiles, quality, trends, waste
from stormpetrel.figures.palette import BLACK
from stormpetrel.jobs.profiles import activity_table, duration_table, resource_table, status_table, type_table

if TYPE_CHECKING:
    from stormpetrel.answers.job_input import JobInput
    from stormpetrel.answers.job_studies import FeatureStudy, PolicyReplay, ProfileStudy, WasteStudy

_ROW: Final = 26  # pixels of a bar with its name
_MOST_POINTS: Final = 500


def labels_drawing(study: ProfileStudy) -> Drawing:
    """How jobs ended."""
    return Drawing(profiles.label_distribution_figure(study.labels), height=380)


def elbow_drawing(study: ProfileStudy) -> Drawing:
    """How many profiles there are."""
    return Drawing(profiles.elbow_figure(study.model.elbow_, study.model.k_), height=380)


def composition_drawings(study: ProfileStudy) -> dict[str, Drawing]:
    """What the profiles are made of, by the title of its table; without what the log does not tell."""
    frame, limits = study.profiled, study.limits
    found = {
        "Duration": (duration_table(frame, limits), "jobs"),
        "User activity": (activity_table(frame, limits), "users"),
        "Status": (status_table(frame), "jobs"),
        "Type": (type_table(frame, limits), "jobs"),
    }
    return {
        title: Drawing(profiles.profile_composition_figure(table, f"Profiles by {title.lower()}", unit=unit), height=360)
        for title, (table, unit) in found.items()
        if table.select(pl.exclude("profile", "Unknown")).sum().sum_horizontal().sum()
    }


def profile_drawings(study: ProfileStudy) -> tuple[Drawing, ...]:
    """Everything there is to draw about profiles."""
    resources = Drawing(profiles.profile_resources_figure(resource_table(study.profiled)), height=520)
    return (labels_drawing(study), elbow_drawing(study), resources, *composition_drawings(study).values())


def importance_drawing(important: pl.DataFrame, top: int = 20) -> Drawing:
    """What moves the forecast."""
    return Drawing(quality.importance_figure(important, top=top), height=90 + _ROW * min(top, max(1, important.height)))


def feature_drawings(study: FeatureStudy, top: int = 18) -> tuple[Drawing, ...]:
    """The heat map of the features that hang together with failing most, and what moves the forecast."""
    names, matrix = study.correlated.top(top)
    heat = Drawing(
        quality.correlation_heatmap(names, matrix), "Blue: one falls as the other rises; vermilion: they rise together.", 720
    )
    return (heat, importance_drawing(study.important))


def trend_drawings(trend: pl.DataFrame) -> tuple[Drawing, ...]:
    """Failure rates over time: lines of the groups with the most failures, and all of them as colour."""
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
    losing = min(15, max(1, int((study.groups["lost_core_seconds"] > 0).sum())))
    return (weeks, Drawing(waste.waste_by_group_figure(study.groups), height=130 + _ROW * losing))


def policy_drawings(replay: PolicyReplay) -> tuple[Drawing, ...]:
    """What each threshold would have done on the later splits, with the one marked that was chosen before."""
    curve = replay.judged
    step = max(1, -(-curve.points.height // _MOST_POINTS))
    points = pl.concat([curve.points.gather_every(step), curve.points.tail(1)]).unique("tau", maintain_order=True)
    figure = waste.cancel_policy_figure(replace(curve, points=points))
    figure.add_vline(x=replay.tau, line={"color": BLACK, "width": 2}, annotation_text=f"chosen before: {replay.tau:.2f}")
    return (Drawing(figure, "The dash-dotted line is the best in hindsight, which nobody could have known.", 480),)


def _most_failures(trend: pl.DataFrame, most: int) -> pl.DataFrame:
    sums = trend.group_by("group").agg(pl.col("failed").sum()).sort(["failed", "group"], descending=[True, False])
    return trend.join(sums.head(most).select("group"), on="group", how="semi", maintain_order="left")
