"""The workload in the report: the site's jobs next to synthetic ones, as the published study drew them, and how near they are.

Site -> site_workload_sections -> Section; a site with too few jobs to learn from has none. The tables and figures are those of
the command line too: WorkloadEvaluation -> evaluation_tables; name -> WorkloadFidelity -> comparison_table; name -> Workload ->
comparison_drawings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from stormpetrel.answers.viewer import LOCAL
from stormpetrel.answers.workload.quality import SYNTHETIC, compare_site_workload
from stormpetrel.answers.workload.workload import NEAR
from stormpetrel.errors import NotEnoughJobsError, StormpetrelError
from stormpetrel.faces.report.blocks import Block, Column, Drawing, Paragraph, Section, Table, showing
from stormpetrel.figures.workload import (
    GRID_COLUMNS,
    acf_figure,
    cdf_grid,
    hour_of_week_figure,
    hourly_counts_figure,
)
from stormpetrel.figures.workload_curves import columns_of
from stormpetrel.synth.choose import DEFAULT

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.workload import FigurePair, SiteWorkload, WorkloadEvaluation, WorkloadFidelity, WorkloadScore
    from stormpetrel.store.site import Site
    from stormpetrel.synth.workload import Workload

Progress = Callable[[str], None]

TITLE: Final = "Workload"
_INTRO: Final = (
    "The jobs of this site beside as many that a generator made which learnt from them. Where the lines lie on each other, "
    "synthetic jobs can stand in for real ones: to share a log, to plan, to test a scheduler. The poster prints curves and no "
    "numbers; in words: CopulaGAN is good at run times and cores, and struggles with the intervals between jobs."
)
_IDEAL_NOTE: Final = "Ideal: what a perfect copy would reach."
_FLOOR_NOTE: Final = (
    f"{_IDEAL_NOTE} Floor: what the odd weeks of the real log reach against its even ones. Near: at most {NEAR:g} times as far "
    "from the ideal as the floor, or within .02 of it. Some have a bound of their own, however good the floor is: lag-1 within "
    ".08 of the real one, told apart .45 to .65, membership up to .6, nearest record from .8 on, "
    f"copies up to {NEAR:g} times what chance gives."
)
_GRID_ROW_PX: Final = 300


def site_workload_sections(site: Site, *, generator: str = DEFAULT, progress: Progress = lambda _: None) -> list[Section]:
    """Return the site's workload, real against synthetic: of the generator in use, or of one that is fitted now and not kept."""
    progress("workload")
    try:
        answer, workloads = compare_site_workload(site, LOCAL, generator=generator)
    except NotEnoughJobsError:
        return []
    except StormpetrelError as error:
        text = f"No synthetic jobs could be made: {error.what}"
        return [Section(TITLE, "", (Paragraph(text),), {"generator-results": text})]
    made_by = f"Made by the generator {_generator(answer)}. The newest {answer.jobs:,} jobs are drawn, and as many new ones."
    curves, *others = comparison_drawings(workloads)
    blocks: list[Block] = [Paragraph(made_by), showing(curves, "generator-results"), *others]
    if answer.fidelity is not None:
        blocks.append(comparison_table({SYNTHETIC: answer.fidelity}))
    else:
        blocks += evaluation_tables(answer, "Scorecard: learnt from odd weeks, judged on even ones")
    return [Section(TITLE, _INTRO, tuple(blocks))]


def _generator(answer: SiteWorkload) -> str:
    if answer.training is None:
        return f"'{answer.generator}', fitted for this report on the newest {answer.learnt_from:,} jobs"
    return f"'{answer.generator}' ({answer.training}), which is in use and has learnt from {answer.learnt_from:,} jobs"


def evaluation_tables(answer: WorkloadEvaluation | SiteWorkload, title: str) -> list[Table]:
    """Return every figure of a scorecard, and what a failure model and a scheduler make of the synthetic jobs if measured."""
    card = answer.scorecard or {}
    return [scorecard_table(title, answer.scores, has_floor=bool(card.get("floor"))), *usefulness_tables(card)]


def scorecard_table(title: str, scores: Sequence[WorkloadScore], *, has_floor: bool = True) -> Table:
    """Return the figures of a scorecard, each next to its ideal and its floor, with what it means."""
    columns = (
        Column("figure"), Column("synthetic", ".3f"), Column("ideal", ".3f"), Column("floor", ".3f"), Column(""),
        Column("in words"),
    )  # fmt: skip
    return Table(title, columns, tuple(_row(score) for score in scores), _FLOOR_NOTE if has_floor else _IDEAL_NOTE)


def usefulness_tables(card: Mapping[str, Any]) -> list[Table]:
    """Return what a failure model and a scheduler make of the synthetic jobs; nothing where neither was measured."""
    tables = []
    learnt, scheduled = card.get("tstr"), card.get("schedule")
    if learnt:
        tables.append(_training_table(learnt))
    if scheduled:
        tables.append(_schedule_table(scheduled))
    return tables


