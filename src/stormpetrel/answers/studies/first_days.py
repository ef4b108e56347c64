"""How good the first days' forecasts of a new site would have been: the prior on logs that it has not seen.

JobInput of each log -> evaluate_first_days -> FirstDaysEvaluation. Of several logs each is left out in turn, and the prior is
learnt from the others; one log alone is judged by the prior that comes with the package, unless that has learnt from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.job_evaluation import FirstDaysEvaluation, FirstDaysOfLog
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.first_days import FEWEST_FAILURES, first_days
from stormpetrel.jobs.prior.learning import fit_prior
from stormpetrel.jobs.prior.shipped import PRIOR_VERSION, learnt_from, prior_of
from stormpetrel.jobs.prior.young_sites import PriorLog, sample_young_sites
from stormpetrel.records.predictions import version_text

if TYPE_CHECKING:
    from stormpetrel.answers.studies.job_evaluation import JobInput
    from stormpetrel.jobs.model import JobOutcomeModel


def evaluate_first_days(
    inputs: Mapping[str, JobInput], *, starts: int, seed: int = 0, progress: Callable[[str], None] = lambda _: None
) -> FirstDaysEvaluation:
    """Judge the first days of each log (by name) that has enough failures; UsageError where the prior knows the only log."""
    logs = {name: _log_of(name, data) for name, data in inputs.items()}
    judged = {name: log for name, log in logs.items() if int((log.failed & log.usable).sum()) >= FEWEST_FAILURES}
    if not judged:
        raise NotEnoughJobsError(
            f"None of these logs has {FEWEST_FAILURES} failures.",
            hint="Use longer logs, or say with --failed which states count as a failure.",
        )
    prior_for = _prior_of_others(logs, seed, progress) if len(logs) > 1 else _shipped
    lines = [first_days(log, prior_for(log), starts=starts, seed=seed, progress=progress) for log in judged.values()]
    notes = [f"{name} has fewer than {FEWEST_FAILURES} failures: it is only learnt from." for name in logs if name not in judged]
    return FirstDaysEvaluation(
        logs=[FirstDaysOfLog(**asdict(line)) for line in lines],
        prior="learnt from the other logs" if len(logs) > 1 else version_text(PRIOR_VERSION),
        notes=[*notes, *(note for data in inputs.values() for note in data.notes)],
    )


def _log_of(name: str, data: JobInput) -> PriorLog:
    section = data.section
    return PriorLog.of(name, data.jobs, section.failure_states, section.dropped_states, data.time_zone)


def _prior_of_others(
    logs: Mapping[str, PriorLog], seed: int, progress: Callable[[str], None]
) -> Callable[[PriorLog], JobOutcomeModel]:
    rows = {}
    for name, log in logs.items():
        progress(f"{name}: young sites")
        rows[name] = sample_young_sites(log, moments=(Moment.SUBMIT,), seed=seed)

    def prior_for(log: PriorLog) -> JobOutcomeModel:
        progress(f"{log.name}: a prior of the others")
        return fit_prior([part for name, part in rows.items() if name != log.name], Moment.SUBMIT, seed=seed)

    return prior_for


def _shipped(log: PriorLog) -> JobOutcomeModel:
    prior = prior_of(Moment.SUBMIT)
    if log.fingerprint in learnt_from(prior).values():
        raise UsageError(
            f"The prior that comes with the package has learnt from {log.name}: it cannot be judged on it.",
            hint="Name other logs as well: the prior is then learnt from those.",
        )
    return prior
