"""The workload of a site and its generator: which one is in use, how good it is, and jobs of both to be drawn side by side.

LiveSite + Viewer -> workload_answer -> WorkloadAnswer, workload_board -> WorkloadBoard. A generator has learnt from everybody's
jobs: all of it is for administrators.

The scorecard of a generator as figures to be read: each with its ideal, and what two real halves of the log reach.

scorecard (JSON of `synth evaluate`) -> scores_of -> WorkloadScore.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from stormpetrel.answers.background import Background
from stormpetrel.answers.overview.overview import again
from stormpetrel.answers.schemas.workload import WorkloadAnswer, WorkloadGenerator, WorkloadGroup, WorkloadScore
from stormpetrel.answers.viewer import READ
from stormpetrel.answers.workload.fit import Fitting
from stormpetrel.lifecycle.workload_models import loaded_generator, site_workload
from stormpetrel.synth.contract import Wanted, sample

if TYPE_CHECKING:
    from stormpetrel.answers.background import Snapshot
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.registry.models import Training
    from stormpetrel.synth.workload import Workload

DRAWN_JOBS: Final = 50_000  # of each kind: curves do not change with more
_FAMILY: Final = "synth"
_REST_S: Final = 3.0  # looking which generator is in use is cheap; jobs are made anew only where it is another one
_SEED: Final = 1
NEAR: Final = 1.5  # times the floor: as near as two real halves of one log are to each other, more or less
COLUMN_LABELS: Final = {
    "interval_s": "Interval", "runtime_s": "Run time", "cores": "Cores", "nodes": "Nodes", "gpus": "GPUs", "mem_bytes": "Memory",
    "time_limit_s": "Time limit", "wait_s": "Wait", "partition": "Partition", "qos": "QOS", "state": "Outcome", "user": "Users",
    "group": "Groups", "account": "Accounts",
}  # fmt: skip
_SMALL: Final = 0.02  # a distance below which nobody could tell, whatever the floor
_LEAST_FLOOR: Final = 0.005  # below it "times the floor" says nothing
_MOST_COLUMNS: Final = 40
_MAIN: Final = ("interval_s", "runtime_s", "cores")


class LiveWorkload:
    """What a live site keeps of its workload: the jobs to be drawn, the fitting under way, whose turn it is to sample."""

    def __init__(self) -> None:
        self.board: Background[WorkloadBoard] = Background(make_workload_board, rest_s=_REST_S, most=1, always=True)
        self.fitting = Fitting()
        self.sampling = threading.Lock()


@dataclass(frozen=True, slots=True, eq=False)
class WorkloadBoard:
    """Jobs that a generator has learnt from and as many new ones; both None where there is no generator.

    They stay frames next to the answer: up to 50,000 jobs each, which are only drawn.
    """

    training: str
    real: Workload | None = None
    synthetic: Workload | None = None


def workload_answer(live: LiveSite, viewer: Viewer) -> WorkloadAnswer:
    """Return which generator is in use, how good it is, and how far the fitting of another one is; for administrators."""
    viewer.require(READ)
    viewer.require_admin()
    training = live.site.models.current_training(_FAMILY)
    generator = None if training is None else _generator(training)
    return WorkloadAnswer(as_of=live.now(), generator=generator, fitting=live.workload.fitting.state)


def workload_board(live: LiveSite, viewer: Viewer) -> Snapshot[WorkloadBoard]:
    """Return the jobs to be drawn, however old; only the very first are waited for. For administrators."""
    viewer.require(READ)
    viewer.require_admin()
    return live.workload.board.latest(live)


def current_board(live: LiveSite, viewer: Viewer) -> WorkloadBoard | None:
    """Return the jobs to be drawn at once; None where those of the generator in use are still being made."""
    viewer.require(READ)
    viewer.require_admin()
    latest = live.workload.board.peek(live)
    training = live.site.models.current_training(_FAMILY)
    return None if latest is None or latest.value.training != (training.name if training else "") else latest.value


def make_workload_board(live: LiveSite, key: str, before: WorkloadBoard | None) -> WorkloadBoard:
    """Return the jobs to be drawn; those before where the same generator is in use."""
    del key
    training = live.site.models.current_training(_FAMILY)
    if training is None:
        return WorkloadBoard("")
    if before is not None and before.training == training.name:
        return before
    return again(lambda: _drawn_jobs(live, training))


def _drawn_jobs(live: LiveSite, training: Training) -> WorkloadBoard:
    """The first jobs of those that it has learnt from, and new ones from the same moment on."""
    in_use = loaded_generator(live.site, training)
    real = site_workload(live.site, until=training.trained_until).between(0, DRAWN_JOBS)
    synthetic = sample(in_use.generator, Wanted(jobs=real.height, seed=_SEED, start=real.start()))
    return WorkloadBoard(training.name, real, replace(synthetic, has_clock=real.has_clock))


def _generator(training: Training) -> WorkloadGenerator:
    """What the registry knows of a generator, without loading it."""
    entry = training.models[0]
    about = entry.about
    since, version, scored = about.get("since"), about.get("table_version"), about.get("scored_jobs")
    card = about.get("scorecard")
    return WorkloadGenerator(
        training=training.name,
        generator=str(about.get("generator") or entry.name.partition("-")[2]),
        fitted_at=_utc(training.created),
        jobs=int(about.get("n_train") or 0),
        since=_utc(str(since)) if since else None,
        until=training.trained_until,
        table_version=int(version) if isinstance(version, int) else None,
        columns=[str(column) for column in about.get("columns") or ()],
        groups=[WorkloadGroup(name=str(name), words=str(words)) for name, words in dict(about.get("groups") or {}).items()],
        scorecard=card,
        scored_jobs=int(scored) if isinstance(scored, int) else None,
        not_scored=str(about.get("not_scored") or ""),
        scores=scores_of(card) if card else [],
    )


def _utc(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def scores_of(card: Mapping[str, Any]) -> list[WorkloadScore]:
    """Return every figure that a scorecard has: the main columns, the order of jobs, privacy, other columns."""
    of_real_weeks = card.get("floor")
    floor: Mapping[str, Any] = of_real_weeks if isinstance(of_real_weeks, Mapping) else {}
    columns = dict(_columns(card, floor))
    main = [columns.pop(name) for name in _MAIN if name in columns]
    pairs = [_pair(card, floor, key, *texts) for key, texts in _PAIRS.items()]
    singles = [_single(card, floor, key, *texts) for key, texts in _SINGLES.items()]
    return [score for score in (*main, *pairs, *singles, *columns.values()) if score.value is not None]


# key -> (measure, what it means); each is a figure of both logs, and the ideal is that of the real one
_PAIRS: Final = {
    "lag1": ("Lag-1 autocorrelation", "Whether a short interval follows a short one"),
    "dispersion": ("Dispersion of hourly counts", "Variance ÷ mean: how much jobs come in bursts"),
    "same_user_share": ("Same user as the job before", "Share of jobs"),
    "exact_copies": ("Exact copies", "Share of new jobs that equal a learnt one; ideal: what chance gives"),
}
# key -> (measure, ideal, what it means)
_SINGLES: Final = {
    "acf_mae": ("Autocorrelation, lags 1 to 50", 0.0, "Mean distance of the two curves"),
    "hour_profile_tv": ("Hours of the week", 0.0, "Share of jobs in another hour of the week"),
    "c2st_row": ("Told apart, job by job", 0.5, "Can trees tell a new job from a real one? .5 no, 1 always"),
    "c2st_sequence": ("Told apart, three in a row", 0.5, "The same with the two jobs before; below .5 is copying"),
    "nearest_record_ratio": ("Nearest-record ratio", 1.0, "Distance to learnt jobs; well below 1 is memorising"),
    "membership_auc": ("Membership attack", 0.5, "Can an attacker tell who was learnt from? .5 no, 1 always"),
}
# What has no floor, one that is next to nothing, or is only wrong in one direction: value, ideal -> whether that is near enough.
_BOUNDS: Final[dict[str, Callable[[float, float], bool]]] = {
    "lag1": lambda value, real: abs(value - real) <= 0.08,
    "exact_copies": lambda value, natural: value <= NEAR * natural + 0.002,
    "nearest_record_ratio": lambda value, _ideal: value >= 0.8,
    "membership_auc": lambda value, _ideal: value <= 0.6,
    "c2st_row": lambda value, _ideal: 0.45 <= value <= 0.65,
    "c2st_sequence": lambda value, _ideal: 0.45 <= value <= 0.65,
}


def _columns(card: Mapping[str, Any], floor: Mapping[str, Any]) -> Iterator[tuple[str, WorkloadScore]]:
    """The distances of single columns: numbers first, then categories."""
    for part, key, meaning in _PARTS:
        columns, floors = card.get(part), floor.get(part)
        if not isinstance(columns, Mapping):
            continue
        for name in list(map(str, columns))[:_MOST_COLUMNS]:
            floor_of_column = floors.get(name) if isinstance(floors, Mapping) else None
            measure = f"Distribution: {COLUMN_LABELS.get(name, name)[:60].lower()}"
            yield name, _score("", measure, _number(columns[name], key), 0.0, _number(floor_of_column, key), 0.0, meaning)


_PARTS: Final = (
    ("columns", "ks", "Largest gap of the two distributions (KS)"),
    ("categories", "tv", "Share of jobs that would have to be of another kind"),
)


def _pair(card: Mapping[str, Any], floor: Mapping[str, Any], key: str, measure: str, meaning: str) -> WorkloadScore:
    figures, floors, ideal = card.get(key), floor.get(key), "natural" if key == "exact_copies" else "real"
    value, floor_value = _number(figures, "synthetic"), _number(floors, "synthetic")
    return _score(key, measure, value, _number(figures, ideal), floor_value, _number(floors, ideal), meaning)


def _single(
    card: Mapping[str, Any], floor: Mapping[str, Any], key: str, measure: str, ideal: float, meaning: str
) -> WorkloadScore:
    return _score(key, measure, _number(card, key), ideal, _number(floor, key), ideal, meaning)


def _score(
    key: str, measure: str, value: float | None, ideal: float | None, floor: float | None, floor_ideal: float | None, meaning: str
) -> WorkloadScore:
    times, verdict = _judge(key, value, ideal, floor, floor_ideal)
    return WorkloadScore(
        measure=measure, value=value, ideal=ideal, floor=floor, times_floor=times, verdict=verdict, meaning=meaning
    )


def _judge(
    key: str, value: float | None, ideal: float | None, floor: float | None, floor_ideal: float | None
) -> tuple[float | None, Literal["near", "off", "open"]]:
    """Return how many times as far from the ideal as the floor a figure is (None: not known), and whether that is near."""
    if value is None or ideal is None:
        return None, "open"
    away, allowed = abs(value - ideal), None
    if floor is not None and floor_ideal is not None:
        allowed = abs(floor - floor_ideal)
    times = away / allowed if allowed is not None and allowed >= _LEAST_FLOOR else None
    if key in _BOUNDS:
        return times, "near" if _BOUNDS[key](value, ideal) else "off"
    if away <= _SMALL * max(1.0, abs(ideal)) or (times is not None and times <= NEAR):
        return times, "near"
    return times, "open" if allowed is None else "off"


def _number(figures: Any, key: str) -> float | None:
    """Return a figure, or the mean of one that was measured over seeds; None where there is none, or it is no number."""
    value = figures.get(key) if isinstance(figures, Mapping) else None
    if isinstance(value, Mapping):
        value = value.get("mean")
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        return None
    return float(value)
