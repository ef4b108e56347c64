"""Tables of docs/jobs.md, made from what the benchmarks measured: benchmarks/results/*.json -> Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from markdown_tables import code, table

from stormpetrel.jobs.exam.seed_protocol import SEED_TABLE_ONE

_RESULTS: Final = Path(__file__).parent.parent / "benchmarks" / "results"
_LOGS: Final = {"curie": "Curie", "mira": "Mira", "kth": "KTH", "theta": "Theta"}
_WHO: Final = {
    "model": "**Stormpetrel**", "xgboost": "untuned XGBoost", "user_rate": "user's rate", "last_outcome": "user's last outcome",
}  # fmt: skip


def quality() -> dict[str, Any]:
    """What `python -m benchmarks.jobs_quality` measured."""
    found: dict[str, Any] = json.loads((_RESULTS / "jobs_quality.json").read_text(encoding="utf-8"))
    return found


def job_quality() -> str:
    """ROC area, PR area and F1 of the model and its baselines, on four public logs, rolling."""
    rows = []
    for log, title in _LOGS.items():
        for moment, found in quality()[log]["at"].items():
            forecasters = {"model": found["model"], **found["baselines"]}
            cells = [" / ".join(f"{forecasters[who][name]:.3f}" for name in ("roc_auc", "pr_auc", "f1")) for who in _WHO]
            rows.append((title, code(moment), f"{found['model']['n_test']:,}", *cells))
    return table(("log", "at", "jobs", *(f"{who}: ROC / PR / F1" for who in _WHO.values())), rows)


def job_calibration() -> str:
    """Brier skill, slope and ECE of the model, and the gain of a later moment on the same jobs."""
    rows = []
    for log, title in _LOGS.items():
        for moment, found in quality()[log]["at"].items():
            gains = [
                f"{earlier}: {figures['roc_auc']:.3f} → {found['model']['roc_auc']:.3f}"
                for earlier, figures in found["same_jobs"].items()
            ]
            calibration = found["calibration"]
            numbers = (calibration["brier_skill"], calibration["reliability_slope"], found["model"]["ece"])
            rows.append((title, code(moment), *(f"{number:.3f}" for number in numbers), "; ".join(gains) or "–"))
    return table(("log", "at", "Brier skill", "slope", "ECE", "ROC of earlier moments on the same jobs"), rows)


def job_table_one() -> str:
    """Table I on Curie at random and by time, beside the published one."""
    table_one = quality()["seed"]["table1"]
    by_time = {row["model"]: row for row in table_one if row["split"] == "time" and row["part"] == "test"}
    rows = []
    for row in table_one:
        if row["split"] == "random" and row["part"] == "test":
            later, published = by_time[row["model"]], SEED_TABLE_ONE.get(row["model"])
            other = f"{published.accuracy:.2f} / {published.failed.f1:.2f} / {published.roc_auc or '–'}" if published else "–"
            rows.append((row["title"], _accuracy(row), _accuracy(later), other))
    return table(("model", "at random: accuracy / F1 of failed / ROC", "by time", "as published, on another log"), rows)


def _accuracy(row: dict[str, Any]) -> str:
    return " / ".join(f"{row[name]:.3f}" for name in ("accuracy", "f1_failed", "roc_auc"))


def job_refit() -> str:
    """Weekly refits against one fit, on Curie at submission."""
    rows = [
        (row["begin"][:10], f"{row['jobs']:,}", f"{row['failed']:,}", *(_area(row[name]) for name in _AREAS))
        for row in quality()["refit"]["refit"]
    ]
    return table(("week from", "jobs", "failed", "ROC, one fit", "ROC, weekly", "PR, one fit", "PR, weekly"), rows)


def job_speed() -> str:
    """What was asked and what was measured, on Curie's first 300,000 jobs."""
    found = json.loads((_RESULTS / "jobs.json").read_text(encoding="utf-8"))["pieces"]
    fit, single, batch = found["fit"], found["single"], found["batch"]
    steps = fit["steps_s"]
    one = steps["history and features"] + steps["model at submit"] + steps["threshold at submit"]
    rows = [
        ("table to fitted models, three moments, with thresholds", "at most 90 s", f"{fit['total_s']:.0f} s"),
        ("the same, at submission only", "at most 90 s", f"{one:.0f} s"),
        ("one forecast with its explanation, p50 / p99", "p99 at most 20 ms", _milliseconds(single["judge"])),
        ("XGBoost alone on a ready row, p50 / p99", "–", _milliseconds(single["xgboost_ready_row"])),
        ("forecasts with features", "at least 50,000 jobs/s", f"{batch['jobs_per_second']['stormpetrel']:,.0f} jobs/s"),
    ]
    return table(("what", "asked", "measured"), rows)


