"""How good the forecasts of a site have been, and which trainings of its models there are.

LiveSite + Viewer -> model_quality -> QualityAnswer, out of settled live predictions only; -> trainings -> TrainingLine; an
administrator may promote one or go back to the one before.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.settled import SETTLED, Settled
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import UsageError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.optimism import Optimism
from stormpetrel.learn.model_record import Role
from stormpetrel.lifecycle.job_models import FAMILY, JOBS, lacking_moments
from stormpetrel.lifecycle.running_quality import quality

if TYPE_CHECKING:
    from stormpetrel.answers.background import Made
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.learn.metrics import Floats, Truth
    from stormpetrel.learn.model_record import TrainingRecord

MOMENT_WORDS: Final = {"submit": "at submission", "start": "at the start", "2min": "two minutes in"}
PERIODS: Final = {"1d": "day", "1w": "week"}
MOST_DRAWN: Final = 20_000  # forecasts of each moment behind the curves: the latest
FEWEST: Final = 20  # predictions of a period below which its figures would be noise
_FIGURES: Final = ("failed_share", "roc_auc", "pr_auc", "precision", "recall", "ece", "brier")
_OVER_TIME: Final = pl.Schema({"time": pl.Date, "n": pl.Int64, **dict.fromkeys(_FIGURES, pl.Float64)})


@dataclass(frozen=True, slots=True)
class QualityAnswer:
    """Running quality: by moment and version, over time, and the forecasts themselves for the curves.

    `table` has the columns of `running_quality.QUALITY_SCHEMA`. `chosen` (a row of it), `over_time`, `importance` and `threshold`
    are of one moment, and of one version where `version` names it; `forecasts` has truth and risk of each moment's latest.
    `optimism` is there where the history that forecasts are made of has ends that are too early.
    """

    moment: str
    version: int | None
    every: str
    table: pl.DataFrame
    chosen: dict[str, Any] | None
    over_time: pl.DataFrame
    forecasts: dict[str, tuple[Truth, Floats]]
    importance: pl.DataFrame
    threshold: float | None
    versions: tuple[int, ...]
    waiting: int
    never_started: int
    since: datetime
    as_of: datetime
    optimism: Optimism | None = None

    @property
    def settled(self) -> int:
        """How many predictions have been settled, at all moments."""
        return int(self.table.filter(pl.col("model_version").is_null())["n"].sum())

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {
            "as_of": self.as_of.isoformat(),
            "since": self.since.isoformat(),
            "settled": self.settled,
            "waiting": self.waiting,
            "never_started": self.never_started,
            "quality": _plain(self.table),
            "moment": self.moment,
            "over_time": _plain(self.over_time),
            "optimistic": None if self.optimism is None else self.optimism.as_json(),
        }


@dataclass(frozen=True, slots=True)
class TrainingLine:
    """One training: models of each moment and profiles that were made, and are used, together."""

    name: str  # jobs-7
    current: bool
    created: str
    trained_until: datetime
    why: str  # it was put in use, or was not
    previous: str | None
    versions: dict[str, int]  # moment -> version in the registry
    jobs: int | None  # that it learnt from, at submission
    code_version: str

    def as_json(self) -> dict[str, Any]:
        """For other programs."""
        return {**asdict(self), "trained_until": self.trained_until.isoformat()}


def usual_moment(live: LiveSite) -> str:
    """The moment that is shown if none is asked for: the latest that has a model, two minutes in where there is none at all."""
    lacking = lacking_moments(live.site.models.current_training(FAMILY))
    return str(next((moment for moment in reversed(MOMENTS) if moment not in lacking), Moment.TWO_MINUTES))


def model_quality(
    live: LiveSite, viewer: Viewer, *, moment: str | None = None, version: int | None = None, every: str = "1d"
) -> QualityAnswer:
    """The quality of the site's forecasts at the usual moment or another; the figures are of everybody's jobs, and name none."""
    viewer.require(READ)
    return quality_answer(SETTLED.wait(live), live, moment=moment, version=version, every=every)


def quality_answer(
    made: Made[Settled], live: LiveSite, *, moment: str | None = None, version: int | None = None, every: str = "1d"
) -> QualityAnswer:
    """The same out of settled predictions that are there already."""
    moment = usual_moment(live) if moment is None else moment
    _check(moment, every)
    zone = live.settings.site.time_zone
    return made.answer(("quality", str(moment), version, every), lambda: _answer(made, str(moment), version, every, zone))


def _answer(made: Made[Settled], moment: str, version: int | None, every: str, time_zone: str) -> QualityAnswer:
    frame = made.value.frame
    of_moment = frame.filter(pl.col("moment") == moment)
    versions = tuple(of_moment["model_version"].unique().sort(descending=True).to_list())
    mine = of_moment if version is None else of_moment.filter(pl.col("model_version") == version)
    shown = version if version is not None else versions[0] if versions else -1
    line = made.value.quality.filter(
        pl.col("moment") == moment, pl.col("model_version").eq_missing(pl.lit(version, dtype=pl.Int32))
    )
    return QualityAnswer(
        moment=moment,
        version=version,
        every=every,
        table=made.value.quality,
        chosen=line.row(0, named=True) if line.height else None,
        over_time=_over_time(mine, every, time_zone),
        forecasts=_forecasts(frame if version is None else mine),
        importance=made.value.importance.filter(pl.col("moment") == moment, pl.col("model_version") == shown),
        threshold=None if mine.is_empty() else float(mine["threshold"].item(-1)),
        versions=versions,
        waiting=made.value.waiting,
        never_started=made.value.never_started,
        since=made.value.since,
        as_of=made.at,
        optimism=made.value.optimism,
    )


def trainings(live: LiveSite, viewer: Viewer) -> tuple[TrainingLine, ...]:
    """Every training in the registry, newest first."""
    viewer.require(READ)
    return tuple(
        _line(JOBS.described(live.site, training, in_full=False)) for training in reversed(live.site.models.trainings(FAMILY))
    )


def promote(live: LiveSite, viewer: Viewer, name: str) -> TrainingLine:
    """Put a training in use; the watch takes it up by itself. Administrators only; it stands in the audit trail."""
    viewer.require(MANAGE)
    return _line(JOBS.promote(live.site, name, user=_signed(viewer)))


def go_back(live: LiveSite, viewer: Viewer) -> TrainingLine:
    """Put the training in use that was so before the current one. Administrators only; it stands in the audit trail."""
    viewer.require(MANAGE)
    return _line(JOBS.roll_back(live.site, user=_signed(viewer)))


def _check(moment: str, every: str) -> None:
    if moment not in set(MOMENTS):
        raise UsageError(f"There is no moment '{moment}'.", hint=f"Known: {', '.join(MOMENTS)}.")
    if every not in PERIODS:
        raise UsageError(f"Quality is not told per '{every}'.", hint=f"Known: {', '.join(PERIODS)}.")


def _over_time(rows: pl.DataFrame, every: str, time_zone: str) -> pl.DataFrame:
    """Figures per period of the forecast; a period with too few is left out."""
    local = pl.col("moment_time").dt.convert_time_zone(time_zone).dt.replace_time_zone(None).dt.truncate(every).cast(pl.Date)
    dated = rows.with_columns(time=local, last_failed=pl.lit(False))  # the rule by the user's last job is not told over time
    parts = dated.sort("time", maintain_order=True).partition_by("time", maintain_order=True)
    lines = [{"time": part["time"].item(0), **quality(part).row(0, named=True)} for part in parts if part.height >= FEWEST]
    return pl.DataFrame([{name: line[name] for name in _OVER_TIME} for line in lines], schema=_OVER_TIME)


def _forecasts(frame: pl.DataFrame) -> dict[str, tuple[Truth, Floats]]:
    found = {}
    for moment, words in MOMENT_WORDS.items():
        rows = frame.filter(pl.col("moment") == moment).tail(MOST_DRAWN)
        if rows.height:
            found[words] = (rows["failed"].to_numpy(), rows["risk"].to_numpy())
    return found


def _line(training: TrainingRecord) -> TrainingLine:
    first = training.main
    return TrainingLine(
        name=training.name,
        current=training.current,
        created=training.created,
        trained_until=training.trained_until,
        why=training.why,
        previous=training.previous,
        versions={model.sort: model.version for model in training.models if model.role is Role.MODEL},
        jobs=first.data.rows or None,
        code_version=first.code_version,
    )


def _signed(viewer: Viewer) -> str | None:
    """The name for the audit trail; on loopback without a login it is that of the process's owner."""
    return viewer.user or None


def _plain(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows with their times as ISO text."""
    times = pl.selectors.datetime().dt.strftime("%Y-%m-%dT%H:%M:%S%:z")
    return frame.with_columns(times, pl.selectors.date().cast(pl.String)).to_dicts()
