"""Studies of recorded campaigns: how good trace models are on them, how often to sample, and the windows that are drawn of them.

campaign files + kept models -> study_of_kept_models -> TraceStudy -> study_answer -> TraceStudyAnswer; Site -> study_of_site ->
the same of the site's own windows and the model in use; SamplingStudy -> sampling_answer -> SamplingAnswer. For figures alone, as
arrays: mapped_windows -> MappedWindows, reconstructed_windows -> ReconstructedWindows. A study of files needs no site: whoever
has them may.
Campaigns that are run on this machine or simulated: plan -> run_campaigns -> their files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from stormpetrel.answers.schemas.trace_study import (
    CampaignReceipt,
    FaultFigures,
    FaultSummary,
    IntervalFigures,
    JobTypeErrors,
    ModelFigures,
    RunErrors,
    SamplingAnswer,
    Spread,
    TraceEvaluationAnswer,
    TraceStudyAnswer,
    TypeSpectrum,
    WrittenCampaign,
)
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import ModelError
from stormpetrel.lifecycle.trace_learning import in_order
from stormpetrel.lifecycle.trace_models import load_trace_model
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.traces import MIXED, MODES, Rates, Split, job_types_in_order
from stormpetrel.records.window_frames import frame_of, windows_of
from stormpetrel.records.windows import Windows, join_windows
from stormpetrel.rehearse.campaign import CampaignRequest, cpus_of, run_campaign, run_set
from stormpetrel.rehearse.campaign_files import SimulationRequest, write_simulated
from stormpetrel.rehearse.plan import kinds_of
from stormpetrel.sources.trace_files import read_campaigns
from stormpetrel.traces.campaign_splits import split_traces
from stormpetrel.traces.diagnosis import Trouble, known_bad_io, place
from stormpetrel.traces.evaluation import FIGURES
from stormpetrel.traces.faults.bench import ASIDE
from stormpetrel.traces.networks.architecture import Architecture, Scorer
from stormpetrel.traces.separability import PcaMap
from stormpetrel.traces.site_windows import joined_traces, study_in_use
from stormpetrel.traces.study import kept_cut, kept_plan, run_study

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.trace_study import CampaignRun, CampaignSimulation
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.traces import Trace
    from stormpetrel.rehearse.campaign_files import Campaign
    from stormpetrel.store.site import Site
    from stormpetrel.traces.evaluation import ErrorSpread, TraceEvaluation
    from stormpetrel.traces.evaluation import ModelFigures as Figures
    from stormpetrel.traces.exam.study import FaultStudy
    from stormpetrel.traces.sampling import SamplingStudy
    from stormpetrel.traces.separability import MeanStd
    from stormpetrel.traces.study import TraceStudy

SITE_WINDOWS: Final = 6_000  # the newest of a site that a study judges: half of them take seconds


@dataclass(frozen=True, slots=True, eq=False)
class MappedWindows:
    """Test windows on the map of one model: columns of trace scores, what the axes explain, and where Bad IO lies."""

    points: pl.DataFrame
    explained: tuple[float, ...]  # shares of the variance
    bad_io: Trouble | None
    architecture: Architecture


@dataclass(frozen=True, slots=True, eq=False)
class ReconstructedWindows:
    """One window of each job type as it was, and as the first model of each architecture sees it."""

    job_types: tuple[str, ...]  # empty: the type is not known
    step_s: float
    original: Rates  # (job types, steps, 4)
    by_architecture: Mapping[Architecture, Rates]  # (job types, steps, 4) each


def study_of_kept_models(
    campaigns: Sequence[Path], models: Path, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[TraceStudy, list[Trace]]:
    """Judge models that a study has kept in a folder on campaign files, cut as they were then; the traces are drawn, too."""
    progress("reading campaigns")
    traces = read_campaigns(campaigns)
    split = split_traces(traces, kept_cut(models))
    study = run_study(split, kept_plan(models), models, progress=lambda share, step: progress(f"{share:.0%} {step}"))
    return study, traces


def study_of_site(site: Site, viewer: Viewer, *, most: int = SITE_WINDOWS, seed: int = 0) -> tuple[TraceStudy, list[Trace]]:
    """Judge the trace model in use on the site's newest windows that it has not learnt from; the traces are drawn, too.

    It is one model of one kind: Table 2's ensembles come from campaigns. ModelError where there are too few windows.
    """
    viewer.require(READ)
    viewer.require_admin()
    model, training = load_trace_model(site), site.models.current_training(ModelFamily.TRACES)
    windows = _newest_windows(site, round(model.scorer.settings.steps), model.step_s, most)
    learnt_until_s = None if training is None else training.trained_until.timestamp()
    return study_in_use(model.scorer, windows, learnt_until_s, seed=seed), joined_traces(windows)


def _newest_windows(site: Site, steps: int, step_s: float, most: int) -> Windows:
    """The newest windows of one length, in whole moments."""
    same_length = (pl.col("user").list.len() == steps) & ((pl.col("step_s") - step_s).abs() < 0.01 * step_s)
    rows = site.cpu_windows.read().filter(same_length)
    moments = rows.group_by("window_start").len().sort("window_start", descending=True).collect()
    within = moments.filter(pl.col("len").cum_sum() <= most)
    if not within.height:
        raise ModelError(
            f"The site has no windows of {steps * step_s:g} s, which its model sees.",
            hint="Run: stormpetrel ingest traces --live",
        )
    return windows_of(in_order(rows.filter(pl.col("window_start") >= within["window_start"].min()).collect()))


def evaluation_answer(evaluation: TraceEvaluation) -> TraceEvaluationAnswer:
    """The figures of every architecture, in their own order, with the baselines."""
    judged = {str(kind): evaluation.models[kind] for kind in Architecture if kind in evaluation.models}
    return TraceEvaluationAnswer(
        model={
            str(kind): _figures(judged[kind]) if kind in judged else None
            for kind in Architecture
            if kind in judged or kind in evaluation.why
        },
        why={str(kind): reason for kind, reason in evaluation.why.items()},
        baselines={name: dict(figures) for name, figures in evaluation.baselines.items()},
        by_job_type={
            kind: {job_type: _errors(spread) for job_type, spread in figures.by_job_type.items()}
            for kind, figures in judged.items()
        },
        per_run={
            kind: {run: RunErrors(re_normal=_spread(spread)) for run, spread in figures.per_run.items()}
            for kind, figures in judged.items()
        },
    )


def study_answer(study: TraceStudy) -> TraceStudyAnswer:
    """The same, with what was trained on which windows."""
    return TraceStudyAnswer(
        **dict(evaluation_answer(study.evaluation)),
        judged={str(kind): len(models) for kind, models in study.scorers.items()},
        windows={**study.split.counts(), "mixed": study.evaluation.mixed_windows},
        windows_per_second_per_core={str(kind): speed for kind, speed in study.windows_per_second_per_core.items()},
        seconds=dict(study.seconds),
    )


def fault_answer(study: FaultStudy) -> tuple[dict[str, dict[str, dict[str, FaultFigures]]], FaultSummary]:
    """The figures of each fault and severity, and the exam as a whole."""
    cells = {
        fault: {
            severity: {name: FaultFigures(roc_auc=figures.roc_auc, recall=figures.recall) for name, figures in scorers.items()}
            for severity, scorers in severities.items()
        }
        for fault, severities in study.figures.items()
    }
    summary = FaultSummary(
        mean_roc_auc=dict(study.mean),
        interval=dict(study.interval),
        busy=dict(study.strata["busy"]),
        idle=dict(study.strata["idle"]),
        windows={"calm": study.calm_windows, **study.strata_windows},
        learnt=study.learnt,
        spans=study.spans,
        not_visible=list(study.not_visible),
        promised={f"{share:g}": realised for share, realised in study.promised.items()},
        kept_aside=[fault.name for fault in ASIDE],
    )
    return cells, summary


def sampling_answer(study: SamplingStudy) -> SamplingAnswer:
    """What the traces say about sampling, without the points that only a figure shows."""
    return SamplingAnswer(
        spectra={
            spectrum.job_type: TypeSpectrum(
                frequency_hz=spectrum.frequency_hz.tolist(),
                power=dict(zip(MODES, spectrum.power.tolist(), strict=True)),
                segment_s=spectrum.segment_s,
                stretches=spectrum.stretches,
                dominant_hz=spectrum.dominant_hz,
            )
            for spectrum in study.spectra
        },
        lowest_hz=study.lowest_hz,
        window_s=study.window_s,
        intervals=[
            IntervalFigures(
                interval_s=score.interval_s,
                samples=score.samples,
                silhouette=_spread(score.silhouette),
                explained=list(score.explained),
                silhouette_of_means=_spread(score.silhouette_of_means),
                movement_kept=score.movement_kept,
            )
            for score in study.scores
        ],
        interval_s=study.interval_s,
        windows=study.windows,
        advice=study.advice,
    )


def mapped_windows(study: TraceStudy) -> MappedWindows:
    """The test windows as the first model of the first architecture sees them; the map is fitted on training windows only."""
    architecture, scorer = _first(study)
    chart = PcaMap.fit(scorer.embed(study.split.train.of_normal()))
    bad_io = known_bad_io(scorer, join_windows([study.split.train, study.split.validation]))
    placed = place(scorer, chart, bad_io, study.split.test)
    distance = pl.lit(None, dtype=pl.Float64) if placed.bad_io_distance is None else pl.Series(placed.bad_io_distance)
    points = frame_of(study.split.test, cluster="").select(
        "trace", "node", "cpu", "window_start", "job_id", "job_type",
        x=pl.Series(placed.x), y=pl.Series(placed.y), score=pl.Series(placed.score), max_iowait=pl.Series(placed.max_iowait),
        bad_io_distance=distance,
    )  # fmt: skip
    return MappedWindows(points.filter(pl.col("job_type") != MIXED), tuple(chart.explained), bad_io, architecture)


def reconstructed_windows(study: TraceStudy) -> ReconstructedWindows:
    """Of each job type the test window whose error is the median of its type."""
    rows = _typical(study)
    neighbours, places = _with_neighbours(study.split.test, list(rows.values()))
    drawn = {kind: models[0].reconstruct(neighbours)[places] for kind, models in study.scorers.items() if models and rows}
    return ReconstructedWindows(tuple(rows), neighbours.step_s, neighbours.rates[places], drawn)


def _spread(spread: MeanStd) -> Spread:
    return Spread.model_validate(spread.as_dict())


def _figures(figures: Figures) -> ModelFigures:
    spreads = {name: getattr(figures, name) for name in FIGURES}
    return ModelFigures(**{name: None if spread is None else _spread(spread) for name, spread in spreads.items()})


def _errors(spread: ErrorSpread) -> JobTypeErrors:
    p05, p25, p50, p75, p95 = spread.quantiles
    return JobTypeErrors(windows=spread.windows, mean=spread.mean, p05=p05, p25=p25, p50=p50, p75=p75, p95=p95)


def _first(study: TraceStudy) -> tuple[Architecture, Scorer]:
    architecture = next(kind for kind in Architecture if study.scorers.get(kind))
    return architecture, study.scorers[architecture][0]


def _typical(study: TraceStudy) -> dict[str, int]:
    """The row of one test window per job type: the one whose error is the median of its type."""
    _, scorer = _first(study)
    scores, types = scorer.score(study.split.test), study.split.test.job_types()
    rows = {}
    for job_type in job_types_in_order(set(types.tolist()) - {MIXED}):
        those = np.flatnonzero(types == job_type)
        rows[job_type] = int(those[np.argsort(scores[those], kind="stable")[len(those) // 2]])
    return rows


def _with_neighbours(windows: Windows, rows: list[int]) -> tuple[Windows, list[int]]:
    """The moments on the nodes that some windows belong to, whole, and where among them those windows are."""
    graphs = windows.node_graphs()
    kept = np.flatnonzero(np.isin(graphs, graphs[rows]))
    return windows.take(kept), np.searchsorted(kept, rows).tolist()


def run_campaigns(folder: Path, viewer: Viewer, act: CampaignRun, *, progress: Progress = no_progress) -> CampaignReceipt:
    """Run jobs of known types here, record what the CPUs do, and write it down with labels; interrupted, nothing is written."""
    viewer.require(MANAGE)

    request = CampaignRequest(
        folder=folder,
        split=Split(act.split),
        name=act.name,
        kinds=tuple(kinds_of(act.types)),
        cpus=cpus_of(act.cpus) if act.cpus else (),
        seconds_per_job=act.seconds_per_job,
        repeat=act.repeat,
        seed=act.seed,
        prometheus_url=act.prometheus,
        node=act.node,
        scratch=act.scratch,
    )
    return _receipt(run_set(request, progress) if act.whole_set else [run_campaign(request, progress)])


def simulate_campaigns(
    folder: Path, viewer: Viewer, act: CampaignSimulation, *, progress: Progress = no_progress
) -> CampaignReceipt:
    """Write simulated campaigns in the layout of recorded ones."""
    viewer.require(MANAGE)

    request = SimulationRequest(folder, act.train, act.validation, act.test, act.nodes, act.threads, act.minutes, act.seed)
    total = max(1, act.train + act.validation + act.test)
    written: list[Campaign] = []
    for campaign in write_simulated(request):
        written.append(campaign)
        progress(len(written) / total, campaign.path.name)
    return _receipt(written)


def _receipt(campaigns: Iterable[Campaign]) -> CampaignReceipt:
    return CampaignReceipt(campaigns=[WrittenCampaign(path=str(campaign.path), facts=campaign.facts) for campaign in campaigns])
