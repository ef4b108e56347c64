"""The study of the event alarm: every data set × every seed × every model, through the engine.

StudyPlan -> run_study -> Run … -> `summary` of events/evaluation.py. Data sets: simulated grids, and the hourly counts of
recorded logs into whose later half outages are injected; another plan of outages for each seed. Needs what the models need:
numpy, scipy, scikit-learn, XGBoost, torch.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel import __version__
from stormpetrel.config import settings_from
from stormpetrel.engine import Engine, KeptResults, Progress, no_progress
from stormpetrel.engine.codecs import JsonCodec
from stormpetrel.errors import SourceFormatError, UsageError
from stormpetrel.events.evaluation import PER_WEEK, Dataset, Run, contestants, judge_contestants
from stormpetrel.events.event_metrics import AFTERMATH_HOURS, TestOutage, outages_in
from stormpetrel.records.event_series import ANOMALY, HOUR_S, MAINTENANCE, NORMAL, UNLABELLED, WEEK_S, EventSeries
from stormpetrel.records.events import (
    COVERED,
    JOB_RECORD_KINDS,
    SEED_KINDS,
    WHOLE,
    bucket_ceil,
    bucket_floor,
    count_events,
    covered,
    no_counts,
)
from stormpetrel.records.job_events import job_events
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.simulate.grid.outages import OUTAGES, OutageFunction, PlannedOutage, inject, load_outage, plan_outages
from stormpetrel.sources.formats import EVENT_FORMATS, ReadOptions, event_file, sniff_format
from stormpetrel.sources.outages.files import incident_file
from stormpetrel.sources.reading import read_log

SIMULATED: Final = "simulated"
SIMULATED_HOURS: Final = 4368  # half a year, as the published study had
OUTAGES_PER_WEEK: Final = 1.5
TRAIN_SHARE: Final = 0.50  # of a series with outages in all parts; the calm part ends at CALM_UNTIL, the rest is judged
CALM_UNTIL: Final = 0.65
INJECTED_TRAIN_SHARE: Final = 0.35  # of a recorded series: the last 30 % of its first half are for the threshold
INJECTED_CALM_UNTIL: Final = 0.50
LEAST_WEEKS: Final = 8  # a shorter series holds neither a rhythm to learn nor outages enough to be judged by
Mask = npt.NDArray[np.bool_]
_OTHER_PLAN: Final = 1_000_003  # outages to learn from come of other seeds than outages to be judged by


def simulated_dataset(seed: int, *, hours: int = SIMULATED_HOURS, plug_ins: Sequence[str] = ()) -> Dataset:
    """A simulated grid with outages in all parts; for models without labels, they are there but not labelled."""
    _long_enough(hours * HOUR_S)
    grid = simulate_grid(GridSpec(hours=hours, seed=seed, outages_per_week=OUTAGES_PER_WEEK))
    series, plan = grid.series, grid.plan
    if plug_ins:  # the same grid with other outages; what they do to queue and slots in the background, nobody knows
        announced = grid.calm.label == MAINTENANCE
        series, plan = _with_outages(grid.calm, seed, outage_functions(plug_ins), avoid=announced)
    return _in_three(SIMULATED, seed, series, _as_test_outages(plan))


def injected_dataset(name: str, series: EventSeries, seed: int, *, plug_ins: Sequence[str] = ()) -> Dataset:
    """Recorded counts: as they are in the first half, with outages injected into the second, of which every seed has others.

    Models that learn from labels get the same training span with outages of other seeds injected and labelled. What went wrong
    while the counts were recorded is labelled nowhere: alarms about it count as false.
    """
    _long_enough(len(series) * series.bucket_s)
    outages = outage_functions(plug_ins)
    cut, half = round(len(series) * INJECTED_TRAIN_SHARE), round(len(series) * INJECTED_CALM_UNTIL)
    recorded = series.with_labels(np.full(len(series), NORMAL))
    early, late = recorded.take(0, cut), recorded.take(half, len(series))
    train, _ = _with_outages(early, seed + _OTHER_PLAN, outages, avoid=early.is_gap)  # nobody would see them in a gap
    test, plan = _with_outages(late, seed, outages, avoid=late.is_gap)
    return Dataset(
        name=name,
        seed=seed,
        train=train,
        train_unlabelled=early.unlabelled(),
        calm=recorded.take(cut, half),
        test=test,
        outages=tuple(_as_test_outages(plan)),
    )


def labelled_dataset(name: str, series: EventSeries, seed: int) -> Dataset:
    """Recorded counts with the outages that somebody has labelled; the seed is that of the models."""
    _long_enough(len(series) * series.bucket_s)
    label = np.where(series.label == UNLABELLED, NORMAL, series.label)
    dataset = _in_three(name, seed, series.with_labels(label), outages_in(series))
    if not dataset.outages:
        raise UsageError(
            f"No labelled outage of {name} lies in the last {100 * (1 - CALM_UNTIL):.0f} % of the time.",
            hint="Label later outages, or leave out --outages: some are then injected.",
        )
    return dataset


def outage_functions(plug_ins: Sequence[str]) -> Mapping[str, OutageFunction]:
    """Our outages and those of others (MODULE:FUNCTION), by name."""
    return {**OUTAGES, **{name: load_outage(name) for name in plug_ins}}


def _with_outages(
    series: EventSeries, seed: int, outages: Mapping[str, OutageFunction], *, avoid: Mask
) -> tuple[EventSeries, list[PlannedOutage]]:
    plan = plan_outages(len(series), per_week=OUTAGES_PER_WEEK, seed=seed, types=tuple(outages), avoid=avoid)
    return inject(series, plan, outages), plan


def _as_test_outages(plan: Sequence[PlannedOutage]) -> list[TestOutage]:
    return [TestOutage(outage.first, outage.last - 1, outage.outage_type, outage.severity) for outage in plan]


def _in_three(name: str, seed: int, series: EventSeries, outages: Sequence[TestOutage]) -> Dataset:
    """Cut a labelled series; a cut that would fall into an outage or its aftermath is moved behind it."""
    cut, half = (_behind_outage(series, round(len(series) * share)) for share in (TRAIN_SHARE, CALM_UNTIL))
    train = series.take(0, cut)
    later = (outage for outage in outages if outage.first >= half)
    return Dataset(
        name=name,
        seed=seed,
        train=train,
        train_unlabelled=train.unlabelled(),
        calm=series.take(cut, half),
        test=series.take(half, len(series)),
        outages=tuple(
            TestOutage(outage.first - half, outage.last - half, outage.outage_type, outage.severity) for outage in later
        ),
    )


def _behind_outage(series: EventSeries, place: int) -> int:
    """The first place from this one on that lies neither inside an outage nor in its aftermath."""
    reach = round(AFTERMATH_HOURS * HOUR_S / series.bucket_s)
    while place < len(series) and (series.label[max(0, place - max(1, reach)) : place] == ANOMALY).any():
        place += 1
    return place


def _long_enough(seconds: int) -> None:
    if seconds < LEAST_WEEKS * WEEK_S:
        raise UsageError(
            f"{seconds / WEEK_S:.1f} weeks are too few to judge models by.", hint=f"Use a series of {LEAST_WEEKS} weeks or more."
        )


FAST_FAILURE_S: Final = 60.0
_HIDDEN: Final = "."


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """The counts of a file, under its name up to the first dot, and what a person should know about how it was read."""

    name: str
    series: EventSeries
    notes: tuple[str, ...] = ()
    has_labels: bool = False


def recordings_in(paths: Sequence[Path]) -> list[Path]:
    """The files that are meant: those named, and those in the folders named."""
    files = []
    for path in paths:
        if path.is_dir():
            files += sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith(_HIDDEN))
        elif path.is_file():
            files.append(path)
        else:
            raise UsageError(f"There is no file {path}.", hint="Name a job log, a table of counts, or a folder of them.")
    if not files:
        raise UsageError(f"There is no file in {', '.join(map(str, paths))}.", hint="Name a folder of job logs.")
    return files


def read_recording(
    path: Path, format_name: str | None = None, *, zone: str = "UTC", bucket_s: int = HOUR_S, outages: Path | None = None
) -> Recording:
    """The counts of a file: of the jobs in it where it is a job log, else of the events or counts that it holds.

    `zone` is that of times that have none, and of the people who worked there. `outages` (CSV or iCalendar) become labels.
    """
    if format_name in EVENT_FORMATS or (format_name is None and not _is_job_log(path)):
        series, notes = _of_events(path, format_name, zone, bucket_s)
    else:
        series, notes = _of_jobs(path, format_name, zone, bucket_s)
    if outages:
        source = incident_file(outages, zone=zone, now=datetime.now(UTC))
        last = series.moment(len(series) - 1) + timedelta(seconds=bucket_s)
        series = labelled(series, source.outages(series.moment(0), last))
        notes = [*notes, *source.notes]
    return Recording(path.name.split(".")[0] or path.name, series, tuple(notes), has_labels=outages is not None)


def labelled(series: EventSeries, outages: Sequence[Outage]) -> EventSeries:
    """The series with these spans as labels; what overlaps an outage is an outage, and all else is normal."""
    label = np.full(len(series), NORMAL, dtype=np.int8)
    for kind, value in ((OutageKind.MAINTENANCE, MAINTENANCE), (OutageKind.OUTAGE, ANOMALY)):
        for span in (outage for outage in outages if outage.kind == kind):
            end_s = span.end.timestamp() if span.end else np.inf
            label[(series.start_s < end_s) & (series.start_s + series.bucket_s > span.start.timestamp())] = value
    return series.with_labels(label)


def series_of_counts(counts: pl.DataFrame, kinds: Sequence[str], *, bucket_s: int, zone: str) -> EventSeries:
    """A frame of counts with its marks as a series; a bucket without a mark is a gap."""
    whole = counts.filter(pl.col("place") == WHOLE, pl.col("bucket_s") == bucket_s)
    seen = whole.filter(pl.col("kind") == COVERED)["bucket_start"]
    if seen.is_empty():
        raise SourceFormatError("No bucket of time was seen as a whole.", hint="Use a longer recording, or smaller buckets.")
    marked_s = seen.dt.epoch("s").to_numpy()
    first, last = int(marked_s.min()), int(marked_s.max())
    start_s = np.arange(first, last + bucket_s, bucket_s, dtype=np.int64)
    table = np.full((len(start_s), len(kinds)), np.nan)  # (buckets, kinds)
    table[(marked_s - first) // bucket_s] = 0.0
    at = pl.col("bucket_start").dt.epoch("s").alias("at")
    sums = whole.group_by(at, "kind").agg(pl.col("count").sum()).filter(pl.col("at").is_between(first, last))
    for place, kind in enumerate(kinds):
        rows = sums.filter(pl.col("kind") == kind)
        table[(rows["at"].to_numpy() - first) // bucket_s, place] += rows["count"].to_numpy()  # a gap stays NaN
    return EventSeries(start_s, bucket_s, tuple(kinds), table, np.full(len(start_s), UNLABELLED, dtype=np.int8), zone=zone)


def _of_jobs(path: Path, format_name: str | None, zone: str, bucket_s: int) -> tuple[EventSeries, list[str]]:
    """From the first to the last submission: before and after it the log holds only a part of what happened."""
    log = read_log([str(path)], format_name, ReadOptions(time_zone=zone))
    jobs = log.jobs
    events = job_events(jobs, fast_failure_s=FAST_FAILURE_S)
    start, end = _moment(jobs["submit_time"].min()), _moment(jobs["submit_time"].max())
    begin, stop = bucket_ceil(start, bucket_s), bucket_floor(end, bucket_s)
    if stop - begin < timedelta(seconds=bucket_s):
        raise SourceFormatError(f"{path} spans less than a bucket of time.", hint="Use a longer log.")
    events = events.filter(pl.col("time").is_between(begin, stop, closed="left"))
    counts = count_events(events, source=f"jobs:{path.name}", bucket_s=bucket_s, most_places=1)
    coverage = covered(f"jobs:{path.name}", begin, stop, bucket_s)
    seen = set(counts["kind"].unique())
    kinds = [str(kind) for kind in JOB_RECORD_KINDS if str(kind) in seen]
    notes = [*log.notes, *(f"{count:,} records were refused: {rule}" for rule, count in log.refused.items())]
    return series_of_counts(pl.concat([counts, coverage]), kinds, bucket_s=bucket_s, zone=zone), notes


def _of_events(path: Path, format_name: str | None, zone: str, bucket_s: int) -> tuple[EventSeries, list[str]]:
    settings = settings_from({"site": {"time_zone": zone}, "events": {"bucket_minutes": bucket_s // 60}})
    source = event_file(path, format_name, settings)
    spans = list(source.spans(lambda _name: None, datetime.now(UTC)))
    counts = pl.concat([no_counts(), *(span.counts for span in spans)])
    seen = set(counts["kind"].unique()) - {COVERED}
    named = [str(kind) for kind in dict.fromkeys((*SEED_KINDS, *JOB_RECORD_KINDS)) if str(kind) in seen]
    aside = sum((Counter(span.quarantined) for span in spans), Counter[str]())
    notes = [*source.notes, *(f"{count:,} rows or events were not counted: {reason}" for reason, count in aside.items())]
    return series_of_counts(counts, [*named, *sorted(seen - set(named))], bucket_s=bucket_s, zone=zone), notes


def _is_job_log(path: Path) -> bool:
    """An HTCondor event log tells of jobs too, but its events are what is counted."""
    try:
        return sniff_format(str(path)) not in EVENT_FORMATS
    except SourceFormatError:
        return False


def _moment(value: object) -> datetime:
    assert isinstance(value, datetime)
    return value


SEEDS: Final = 10
TWO_PROCESSES: Final = Engine(2)


@dataclass(frozen=True, slots=True, eq=False)
class Recipe:
    """How to make a data set from a seed; a simulated one has no series."""

    name: str = SIMULATED
    series: EventSeries | None = None
    has_labels: bool = False  # outages that somebody labelled, in place of injected ones
    hours: int = SIMULATED_HOURS  # of a simulated one
    plug_ins: tuple[str, ...] = ()  # outages of others, MODULE:FUNCTION

    def dataset(self, seed: int) -> Dataset:
        """The data set of one seed."""
        if self.series is None:
            return simulated_dataset(seed, hours=self.hours, plug_ins=self.plug_ins)
        if self.has_labels:
            return labelled_dataset(self.name, self.series, seed)
        return injected_dataset(self.name, self.series, seed, plug_ins=self.plug_ins)


@dataclass(frozen=True, slots=True, eq=False)
class StudyPlan:
    """What to judge, on what, and how often."""

    recipes: tuple[Recipe, ...]
    seeds: tuple[int, ...] = tuple(range(SEEDS))
    models: tuple[str, ...] = ()  # all of them if none is named
    per_week: float = PER_WEEK
    engine: Engine = TWO_PROCESSES
    keep: Path | None = None  # folder for the runs of each data set and seed: those that are there are not made again


def run_study(plan: StudyPlan, *, progress: Progress = no_progress) -> Iterator[list[Run]]:
    """The runs of one data set and seed after the other, in the order of the plan.

    What cannot work (an unknown model, a plug-in that is not there, a series that is too short) is reported before it begins.
    """
    contestants(plan.models)
    if not plan.seeds:
        raise UsageError("No seed was named.", hint="Ask for one or more: --seeds 3")
    for recipe in plan.recipes:
        outage_functions(recipe.plug_ins)
    tasks = [(recipe, seed) for seed in plan.seeds for recipe in plan.recipes]
    judge = _Judge(plan.models, plan.per_week)
    codec: JsonCodec[list[Run]] = JsonCodec(list[Run])
    kept: KeptResults[list[Run]] | None = None if plan.keep is None else KeptResults(plan.keep, _run_of(plan), codec)
    yield from plan.engine.map(judge, tasks, name=lambda task: f"{task[0].name}, seed {task[1]}", progress=progress, kept=kept)


def _run_of(plan: StudyPlan) -> dict[str, Any]:
    """All that the runs of a plan depend on besides data set and seed; other data under the same name are another run."""
    data = [(recipe.name, recipe.hours, recipe.has_labels, recipe.plug_ins, _digest(recipe.series)) for recipe in plan.recipes]
    return {"study": "events", "version": __version__, "models": plan.models, "per_week": plan.per_week, "data": data}


def _digest(series: EventSeries | None) -> str:
    if series is None:
        return ""
    arrays = (series.start_s, series.counts, series.label, series.background)
    names = repr((series.bucket_s, series.kinds, series.background_names, series.zone))
    return hashlib.sha256(names.encode() + b"".join(array.tobytes() for array in arrays)).hexdigest()


@dataclass(frozen=True, slots=True)
class _Judge:
    """All models on one data set with one seed."""

    models: tuple[str, ...]
    per_week: float

    def __call__(self, task: tuple[Recipe, int], _progress: Progress) -> list[Run]:
        recipe, seed = task
        by_name = judge_contestants(recipe.dataset(seed), contestants(self.models), per_week=self.per_week)
        return [Run.of(recipe.name, seed, name, judged) for name, judged in by_name.items()]
