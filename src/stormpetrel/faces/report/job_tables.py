"""The studies as tables to be read, in a terminal or on a page.

ProfileStudy, FeatureStudy, WasteStudy, PolicyReplay, trends -> Table, with units in the headings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.faces.report.blocks import Column, Table, table_of, written
from stormpetrel.jobs.preparation import LABELS, NEVER_STARTED_LABEL
from stormpetrel.jobs.profiles import activity_table, duration_table, resource_table, status_table, type_table
from stormpetrel.jobs.waste import UNKNOWN
from stormpetrel.records.sizes import GB, memory_words

if TYPE_CHECKING:
    from stormpetrel.answers.job_studies import FeatureStudy, PolicyReplay, ProfileStudy, WasteStudy
    from stormpetrel.jobs.cancel_policy import CancelPoint

HOUR_S: Final = 3600
_PROFILE: Final = ("profile", Column("profile", ",d"))
_COLUMN_WORDS: Final = {
    "run_time_s": "run time", "wait_time_s": "wait time", "cpu": "CPUs", "mem_gb": "memory", "node": "nodes",
    "req_cpu": "requested CPUs", "req_mem_gb": "requested memory", "req_node": "requested nodes", "time_limit_s": "time limit",
    "user": "user", "group": "group",
}  # fmt: skip
_SIZE: Final = "size"  # of memory: each in the unit that fits
_MEANS: Final = (
    ("cpu", "CPUs", ",.1f"), ("mem_gb", "memory", _SIZE), ("run_time_s", "run time (s)", ",.0f"),
    ("wait_time_s", "wait time (s)", ",.0f"),
)  # fmt: skip


def preparation_table(study: ProfileStudy) -> Table:
    """How many jobs were kept, left out and why, and how many values were filled in."""
    counts = study.prepared.counts
    lines = [("jobs in the log", counts["rows"]), ("kept", counts["kept"])]
    lines += [
        (_preparation_words(name), count) for name, count in counts.items() if name.startswith(("dropped_", "imputed_")) and count
    ]
    absent = [_COLUMN_WORDS[name] for name in study.prepared.absent]
    note = f"The log tells nothing of: {', '.join(absent)}." if absent else ""
    return Table("Preparation", (Column("what"), Column("jobs", ",d")), tuple(lines), note)


def states_table(study: ProfileStudy) -> Table:
    """How the jobs ended, state by state."""
    frame = study.labels.with_columns(share=100 * pl.col("share"))
    columns = [("state", Column("state")), ("label", Column("counted as")), ("count", Column("jobs", ",d"))]
    return table_of("How jobs ended", frame, [*columns, ("share", Column("share (%)", ".2f"))])


def label_shares(study: ProfileStudy) -> dict[str, float]:
    """The share (0 to 1) of each label, as it is and among Completed and Failed alone (`Failed of both`).

    Of the jobs that started, or may still: `never_started_count` has the others.
    """
    counts = dict(study.labels.group_by("label").agg(pl.col("count").sum()).iter_rows())
    counts.pop(NEVER_STARTED_LABEL, None)
    total, both = max(1, sum(counts.values())), max(1, counts.get("Completed", 0) + counts.get("Failed", 0))
    shares = {name: counts.get(name, 0) / total for name in LABELS}
    return {**shares, "Failed of both": counts.get("Failed", 0) / both}


def never_started_count(study: ProfileStudy) -> int:
    """How many jobs were over before they ran."""
    return int(study.labels.filter(pl.col("label") == NEVER_STARTED_LABEL)["count"].sum())


def elbow_table(study: ProfileStudy) -> Table:
    """Distortion and BIC over the number of profiles."""
    frame = study.model.elbow_.join(study.model.bic_, on="k", how="left", maintain_order="left")
    columns = [("k", Column("K", "d")), ("distortion", Column("distortion", ",.0f")), ("bic", Column("BIC", ",.0f"))]
    return table_of("Number of profiles", frame, columns)


def why_k(study: ProfileStudy) -> str:
    """How many profiles there are, and why."""
    model = study.model
    used = ", ".join(_COLUMN_WORDS[name] for name in model.columns_used_) or "nothing"
    left = "; ".join(f"{_COLUMN_WORDS[name]} left out ({reason})" for name, reason in model.left_out_.items())
    if model.k_ == 1:
        reason = "no mixture describes these jobs better than a single group (BIC)"
    else:
        reason = f"the distortion bends at K = {model.k_elbow_} (the BIC alone would take {model.k_bic_})"
    return f"K = {model.k_}: {reason}. Compared by {used}{'; ' + left if left else ''}."


def profile_tables(study: ProfileStudy) -> tuple[Table, ...]:
    """The tables of the profiles: resources, duration, user activity, status, type (Figs. 4 to 8 of the published study)."""
    frame, limits = study.profiled, study.limits
    hours = (limits.short_below_s / HOUR_S, limits.long_above_s / HOUR_S)
    return (
        _resources(resource_table(frame)),
        _counts(
            "Duration", duration_table(frame, limits), "jobs",
            f"Short is below {hours[0]:g} h, Long above {hours[1]:g} h of run time.",
        ),
        _counts(
            "User activity", activity_table(frame, limits), "users",
            f"New: fewer than {limits.new_below_jobs:,} jobs; Frequent: {limits.frequent_from_jobs:,} or more. "
            "A user of two profiles counts in both.",
        ),
        _counts("Status", status_table(frame), "jobs", "Other: cancelled, not counted, or not ended."),
        _counts(
            "Type", type_table(frame, limits), "jobs",
            f"Memory (Compute): above {limits.mem_factor:g} times the site's median memory per CPU (below one such part).",
        ),
    )  # fmt: skip


def profile_words(study: ProfileStudy) -> Table:
    """Each profile in a sentence."""
    sizes = dict(study.model.summary_.select("profile", "jobs").iter_rows())
    rows = tuple((place, sizes.get(place, 0), study.model.describe(place)) for place in range(study.model.k_))
    return Table("In words", (Column("profile", "d"), Column("jobs", ",d"), Column("these are")), rows)


def correlation_table(study: FeatureStudy, top: int = 15) -> Table:
    """The features that hang together with failing most."""
    frame = study.correlated.table.head(top).with_columns(missing=100 * pl.col("missing"))
    columns = [
        ("feature", Column("feature")),
        ("pearson", Column("Pearson r", "+.2f")),
        ("spearman", Column("Spearman ρ", "+.2f")),
    ]
    return table_of("Correlation with failing", frame, [*columns, ("missing", Column("unknown (% of jobs)", ".1f"))])


def importance_table(study: FeatureStudy, top: int = 15) -> Table:
    """The features that move the forecast most."""
    columns = [("feature", Column("feature")), ("mean_abs_shap", Column("mean |SHAP| (log-odds)", ".3f"))]
    return table_of("Importance", study.important.head(top), [*columns, ("total_gain", Column("total gain (log-loss)", ",.0f"))])


def ablation_table(study: FeatureStudy) -> Table | None:
    """What is lost without each group of features, and what each can do alone; None without ablation."""
    if study.ablated is None:
        return None
    columns = [
        ("group", Column("group")), ("features", Column("features", "d")), ("pr_lost", Column("PR lost without it", "+.3f")),
        ("pr_error", Column("± std. error", ".3f")), ("roc_lost", Column("ROC lost without it", "+.3f")),
        ("pr_alone", Column("PR alone", ".3f")), ("roc_alone", Column("ROC alone", ".3f")),
    ]  # fmt: skip
    note = (
        f"With all features: ROC {study.ablated.roc_auc:.3f}, PR {study.ablated.pr_auc:.3f}, "
        "fitted on the first 75 % of the jobs and judged on the rest."
    )
    return table_of("Ablation by group", study.ablated.groups, columns, note=note)


def verdict_table(study: FeatureStudy, top: int | None = 25) -> Table | None:
    """Which features to keep and which to drop, with the reason; None without ablation."""
    if study.verdicts is None:
        return None
    shown = study.verdicts if top is None else study.verdicts.head(top)
    note = verdict_words(study) + (f" Shown: the {shown.height} most important." if shown.height < study.verdicts.height else "")
    return table_of(
        "Keep or drop", shown, [(name, Column(name)) for name in ("feature", "group", "verdict", "reason")], note=note
    )


def verdict_words(study: FeatureStudy) -> str:
    """How many features earn their place."""
    assert study.verdicts is not None
    kept = int((study.verdicts["verdict"] == "keep").sum())
    return (
        f"{kept} of {study.verdicts.height} features are missed when their group is left out. Groups stand in for each other: "
        "that one can be spared does not mean that all can. Leave out one group at a time and look again."
    )


def waste_table(study: WasteStudy, top: int = 20) -> Table:
    """What failed jobs held, per group."""
    frame = study.groups.head(top).select(
        pl.col(study.by),
        "jobs",
        "failed_jobs",
        rate=100 * pl.col("failed_jobs") / pl.col("jobs"),
        held=pl.col("core_seconds") / HOUR_S,
        lost=pl.col("lost_core_seconds") / HOUR_S,
        share=100 * pl.col("share"),
    )
    columns = [
        (study.by, Column(study.by)), ("jobs", Column("jobs", ",d")), ("failed_jobs", Column("failed", ",d")),
        ("rate", Column("failed (%)", ".1f")), ("held", Column("held (core-hours)", ",.0f")),
        ("lost", Column("lost (core-hours)", ",.0f")), ("share", Column("share of the loss (%)", ".1f")),
    ]  # fmt: skip
    more = study.groups.height - frame.height
    note = f"{more:,} more groups are not shown." if more else ""
    return table_of(f"Lost to failed jobs, by {study.by}", frame, columns, note=note)


def waste_words(study: WasteStudy) -> tuple[str, ...]:
    """The totals, what is not in them, and that they agree with the log."""
    total = study.reconciled.total
    share = total.lost_core_seconds / max(1, total.core_seconds)
    lines = [
        f"{total.failed_jobs:,} of {total.jobs:,} jobs failed and held {total.lost_core_seconds / HOUR_S:,.0f} of "
        f"{total.core_seconds / HOUR_S:,.0f} core-hours ({share:.1%}).",
        f"The groups reconcile exactly with the log: {total.jobs:,} jobs, {total.core_seconds:,} core-seconds held, "
        f"{total.lost_core_seconds:,} lost.",
    ]
    reasons = [f"{count:,} ({reason})" for reason, count in study.reconciled.uncounted.items()]
    reasons += [f"{study.dropped:,} (in a state that is left out)"] if study.dropped else []
    return (*lines, *([f"Not counted: {', '.join(reasons)}."] if reasons else []))


def policy_table(replay: PolicyReplay, tau: float | None = None) -> Table:
    """The policy on the later splits: at the τ chosen before, at one that was asked for, and at the best in hindsight."""
    from stormpetrel.jobs.cancel_policy import policy_at

    points: list[tuple[str, CancelPoint]] = [("chosen on earlier splits", replay.at_tau)]
    if tau is not None:
        points.append(("asked for", policy_at(replay.judged, tau)))
    points.append(("best in hindsight", replay.judged.best))
    shown = (replay.tau, tau, replay.judged.best.tau) if tau is not None else (replay.tau, replay.judged.best.tau)
    rows = tuple((words, threshold, *_point(point)) for (words, point), threshold in zip(points, shown, strict=True))
    columns = (
        Column("threshold"), Column("τ", ".3f"), Column("jobs cancelled", ",d"), Column("of them wrongly", ",d"),
        Column("good jobs killed (%)", ".2f"), Column("saved (core-hours)", ",.0f"), Column("destroyed (core-hours)", ",.0f"),
        Column("net (core-hours)", "+,.0f"),
    )  # fmt: skip
    return Table("Cancel at two minutes if the risk is above τ", columns, rows, policy_note(replay))


def policy_note(replay: PolicyReplay) -> str:
    """On what τ was chosen, and on what it was judged."""
    judged = replay.judged
    return (
        f"τ was chosen on the first {replay.splits_chosen} of {replay.splits_chosen + replay.splits_judged} splits by time and "
        f"judged on the later {replay.splits_judged}: {judged.jobs:,} jobs that still ran after two minutes, "
        f"{judged.failed_jobs:,} of which failed. Each risk was forecast from what had ended before. "
        f"Destroyed: what good jobs would have held, and have to hold again; net = saved − destroyed."
    )


def trend_table(trend: pl.DataFrame, *, periods: int = 4) -> Table:
    """The failure rates of the last periods, one column each, the groups with the most failures first."""
    by = str(trend["by"].item(0)) if trend.height else "group"
    days = trend["period"].unique().sort().tail(periods).to_list()
    sums = trend.group_by("group").agg(pl.col("jobs", "failed").sum()).sort(["failed", "group"], descending=[True, False])
    recent = trend.filter(pl.col("period").is_in(days)).with_columns(
        cell=pl.format("{} % of {}", (100 * pl.col("rate")).round(0).cast(pl.Int64), "jobs")
    )
    cells = {(group, period): cell for group, period, cell in recent.select("group", "period", "cell").iter_rows()}
    rows = tuple(
        (group, jobs, 100 * failed / jobs, *(cells.get((group, day)) for day in days)) for group, jobs, failed in sums.iter_rows()
    )
    dated = (Column(f"{day:%d %b %Y}", "") for day in days)
    columns = (Column(by), Column("jobs", ",d"), Column("failed (%)", ".1f"), *dated)
    note = "Of the last periods each is named by its first day; a dash is a period without jobs."
    return Table(f"Failure rate by {by}, over all and in the last {len(days)} periods", columns, rows, note)


def known_groups(frame: pl.DataFrame, by: str) -> bool:
    """Whether a ledger has any group with a name."""
    return bool((frame[by] != UNKNOWN).any())


def _point(point: CancelPoint) -> tuple[Any, ...]:
    destroyed = point.wrong_core_seconds + point.redo_core_seconds
    return (
        point.cancelled,
        point.wrong_kills,
        100 * point.wrong_share,
        point.saved_core_seconds / HOUR_S,
        destroyed / HOUR_S,
        point.net_core_seconds / HOUR_S,
    )


def _counts(title: str, frame: pl.DataFrame, unit: str, note: str) -> Table:
    """A profile table; a group that has none stays, so that tables of two logs can be compared, except Unknown."""
    words = [name for name in frame.columns if name != "profile" and not (name in ("Unknown", "Other") and not frame[name].sum())]
    return table_of(title, frame, [_PROFILE, *((word, Column(f"{word} ({unit})", ",d")) for word in words)], note=note)


def _resources(frame: pl.DataFrame) -> Table:
    """Mean ± standard deviation of what the log tells."""
    told = [entry for entry in _MEANS if frame[f"{entry[0]}_mean"].count()]
    rows = tuple(
        (row["profile"], row["jobs"], *(_spread(row[f"{name}_mean"], row[f"{name}_std"], form) for name, _, form in told))
        for row in frame.iter_rows(named=True)
    )
    columns = (Column("profile", "d"), Column("jobs", ",d"), *(Column(words, "") for _, words, _ in told))
    return Table("Resources, run time and wait time (mean ± std)", columns, rows)


def _spread(mean: float | None, std: float | None, form: str) -> str | None:
    if mean is not None and form == _SIZE:
        return memory_words(GB * mean) + ("" if std is None else f" ± {memory_words(GB * std)}")
    return None if mean is None else f"{written(mean, form)} ± {written(std, form)}"


def _preparation_words(name: str) -> str:
    kind, _, column = name.partition("_")
    if kind == "imputed":
        return f"{_COLUMN_WORDS.get(column, column)} filled in"
    if column == "never_started":
        return "left out: never started"
    if column == "too_short":
        return "left out: ran for too short a time"
    return f"left out: no {_COLUMN_WORDS.get(column.removeprefix('no_'), column)}"