def _milliseconds(times: dict[str, float]) -> str:
    return f"{times['p50_ms']:.1f} / {times['p99_ms']:.1f} ms"


_AREAS: Final = ("roc_once", "roc_weekly", "pr_once", "pr_weekly")


def _area(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def job_telemetry() -> str:
    """The model at 2min without telemetry and with it."""
    found = json.loads((_RESULTS / "jobs_telemetry.json").read_text(encoding="utf-8"))
    ways = ("without", "with")
    figures = ("roc_auc", "pr_auc", "roc_auc_gain", "pr_auc_gain")
    rows = [
        (
            name,
            way,
            f"{site['seen']['mean']:.1%}" if way == "with" else "–",
            *(_mean_std(site[way][figure]) for figure in figures),
        )
        for name, site in found["sites"].items()
        for way in ways
    ]
    return table(("site", "telemetry", "jobs that have it", "ROC area", "PR area", "ROC gain", "PR gain"), rows)


def _needs() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_RESULTS / "jobs_needs.json").read_text(encoding="utf-8"))
    return found


def job_needs() -> str:
    """Share given too little and waste of the model and its baselines, per log."""
    rows = []
    for part, found in _needs().items():
        for resource, figures in found.get("needs", {}).items():
            cells = [_frontier(figures["model"]), *(_frontier(figure) for figure in figures["baselines"].values())]
            rows.append((code(part), resource, f"{figures['model']['n']:,}", *cells))
    titles = ("model", "request", "max of last × 1.2", "Tovar", "Witt")
    return table(("log", "of", "jobs", *(f"{title}: too little / waste" for title in titles)), rows)


def _frontier(figures: dict[str, Any]) -> str:
    return "–" if figures["under_share"] is None else f"{figures['under_share']:.1%} / {figures['waste_ratio']:.3f}"


def job_waits() -> str:
    """Pinball loss and coverage of p50 and p90 of the wait, per log."""
    rows = []
    for part, found in _needs().items():
        if "wait" in found:
            model, recent = found["wait"]["model"], found["wait"]["baselines"]["last_20_same_shape"]
            losses = [f"{each['pinball_50']:,.0f} / {each['pinball_90']:,.0f}" for each in (model, recent)]
            covered = [" / ".join(_covered(each, level) for level in ("50", "90")) for each in (model, recent)]
            rows.append((code(part), f"{model['n']:,}", losses[0], losses[1], covered[0], covered[1]))
    titles = ("model: pinball p50 / p90 (s)", "last 20: pinball p50 / p90 (s)", "model: coverage", "last 20: coverage")
    return table(("log", "jobs", *titles), rows)


def _covered(figures: dict[str, Any], level: str) -> str:
    """Share that waited no longer; in brackets the share that waited less, where that is a point lower (jobs without a wait)."""
    covered, below = figures[f"coverage_{level}"], figures[f"below_{level}"]
    return f"{covered:.1%}" if covered - below < 0.01 else f"{covered:.1%} ({below:.1%})"


def _mean_std(figure: dict[str, float]) -> str:
    return f"{figure['mean']:.3f} ± {figure['std']:.3f}"


def job_recalibration() -> str:
    """Corrected forecasts beside the fixed threshold, on each public log and with its failure rate halved and doubled."""
    rows = []
    for log, result in json.loads((_RESULTS / "jobs_recalibration.json").read_text(encoding="utf-8")).items():
        for variant, found in result["variants"].items():
            fixed, online = found["fixed"], found["recalibrated"]
            flags = online["flags_per_day"]
            areas = (found["last_outcome_f1"], fixed["f1"], online["f1"], fixed["ece"], online["ece"])
            areas = (*areas, found["ece_of_exact_risks"])
            made = f"{flags['promised']:.0f} / {flags['realised']:.1f}"
            rows.append((log, variant, f"{found['failed_share']:.3f}", *(f"{area:.3f}" for area in areas), made))
    head = ("log", "judged part", "failed", "F1: last outcome", "fixed", "online", "ECE: fixed", "online", "exact risks")
    return table((*head, "flags a day: promised / made"), rows)


