"""How good the forecasts of a site have been, and which trainings of its models there are.

LiveSite + Viewer + QualityQuestion -> model_quality -> QualityAnswer, out of settled live predictions only; -> trainings ->
Trainings; -> training_in_full -> TrainingInFull; an administrator may promote one or go back: the receipt is the Training in use.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.history.settled import Settled
from stormpetrel.answers.schemas.history import Optimism, QualityAnswer, QualityLine, QualityPoint, QualityQuestion
from stormpetrel.answers.schemas.registry import Model, Training, TrainingInFull, Trainings
from stormpetrel.answers.site.registry import shadow_text, working_points
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import NotThereError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.learn.family import Role
from stormpetrel.lifecycle.job_models import FAMILY, JOBS, lacking_moments
from stormpetrel.lifecycle.running_quality import quality

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.learn.family import TrainingRecord
    from stormpetrel.learn.metrics import Truth
    from stormpetrel.records.arrays import Floats
    from stormpetrel.store.site import Site

MOMENT_LABELS: Final = {"submit": "at submission", "start": "at the start", "2min": "two minutes in"}
PERIODS: Final = {"1d": "day", "1w": "week"}
MOST_DRAWN: Final = 20_000  # forecasts of each moment behind the curves: the latest
FEWEST: Final = 20  # predictions of a period below which its figures would be noise
_FIGURES: Final = ("failed_share", "roc_auc", "pr_auc", "precision", "recall", "ece", "brier")
_OVER_TIME: Final = pl.Schema({"time": pl.Date, "n": pl.Int64, **dict.fromkeys(_FIGURES, pl.Float64)})


@dataclass(frozen=True, slots=True)
class QualityFrames:
    """An answer, and what a page draws next to it: curves of tens of thousands of forecasts, and what moves them.

    `chosen` (a row of the table by moment and version), `over_time`, `importance` and `threshold` are of one moment, and of one
    version where the question names it; `forecasts` has truth and risk of each moment's latest; `versions` come newest first.
    """

    answer: QualityAnswer
    question: QualityQuestion
    table: pl.DataFrame
    chosen: dict[str, Any] | None
    over_time: pl.DataFrame
    forecasts: dict[str, tuple[Truth, Floats]]
    importance: pl.DataFrame
    threshold: float | None
    versions: tuple[int, ...]


def usual_moment(live: LiveSite) -> str:
    """Return the moment that is shown if none is requested: the latest that has a model, else two minutes in."""
    lacking = lacking_moments(live.site.models.current_training(FAMILY))
    return str(next((moment for moment in reversed(MOMENTS) if moment not in lacking), Moment.TWO_MINUTES))


def model_quality(live: LiveSite, viewer: Viewer, question: QualityQuestion | None = None) -> QualityAnswer:
    """Return the quality of the site's forecasts at the usual moment or another; of everybody's jobs, and it names none."""
    viewer.require(READ)
    return quality_frames(live, viewer, live.boards.settled.wait(live), question or QualityQuestion()).answer


def quality_frames(live: LiveSite, viewer: Viewer, settled: Snapshot[Settled], question: QualityQuestion) -> QualityFrames:
    """Return the same with what a page draws, out of settled predictions that are there already."""
    viewer.require(READ)
    moment, zone = question.moment or usual_moment(live), live.settings.site.time_zone
    points = working_points(live.site)
    frames = settled.answer(("quality", moment, question), lambda: _frames(settled, moment, question, zone))
    return replace(frames, answer=frames.answer.model_copy(update={"working_points": points}))


def _frames(latest: Snapshot[Settled], moment: str, question: QualityQuestion, time_zone: str) -> QualityFrames:
    settled, version = latest.value, question.version
    of_moment = settled.frame.filter(pl.col("moment") == moment)
    versions = tuple(of_moment["model_version"].unique().sort(descending=True).to_list())
    mine = of_moment if version is None else of_moment.filter(pl.col("model_version") == version)
    shown = version if version is not None else versions[0] if versions else -1
    line = settled.quality.filter(pl.col("moment") == moment, pl.col("model_version").eq_missing(pl.lit(version, dtype=pl.Int32)))
    over_time = _over_time(mine, question.every, time_zone)
    return QualityFrames(
        answer=QualityAnswer(
            as_of=latest.at,
            since=settled.since,
            settled=int(settled.quality.filter(pl.col("model_version").is_null())["n"].sum()),
            waiting=settled.waiting,
            never_started=settled.never_started,
            quality=[QualityLine(**row) for row in settled.quality.iter_rows(named=True)],
            moment=moment,
            over_time=[QualityPoint(**row) for row in over_time.iter_rows(named=True)],
            optimistic=None if settled.optimism is None else Optimism(**settled.optimism.as_json()),
        ),
        question=question,
        table=settled.quality,
        chosen=line.row(0, named=True) if line.height else None,
        over_time=over_time,
        forecasts=_forecasts(settled.frame if version is None else mine),
        importance=settled.importance.filter(pl.col("moment") == moment, pl.col("model_version") == shown),
        threshold=None if mine.is_empty() else float(mine["threshold"].item(-1)),
        versions=versions,
    )


def trainings(live: LiveSite, viewer: Viewer) -> Trainings:
    """Return every training in the registry, newest first."""
    viewer.require(READ)
    records = reversed(live.site.models.trainings(FAMILY))
    return Trainings(trainings=[_training(JOBS.described(live.site, record, in_full=False), live.site) for record in records])


def training_in_full(live: LiveSite, viewer: Viewer, name: str) -> TrainingInFull:
    """Return one training of the models of jobs with its models; NotThereError where there is none of that name."""
    viewer.require(READ)
    record = live.site.models.training(name)
    if record.name.rpartition("-")[0] != FAMILY:
        raise NotThereError(f"There is no training {name!r} of jobs.", hint="See which there are: GET /api/v1/models")
    models = [
        Model(name=model.name, version=model.version, current=model.current, about=dict(model.about)) for model in record.models
    ]
    return TrainingInFull(**dict(_training(JOBS.described(live.site, record, in_full=False), live.site)), models=models)


def promote(live: LiveSite, viewer: Viewer, name: str) -> Training:
    """Put a training in use; the watch takes it up by itself. Administrators only; it stands in the audit trail."""
    viewer.require(MANAGE)
    return _training(JOBS.promote(live.site, name, user=_signed(viewer)))


def go_back(live: LiveSite, viewer: Viewer) -> Training:
    """Put the training in use that was so before the current one. Administrators only; it stands in the audit trail."""
    viewer.require(MANAGE)
    return _training(JOBS.roll_back(live.site, user=_signed(viewer)))


def _over_time(rows: pl.DataFrame, every: str, time_zone: str) -> pl.DataFrame:
    """Figures per period of the forecast; a period with too few is left out."""
    local = pl.col("moment_time").dt.convert_time_zone(time_zone).dt.replace_time_zone(None).dt.truncate(every).cast(pl.Date)
    dated = rows.with_columns(
        time=local, last_failed=pl.lit(False)
    )  # the rule by the user's last job is not worked out over time
    parts = dated.sort("time", maintain_order=True).partition_by("time", maintain_order=True)
    lines = [{"time": part["time"].item(0), **quality(part).row(0, named=True)} for part in parts if part.height >= FEWEST]
    return pl.DataFrame([{name: line[name] for name in _OVER_TIME} for line in lines], schema=_OVER_TIME)


def _forecasts(frame: pl.DataFrame) -> dict[str, tuple[Truth, Floats]]:
    forecasts = {}
    for moment, text in MOMENT_LABELS.items():
        rows = frame.filter(pl.col("moment") == moment).tail(MOST_DRAWN)
        if rows.height:
            forecasts[text] = (rows["failed"].to_numpy(), rows["risk"].to_numpy())
    return forecasts


def _training(record: TrainingRecord, site: Site | None = None) -> Training:
    used = record.main.about.get("compute")
    return Training(
        shadow=None if site is None else shadow_text(site, record.family, record.name),
        compute=f"{used['seconds']:,.0f} s, {used['cpu_s']:,.0f} s of CPU, {used['peak_bytes'] / 1e6:,.0f} MB" if used else None,
        name=record.name,
        current=record.current,
        created=datetime.fromisoformat(record.created),
        trained_until=record.trained_until,
        why=record.why,
        previous=record.previous,
        versions={model.sort: model.version for model in record.models if model.role is Role.MODEL},
        jobs=record.main.data.rows or None,
        code_version=record.main.code_version,
    )


def _signed(viewer: Viewer) -> str | None:
    """The name for the audit trail; on loopback without a login it is that of the process's owner."""
    return viewer.user or None
