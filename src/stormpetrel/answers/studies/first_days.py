"""How good the first days' forecasts of a new site would have been: the prior on logs that it has not seen.

JobInput of each log -> evaluate_first_days -> FirstDaysEvaluation. Of several logs each is left out in turn, and the prior is
learnt from the others; one log alone is judged by the prior that comes with the package, unless that has learnt from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.job_evaluation import FirstDaysEvaluation, FirstDaysOfLog
from stormpetrel.engine import ONE_PROCESS, Engine, Progress
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.first_days import FEWEST_FAILURES, FirstDays, first_days
from stormpetrel.jobs.prior.learning import fit_prior
from stormpetrel.jobs.prior.shipped import PRIOR_VERSION, learnt_from, prior_of
from stormpetrel.jobs.prior.young_sites import PriorLog, PriorRows, sample_young_sites
from stormpetrel.records.predictions import version_text

if TYPE_CHECKING:
    from stormpetrel.answers.studies.job_evaluation import JobInput
    from stormpetrel.jobs.model import JobOutcomeModel


def evaluate_first_days(
    inputs: Mapping[str, JobInput],
    *,
    starts: int,
    seed: int = 0,
    progress: Callable[[str], None] = lambda _: None,
    engine: Engine = ONE_PROCESS,
) -> FirstDaysEvaluation:
    """Judge the first days of each log (by name) that has enough failures; UsageError where the prior knows the only log.

    Each log is an item of the engine, when it is sampled to be learnt from and when it is judged.
    """
    logs = {name: _log_of(name, data) for name, data in inputs.items()}
    judged = {name: log for name, log in logs.items() if int((log.failed & log.usable).sum()) >= FEWEST_FAILURES}
    if not judged:
        raise NotEnoughJobsError(
            f"None of these logs has {FEWEST_FAILURES} failures.",
            hint="Use longer logs, or say with --failed which states count as a failure.",
        )
    rows: dict[str, PriorRows] | None = None
    if len(logs) > 1:
        sampled = engine.map(_Sample(seed), logs.values(), name=_of_name, progress=lambda _share, text: progress(text))
        rows = dict(zip(logs, sampled, strict=True))
    judge = _Judge(rows, starts, seed, similar_names=any(data.section.similar_names for data in inputs.values()))
    lines = list(engine.map(judge, judged.values(), name=_of_name, progress=lambda _share, text: progress(text)))
    notes = [f"{name} has fewer than {FEWEST_FAILURES} failures: it is only learnt from." for name in logs if name not in judged]
    return FirstDaysEvaluation(
        logs=[FirstDaysOfLog(**asdict(line)) for line in lines],
        prior="learnt from the other logs" if len(logs) > 1 else version_text(PRIOR_VERSION),
        notes=[*notes, *(note for data in inputs.values() for note in data.notes)],
    )


def _log_of(name: str, data: JobInput) -> PriorLog:
    section = data.section
    return PriorLog.of(name, data.jobs, section.failure_states, section.dropped_states, data.time_zone)


def _of_name(log: PriorLog) -> str:
    return log.name


@dataclass(frozen=True, slots=True)
class _Sample:
    """Young sites out of a log, to learn a prior from."""

    seed: int

    def __call__(self, log: PriorLog, progress: Progress) -> PriorRows:
        progress(0.0, "young sites")
        return sample_young_sites(log, moments=(Moment.SUBMIT,), seed=self.seed)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Judges the first days of a log, by a prior of the others, or by the one that comes with the package."""

    rows: Mapping[str, PriorRows] | None
    starts: int
    seed: int
    similar_names: bool  # the prior is learnt without

    def __call__(self, log: PriorLog, progress: Progress) -> FirstDays:
        progress(0.0, "a prior of the others")
        prior = _shipped(log) if self.rows is None else self._of_others(self.rows, log)
        tell: Callable[[str], None] = lambda text: progress(0.5, text.removeprefix(f"{log.name}: "))  # noqa: E731
        return first_days(log, prior, starts=self.starts, seed=self.seed, similar_names=self.similar_names, progress=tell)

    def _of_others(self, rows: Mapping[str, PriorRows], log: PriorLog) -> JobOutcomeModel:
        return fit_prior([part for name, part in rows.items() if name != log.name], Moment.SUBMIT, seed=self.seed)


def _shipped(log: PriorLog) -> JobOutcomeModel:
    prior = prior_of(Moment.SUBMIT)
    if log.fingerprint in learnt_from(prior).values():
        raise UsageError(
            f"The prior that comes with the package has learnt from {log.name}: it cannot be judged on it.",
            hint="Name other logs as well: the prior is then learnt from those.",
        )
    return prior