_PRIOR_LOGS: Final = {
    "curie": "Curie", "kth": "KTH", "mira": "Mira", "theta": "Theta", "thetagpu": "ThetaGPU", "supercloud": "SuperCloud",
    "xdmod": "xdmod sample",
}  # fmt: skip
_PRIOR_WHO: Final = {"user_rate": "user's rate so far", "prior": "prior", "blend": "prior and own", "own": "own alone"}


def job_prior() -> str:
    """ROC area and log loss over the first days of each public log, which the prior has not seen."""
    found = json.loads((_RESULTS / "jobs_prior.json").read_text(encoding="utf-8"))
    rows = []
    for log, title in _PRIOR_LOGS.items():
        for period in found[log]["periods"] if log in found else ():
            cells = [f"{period['roc_auc'][who]:.3f} / {period['log_loss'][who]:.3f}" for who in _PRIOR_WHO]
            rows.append((title, f"{period['days']}", f"{period['starts']}", f"{period['jobs']:,}", *cells))
    return table(("log", "first days", "starts", "jobs", *_PRIOR_WHO.values()), rows)


_SEQUENCE_LOGS: Final = {
    **_PRIOR_LOGS,
    "curie": "Curie, latest 40,000",
    "simulated_401": "simulated 401",
    "simulated_402": "simulated 402",
}
_SEQUENCE_WHO: Final = {
    "trees": "**Stormpetrel**", "xgboost": "untuned XGBoost", "user_rate": "user's rate", "last_outcome": "user's last outcome",
    "gru": "GRU", "attention": "attention", "gru_features": "GRU, features",
}  # fmt: skip
_SEQUENCE_BLENDS: Final = {
    "attention": "attention", "gru": "GRU", "gru_features": "GRU, features", "features_network": "features alone (control)",
    "xgboost": "XGBoost (control)",
}  # fmt: skip


def _sequence() -> dict[str, Any]:
    """What `python -m benchmarks.jobs_sequence` measured, by the title of the log."""
    found = json.loads((_RESULTS / "jobs_sequence.json").read_text(encoding="utf-8"))
    return {title: found[log] for log, title in _SEQUENCE_LOGS.items() if log in found}


def job_sequence() -> str:
    """ROC area, PR area, F1 and calibration error of the trees, the rules and the networks over past jobs."""
    names = ("roc_auc", "pr_auc", "f1", "ece")
    rows = []
    for title, log in _sequence().items():
        cells = [" / ".join(f"{log['figures'][who][name]['mean']:.3f}" for name in names) for who in _SEQUENCE_WHO]
        rows.append((title, f"{log['judged']:,}", *cells))
    return table(("log", "jobs", *(f"{who}: ROC / PR / F1 / ECE" for who in _SEQUENCE_WHO.values())), rows)


def job_sequence_gains() -> str:
    """What blends with the networks, and with the controls, add to the PR area of the trees; log loss of the first."""
    rows = []
    for title, log in _sequence().items():
        cells = []
        for who in _SEQUENCE_BLENDS:
            gain = log["gains"][f"trees_and_{who}"]["pr_auc"]
            cells.append(f"{gain['mean']:+.3f} ± {gain['std']:.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})".replace("-", "−"))
        losses = " → ".join(f"{log['figures'][who]['log_loss']['mean']:.3f}" for who in ("trees", "trees_and_attention"))
        rows.append((title, *cells, losses))
    return table(("log", *(f"trees and {who}" for who in _SEQUENCE_BLENDS.values()), "log loss: trees → with attention"), rows)


PARTS: Final[dict[str, Callable[[], str]]] = {
    "job-quality": job_quality,
    "job-calibration": job_calibration,
    "job-table-one": job_table_one,
    "job-refit": job_refit,
    "job-speed": job_speed,
    "job-telemetry": job_telemetry,
    "job-recalibration": job_recalibration,
    "job-needs": job_needs,
    "job-waits": job_waits,
    "job-prior": job_prior,
    "job-sequence": job_sequence,
    "job-sequence-gains": job_sequence_gains,
}
