"""Tables about traces: Table 2 next to the published one, errors per job type and run, who is abnormal, who lies near Bad IO.

Answers about traces -> Table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.faces.report.blocks import NOTHING, Column, Table
from stormpetrel.figures.trace_models import UNKNOWN_LABEL
from stormpetrel.lifecycle.odd_nodes import FEWEST_CALM
from stormpetrel.records.traces import BAD_IO, GOOD_IO, IDLE, MIXED, NP, UNKNOWN, job_types_in_order, mpi
from stormpetrel.traces.evaluation import FIGURES, PUBLISHED
from stormpetrel.traces.networks.architecture import Architecture

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.trace_study import FaultFigures, FaultSummary, SamplingAnswer, Spread, TraceStudyAnswer
    from stormpetrel.answers.schemas.traces import (
        Abnormal,
        FittedRegion,
        JobTypeOnMap,
        LikeBefore,
        MostAbnormal,
        NearBadIo,
        RegionSuspect,
    )
    from stormpetrel.traces.separability import MeanStd

KIND_LABELS: Final = {
    Architecture.VANILLA: "Vanilla AE",
    Architecture.NODE_GNN: "Node-GNN-AE",
    Architecture.JOB_GNN: "Job-GNN-AE",
    Architecture.FAST: "Fast AE",
}
_PUBLISHED_TYPES: Final = {
    NP: "nuclear physics: likelihood fit of a partial wave analysis",
    BAD_IO: "a writer per thread, with writes, seeks and flushes that are hard to buffer; left out of training",
    GOOD_IO: "a writer per thread that leaves files to the operating system",
    mpi(2): "CPU-bound MPI job on 2 threads, a random time before each Allreduce",
    mpi(16): "CPU-bound MPI job on 16 threads, a random time before each Allreduce",
    IDLE: "any thread that runs no job",
}
STUDY: Final = "EPJ Web of Conferences 337, 01120 (2025)"
_MOSTLY_INSIDE: Final = 0.5  # of its own windows, below which a region is called hardly told from calm ones
_DETECTOR, _CEILING = "detector", "ceiling"
_FIGURE_COLUMNS: Final = tuple(Column(words, "") for words in ("RE normal", "RE anomalous", "silhouette", "ROC area"))


def table_two(study: TraceStudyAnswer) -> Table:
    """Table 2: each architecture over its ensemble, the published figures below it, and the baselines on the same windows."""
    rows: list[tuple[str, ...]] = []
    for kind in Architecture:
        figures = study.model.get(kind)
        if figures is not None:
            rows.append((f"{KIND_LABELS[kind]} ({study.judged[kind]})", *(_spread(figures[name], name) for name in FIGURES)))
            if kind in PUBLISHED:
                rows.append(("  published", *(_spread(PUBLISHED[kind].get(name), name) for name in FIGURES)))
        elif kind in study.why:
            rows.append((KIND_LABELS[kind], *([NOTHING] * len(FIGURES))))
            if kind in PUBLISHED:
                rows.append(("  published", *(_spread(PUBLISHED[kind].get(name), name) for name in FIGURES)))
    pca, iowait = study.baselines["pca"], study.baselines["mean_iowait"]
    rows.append(("PCA, raw windows", *(_number(pca[name], name) for name in FIGURES)))
    rows.append(("mean iowait", NOTHING, NOTHING, NOTHING, _number(iowait["roc_auc"], "roc_auc")))
    note = " ".join(
        [
            "RE: mean squared difference over steps and modes; mean ± standard deviation over the models (published: ten).",
            *(f"{', '.join(kinds)}: {reason}" for reason, kinds in _by_reason(study.why).items()),
        ]
    )
    return Table("Table 2: reconstruction error and separability", (Column("model"), *_FIGURE_COLUMNS), tuple(rows), note)


def _by_reason(why: Mapping[str, str]) -> dict[str, list[str]]:
    """Labels of the architectures that were not judged, those with the same reason together."""
    labels: dict[str, list[str]] = {}
    for kind, reason in why.items():
        labels.setdefault(reason, []).append(KIND_LABELS[Architecture(kind)])
    return labels


def job_types_table(points: pl.DataFrame) -> Table:
    """Table 1: the job types of the windows (columns job_type, job_id, node), beside those of the published campaigns."""
    counted = points.group_by(job_type=pl.col("job_type").fill_null(UNKNOWN)).agg(
        windows=pl.len(), jobs=pl.col("job_id").drop_nulls().n_unique(), nodes=pl.col("node").n_unique()
    )
    counts = {job_type: cells for job_type, *cells in counted.iter_rows()}
    named = [name for name in job_types_in_order({*counts, *_PUBLISHED_TYPES}) if name != MIXED]
    rows = tuple(
        (name or UNKNOWN_LABEL, _PUBLISHED_TYPES.get(name, "not in the study"), *counts.get(name, (0, 0, 0))) for name in named
    )
    columns = (
        Column("job type"), Column("as the study describes it"), Column("windows here", ",d"), Column("jobs here", ",d"),
        Column("nodes", ",d"),
    )  # fmt: skip
    mixed = counts.get(MIXED, (0, 0, 0))[0]
    note = f"{mixed:,} windows in which a thread changed hands are in none of these." if mixed else ""
    return Table("Job types", columns, rows, note)


def faults_table(cells: Mapping[str, Mapping[str, Mapping[str, FaultFigures]]], summary: FaultSummary) -> Table:
    """Each fault and severity: the detector, the best baseline, and the ceiling."""
    columns = (
        Column("fault"), Column("severity"), Column("detector", ".3f"), Column("recall", ".2f"), Column("best baseline", ".3f"),
        Column("which"), Column("ceiling", ".3f"), Column(""),
    )  # fmt: skip
    rows = []
    for fault, severities in cells.items():
        for severity, scorers in severities.items():
            others = {name: figures.roc_auc or 0.0 for name, figures in scorers.items() if name not in (_DETECTOR, _CEILING)}
            best = max(others, key=lambda name: others[name])
            ceiling = scorers[_CEILING].roc_auc if _CEILING in scorers else None
            unseen = "not visible" if (fault, severity) in summary.not_visible else ""
            aside = "kept aside" if fault in summary.kept_aside else ""
            detector = scorers[_DETECTOR]
            rows.append((fault, severity, detector.roc_auc, detector.recall, others[best], best, ceiling, unseen or aside))
    note = (
        "ROC area per node window: with the fault against untouched. Recall at one false alarm per node and day, at none where"
        " the untouched windows are fewer than a day has. The ceiling is a classifier that was trained on that very fault."
    )
    return Table("Faults injected into the test windows", columns, tuple(rows), note)


def exam_table(summary: FaultSummary) -> Table:
    """The mean ROC area of each scorer over the visible cells, best first."""
    columns = (
        Column("scorer"), Column("mean ROC area", ".3f"), Column("95 % by span of time"), Column("busy nodes", ".3f"),
        Column("idle nodes", ".3f"),
    )  # fmt: skip
    rows = []
    for name, mean in sorted(summary.mean_roc_auc.items(), key=lambda item: -(item[1] or 0.0)):
        interval = summary.interval.get(name)
        between = NOTHING if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}"
        rows.append((name, mean, between, summary.busy.get(name), summary.idle.get(name)))
    return Table("The benchmark as a whole", columns, tuple(rows), "Over the cells whose ceiling is .9 or more.")


def exam_sentences(summary: FaultSummary) -> list[str]:
    """In sentences: what was promised and kept, and what cannot be seen."""
    shares = ", ".join(f"{float(share):.1%} promised, {realised:.1%} flagged" for share, realised in summary.promised.items())
    spans = "one span" if summary.spans == 1 else f"{summary.spans} spans"
    words = [f"Of {summary.windows['calm']:,} untouched node windows over {spans} of time: {shares}."]
    if summary.learnt < FEWEST_CALM:
        words.append(
            f"The detector has learnt from {summary.learnt:,} normal node windows. With fewer than {FEWEST_CALM}, more may be"
            " flagged than promised, and the watch raises nothing by it: record longer."
        )
    if summary.not_visible:
        unseen = ", ".join(f"{fault} ({severity})" for fault, severity in summary.not_visible)
        words.append(f"Not visible even to a classifier that was trained on them: {unseen}.")
    return words


def iowait_rule_table(study: TraceStudyAnswer) -> Table:
    """The rule of one line, at the threshold that training windows choose."""
    rule = study.baselines["mean_iowait"]
    names = ("threshold", "precision", "recall", "f1", "false_alarm_share", "roc_auc")
    titles = ("mean iowait ≥", "precision", "recall", "F1", "normal windows above it", "ROC area")
    columns = tuple(Column(title, ".3f") for title in titles)
    note = "The threshold has the best F1 on training windows; it is judged on test windows."
    return Table("The mean-iowait rule", columns, (tuple(rule[name] for name in names),), note)


def errors_table(study: TraceStudyAnswer) -> Table:
    """Median and range of the error of each job type, per architecture (Fig. 3 in numbers)."""
    types = job_types_in_order({job_type for by_type in study.by_job_type.values() for job_type in by_type})
    columns = [Column("job type"), Column("windows", ",d")]
    columns += [Column(f"{KIND_LABELS[Architecture(kind)]}: median (5 to 95 %)", "") for kind in study.by_job_type]
    rows = []
    for job_type in types:
        spreads = [by_type[job_type] for by_type in study.by_job_type.values()]
        cells = (f"{spread.p50:.5f} ({spread.p05:.5f} to {spread.p95:.5f})" for spread in spreads)
        rows.append((job_type or UNKNOWN_LABEL, spreads[0].windows, *cells))
    return Table("Fig. 3 in numbers: reconstruction error per job type", tuple(columns), tuple(rows))


def runs_table(study: TraceStudyAnswer) -> Table:
    """The error on normal windows of each test campaign or run."""
    per_run = study.per_run
    names = sorted({run for runs in per_run.values() for run in runs})
    columns = (Column("campaign or run"), *(Column(KIND_LABELS[Architecture(kind)], "") for kind in per_run))
    rows = tuple(
        (name, *(_spread(runs[name].re_normal if name in runs else None, "re_normal") for runs in per_run.values()))
        for name in names
    )
    return Table("Reconstruction error on normal windows, per test campaign", columns, rows)


def work_table(study: TraceStudyAnswer) -> Table:
    """How long training took in this run, and how many windows one core scores in a second."""
    training, speed = study.seconds["training"], study.windows_per_second_per_core
    rows = tuple(
        (KIND_LABELS[Architecture(kind)], models, training.get(kind), speed.get(kind)) for kind, models in study.judged.items()
    )
    columns = (Column("model"), Column("models", "d"), Column("training (s)", ",.0f"), Column("windows/s/core", ",.0f"))
    counts = study.windows
    note = (
        f"{counts['train']:,} windows to learn from, {counts['validation']:,} to stop by, {counts['test']:,} to judge by; "
        f"{counts['left_out']:,} with gaps left out. Models that were there already were not trained again."
    )
    return Table("Work", columns, rows, note)


def abnormal_tables(ranking: MostAbnormal) -> tuple[Table, ...]:
    """The most abnormal nodes, threads and jobs."""
    node, thread = (Column("node"),), (Column("node"), Column("CPU", "d"))
    return (
        _abnormal_table("nodes", node, [((row.node,), row) for row in ranking.nodes]),
        _abnormal_table("threads", thread, [((row.node, row.cpu), row) for row in ranking.threads]),
        _abnormal_table("jobs", (Column("job"), Column("type")), [((row.job_id, row.job_type), row) for row in ranking.jobs]),
    )


def _abnormal_table(of: str, keys: tuple[Column, ...], rows: Sequence[tuple[tuple[Any, ...], Abnormal]]) -> Table:
    columns = (
        *keys, Column("windows", ",d"), Column("flagged", ",d"), Column("mean score", ".5f"), Column("highest", ".5f"),
        Column("iowait up to", ".2f"),
    )  # fmt: skip
    cells = tuple((*names, row.windows, row.flagged, row.mean_score, row.highest_score, row.max_iowait) for names, row in rows)
    return Table(f"Most abnormal {of}", columns, cells)


def map_table(job_types: Sequence[JobTypeOnMap]) -> Table:
    """Where the windows of each job type lie on the map."""
    columns = (
        Column("job type"), Column("windows", ",d"), Column("x", ".2f"), Column("y", ".2f"), Column("median score", ".5f"),
        Column("flagged", ".1%"),
    )  # fmt: skip
    rows = tuple(
        (UNKNOWN_LABEL if row.job_type == "" else row.job_type, row.windows, row.x, row.y, row.median_score, row.flagged_share)
        for row in job_types
    )
    return Table("Where job types lie", columns, rows)


def suspects_table(diagnosis: NearBadIo, *, top: int = 20) -> Table:
    """Who lies near Bad IO without being it."""
    columns = (
        Column("job"), Column("type"), Column("node"), Column("CPUs"), Column("windows", ",d"), Column("near", ",d"),
        Column("nearest", ".2f"), Column("iowait up to", ".2f"),
    )  # fmt: skip
    rows = tuple(
        (
            row.job_id or NOTHING, row.job_type or UNKNOWN_LABEL, row.node, _cpus(row.cpus), row.windows, row.near, row.nearest,
            row.max_iowait,
        )
        for row in diagnosis.suspects[:top]
    )  # fmt: skip
    return Table("Jobs and threads that lie near Bad IO", columns, rows, diagnosis_text(diagnosis))


def regions_table(regions: Sequence[FittedRegion]) -> Table:
    """The troubles that people have named, as the model in use sees them."""
    columns = (
        Column("region"), Column("examples", ",d"), Column("x", ".2f"), Column("y", ".2f"), Column("radius", ".3f"),
        Column("of its own windows", ".0%"), Column("of calm windows", ".2%"),
    )  # fmt: skip
    rows = tuple((row.name, row.examples, row.x, row.y, row.radius, row.coverage, row.calm_inside) for row in regions)
    note = "A window within the radius of an example is reported by the name. The last two columns: the share of windows inside."
    if unlike := [row.name for row in regions if not row.radius or (row.coverage is not None and row.coverage < _MOSTLY_INSIDE)]:
        note += (
            f" Hardly told from calm windows by this model, and seldom or never reported: {', '.join(unlike)}. Name only the"
            " threads and the time that were in trouble (--job, a shorter --since and --until)."
        )
    return Table("Known regions", columns, rows, note)


def inside_table(suspects: Sequence[RegionSuspect], *, top: int = 20) -> Table:
    """Who lies in a known region."""
    columns = (
        Column("region"), Column("node"), Column("job"), Column("type"), Column("CPUs"), Column("windows", ",d"),
        Column("inside", ",d"), Column("nearest", ".3f"), Column("since"), Column("until"),
    )  # fmt: skip
    rows = tuple(
        (
            row.region, row.node, row.job_id or NOTHING, row.job_type or UNKNOWN_LABEL, _cpus(row.cpus), row.windows, row.inside,
            row.nearest, f"{row.since:%Y-%m-%d %H:%M}", f"{row.until:%Y-%m-%d %H:%M}",
        )
        for row in suspects[:top]
    )  # fmt: skip
    return Table("Jobs and threads in a known region", columns, rows, "Times are UTC.")


def like_table(windows: Sequence[LikeBefore]) -> Table:
    """Which past windows were like the newest ones that are in a region or were flagged."""
    columns = (
        Column("window"), Column("region"), Column("like"), Column("job"), Column("type"), Column("its region"),
        Column("distance", ".3f"),
    )  # fmt: skip
    rows = tuple(
        (
            f"{row.node}/{row.cpu} {row.window_start:%Y-%m-%d %H:%M}", row.region or NOTHING,
            f"{past.node}/{past.cpu} {past.window_start:%Y-%m-%d %H:%M}", past.job_id or NOTHING, past.job_type or UNKNOWN_LABEL,
            past.region or NOTHING, past.distance,
        )
        for row in windows
        for past in row.past
    )  # fmt: skip
    return Table("Similar past windows", columns, rows, "The nearest windows of other jobs that had ended then; times are UTC.")


def diagnosis_text(diagnosis: NearBadIo) -> str:
    """The diagnosis in a sentence or two."""
    if diagnosis.radius is None or diagnosis.high_iowait is None:
        return "The model knows no Bad IO windows."
    text = (
        f"{diagnosis.near:,} of {diagnosis.windows:,} windows lie within {diagnosis.radius:.2f} of the centre of Bad IO with "
        f"a largest iowait of {diagnosis.high_iowait:.2f} or more."
    )
    if diagnosis.rank_correlation is None:
        return text
    return f"{text} Distance and largest iowait have a rank correlation of {diagnosis.rank_correlation:+.2f}."


def spectra_table(study: SamplingAnswer) -> Table:
    """The lowest dominant frequency of each job type."""
    rows = tuple(
        (job_type or UNKNOWN_LABEL, spectrum.dominant_hz, 1 / spectrum.dominant_hz if spectrum.dominant_hz else None)
        for job_type, spectrum in study.spectra.items()
    )
    columns = (Column("job type"), Column("lowest dominant frequency (Hz)", ".4f"), Column("period (s)", ",.0f"))
    note = f"Windows of {study.window_s:g} s hold the slowest of these periods. Published: 0.01 Hz, 100 s."
    return Table("Spectra (Welch)", columns, rows, note)


def intervals_table(study: SamplingAnswer) -> Table:
    """How well job types separate at each sampling interval (Fig. 1b in numbers)."""
    rows = tuple((row.interval_s, row.samples, _spread(row.silhouette, "silhouette")) for row in study.intervals)
    columns = (Column("interval (s)", "g"), Column("samples per window", "d"), Column("silhouette", ""))
    return Table("Fig. 1b in numbers: separability", columns, rows, study.advice)


def _cpus(cpus: Sequence[int]) -> str:
    shown = ", ".join(map(str, cpus[:8]))
    return f"{shown} and {len(cpus) - 8} more" if len(cpus) > 8 else shown


def _spread(spread: Spread | MeanStd | None, name: str) -> str:
    if spread is None or not spread.n:
        return NOTHING
    digits = _digits(name)
    return f"{spread.mean:.{digits}f}" + (f" ± {spread.std:.{digits}f}" if spread.n > 1 else "")


def _number(value: float | None, name: str) -> str:
    return NOTHING if value is None else f"{value:.{_digits(name)}f}"


def _digits(name: str) -> int:
    return 3 if name in ("silhouette", "roc_auc") else 4
