"""Tables about traces: Table 2 beside the published one, errors per job type and run, who is abnormal, who lies near Bad IO.

TraceStudy, frames of scores, Diagnosis -> Table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.faces.report.blocks import NOTHING, Column, Table, table_of
from stormpetrel.figures.trace_models import UNKNOWN_WORDS, in_order
from stormpetrel.traces.architecture import Architecture
from stormpetrel.traces.evaluation import FIGURES, PUBLISHED, TraceEvaluation

if TYPE_CHECKING:
    from stormpetrel.traces.diagnosis import Diagnosis
    from stormpetrel.traces.sampling import SamplingStudy
    from stormpetrel.traces.separability import MeanStd
    from stormpetrel.traces.study import TraceStudy

KIND_WORDS: Final = {
    Architecture.VANILLA: "Vanilla AE",
    Architecture.NODE_GNN: "Node-GNN-AE",
    Architecture.JOB_GNN: "Job-GNN-AE",
}
STUDY: Final = "EPJ Web of Conferences 337, 01120 (2025)"
_FIGURE_COLUMNS: Final = tuple(Column(words, "") for words in ("RE normal", "RE anomalous", "silhouette", "ROC area"))
_OWNERS: Final = {"node": ("node",), "thread": ("node", "cpu"), "job": ("job_id", "job_type")}


def table_two(found: TraceEvaluation) -> Table:
    """Table 2: each architecture over its ensemble, the published figures below it, and the baselines on the same windows."""
    rows: list[tuple[str, ...]] = []
    for kind in Architecture:
        if kind in found.models:
            figures = found.models[kind]
            rows.append((f"{KIND_WORDS[kind]} ({figures.models})", *(_spread(getattr(figures, name), name) for name in FIGURES)))
            rows.append(("  published", *(_spread(PUBLISHED[kind].get(name), name) for name in FIGURES)))
        elif kind in found.why:
            rows.append((KIND_WORDS[kind], *([NOTHING] * len(FIGURES))))
    pca, iowait = found.baselines["pca"], found.baselines["mean_iowait"]
    rows.append(("PCA, raw windows", *(_number(pca[name], name) for name in FIGURES)))
    rows.append(("mean iowait", NOTHING, NOTHING, NOTHING, _number(iowait["roc_auc"], "roc_auc")))
    note = " ".join(
        [
            "RE: mean squared difference over steps and modes; mean ± standard deviation over the models (published: ten).",
            *(f"{KIND_WORDS[kind]}: {words}" for kind, words in found.why.items()),
        ]
    )
    return Table("Table 2: reconstruction error and separability", (Column("model"), *_FIGURE_COLUMNS), tuple(rows), note)


def iowait_rule_table(found: TraceEvaluation) -> Table:
    """The rule of one line, at the threshold that training windows choose."""
    rule = found.baselines["mean_iowait"]
    names = ("threshold", "precision", "recall", "f1", "false_alarm_share", "roc_auc")
    words = ("mean iowait ≥", "precision", "recall", "F1", "normal windows above it", "ROC area")
    columns = tuple(Column(word, ".3f") for word in words)
    note = "The threshold has the best F1 on training windows; it is judged on test windows."
    return Table("The mean-iowait rule", columns, (tuple(rule[name] for name in names),), note)


def errors_table(found: TraceEvaluation) -> Table:
    """Median and range of the error of each job type, per architecture (Fig. 3 in numbers)."""
    kinds = [kind for kind in Architecture if kind in found.models]
    types = in_order({job_type for kind in kinds for job_type in found.models[kind].by_job_type})
    columns = [Column("job type"), Column("windows", ",d")]
    columns += [Column(f"{KIND_WORDS[kind]}: median (5 to 95 %)", "") for kind in kinds]
    rows = []
    for job_type in types:
        spreads = [found.models[kind].by_job_type[job_type] for kind in kinds]
        cells = (f"{one.quantiles[2]:.5f} ({one.quantiles[0]:.5f} to {one.quantiles[4]:.5f})" for one in spreads)
        rows.append((job_type or UNKNOWN_WORDS, spreads[0].windows, *cells))
    return Table("Fig. 3 in numbers: reconstruction error per job type", tuple(columns), tuple(rows))


def runs_table(found: TraceEvaluation) -> Table:
    """The error on normal windows of each test campaign or run."""
    kinds = [kind for kind in Architecture if kind in found.models]
    runs = sorted({run for kind in kinds for run in found.models[kind].per_run})
    columns = (Column("campaign or run"), *(Column(KIND_WORDS[kind], "") for kind in kinds))
    rows = tuple((run, *(_spread(found.models[kind].per_run.get(run), "re_normal") for kind in kinds)) for run in runs)
    return Table("Reconstruction error on normal windows, per test campaign", columns, rows)


def work_table(study: TraceStudy) -> Table:
    """How long training took in this run, and how many windows one core scores in a second."""
    training = study.seconds["training"]
    rows = tuple(
        (KIND_WORDS[kind], len(models), training.get(str(kind)), study.windows_per_second_per_core.get(kind))
        for kind, models in study.scorers.items()
    )
    columns = (Column("model"), Column("models", "d"), Column("training (s)", ",.0f"), Column("windows/s/core", ",.0f"))
    counts = study.split.counts()
    note = (
        f"{counts['train']:,} windows to learn from, {counts['validation']:,} to stop by, {counts['test']:,} to judge by; "
        f"{counts['left_out']:,} with gaps left out. Models that were there already were not trained again."
    )
    return Table("Work", columns, rows, note)


def abnormal(scores: pl.DataFrame, by: str, *, top: int = 10) -> pl.DataFrame:
    """The nodes, threads or jobs with the largest share of flagged windows, then with the highest mean score."""
    keys = _OWNERS[by]
    known = scores.filter(pl.col("job_id").is_not_null()) if by == "job" else scores
    return (
        known.group_by(keys)
        .agg(
            pl.len().alias("windows"),
            pl.col("flagged").sum().alias("flagged"),
            pl.col("score").mean().alias("mean_score"),
            pl.col("score").max().alias("highest_score"),
            pl.col("max_iowait").max().alias("max_iowait"),
        )
        .sort(pl.col("flagged") / pl.col("windows"), "mean_score", *keys, descending=[True, True, *([False] * len(keys))])
        .head(top)
    )


def abnormal_table(found: pl.DataFrame, by: str) -> Table:
    """What `abnormal` found, for people."""
    named = {"node": Column("node"), "cpu": Column("CPU", "d"), "job_id": Column("job"), "job_type": Column("type")}
    columns = [(key, named[key]) for key in _OWNERS[by]]
    columns += [
        ("windows", Column("windows", ",d")),
        ("flagged", Column("flagged", ",d")),
        ("mean_score", Column("mean score", ".5f")),
        ("highest_score", Column("highest", ".5f")),
        ("max_iowait", Column("iowait up to", ".2f")),
    ]
    return table_of(f"Most abnormal {by}s", found, columns)


def job_types(points: pl.DataFrame) -> pl.DataFrame:
    """Where the windows of each job type lie on the map, and how far off they are."""
    found = points.group_by("job_type").agg(
        pl.len().alias("windows"),
        pl.col("x").mean(),
        pl.col("y").mean(),
        pl.col("score").median().alias("median_score"),
        pl.col("flagged").mean().alias("flagged_share"),
    )
    order = in_order(found["job_type"].drop_nulls().to_list())
    return found.sort(pl.col("job_type").replace_strict(order, range(len(order)), default=len(order)))


def map_table(points: pl.DataFrame) -> Table:
    """What `job_types` found, for people."""
    columns = [
        ("job_type", Column("job type")),
        ("windows", Column("windows", ",d")),
        ("x", Column("x", ".2f")),
        ("y", Column("y", ".2f")),
        ("median_score", Column("median score", ".5f")),
        ("flagged_share", Column("flagged", ".1%")),
    ]
    named = job_types(points).with_columns(pl.col("job_type").replace("", UNKNOWN_WORDS))
    return table_of("Where job types lie", named, columns)


def suspects_table(found: Diagnosis, *, top: int = 20) -> Table:
    """Who lies near Bad IO without being it."""
    columns = (
        Column("job"), Column("type"), Column("node"), Column("CPUs"), Column("windows", ",d"), Column("near", ",d"),
        Column("nearest", ".2f"), Column("iowait up to", ".2f"),
    )  # fmt: skip
    rows = tuple(
        (
            one.job_id or NOTHING, one.job_type or UNKNOWN_WORDS, one.node, _cpus(one.cpus), one.windows, one.near, one.nearest,
            one.max_iowait,
        )
        for one in found.suspects[:top]
    )  # fmt: skip
    return Table("Jobs and threads that lie near Bad IO", columns, rows, diagnosis_words(found))


def diagnosis_words(found: Diagnosis) -> str:
    """The diagnosis in a sentence or two."""
    words = (
        f"{found.near:,} of {found.windows:,} windows lie within {found.radius:.2f} of the centre of Bad IO with "
        f"a largest iowait of {found.high_iowait:.2f} or more."
    )
    if found.rank_correlation is None:
        return words
    return f"{words} Distance and largest iowait have a rank correlation of {found.rank_correlation:+.2f}."


def spectra_table(study: SamplingStudy) -> Table:
    """The lowest dominant frequency of each job type."""
    rows = tuple(
        (one.job_type or UNKNOWN_WORDS, one.dominant_hz, 1 / one.dominant_hz if one.dominant_hz else None)
        for one in study.spectra
    )
    columns = (Column("job type"), Column("lowest dominant frequency (Hz)", ".4f"), Column("period (s)", ",.0f"))
    return Table("Spectra (Welch)", columns, rows, f"Windows of {study.window_s:g} s hold the slowest of these periods.")


def intervals_table(study: SamplingStudy) -> Table:
    """How well job types separate at each sampling interval (Fig. 1b in numbers)."""
    rows = tuple((one.interval_s, one.samples, _spread(one.silhouette, "silhouette")) for one in study.scores)
    columns = (Column("interval (s)", "g"), Column("samples per window", "d"), Column("silhouette", ""))
    return Table("Fig. 1b in numbers: separability", columns, rows, study.advice)


def _cpus(cpus: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, cpus[:8]))
    return f"{shown} and {len(cpus) - 8} more" if len(cpus) > 8 else shown


def _spread(spread: MeanStd | None, name: str) -> str:
    if spread is None or not spread.n:
        return NOTHING
    digits = _digits(name)
    return f"{spread.mean:.{digits}f} ± {spread.std:.{digits}f}"


def _number(value: float | None, name: str) -> str:
    return NOTHING if value is None else f"{value:.{_digits(name)}f}"


def _digits(name: str) -> int:
    return 3 if name in ("silhouette", "roc_auc") else 4
