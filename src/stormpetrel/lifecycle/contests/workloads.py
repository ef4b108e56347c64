"""The nightly contest of the generator: which fit makes jobs most like the latest ones, which none of them has seen.

Site -> contest_workloads -> FamilyNight. Champion and challengers (the last day, the last week, everything) each make as many
jobs as came since, several times; the distance of a copy is the mean Kolmogorov-Smirnov distance of its columns. Better is
who is nearer in every copy; no column may be further off in every copy. The winner is fitted again on everything up to now. A
site without a generator gets none by itself, and a private one is never fitted again by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.lifecycle.contests.decision import FamilyNight, night_engine, span_name, spans_of
from stormpetrel.lifecycle.family import operator
from stormpetrel.lifecycle.workload_models import FAMILY, MOST_SCORED, SYNTH, fit_site_generator, site_workload
from stormpetrel.store.registry.models import Training
from stormpetrel.store.site import Site
from stormpetrel.synth.choose import new_generator
from stormpetrel.synth.contract import Wanted, WorkloadGenerator, sample
from stormpetrel.synth.score.fidelity import fidelity
from stormpetrel.synth.workload import Workload

NIGHTLY: Final = "nightly"  # what stands in the audit trail
FEWEST_JOBS: Final = 300  # since the champion's fit, to be judged by
COPIES: Final = 5
_PRIVATE: Final = "private"


@dataclass(frozen=True, slots=True, eq=False)
class Distances:
    """How far copies are from the jobs that really came: (copy, column)."""

    columns: tuple[str, ...]
    distance: NDArray[np.float64]

    def figures(self) -> dict[str, Any]:
        """As the registry and JSON keep them."""
        means = self.distance.mean(axis=0)
        return {"ks": float(self.distance.mean()), "columns": dict(zip(self.columns, map(float, means), strict=True))}

    def of_columns(self, names: tuple[str, ...]) -> Distances:
        """Those of some columns."""
        return Distances(names, self.distance[:, [self.columns.index(name) for name in names]])

    def is_nearer(self, other: Distances) -> bool:
        """Whether every copy is nearer than its counterpart."""
        return bool((self.distance.mean(axis=1) < other.distance.mean(axis=1)).all())

    def further_columns(self, other: Distances) -> list[str]:
        """The columns in which every copy is further off than its counterpart."""
        further = np.all(self.distance > other.distance, axis=0).tolist()
        return [name for name, is_further in zip(self.columns, further, strict=True) if is_further]


def contest_workloads(
    site: Site, *, now: datetime, user: str | None = None, progress: Progress = no_progress
) -> FamilyNight | None:
    """Fit challengers on the jobs before the latest, and put one in use that copies them better; None without a generator."""
    current = site.models.current_training(FAMILY)
    if current is None:
        return None
    if SYNTH.sort_of(current) == _PRIVATE:
        why = "a private generator is not fitted again by itself: each fit tells a little more about the same people"
        return FamilyNight(FAMILY, False, why, previous=current.name)
    work = _Contest(site, user or operator(), progress)
    try:
        problem = SYNTH.format_problem(site, current)
        if problem is not None:
            return FamilyNight(FAMILY, False, f"not fitted: {problem.what}", previous=current.name)
        return work.run(current, now)
    except (ModelError, NotEnoughJobsError) as error:
        return FamilyNight(FAMILY, False, f"not fitted: {error.what}", previous=current.name)


@dataclass(frozen=True, slots=True)
class _Contest:
    site: Site
    user: str
    progress: Progress

    def run(self, current: Training, now: datetime) -> FamilyNight:
        """Enough new jobs? → challengers → copies beside those of the champion → fitted on everything, or left at that."""
        everything = site_workload(self.site, until=now)
        submit_s = everything.submit_s()
        new = int((submit_s > current.trained_until.timestamp()).sum())
        if new < FEWEST_JOBS:
            why = f"not fitted: {new:,} jobs have come and ended since its fit; {FEWEST_JOBS} are needed to judge by"
            return FamilyNight(FAMILY, False, why, previous=current.name)
        first = everything.height - min(new, MOST_SCORED)
        judged, cut = everything.between(first), datetime.fromtimestamp(float(np.sort(submit_s)[first]), UTC)
        champion = SYNTH.read(self.site, current)
        sort, own = champion.name, _distances(champion.generator, judged)
        spans: dict[int, float] = {}  # first job -> days
        for days, since in spans_of(self.site.settings.nightly.learn_days, cut):
            begin = 0 if since is None else int((submit_s < since.timestamp()).sum())
            if begin not in spans and first - begin >= FEWEST_JOBS:
                spans[begin] = days
        fit = _Challenge(sort, everything, first, judged)
        engine = night_engine(self.site)
        results = engine.map(fit, spans, name=lambda begin: f"{sort}, {span_name(spans[begin])}", progress=self.progress)
        entrants = list(zip(spans.values(), results, strict=True))
        if not entrants:
            return FamilyNight(FAMILY, False, "not fitted: too few jobs before the latest to learn from", previous=current.name)
        shared = tuple(name for name in own.columns if all(name in result.columns for _, result in entrants))
        entrants = [(days, result.of_columns(shared)) for days, result in entrants]
        return self._decide(current, sort, own.of_columns(shared), entrants, judged.height)

    def _decide(
        self, current: Training, sort: str, own: Distances, entrants: list[tuple[float, Distances]], jobs: int
    ) -> FamilyNight:
        figures = tuple(
            {"name": f"{sort}, {span_name(days)}", **result.figures(), "champion": own.figures()} for days, result in entrants
        )
        best = min(range(len(entrants)), key=lambda number: entrants[number][1].distance.mean())
        days, result = entrants[best]
        further = result.further_columns(own)
        reason = None if result.is_nearer(own) else "not nearer in every copy"
        if reason is None and further:
            reason = f"nearer on the whole, further off in {', '.join(further[:3])}"
        figures_text = f"mean distance of {COPIES} copies of the latest {jobs:,} jobs {result.distance.mean():.3f}"
        why = f"{figures[best]['name']}: {reason or 'better'}: {figures_text} against {own.distance.mean():.3f}"
        if reason is not None:
            return FamilyNight(FAMILY, False, why, previous=current.name, challengers=figures)
        if self.site.models.current_training(FAMILY) != current:  # somebody decided while we fitted
            return FamilyNight(FAMILY, False, f"{why}; but another was put in use meanwhile", None, current.name, figures)
        about = {"comparison": {**figures[best], "with": current.name}}
        new = fit_site_generator(
            self.site, sort, learn_days=days, why=why, user=self.user, action=NIGHTLY, about=about, progress=self.progress
        )
        return FamilyNight(FAMILY, True, why, new.name, current.name, figures)


@dataclass(frozen=True, slots=True, eq=False)
class _Challenge:
    """Fits a challenger on the jobs of a span before the judged ones, and tells how far its copies are from those."""

    sort: str
    everything: Workload
    first: int  # of the judged jobs
    judged: Workload

    def __call__(self, begin: int, progress: Progress) -> Distances:
        generator = new_generator(self.sort, seed=0)
        generator.fit(self.everything.between(begin, self.first), progress=progress)
        return _distances(generator, self.judged)


def _distances(generator: WorkloadGenerator, judged: Workload) -> Distances:
    rows, names = [], None
    for seed in range(COPIES):
        copy = sample(generator, Wanted(jobs=judged.height, start=judged.start(), seed=seed))
        columns = {name: figures["ks"] for name, figures in fidelity(judged, copy).as_dict()["columns"].items()}
        known = {name: value for name, value in columns.items() if isinstance(value, float)}
        names = tuple(known) if names is None else tuple(name for name in names if name in known)
        rows.append(known)
    if not names:
        raise ModelError("No column of the copies can be compared with the jobs that came.")
    return Distances(names, np.array([[row[name] for name in names] for row in rows]))
