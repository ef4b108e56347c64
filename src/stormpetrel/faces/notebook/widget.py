"""The early-warning widget: the five steps below each other, each a button.

site -> EarlyWarning -> ipywidgets of the core set only, so that JupyterLab and VS Code show it alike.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import polars as pl
from plotly.graph_objects import FigureWidget

from stormpetrel.answers.jobs.selection import Progress, SiteLike
from stormpetrel.errors import MissingExtraError, UsageError
from stormpetrel.faces.notebook import markup
from stormpetrel.faces.notebook.insight import JobInsight, look_into
from stormpetrel.faces.notebook.loading import LoadedJobs, load_jobs
from stormpetrel.faces.notebook.model import LatestModel, latest_model
from stormpetrel.faces.notebook.paged_table import PagedTable
from stormpetrel.faces.notebook.predicting import predict
from stormpetrel.faces.notebook.preparing import PreparedJobs, prepare_jobs

_SPANS: Final = {"last day": 1.0, "last 7 days": 7.0, "last 30 days": 30.0, "everything": None}
_SHOWN_JOBS: Final = 5
_MEASURED: Final = "How good its predictions have been, on jobs that have ended since."
_INSTALL: Final = ("The notebook", "notebook")


class Step:
    """One numbered step: its button, its progress bar, its message, and room for what it shows."""

    def __init__(self, number: int, title: str, button: str, icon: str, *, extras: tuple[Any, ...] = ()) -> None:
        import ipywidgets

        self.title = ipywidgets.HTML(markup.page(f"<strong>Step {number}: {markup.escaped(title)}</strong>"))
        self.button = ipywidgets.Button(description=button, icon=icon, button_style="primary", layout={"width": "190px"})
        self.progress = ipywidgets.IntProgress(0, 0, 100, layout={"width": "160px", "visibility": "hidden"})
        self.message = ipywidgets.HTML()
        self.shown = ipywidgets.VBox()
        row = ipywidgets.HBox([self.button, *extras, self.progress], layout={"flex_flow": "row wrap", "align_items": "center"})
        self.box: Any = ipywidgets.VBox([self.title, row, self.message, self.shown], layout={"margin": "0 0 10px 0"})

    def run(self, work: Callable[[Progress], str]) -> None:
        """Do the work of the step; what went wrong is reported in a sentence."""
        self.clear()
        self.button.disabled = True
        self.progress.value, self.progress.layout.visibility = 0, "visible"
        try:
            self.message.value = markup.page(work(self._advance))
        except Exception as error:  # whatever it is: a person who pressed a button reads sentences, not traces
            self.message.value = markup.page(markup.wrong(error))
        finally:
            self.progress.layout.visibility = "hidden"
            self.button.disabled = False

    def clear(self) -> None:
        """Forget what was shown."""
        self.message.value = ""
        self.shown.children = ()

    def _advance(self, share: float) -> None:
        self.progress.value = round(100 * share)


class EarlyWarning:
    """The five steps as a widget: the last line of a cell shows it.

    Parameters
    ----------
    site
        The site's folder: its jobs are loaded, its model is used.
    log
        Jobs of this log file instead, judged by the site's model.
    last_days
        Which span is chosen at first: 1, 7, 30, or None for everything.
    interactive
        False draws the waterfall as a table of bars; left out, it is a Plotly figure where anywidget is installed.
    """

    def __init__(
        self, site: SiteLike, *, log: Path | str | None = None, last_days: float | None = 7.0, interactive: bool | None = None
    ) -> None:
        if find_spec("ipywidgets") is None:
            raise MissingExtraError(*_INSTALL)
        import ipywidgets

        spans = {days: label for label, days in _SPANS.items()}
        if last_days not in spans:
            raise UsageError(f"last_days is {last_days}.", hint="Choose 1, 7, 30, or None for everything.")
        self._site, self._source = site, site if log is None else log
        self._interactive = find_spec("anywidget") is not None if interactive is None else interactive
        self.jobs: LoadedJobs | None = None
        self.prepared: PreparedJobs | None = None
        self.model: LatestModel | None = None
        self.predictions: pl.DataFrame | None = None
        self.insight: JobInsight | None = None
        self.span = ipywidgets.Dropdown(options=list(_SPANS), value=spans[last_days], layout={"width": "130px"})
        self.job_id = ipywidgets.Text(placeholder="job ID, then Enter", continuous_update=False, layout={"width": "200px"})
        self.load = Step(1, "Load the dataset for prediction.", "Load data to predict", "database", extras=(self.span,))
        self.prepare = Step(2, "Prepare the data with preprocessing steps.", "Prepare data", "filter")
        self.get_model = Step(3, "Load the pre-trained model for prediction.", "Get the latest model", "download")
        self.start = Step(4, "Predict job failures on the new data.", "Start prediction", "play")
        self.search = Step(5, "Get insights into your job.", "Search ID", "search", extras=(self.job_id,))
        self.table = PagedTable()
        self.steps = (self.load, self.prepare, self.get_model, self.start, self.search)
        self.box: Any = ipywidgets.VBox([step.box for step in self.steps], layout={"padding": "4px 0"})
        for step, work in zip(self.steps, (self._load, self._prepare, self._model, self._predict, self._show_job), strict=True):
            step.button.on_click(lambda _, step=step, work=work: step.run(work))
        self.job_id.observe(lambda change: self._entered(str(change["new"])), "value")

    def _repr_mimebundle_(self, **options: Any) -> Any:
        return self.box._repr_mimebundle_(**options)

    def _load(self, progress: Progress) -> str:
        self.jobs = self.prepared = self.predictions = self.insight = None
        for later in (self.prepare, self.start, self.search):
            later.clear()
        jobs = load_jobs(self._source, last_days=_SPANS[self.span.value], progress=progress)
        if not len(jobs):
            return markup.message(
                f"{jobs.summary()} ({self.span.value})",
                "Choose a longer span, or ingest the latest: stormpetrel ingest jobs --live",
            )
        self.jobs = jobs
        self.load.shown.children = (_html(markup.table(jobs.table.head(_SHOWN_JOBS))),)
        return markup.done("Data loaded.", jobs.summary(), *jobs.notes)

    def _prepare(self, progress: Progress) -> str:
        self.prepared = prepare_jobs(self._loaded())
        progress(1.0)
        return markup.done("Data prepared.", *self.prepared.account())

    def _model(self, progress: Progress) -> str:
        self.model = None
        self.model = latest_model(self._site)
        progress(1.0)
        if self.model.quality.height:
            self.get_model.shown.children = (_html(markup.table(self.model.quality, caption=_MEASURED)),)
        return markup.done(self.model.summary())

    def _predict(self, progress: Progress) -> str:
        jobs = self.prepared or self._loaded()
        if self.model is None:
            raise UsageError("There is no model yet.", hint="Press 'Get the latest model' first (step 3).")
        self.predictions = predict(self.model, jobs, details=True, progress=progress)
        self.table.show(self.predictions)
        self.start.shown.children = (self.table.box,)
        flagged = int(self.predictions["Flagged"].sum())
        learnt = int(self.predictions["Learnt From"].fill_null(False).sum())
        notes = [f"The model has learnt from {learnt:,} of them, so its predictions for these prove nothing."] if learnt else []
        return markup.done(f"Prediction done: {flagged:,} of {self.predictions.height:,} jobs are flagged.", *notes)

    def _show_job(self, progress: Progress) -> str:
        jobs, wanted = self._loaded(), self.job_id.value.strip()
        self.insight = None
        if self.model is None:
            raise UsageError("There is no model yet.", hint="Press 'Get the latest model' first (step 3).")
        if not wanted:
            raise UsageError("No job ID was entered.", hint="Write one into the field, such as the first of the table.")
        self.insight = look_into(self.model, jobs, wanted)
        progress(1.0)
        parts = [_html(self.insight.html_above()), *self._waterfall(self.insight), _html(self.insight.html_below())]
        self.search.shown.children = tuple(parts)
        return markup.done(f"Search query submitted: {wanted}")

    def _entered(self, wanted: str) -> None:
        if wanted.strip():
            self.search.run(self._show_job)

    def _waterfall(self, insight: JobInsight) -> list[Any]:
        if not self._interactive:
            return [_html(insight.html_waterfall())]

        return [_html(insight.html_reasons()), FigureWidget(insight.figure)]

    def _loaded(self) -> LoadedJobs:
        if self.jobs is None:
            raise UsageError("There are no jobs yet.", hint="Press 'Load data to predict' first (step 1).")
        return self.jobs


def _html(inside: str) -> Any:
    import ipywidgets

    return ipywidgets.HTML(inside if inside.startswith("<style") else markup.page(inside), layout={"width": "100%"})
