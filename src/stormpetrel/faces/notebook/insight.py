"""Step 5: one job, understood: its risk at each moment, why, and what to ask for instead.

LatestModel + jobs + job id -> look_into -> JobInsight, which shows itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.jobs.judged_selection import SelectedJob, explain_selected
from stormpetrel.answers.schemas.predictions import Advice, Verdict
from stormpetrel.faces.notebook import markup
from stormpetrel.faces.notebook.loading import as_loaded
from stormpetrel.faces.notebook.markup import advice_html, advice_lines
from stormpetrel.faces.notebook.model import LatestModel
from stormpetrel.faces.notebook.predicting import Jobs, prediction_table
from stormpetrel.faces.notebook.preparing import PreparedJobs
from stormpetrel.faces.notebook.waterfall import figure_bundle, waterfall_html, waterfall_of
from stormpetrel.jobs.advice.text import job_facts
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prediction_text import percent, reason_text, verdict_text
from stormpetrel.records.jobs import JobRef, was_never_started

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SHOWN_REASONS: Final = 6
_MOMENT_LABELS: Final[dict[str, str]] = {
    Moment.SUBMIT: "at submission", Moment.START: "at its start", Moment.TWO_MINUTES: "two minutes in",
}  # fmt: skip


class JobInsight(SelectedJob):
    """One job: its row of the table, the verdict at each of its moments, and advice with its evidence."""

    __slots__ = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict at the latest moment."""
        return self.verdicts[-1]

    @property
    def profile(self) -> str | None:
        """The kind of job that this is, in words."""
        return self.verdict.profile

    @property
    def reasons(self) -> tuple[str, ...]:
        """The strongest reasons in words, strongest first, with their effect; ▲ raises the risk, ▽ lowers it."""
        strongest = self.verdict.reasons[:_SHOWN_REASONS]
        return tuple(f"{'▲' if reason.contribution > 0 else '▽'} {reason_text(reason)}" for reason in strongest)

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
        risks = [f"{_MOMENT_LABELS[verdict.moment]} {percent(verdict.risk)}" for verdict in self.verdicts]
        kind = f"It is one of the {self.profile}." if self.profile else ""
        lines = [self.summary(), f"Risk of failing: {', '.join(risks)}.", self._latest(), kind]
        return markup.page(markup.table(self.row), *(markup.sentence(text) for text in lines if text))

    def html_below(self) -> str:
        """What stands after the waterfall: advice with its evidence."""
        notes = "".join(markup.sentence(note) for note in self.notes)
        return markup.page(notes, advice_html(self.advice, self.next_request))

    def html_waterfall(self) -> str:
        """The waterfall without a figure."""
        return markup.page(markup.heading(_why(self.verdict)), waterfall_html(self.verdict))

    def html_reasons(self) -> str:
        """The reasons in whole sentences, for next to a figure that cuts them short."""
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
        when = _MOMENT_LABELS[self.verdict.moment]
        return f"{when[0].upper()}{when[1:]}: {verdict_text(self.verdict)}."

    def _advice_lines(self) -> list[str]:
        return advice_lines(self.advice, self.next_request)


def look_into(model: LatestModel, jobs: Jobs, job_id: str | int) -> JobInsight:
    """Everything about one job (`436277`, or `436277_4` for a task of an array).

    The risks are those of `predict`, from what was known at each moment; advice is as of now. The past is walked through once
    per moment, and once more to judge the advice: 28,000 jobs in it take a second, 280,000 ten, and 3 kB of memory each.
    """
    loaded = jobs.loaded if isinstance(jobs, PreparedJobs) else as_loaded(jobs)
    job = explain_selected(model, loaded, str(job_id))
    return JobInsight(
        row=prediction_table(model, job.row),
        job=job.job,
        verdicts=job.verdicts,
        next_request=job.next_request,
        advice=job.advice,
        notes=job.notes,
    )


def _why(verdict: Verdict) -> str:
    return f"Why {percent(verdict.risk)}, {_MOMENT_LABELS[verdict.moment]}"
