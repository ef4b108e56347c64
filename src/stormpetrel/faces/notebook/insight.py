"""Step 5: one job, understood: its risk at each moment, why, and what to ask for instead.

LatestModel + jobs + job id -> look_into -> JobInsight, which shows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stormpetrel.answers.one_job import advice_answer, advice_for, notes_about, verdict_answer
from stormpetrel.answers.past_jobs_judged import KnownJobs, verdicts
from stormpetrel.answers.schemas.predictions import Advice, Verdict
from stormpetrel.answers.why import find_job
from stormpetrel.errors import NotThereError
from stormpetrel.faces.notebook import markup
from stormpetrel.faces.notebook.advice_markup import advice_html, advice_lines
from stormpetrel.faces.notebook.loading import LoadedJobs, as_loaded
from stormpetrel.faces.notebook.model import LatestModel
from stormpetrel.faces.notebook.predicting import Jobs, known_jobs, prediction_table
from stormpetrel.faces.notebook.preparing import PreparedJobs
from stormpetrel.faces.notebook.waterfall import figure_bundle, waterfall_html, waterfall_of
from stormpetrel.jobs.advice import RiskOf
from stormpetrel.jobs.advice_words import job_facts
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prediction_words import percent, reason_words, verdict_words
from stormpetrel.jobs.predictor import JobPredictor
from stormpetrel.records.job_ref import JobRef
from stormpetrel.records.jobs import was_never_started

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHOWN_REASONS: Final = 6
_MOMENT_WORDS: Final[dict[str, str]] = {
    Moment.SUBMIT: "at submission", Moment.START: "at its start", Moment.TWO_MINUTES: "two minutes in",
}  # fmt: skip


@dataclass(frozen=True, slots=True, repr=False)
class JobInsight:
    """One job: its row of the table, what was to be said at each of its moments, and advice with its evidence."""

    row: pl.DataFrame
    job: dict[str, Any]
    verdicts: tuple[Verdict, ...]
    next_request: Advice | None
    advice: tuple[Advice, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """What was to be said at the latest moment."""
        return self.verdicts[-1]

    @property
    def profile(self) -> str | None:
        """The kind of job that this is, in words."""
        return self.verdict.profile

    @property
    def reasons(self) -> tuple[str, ...]:
        """The strongest reasons in words, strongest first, with their effect; ▲ raises the risk, ▽ lowers it."""
        strongest = self.verdict.reasons[:_SHOWN_REASONS]
        return tuple(f"{'▲' if reason.contribution > 0 else '▽'} {reason_words(reason)}" for reason in strongest)

    @property
    def changes(self) -> tuple[Advice, ...]:
        """What to ask for next after a shortage, and every other advice."""
        return self.advice if self.next_request is None else (self.next_request, *self.advice)

    @property
    def figure(self) -> Figure:
        """The waterfall from the average job to this one."""
        return waterfall_of(self.verdict)

    def summary(self) -> str:
        """The job in a sentence: whose it is, how it went, what it used."""
        job = self.job
        name, user = job["job_name"] or "no name", job["user"] or "an unknown user"
        facts = job_facts(job, never_started=was_never_started(job))
        return f"Job {JobRef.of(job).job} ({name}) of {user}: {', '.join([str(job['state']), *facts])}."

    def html_above(self) -> str:
        """What stands before the waterfall."""
        risks = [f"{_MOMENT_WORDS[verdict.moment]} {percent(verdict.risk)}" for verdict in self.verdicts]
        kind = f"It is one of the {self.profile}." if self.profile else ""
        told = [self.summary(), f"Risk of failing: {', '.join(risks)}.", self._latest(), kind]
        return markup.page(markup.table(self.row), *(markup.sentence(text) for text in told if text))

    def html_below(self) -> str:
        """What stands after the waterfall: advice with its evidence."""
        notes = "".join(markup.sentence(note) for note in self.notes)
        return markup.page(notes, advice_html(self.advice, self.next_request))

    def html_waterfall(self) -> str:
        """The waterfall without a figure."""
        return markup.page(markup.heading(_why(self.verdict)), waterfall_html(self.verdict))

    def html_reasons(self) -> str:
        """The reasons in whole sentences, for beside a figure that cuts them short."""
        return markup.page(markup.heading(_why(self.verdict)), markup.bullets(self.reasons))

    def _repr_html_(self) -> str:
        return self.html_above() + self.html_waterfall() + self.html_below()

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        return {"text/html": self._repr_html_(), "text/plain": repr(self)}

    def _ipython_display_(self) -> None:
        """Three outputs in a notebook: only so can a figure that is drawn stand between words."""
        from IPython.display import publish_display_data

        show: Callable[[dict[str, Any]], object] = publish_display_data
        show({"text/html": self.html_above() + self.html_reasons(), "text/plain": repr(self)})
        show(figure_bundle(self.figure, self.html_waterfall(), "waterfall"))
        show({"text/html": self.html_below(), "text/plain": "\n".join(self._advice_lines())})

    def __repr__(self) -> str:
        return "\n".join([self.summary(), self._latest(), *self.reasons, *self._advice_lines(), *self.notes])

    def _latest(self) -> str:
        when = _MOMENT_WORDS[self.verdict.moment]
        return f"{when[0].upper()}{when[1:]}: {verdict_words(self.verdict)}."

    def _advice_lines(self) -> list[str]:
        return advice_lines(self.advice, self.next_request)


def look_into(model: LatestModel, jobs: Jobs, job_id: str | int) -> JobInsight:
    """Everything that is to be said about one job (`436277`, or `436277_4` for a task of an array).

    The risks are those of `predict`, from what was known at each moment; advice is as of now. The past is walked through once
    per moment, and once more to judge the advice: 28,000 jobs in it take a second, 280,000 ten, and 3 kB of memory each.
    """
    loaded = jobs.loaded if isinstance(jobs, PreparedJobs) else as_loaded(jobs)
    row = _find(loaded, str(job_id))
    job = row.row(0, named=True)
    known = known_jobs(model, loaded)
    told = [verdict_answer(one, most_reasons=None) for one in verdicts(model.predictor, known.only(JobRef.of(job)))]
    if not told:
        raise NotThereError(f"Nothing can be said about job {job_id}: it has not been submitted yet.", hint="Look again later.")
    verdict = told[-1]
    judged = row.with_columns(
        risk=pl.lit(verdict.risk),
        threshold=pl.lit(verdict.threshold),
        moment=pl.lit(str(verdict.moment)),
        known=pl.lit(verdict.known),
    )
    following, advice = _advice(model, known, row)
    return JobInsight(
        row=prediction_table(model, judged),
        job=job,
        verdicts=tuple(told),
        next_request=following,
        advice=advice,
        notes=tuple(_notes(model, job, verdict, str(job_id))),
    )


def _find(loaded: LoadedJobs, job_id: str) -> pl.DataFrame:
    try:
        return find_job(loaded.frame, job_id)
    except NotThereError:
        raise NotThereError(
            f"There is no job {job_id} among these {loaded.frame.height:,} jobs of {loaded.source}.",
            hint="Look at the table for the ids that there are, or load more days: load_jobs(…, last_days=30)",
        ) from None


def _advice(model: LatestModel, known: KnownJobs, row: pl.DataFrame) -> tuple[Advice | None, tuple[Advice, ...]]:
    """What to ask for next if the job ran out of something, and what else past jobs speak for; with the risk if submitted now."""
    risk_of = _risk_now(model, known)
    following, others = advice_for(row, known.jobs, now=known.as_of, risk_of=risk_of)
    if following is not None and following.column and following.proposed is not None and risk_of is not None:
        changed = row.with_columns(pl.lit(following.proposed).cast(row.schema[following.column]).alias(following.column))
        before, after = (float(risk) for risk in risk_of(pl.concat([row, changed])))
        following = replace(following, risk_before=before, risk_after=after)
    return None if following is None else advice_answer(following), tuple(map(advice_answer, others))


def _risk_now(model: LatestModel, known: KnownJobs) -> RiskOf | None:
    """What says the risk of requests if they were submitted now; None where there is no model of that moment."""
    taught = model.predictor
    if Moment.SUBMIT not in taught.models:
        return None
    predictor = JobPredictor({Moment.SUBMIT: taught.models[Moment.SUBMIT]}, taught.profiles, known.jobs, now=known.as_of)

    def risk_of(requests: pl.DataFrame) -> NDArray[np.float64]:
        return predictor.risk(requests.with_columns(submit_time=pl.lit(known.as_of)), Moment.SUBMIT, known.as_of)

    return risk_of


def _notes(model: LatestModel, job: dict[str, Any], verdict: Verdict, asked: str) -> Iterator[str]:
    yield from notes_about(job, known=verdict.known, named=asked)
    if model.trained_until and job["end_time"] is not None and job["end_time"] < model.trained_until:
        yield "The model has learnt from this very job, so its word about it proves nothing."


def _why(verdict: Verdict) -> str:
    return f"Why {percent(verdict.risk)}, {_MOMENT_WORDS[verdict.moment]}"
