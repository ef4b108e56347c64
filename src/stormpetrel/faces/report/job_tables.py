"""The studies as tables to be read, in a terminal or on a page.

ProfileStudy, FeatureStudy, TrendStudy, WasteStudy, PolicyReplay -> Table, with units in the headings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from stormpetrel.answers.history.energy import lost_text
from stormpetrel.faces.report.blocks import Column, Table, written
from stormpetrel.jobs.preparation import LABELS, NEVER_STARTED_LABEL
from stormpetrel.jobs.waste import UNKNOWN
from stormpetrel.records.units import GB, format_memory

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.base import Answer
    from stormpetrel.answers.schemas.history import PolicyPoint
    from stormpetrel.answers.schemas.job_studies import (
        FeatureStudy,
        PolicyReplay,
        ProfileResources,
        ProfileStudy,
        TrendStudy,
        WasteStudy,
    )

HOUR_S: Final = 3600
_COLUMN_LABELS: Final = {
    "run_time_s": "run time", "wait_time_s": "wait time", "cpu": "CPUs", "mem_gb": "memory", "node": "nodes",
    "req_cpu": "requested CPUs", "req_mem_gb": "requested memory", "req_node": "requested nodes", "time_limit_s": "time limit",
    "user": "user", "group": "group",
}  # fmt: skip
_KWH_HEADINGS: Final = {
    "measured": "lost (kWh)", "partly estimated": "lost (kWh, in part est.)", "estimated": "lost (kWh, est.)",
}  # fmt: skip
_SIZE: Final = "size"  # of memory: each in the unit that fits
_MEANS: Final = (
    ("cpu", "CPUs", ",.1f"), ("mem_gb", "memory", _SIZE), ("run_time_s", "run time (s)", ",.0f"),
    ("wait_time_s", "wait time (s)", ",.0f"),
)  # fmt: skip


def newest_jobs_table(jobs: pl.DataFrame, most: int = 5) -> Table:
    """The jobs that ended last, with the fields that a job trace records; times are UTC."""
    newest = jobs.drop_nulls("end_time").sort("end_time", "job_id", maintain_order=True).tail(most)
    wanted = ("job_id", "job_name", "user", "group", "submit_time", "start_time", "end_time", "state", "nodes", "cpus",
              "mem_bytes", "time_limit_s")  # fmt: skip
    rows = tuple(
        (
            str(job), name, user, group, *(None if moment is None else f"{moment:%d %b %H:%M:%S}" for moment in times), state,
            nodes, cpus, None if mem is None else format_memory(mem), limit,
        )
        for job, name, user, group, *times, state, nodes, cpus, mem, limit in newest.select(wanted).iter_rows()
    )  # fmt: skip
    columns = (
        Column("job"), Column("name"), Column("user"), Column("group"), Column("submitted"), Column("started"), Column("ended"),
        Column("state"), Column("nodes", ",d"), Column("CPUs", ",d"), Column("memory", ""), Column("limit (s)", ",.0f"),
    )  # fmt: skip
    return Table(f"The log as it was read: the {len(rows)} jobs that ended last", columns, rows, "Times are UTC.")


def preparation_table(study: ProfileStudy) -> Table:
    """How many jobs were kept, left out and why, and how many values were filled in."""
    counts = study.preparation
    lines = [("jobs in the log", counts["rows"]), ("kept", counts["kept"])]
    lines += [
        (_preparation_text(name), count) for name, count in counts.items() if name.startswith(("dropped_", "imputed_")) and count
    ]
    absent = [_COLUMN_LABELS[name] for name in study.absent]
    note = f"The log tells nothing of: {', '.join(absent)}." if absent else ""
    return Table("Preparation", (Column("what"), Column("jobs", ",d")), tuple(lines), note)


def states_table(study: ProfileStudy) -> Table:
    """How the jobs ended, state by state."""
    columns = (Column("state"), Column("counted as"), Column("jobs", ",d"), Column("share (%)", ".2f"))
    rows = tuple((line.state, line.label, line.count, 100 * line.share) for line in study.labels)
    return Table("How jobs ended", columns, rows)


def label_shares(study: ProfileStudy) -> dict[str, float]:
    """The share (0 to 1) of each label, as it is and among Completed and Failed alone (`Failed of both`).

    Of the jobs that started, or may still: `never_started_count` has the others.
    """
    counts = _jobs_by_label(study)
    counts.pop(NEVER_STARTED_LABEL, None)
    total, both = max(1, counts.total()), max(1, counts["Completed"] + counts["Failed"])
    return {**{name: counts[name] / total for name in LABELS}, "Failed of both": counts["Failed"] / both}


def never_started_count(study: ProfileStudy) -> int:
    """How many jobs were over before they ran."""
    return _jobs_by_label(study)[NEVER_STARTED_LABEL]


def _jobs_by_label(study: ProfileStudy) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in study.labels:
        counts[line.label] += line.count
    return counts


def elbow_table(study: ProfileStudy) -> Table:
    """Distortion and BIC over the number of profiles."""
    bic = {point.k: point.bic for point in study.bic}
    rows = tuple((point.k, point.distortion, bic.get(point.k)) for point in study.elbow)
    return Table("Number of profiles", (Column("K", "d"), Column("distortion", ",.0f"), Column("BIC", ",.0f")), rows)


def why_k(study: ProfileStudy) -> str:
    """How many profiles there are, and why."""
    used = ", ".join(_COLUMN_LABELS[name] for name in study.columns) or "nothing"
    left = "; ".join(f"{_COLUMN_LABELS[name]} left out ({reason})" for name, reason in study.left_out.items())
    if study.k == 1:
        reason = "no mixture describes these jobs better than a single group (BIC)"
    else:
        reason = f"the distortion bends at K = {study.k_elbow} (the BIC alone would take {study.k_bic})"
    return f"K = {study.k}: {reason}. Compared by {used}{'; ' + left if left else ''}."


def profile_tables(study: ProfileStudy) -> tuple[Table, ...]:
    """The tables of the profiles: resources, duration, user activity, status, type (Figs. 4 to 8 of the published study)."""
    limits = study.limits
    hours = (limits.short_below_s / HOUR_S, limits.long_above_s / HOUR_S)
    return (
        _resources(study.resources),
        _counts("Duration", study.duration, "jobs", f"Short is below {hours[0]:g} h, Long above {hours[1]:g} h of run time."),
        _counts(
            "User activity", study.activity, "users",
            f"New: fewer than {limits.new_below_jobs:,} jobs; Frequent: {limits.frequent_from_jobs:,} or more. "
            "A user of two profiles counts in both.",
        ),
        _counts("Status", study.status, "jobs", "Other: cancelled, not counted, or not ended."),
        _counts(
            "Type", study.type, "jobs",
            f"Memory (Compute): above {limits.mem_factor:g} times the site's median memory per CPU (below one such part).",
        ),
    )  # fmt: skip


def profile_descriptions(study: ProfileStudy) -> Table:
    """Each profile in a sentence."""
    sizes = {line.profile: line.jobs for line in study.resources}
    rows = tuple((line.profile, sizes.get(line.profile, 0), line.words) for line in study.profiles)
    return Table("In words", (Column("profile", "d"), Column("jobs", ",d"), Column("these are")), rows)


def correlation_table(study: FeatureStudy, top: int = 15) -> Table:
    """The features that hang together with failing most."""
    columns = (
        Column("feature"), Column("Pearson r", "+.2f"), Column("Spearman ρ", "+.2f"), Column("unknown (% of jobs)", ".1f"),
    )  # fmt: skip
    rows = tuple((line.feature, line.pearson, line.spearman, 100 * line.missing) for line in study.correlations[:top])
    return Table("Correlation with failing", columns, rows)


def importance_table(study: FeatureStudy, top: int = 15) -> Table:
    """The features that move the forecast most."""
    columns = (Column("feature"), Column("mean |SHAP| (log-odds)", ".3f"), Column("total gain (log-loss)", ",.0f"))
    return Table("Importance", columns, _cells(study.importance[:top], "feature", "mean_abs_shap", "total_gain"))


def ablation_table(study: FeatureStudy) -> Table | None:
    """What is lost without each group of features, and what each can do alone; None without ablation."""
    if study.ablation is None:
        return None
    columns = (
        Column("group"), Column("features", "d"), Column("PR lost without it", "+.3f"), Column("± std. error", ".3f"),
        Column("ROC lost without it", "+.3f"), Column("PR alone", ".3f"), Column("ROC alone", ".3f"),
    )  # fmt: skip
    names = ("group", "features", "pr_lost", "pr_error", "roc_lost", "pr_alone", "roc_alone")
    note = (
        f"With all features: ROC {study.ablation.roc_auc:.3f}, PR {study.ablation.pr_auc:.3f}, "
        "fitted on the first 75 % of the jobs and judged on the rest."
    )
    return Table("Ablation by group", columns, _cells(study.ablation.groups, *names), note)


def verdict_table(study: FeatureStudy, top: int = 25) -> Table | None:
    """Which features to keep and which to drop, with the reason; None without ablation."""
    if study.verdicts is None:
        return None
    shown, names = study.verdicts[:top], ("feature", "group", "verdict", "reason")
    kept = sum(line.verdict == "keep" for line in study.verdicts)
    note = (
        f"{kept} of {len(study.verdicts)} features are missed when their group is left out. Groups stand in for each other: "
        "that one can be spared does not mean that all can. Leave out one group at a time and look again."
    )
    note += f" Shown: the {len(shown)} most important." if len(shown) < len(study.verdicts) else ""
    return Table("Keep or drop", tuple(map(Column, names)), _cells(shown, *names), note)


def waste_table(study: WasteStudy, top: int = 20) -> Table:
    """Core-hours and energy lost to failed jobs, per group; CO2 where the site says what a kWh is."""
    by, shown, energy = breakdown_label(study.by), study.groups[:top], study.energy
    with_co2 = energy.grams_co2_per_kwh is not None
    rows = tuple(
        (
            line.group,
            line.jobs,
            line.failed_jobs,
            100 * line.failed_jobs / line.jobs,
            line.core_seconds / HOUR_S,
            line.lost_core_seconds / HOUR_S,
            100 * line.share,
            line.lost_kwh,
            *((line.lost_co2_kg,) if with_co2 else ()),
        )
        for line in shown
    )
    columns = (
        Column(by), Column("jobs", ",d"), Column("failed", ",d"), Column("failed (%)", ".1f"),
        Column("held (core-hours)", ",.0f"), Column("lost (core-hours)", ",.0f"), Column("share of the loss (%)", ".1f"),
        Column(_KWH_HEADINGS[energy.known], ",.1f"),
        *((Column("lost (kg CO2)", ",.1f"),) if with_co2 else ()),
    )  # fmt: skip
    more = len(study.groups) - len(shown)
    return Table(f"Lost to failed jobs, by {by}", columns, rows, f"{more:,} more groups are not shown." if more else "")


def breakdown_label(by: str) -> str:
    """What a study is broken down by, as people call it: other programs know an application as a family."""
    return "application" if by == "family" else by


def waste_text(study: WasteStudy) -> tuple[str, ...]:
    """The totals, what is not in them, and that they agree with the log."""
    total = study.total
    share = total.lost_core_seconds / max(1, total.core_seconds)
    lines = [
        f"{total.failed_jobs:,} of {total.jobs:,} jobs failed and held {total.lost_core_seconds / HOUR_S:,.0f} of "
        f"{total.core_seconds / HOUR_S:,.0f} core-hours ({share:.1%}).",
        f"The groups reconcile exactly with the log: {total.jobs:,} jobs, {total.core_seconds:,} core-seconds held, "
        f"{total.lost_core_seconds:,} lost.",
        f"Of energy they lost {lost_text(total.lost_kwh or 0.0, total.kwh or 0.0, total.lost_co2_kg, study.energy.known)}. "
        f"{study.energy.words}",
    ]
    reasons = [f"{count:,} ({reason})" for reason, count in study.uncounted.items()]
    reasons += [f"{study.dropped:,} (in a state that is left out)"] if study.dropped else []
    return (*lines, *([f"Not counted: {', '.join(reasons)}."] if reasons else []))


def policy_table(replay: PolicyReplay) -> Table:
    """The policy on the later splits: at the τ chosen before, at one that was requested, and at the best in hindsight."""
    points = [("chosen on earlier splits", replay.tau, replay.at_tau)]
    if replay.asked is not None:
        points.append(("asked for", replay.asked.asked_tau, replay.asked))
    points.append(("best in hindsight", replay.hindsight.tau, replay.hindsight))
    columns = (
        Column("threshold"), Column("τ", ".3f"), Column("jobs cancelled", ",d"), Column("of them wrongly", ",d"),
        Column("good jobs killed (%)", ".2f"), Column("saved (core-hours)", ",.0f"), Column("destroyed (core-hours)", ",.0f"),
        Column("net (core-hours)", "+,.0f"),
    )  # fmt: skip
    rows = tuple((label, threshold, *_point(point)) for label, threshold, point in points)
    return Table("Cancel at two minutes if the risk is above τ", columns, rows, policy_note(replay))


def policy_note(replay: PolicyReplay) -> str:
    """On what τ was chosen, and on what it was judged."""
    earlier, judged = replay.chosen_on.splits, replay.judged_on
    return (
        f"τ was chosen on the first {earlier} of {earlier + judged.splits} splits by time and "
        f"judged on the later {judged.splits}: {judged.jobs:,} jobs that still ran after two minutes, "
        f"{judged.failed_jobs:,} of which failed. Each risk was forecast from what had ended before. "
        f"Destroyed: what good jobs would have held, and have to hold again; net = saved − destroyed."
    )


def trend_table(study: TrendStudy, *, periods: int = 4) -> Table:
    """The failure rates of the last periods, one column each, the groups with the most failures first."""
    by = breakdown_label(study.by)
    days = sorted({point.period for point in study.trend})[-periods:]
    jobs: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for point in study.trend:
        jobs[point.group] += point.jobs
        failed[point.group] += point.failed
    cells = {(point.group, point.period): f"{100 * point.rate:.0f} % of {point.jobs}" for point in study.trend}
    rows = tuple(
        (group, jobs[group], 100 * failed[group] / jobs[group], *(cells.get((group, day)) for day in days))
        for group in sorted(jobs, key=lambda name: (-failed[name], name))
    )
    dated = (Column(f"{day:%d %b %Y}", "") for day in days)
    columns = (Column(by), Column("jobs", ",d"), Column("failed (%)", ".1f"), *dated)
    note = "Of the last periods each is named by its first day; a dash is a period without jobs."
    return Table(f"Failure rate by {by}, over all and in the last {len(days)} periods", columns, rows, note)


def has_known_groups(study: WasteStudy) -> bool:
    """Whether a ledger has any group with a name."""
    return any(line.group != UNKNOWN for line in study.groups)


def _cells(lines: Sequence[Answer], *names: str) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(line[name] for name in names) for line in lines)


def _point(point: PolicyPoint) -> tuple[Any, ...]:
    destroyed = point.wrong_core_seconds + point.redo_core_seconds
    return (
        point.cancelled,
        point.wrong_kills,
        None if point.wrong_share is None else 100 * point.wrong_share,
        point.saved_core_seconds / HOUR_S,
        destroyed / HOUR_S,
        point.net_core_seconds / HOUR_S,
    )


def _counts(title: str, lines: Sequence[dict[str, int]], unit: str, note: str) -> Table:
    """A profile table; a group that has none stays, so that tables of two logs can be compared, except Unknown."""
    names = list(lines[0]) if lines else ["profile"]
    states = [
        name for name in names if name != "profile" and (name not in ("Unknown", "Other") or any(line[name] for line in lines))
    ]
    columns = (Column("profile", ",d"), *(Column(f"{state} ({unit})", ",d") for state in states))
    return Table(title, columns, tuple(tuple(line[name] for name in ("profile", *states)) for line in lines), note)


def _resources(lines: Sequence[ProfileResources]) -> Table:
    """Mean ± standard deviation of what the log records."""
    known = [entry for entry in _MEANS if any(line[f"{entry[0]}_mean"] is not None for line in lines)]
    rows = tuple(
        (line.profile, line.jobs, *(_spread(line[f"{name}_mean"], line[f"{name}_std"], form) for name, _, form in known))
        for line in lines
    )
    columns = (Column("profile", "d"), Column("jobs", ",d"), *(Column(title, "") for _, title, _ in known))
    return Table("Resources, run time and wait time (mean ± std)", columns, rows)


def _spread(mean: float | None, std: float | None, form: str) -> str | None:
    if mean is not None and form == _SIZE:
        return format_memory(GB * mean) + ("" if std is None else f" ± {format_memory(GB * std)}")
    return None if mean is None else f"{written(mean, form)} ± {written(std, form)}"


def _preparation_text(name: str) -> str:
    kind, _, column = name.partition("_")
    if kind == "imputed":
        return f"{_COLUMN_LABELS.get(column, column)} filled in"
    if column == "never_started":
        return "left out: never started"
    if column == "too_short":
        return "left out: ran for too short a time"
    return f"left out: no {_COLUMN_LABELS.get(column.removeprefix('no_'), column)}"
