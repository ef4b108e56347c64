"""The sliding score in the watch: every thread, every second, summed up in spans of about a minute.

Site, TraceModel, NodeSteps as they come -> LiveSliding.push; LiveSliding.commit -> rows of the table `sliding_scores`. It shows
what happens now, seconds after it was scraped; incidents are opened by what is found in whole windows.

TraceModel, Settings -> why_not_sliding: what keeps the watch from it, in words that also other processes can find.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import polars as pl

from stormpetrel.config import Settings
from stormpetrel.ingest.traces import cluster_of
from stormpetrel.lifecycle.trace_models import TraceModel
from stormpetrel.records.traces import LIVE, UNKNOWN, NodeSteps
from stormpetrel.records.window_frames import SLIDING_SCORE_SCHEMA
from stormpetrel.store.site import Site
from stormpetrel.traces.networks.fitting_windows import FittingScorer, is_same_step
from stormpetrel.traces.networks.runtime import TraceScorer
from stormpetrel.traces.sliding import SlidingSpans

SPAN_S = 60.0  # about as long as a span is; a window is so many whole ones


class LiveSliding:
    """Follows the threads of a site with the model in use; begins anew with another model, threshold or length of windows.

    Where nothing is scored, `why_not` says why. A span begins where windows begin, so that a watch that was killed, which reads
    on from a window, comes to the same rows.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._step_s = site.settings.prometheus.step_s
        self._steps = steps_of_window(site.settings)
        self._span = span_steps(site.settings)
        self._model: TraceModel | None = None
        self._spans: SlidingSpans | None = None
        self._committed = 0  # the step before which every span was given out
        self.why_not = ""

    @property
    def threads(self) -> int:
        """How many are followed."""
        return 0 if self._spans is None else self._spans.threads

    def push(self, model: TraceModel, new: Iterable[NodeSteps]) -> None:
        """Take what has come of some nodes since the last time."""
        before = self._model
        if before is None or (before.name, before.version, before.threshold) != (model.name, model.version, model.threshold):
            self._begin(model)
        if self._spans is not None:
            self._spans.push(new)
        else:
            _pass_over(new)

    def skip(self, new: Iterable[NodeSteps]) -> None:
        """Score nothing of what has come, and forget the windows: there is no time."""
        self._model, self._spans, self.why_not = None, None, "the watch has no time for it"
        _pass_over(new)

    def commit(self, end_s: float | None = None) -> int:
        """Commit the spans that all nodes have passed; of a window that is cut, all up to its end. How many rows."""
        if self._spans is None:
            return 0
        done = self._spans.done if end_s is None else math.floor(end_s / self._step_s + 0.5)
        if done is None or done - self._committed < self._span:
            return 0
        self._committed = done // self._span * self._span
        return self._site.sliding_scores.append(self._frame(self._spans.take(done)))

    def _begin(self, model: TraceModel) -> None:
        self._model, self._spans = model, None
        self.why_not = why_not_sliding(model, self._site.settings)
        scorer = None if self.why_not else _stream_scorer(model, self._site.settings)
        if scorer is not None and model.threshold is not None:
            self._spans = SlidingSpans(scorer, model.threshold, self._span)

    def _frame(self, spans: pl.DataFrame) -> pl.DataFrame:
        """Spans as rows of the table."""
        assert self._model is not None

        def moment(step: pl.Expr) -> pl.Expr:
            return (step * round(self._step_s * 1e6)).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")

        rows = spans.with_columns(
            cluster=pl.lit(cluster_of(self._site)),
            trace=pl.lit(LIVE),
            window_start=moment(pl.col("first_step")),
            window_s=pl.lit(self._span * self._step_s, dtype=pl.Float32),
            job_type=pl.lit(UNKNOWN),
            model=pl.lit(self._model.name),
            model_version=pl.lit(self._model.version, dtype=pl.Int64),
            above_since=moment(pl.col("above_since") + 1),
        )
        return rows.select(list(SLIDING_SCORE_SCHEMA)).cast(SLIDING_SCORE_SCHEMA)


def why_not_sliding(model: TraceModel, settings: Settings) -> str:
    """Why a model cannot score every step of a site, and what to do, in sentences; empty where it can."""
    steps, step_s = steps_of_window(settings), settings.prometheus.step_s
    if model.threshold is None:
        return "The model has no threshold yet: too few calm windows of this site have been scored."
    if _stream_scorer(model, settings) is not None:
        return ""
    seen = model.scorer.settings.steps
    if seen != steps or not is_same_step(model.step_s, step_s):
        return (
            f"The model sees windows of {seen} values, one every {model.step_s:g} s. Those of this site have {steps}, one every"
            f" {step_s:g} s (traces.window_s, prometheus.step_s). Train a model on them: stormpetrel traces train"
        )
    return f"{model.title} is too slow for it. Train a fast one: stormpetrel traces train --architecture fast"


def steps_of_window(settings: Settings) -> int:
    """How many steps a window of a site has."""
    return max(2, round(settings.traces.window_s / settings.prometheus.step_s))


def span_steps(settings: Settings) -> int:
    """How many steps a span has: a window is so many whole ones."""
    steps = steps_of_window(settings)
    return steps // _parts(steps, max(1, round(settings.traces.window_s / SPAN_S)))


def _stream_scorer(model: TraceModel, settings: Settings) -> TraceScorer | None:
    fitting = model.scorer if isinstance(model.scorer, FittingScorer) else None
    if fitting is None:
        return None
    return fitting.for_stream(steps=steps_of_window(settings), step_s=settings.prometheus.step_s)


def _pass_over(new: Iterable[NodeSteps]) -> None:
    """Let it be noted as given out."""
    for _ in new:
        pass


def _parts(steps: int, wanted: int) -> int:
    """Into how many equal parts a window can be cut, as near to `wanted` as possible."""
    return min((parts for parts in range(1, steps + 1) if steps % parts == 0), key=lambda parts: abs(parts - wanted))
