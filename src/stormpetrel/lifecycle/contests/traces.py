"""The nightly contest of trace models: champion and challengers on the same recent windows, which none of them has learnt from.

Site -> contest_traces -> FamilyNight. As published, the error on normal windows decides; a challenger also must not see fewer of
the faults of the bench, nor be worse on any job type or node with many windows. Challengers are networks of each architecture and
span; without torch only what needs none: the network in use with a new detector and a new threshold. What was judged is what is
put in use: the model is not trained again on the windows that it was judged by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel import __version__
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.lifecycle.contests.decision import (
    Difference,
    FamilyNight,
    difference_of,
    level_for,
    night_engine,
    one_thread,
    span_name,
    spans_of,
    worse_groups,
)
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.trace_learning import LearningWindows, learning_windows
from stormpetrel.lifecycle.trace_models import (
    FAMILY,
    TRACES,
    FittedTraces,
    TraceFit,
    TraceModel,
    enter_trace_model,
    fit_detector,
    learnt_about,
)
from stormpetrel.records.traces import MIXED_JOB
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site
from stormpetrel.traces.detector.detector import ARRAYS as DETECTOR
from stormpetrel.traces.detector.detector import TraceDetector
from stormpetrel.traces.exam.study import Seen, seen_faults
from stormpetrel.traces.networks.architecture import FORMAT_VERSION, KIND, Architecture, AutoencoderSettings

NIGHTLY: Final = "nightly"  # what stands in the audit trail
JUDGED_SHARE: Final = 0.2  # of the moments since the champion's training, the newest
FEWEST_MOMENTS: Final = 12  # to be judged on
FEWEST_NEW: Final = 40  # moments since the champion's training
_RESERVED: Final = ("kind", "format_version", "files", "digest")  # keys of a record that saving writes


@dataclass(frozen=True, slots=True, eq=False)
class Challenger:
    """A trained challenger, and what it is called."""

    name: str  # fast, 7 days
    fitted: FittedTraces


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """What one model did on the judged windows: its error on each calm one, and the faults that its detector saw."""

    errors: NDArray[np.float64]
    seen: Seen | None

    def figures(self) -> dict[str, Any]:
        """As the registry and JSON keep them."""
        return {"re_normal": float(self.errors.mean()), "recall": None if self.seen is None else self.seen.recall}


def contest_traces(
    site: Site, *, user: str | None = None, settings: AutoencoderSettings | None = None, progress: Progress = no_progress
) -> FamilyNight | None:
    """Train challengers on recent windows, and put one in use that is better; None where the site has no windows."""
    with site.state.sole("trace-training"):
        times = _moments(site)
        if not times.len():
            return None
        return _Contest(site, user or operator(), settings or AutoencoderSettings(), progress).run(times)


def _moments(site: Site) -> pl.Series:
    """The beginnings of all windows that a model may learn from, in order."""
    rows = site.cpu_windows.read().select("window_start").unique().collect()
    return rows["window_start"].sort()


@dataclass(frozen=True, slots=True)
class _Contest:
    site: Site
    user: str
    settings: AutoencoderSettings
    progress: Progress

    def run(self, times: pl.Series) -> FamilyNight:
        """Enough new windows? → challengers → judged beside the champion → put in use, or kept."""
        current = self.site.models.current_training(FAMILY)
        before = _name(current)
        problem = TRACES.format_problem(self.site, current) if current else None
        if problem is not None:  # of an earlier version that could not be trained again, or of a newer one
            return FamilyNight(FAMILY, False, f"not trained: {problem.what}", previous=before)
        new = times.filter(times > current.trained_until) if current else times
        if new.len() < FEWEST_NEW:
            why = f"not trained: {new.len()} new moments of windows since its training; {FEWEST_NEW} are needed to judge by"
            return FamilyNight(FAMILY, False, why, previous=before)
        cut = new[new.len() - max(FEWEST_MOMENTS, round(JUDGED_SHARE * new.len()))]
        assert isinstance(cut, datetime)
        try:
            with one_thread():
                return self._contest(current, before, cut)
        except ModelError as error:
            return FamilyNight(FAMILY, False, f"not trained: {error.what}", previous=before)

    def _contest(self, current: Training | None, before: str, cut: datetime) -> FamilyNight:
        champion = TRACES.load(self.site)
        later = learning_windows(self.site, since=cut)
        windows = join_windows([later.train, later.validation])
        calm = ~windows.is_anomalous() & (windows.job != MIXED_JOB)
        windows = windows.take(calm)
        challengers = list(self._challengers(champion, cut))
        if not challengers:
            why = (
                "not trained: no network can be trained without torch (pip install 'stormpetrel[traces]'), and a site without a "
            )
            return FamilyNight(FAMILY, False, why + "model of its own has nothing else to renew", previous=before)
        self.progress(0.9, "comparing")
        own = _judge(champion.scorer, champion.detector, windows)
        judged = [_judge(each.fitted.scorer, each.fitted.detector, windows) for each in challengers]
        return self._decide(current, own, challengers, judged, windows)

    def _challengers(self, champion: TraceModel, cut: datetime) -> Iterator[Challenger]:
        """A network of each architecture, span and seed; without torch the network in use with a new detector for each span."""
        wanted = self.site.settings.nightly
        entrants: list[_Entrant] = []
        for days, seen in self._spans(cut):
            if find_spec("torch") is None:
                if not champion.is_shipped:
                    fitted = renewed_model(self.site, champion, seen)
                    fitted.about.update({"learn_days": days, "learn_until": cut.isoformat()})
                    yield Challenger(f"detector, {span_name(days)}", fitted)
                continue
            numbers = [f", seed {seed}" if wanted.trace_ensemble > 1 else "" for seed in range(wanted.trace_ensemble)]
            entrants += [
                _Entrant(f"{architecture}, {span_name(days)}{number}", days, seen, architecture, seed)
                for architecture in self._architectures(champion)
                for seed, number in enumerate(numbers)
            ]
        metrics = self.site.node_metrics.read().collect()
        train = _Challenge(TraceFit(self.settings, self.site.settings.traces.alarm_share, metrics, "cpu"))
        trained = night_engine(self.site).map(train, entrants, name=attrgetter("name"), progress=self.progress)
        for entrant, fitted in zip(entrants, trained, strict=True):
            fitted.about.update({"learn_days": entrant.days, "learn_until": cut.isoformat()})
            yield Challenger(entrant.name, fitted)

    def _spans(self, cut: datetime) -> Iterator[tuple[float, LearningWindows]]:
        """The windows of each span that has enough of them; a span that reaches no further back than another is left out."""
        first: set[object] = set()
        for days, since in spans_of(self.site.settings.nightly.learn_days, cut):
            try:
                seen = learning_windows(self.site, since=since, until=cut)
            except ModelError:
                continue
            begins = (seen.about["data"]["train"]["first"], len(seen.train))
            if begins not in first:
                first.add(begins)
                yield days, seen

    def _architectures(self, champion: TraceModel) -> list[Architecture]:
        own = [] if champion.is_shipped else [champion.name.removeprefix(f"{FAMILY}-")]
        names = [*own, *self.site.settings.nightly.trace_models] or [self.site.settings.traces.model]
        return [Architecture(name) for name in dict.fromkeys(names)]

    def _decide(
        self, current: Training | None, own: Judged, challengers: list[Challenger], judged: list[Judged], windows: Windows
    ) -> FamilyNight:
        """The challenger with the lowest error on normal windows, if it is better beyond noise and worse nowhere."""
        before = _name(current)
        figures = tuple(
            {"name": each.name, **result.figures(), "champion": own.figures(), "windows": len(windows)}
            for each, result in zip(challengers, judged, strict=True)
        )
        best = int(np.argmin([result.errors.mean() for result in judged]))
        winner, result = challengers[best], judged[best]
        level = level_for(len(challengers))
        error = difference_of(result.errors - own.errors, _blocks(windows), level=level)
        recall = _recall_difference(own, result, level)
        on = f"on {len(windows):,} calm windows of the last {_hours(windows)}"
        figures_text = f"error {result.errors.mean():.4g} against {own.errors.mean():.4g}{_recall_text(own, result)}"
        reason = None if error.better else "not clearly better"
        if recall is not None and recall.worse:
            reason = "its detector sees fewer faults of the bench"
        if reason is None:
            names, large = self._worse(result.errors - own.errors, windows)
            if names:
                reason = (
                    f"better on the whole, worse on {', '.join(names[:3])} (of {large} job types and nodes with many windows)"
                )
        about = {"comparison": {**figures[best], "with": before, "difference": error.as_dict(), "level": level}}
        fitted = replace(winner.fitted, about={**winner.fitted.about, **about})
        with self.site.state.writer_lock():
            now_current = self.site.models.current_training(FAMILY)
            if reason is None and now_current is not None and now_current.name != before:  # somebody decided while we trained
                reason, before = f"better, but {now_current.name} was put in use meanwhile", now_current.name
            why = f"{winner.name}: {reason or 'better'} {on}: {figures_text}"
            put = self.user if reason is None else None
            entered = enter_trace_model(self.site, fitted, why=why, promoted_by=put, action=NIGHTLY)
        return FamilyNight(FAMILY, reason is None, why, entered.name, before, figures)

    def _worse(self, difference: NDArray[np.float64], windows: Windows) -> tuple[list[str], int]:
        blocks, fewest = _blocks(windows), self.site.settings.nightly.group_rows
        nodes = np.array(windows.nodes)[windows.node]
        types, of_types = worse_groups(difference, windows.job_types(), blocks, fewest=fewest)
        hosts, of_hosts = worse_groups(difference, nodes, blocks, fewest=fewest)
        return [*types, *hosts], of_types + of_hosts


@dataclass(frozen=True, slots=True, eq=False)
class _Entrant:
    """A network that is to be trained."""

    name: str
    days: float  # 0: everything
    seen: LearningWindows
    architecture: Architecture
    seed: int


@dataclass(frozen=True, slots=True, eq=False)
class _Challenge:
    """Trains an entrant."""

    fit: TraceFit

    def __call__(self, entrant: _Entrant, progress: Progress) -> FittedTraces:
        fit = replace(self.fit, settings=replace(self.fit.settings, seed=entrant.seed))
        return fit(entrant.seen, entrant.architecture, progress)


def _nothing_to_train() -> str:
    if find_spec("torch") is not None:
        return "there are too few windows before the newest ones to learn from"
    install = "pip install 'stormpetrel[traces]'"
    return f"without torch ({install}) only a detector can be renewed, and the site has no model of its own"


def _name(current: Training | None) -> str:
    return current.name if current else "the shipped encoder"


def renewed_model(site: Site, champion: TraceModel, seen: LearningWindows) -> FittedTraces:
    """The network in use with a detector and a threshold of other windows: what can be renewed without torch."""
    detector, no_detector = fit_detector(seen, champion.scorer)
    about = {**learnt_about(champion.scorer, seen, site.settings.traces.alarm_share), **seen.about, "code_version": __version__}
    about |= {"detector": None if detector is None else detector.metadata(), "no_detector": no_detector}
    about["network_of"] = champion.version
    source = site.models.verified_folder(champion.name, champion.version)
    architecture = Architecture(champion.name.removeprefix(f"{FAMILY}-"))
    return FittedTraces(champion.scorer, architecture, about, detector, partial(_save_with_detector, source, detector))


def _save_with_detector(source: Path, detector: TraceDetector | None, folder: Path) -> None:
    """Save the files of another model with another detector."""
    record, files = load_model_bytes(source, kind=KIND, format_version=FORMAT_VERSION)
    kept = {name: content for name, content in files.items() if name != DETECTOR}
    if detector is not None:
        kept[DETECTOR] = detector.content()
    metadata = {name: value for name, value in record.items() if name not in _RESERVED}
    save_model(folder, kind=KIND, format_version=FORMAT_VERSION, metadata=metadata, files=kept)


def _judge(scorer: Any, detector: TraceDetector | None, windows: Windows) -> Judged:
    errors = np.asarray(scorer.score(windows), dtype=np.float64)
    return Judged(errors, None if detector is None else seen_faults(detector, windows))


def _recall_difference(own: Judged, other: Judged, level: float) -> Difference | None:
    """How many more faults the challenger's detector misses; None where one of the two has no detector."""
    if own.seen is None or other.seen is None or own.seen.seen.shape != other.seen.seen.shape:
        return None
    missed = own.seen.seen.mean(axis=0) - other.seen.seen.mean(axis=0)  # (node windows,)
    return difference_of(missed, np.unique(own.seen.node, return_inverse=True)[1], level=level)


def _recall_text(own: Judged, other: Judged) -> str:
    recalls = [f"{judged.seen.recall:.0%}" if judged.seen else "none" for judged in (other, own)]
    return f", faults seen {recalls[0]} against {recalls[1]}"


def _blocks(windows: Windows) -> NDArray[np.int64]:
    """Windows of one node at one moment belong together."""
    return np.unique(np.stack([windows.node, windows.start_s.astype(np.int64)], axis=1), axis=0, return_inverse=True)[1].ravel()


def _hours(windows: Windows) -> str:
    last = float(windows.start_s.max()) + windows.window_s
    hours = (last - float(windows.start_s.min())) / 3600
    if hours < 2:
        return f"{60 * hours:.0f} minutes"
    return f"{hours:.0f} hours until {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M} UTC"