def comparison_drawings(workloads: Mapping[str, Workload]) -> tuple[Drawing, ...]:
    """The figures of workloads side by side, the real one first."""
    rows = -(-len(columns_of(workloads)) // GRID_COLUMNS)
    return (
        Drawing(
            cdf_grid(workloads),
            "The share of jobs up to each value. Names are new in a synthetic log: there, what the most active ones make up.",
            rows * _GRID_ROW_PX + 90,
        ),
        Drawing(acf_figure(workloads), "High: long bursts and pauses. A generator of independent rows is at zero."),
        Drawing(hour_of_week_figure(workloads), "When people submit."),
        Drawing(hourly_counts_figure(workloads), "Further to the right: harder bursts. Both axes are logarithmic."),
    )


def comparison_table(synthetic: Mapping[str, WorkloadFidelity]) -> Table:
    """Return the cheap figures of several synthetic workloads next to those of the real one, a column each."""
    columns = (Column("figure"), Column("real", ".3f"), *(Column(name, ".3f") for name in synthetic), Column("ideal"))
    cards = list(synthetic.values())
    names = list(dict.fromkeys(name for card in cards for name in card.columns))
    kinds = list(dict.fromkeys(name for card in cards for name in card.categories))
    rows = [
        *(
            (f"{name}, KS", None, *(card.columns[name].ks if name in card.columns else None for card in cards), "0")
            for name in names
        ),
        *(
            (f"{name}, variation", None, *(card.categories[name].tv if name in card.categories else None for card in cards), "0")
            for name in kinds
        ),
        _pairs("lag-1 autocorrelation", [card.lag1 for card in cards]),
        ("autocorrelation error, lags 1–50", None, *(card.acf_mae for card in cards), "0"),
        _pairs("dispersion of hourly counts", [card.dispersion for card in cards]),
        ("hour-of-week variation", None, *(card.hour_profile_tv for card in cards), "0"),
        _pairs("same user as before", [card.same_user_share for card in cards]),
    ]
    return Table("Real against synthetic", columns, tuple(row for row in rows if any(isinstance(cell, float) for cell in row)))


def _row(score: WorkloadScore) -> tuple[Any, ...]:
    return score.measure, score.value, score.ideal, score.floor, "" if score.verdict == "open" else score.verdict, score.meaning


def _pairs(title: str, pairs: Sequence[FigurePair]) -> tuple[Any, ...]:
    real = next((pair.real for pair in pairs if pair.real is not None), None)
    return title, real, *(pair.synthetic for pair in pairs), "real"


def _training_table(learnt: Mapping[str, Any]) -> Table:
    columns = (Column("failure model learnt from"), Column("PR area", ".3f"), Column("ROC area", ".3f"))
    simple = (learnt.get("baseline") or {}).get("last_outcome") or {}
    rows = (
        ("the real jobs", _mean(learnt.get("pr_auc_real")), _mean(learnt.get("roc_auc_real"))),
        ("synthetic jobs", _mean(learnt.get("pr_auc_synthetic")), _mean(learnt.get("roc_auc_synthetic"))),
        ("nothing: same as the user's last job", _mean(simple.get("pr_auc")), _mean(simple.get("roc_auc"))),
    )
    ratio = _mean(learnt.get("ratio"))
    share = f" Synthetic reaches {ratio:.0%} of the PR area of real." if ratio is not None else ""
    return Table("A failure model, tested on the newest real jobs", columns, rows, f"Higher is better.{share}")


def _schedule_table(scheduled: Mapping[str, Any]) -> Table:
    columns = (Column("scheduler fed with"), Column("mean wait (s)", ",.0f"), Column("utilisation", ".1%"))
    rows = tuple(
        (f"{name} jobs", _mean(scheduled[name].get("mean_wait_s")), _mean(scheduled[name].get("utilisation")))
        for name in ("real", "synthetic")
        if name in scheduled
    )
    machine = scheduled.get("machine") or {}
    note = f"First come, first served with backfill on {machine['cores']:,} cores." if machine.get("cores") else ""
    ratio, spread = _mean(scheduled.get("wait_ratio")), scheduled.get("wait_ratio")
    if ratio is not None:
        within = f" ± {spread['std']:.2f} over {spread['n']} seeds" if isinstance(spread, Mapping) else ""
        note += f" The wait with synthetic jobs is {ratio:.2f}{within} times that with real ones; 1 is ideal."
    return Table("A scheduler", columns, rows, note)


def _mean(value: Any) -> float | None:
    """Return a figure, or the mean of one that was measured over seeds."""
    number = value.get("mean") if isinstance(value, Mapping) else value
    return None if number is None else float(number)
