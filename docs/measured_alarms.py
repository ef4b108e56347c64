"""The tables of the budget in docs/alarms.md, from what was measured: alarm_budget.json, alarm_faults.json -> Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from markdown_tables import table
from measured_traces import measured

_ROWS: Final = {
    "weeks": "calm weeks judged",
    "incidents_a_week": "incidents raised a week",
    "promised_a_week": "pages promised a week",
    "pages_a_week": "**pages a week, pooled**",
    "of_the_promise": "of the promise",
    "pages_of_jobs": "of them, first seen in job records",
    "pages_of_events": "in events",
    "pages_of_traces": "in CPU traces",
    "fewest_a_week": "fewest of one cluster",
    "most_a_week": "most of one cluster",
    "hosts_named": "healthy hosts named",
}


def budget() -> str:
    """Each set of seeds: what was promised, and what the thresholds alone would have sent."""
    found = measured("alarm_budget")
    seeds = [f"seeds {one['seeds'][0]}–{one['seeds'][-1]}" for one in found.values()]
    return table(("", *seeds), [(words, *(f"{one[key]:.3g}" for one in found.values())) for key, words in _ROWS.items()])


def faults() -> str:
    """Each fault: the share that was sent by rules alone and within the budget, and how late."""
    found = next(reversed(measured("alarm_faults").values()))
    rows = [
        (
            name, str(one["n"]), _share(one["recall_listed"]), _share(one["recall_rules"]), _share(one["recall_budget"]),
            _hours(one["delay_h_rules"]), _hours(one["delay_h_budget"]), _hours(one["delay_h_budget_of_those_of_the_rules"]),
        )
        for name, one in found["faults"].items()
    ]  # fmt: skip
    heads = ("fault", "n", "listed", "sent by rules", "sent within the budget", "delay of rules", "of the budget", "same faults")
    return table(heads, rows)


def rehearsal() -> str:
    """Each kind of fault of the rehearsal: share seen (and sent) by severity, of how many, and the median delay of the severe."""
    result = measured("rehearsal")
    rows = []
    for kind, cells in result["faults"].items():
        shares = [_seen(cells.get(severity)) for severity in ("mild", "moderate", "severe")]
        delay_s = cells.get("severe", {}).get("delay_s")
        number = sum(cell["n"] for cell in cells.values())
        rows.append((f"`{kind}`", str(number), *shares, "–" if delay_s is None else f"{delay_s / 3600:.1f} h"))
    false, how = result["false_pages_per_week"], "" if result["models"] else ", by rules alone"
    text = (
        f"Simulated sites, seeds {', '.join(map(str, result['seeds']))} (`python -m benchmarks.rehearsal`): share seen{how}, and "
        f"in brackets sent at once. False pages a week: {false['mean']:.2g} ± {false['std']:.2g} (budget {result['promised']:g})."
    )
    return f"{text}\n\n{table(('fault', 'faults', 'mild', 'moderate', 'severe', 'median delay, severe'), rows)}"


def sixty_days() -> str:
    """What sixty simulated days came to, seed by seed: quality after the drift, pages, verdicts, what was new."""
    return "\n\n".join(_one_run(result) for result in measured("sixty_days").values())


def _one_run(result: dict[str, Any]) -> str:
    after, pages = result["after_drift"], result["pages_a_week"]
    rows = [
        (who, *(f"{after[key][name]:.3f}" if after[key][name] is not None else "–" for name in ("pr_auc", "roc_auc", "ece")))
        for key, who in (("nightly", "trained every night"), ("once", "trained once"))
    ]
    whole = table(("job forecasts at submission, mean of the weeks after the drift", "PR area", "ROC area", "ECE"), rows)
    changes, mean = result["changes"], sum(pages) / max(1, len(pages))
    text = (
        f"**Seed {result['seed']}**: {result['days']} days, {len(result['promotions'])} trainings put in use, "
        f"incidents: {result['confirmed']} confirmed, {result['dismissed']} dismissed. Pages of seven days: {mean:.1f} on "
        f"average, {max(pages, default=0)} at most, with a budget of {result['budget_a_week']:g}. "
        f"Explained by a change: {len(changes['explained_by_change'])} of {changes['incidents']} incidents; of those resting on "
        f"jobs of the new group in its first two weeks {len(changes['of_these_explained'])} of "
        f"{len(changes['of_the_new_group'])}; of faults {len(changes['faults_explained_away'])}. CPU of a day with its "
        f"night: {result['cpu_s_a_day']['median']:.1f} s median, {result['cpu_s_a_day']['most']:.1f} s at most."
    )
    return f"{text}\n\n{whole}{_traces_of_sixty_days(result['traces'])}"


def _traces_of_sixty_days(days: list[dict[str, Any]]) -> str:
    ten = next((row["ensemble_of_ten"] for row in days if "ensemble_of_ten" in row), None)
    if ten is None:
        return ""
    last = [row for row in days if "cpu_s" in row][-14:]
    rows = [
        (
            who,
            *(f"{sum(row[key][name] for row in last) / len(last):.4f}" for name in ("re_normal", "faults_roc_auc")),
            f"{cost:.1f} s",
        )
        for key, who, cost in (
            ("nightly", "three, every night, from yesterday's weights", sum(row["cpu_s"] for row in last) / len(last)),
            ("once", "three, trained once", 0.0),
        )
    ]
    rows.append(
        ("ten, trained anew on the last day", f"{ten['re_normal']:.4f}", f"{ten['faults_roc_auc']:.4f}", f"{ten['cpu_s']:.1f} s")
    )
    head = ("ensembles of `fast` on CPU windows, last 14 days", "normal error", "ROC area over the bench", "CPU a night")
    return f"\n\n{table(head, rows)}"


def _seen(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    paged = "–" if cell["paged"] is None else f"{cell['paged']:.2f}"
    return f"{cell['recall']:.2f} ({paged})"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _hours(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{60 * value:.0f} min" if value < 2 else f"{value:.1f} h"


_VERDICT_ROWS: Final[dict[str, Callable[[dict[str, Any], str], object]]] = {
    "**false alarms of four weeks**": lambda one, who: one[who]["false_alarms"],
    "true alarms": lambda one, who: one[who]["true_alarms"],
    "faults on the list": lambda one, who: f"{one[who]['found']} of {one['faults']}",
    "faults sent": lambda one, who: f"{one[who]['sent']} of {one['faults']}",
    "false pages": lambda one, who: one[who]["false_pages"],
}


def verdicts() -> str:
    """Each set of seeds: alarms and faults of the four weeks after 20 verdicts, without and with them."""
    found = list(measured("alarm_verdicts").values())
    heads = [f"seeds {one['seeds'][0]}–{one['seeds'][-1]}, {who} verdicts" for one in found for who in ("without", "with")]
    rows = [
        (label, *(str(value(one, who)) for one in found for who in ("without", "with"))) for label, value in _VERDICT_ROWS.items()
    ]
    halved = [cell for one in found for cell in ("", f"{one['sites_halved']} of {one['sites']}")]
    return table(("", *heads), [*rows, ("sites on which false alarms were halved", *halved)])


def active() -> str:
    """Each log and way of choosing: PR area after so many answers."""
    rows = []
    for log, one in measured("jobs_active").items():
        for strategy in ("random", "uncertainty", "uncertainty_x_density"):
            cells = [f"{of['mean']:.3f} ± {of['std']:.3f}" for of in one[strategy].values()]
            rows.append((log, strategy.replace("_x_", " × "), *cells))
    return table(("log", "chosen by", "100 answers", "200", "300"), rows)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "alarm-budget": budget,
    "alarm-faults": faults,
    "measured-rehearsal": rehearsal,
    "alarm-verdicts": verdicts,
    "jobs-active": active,
    "sixty-days": sixty_days,
}
