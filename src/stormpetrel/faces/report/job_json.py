"""The studies as plain values for `--json`: dates as text, what is no number as null.

ProfileStudy, FeatureStudy, WasteStudy, PolicyReplay, frames -> dictionaries and lists.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs

from stormpetrel.jobs.cancel_policy import policy_at
from stormpetrel.jobs.profiles import activity_table, duration_table, resource_table, status_table, type_table

if TYPE_CHECKING:
    from stormpetrel.answers.job_studies import FeatureStudy, PolicyReplay, ProfileStudy, WasteStudy


def profiles_json(study: ProfileStudy) -> dict[str, Any]:
    """What `jobs profiles` prints."""
    model, frame, limits = study.model, study.profiled, study.limits
    return {
        "preparation": study.prepared.counts,
        "absent": list(study.prepared.absent),
        "labels": dicts(study.labels),
        "k": model.k_,
        "k_elbow": model.k_elbow_,
        "k_bic": model.k_bic_,
        "elbow": dicts(model.elbow_),
        "columns": list(model.columns_used_),
        "left_out": model.left_out_,
        "profiles": [{"profile": place, "words": model.describe(place)} for place in range(model.k_)],
        "resources": dicts(resource_table(frame)),
        "duration": dicts(duration_table(frame, limits)),
        "activity": dicts(activity_table(frame, limits)),
        "status": dicts(status_table(frame)),
        "type": dicts(type_table(frame, limits)),
    }


def features_json(study: FeatureStudy) -> dict[str, Any]:
    """What `jobs features` prints."""
    assert study.ablated is not None and study.verdicts is not None
    ablated = {"roc_auc": study.ablated.roc_auc, "pr_auc": study.ablated.pr_auc, "groups": dicts(study.ablated.groups)}
    return {
        "at": str(study.moment),
        "jobs": study.jobs,
        "correlations": dicts(study.correlated.table),
        "importance": dicts(study.important),
        "ablation": ablated,
        "verdicts": dicts(study.verdicts),
    }


def waste_json(study: WasteStudy, replay: PolicyReplay | None, tau: float | None) -> dict[str, Any]:
    """What `jobs waste` prints."""
    found: dict[str, Any] = {
        "by": "family" if study.by == "application" else study.by,
        "groups": dicts(study.groups.rename({study.by: "group"})),
        "total": asdict(study.reconciled.total),
        "uncounted": study.reconciled.uncounted,
        "dropped": study.dropped,
        "reconciled": True,  # check_ledger has raised otherwise
    }
    if replay is not None:
        found["policy"] = policy_json(replay, tau)
    return found


def policy_json(replay: PolicyReplay, tau: float | None) -> dict[str, Any]:
    """The replayed policy: what τ was chosen on, what it was judged on, and what it would have done."""
    judged = replay.judged
    found = {
        "chosen_on": {"splits": replay.splits_chosen, "jobs": replay.chosen.jobs, "best": asdict(replay.chosen.best)},
        "judged_on": {"splits": replay.splits_judged, "jobs": judged.jobs, "failed_jobs": judged.failed_jobs},
        "tau": replay.tau,
        "at_tau": asdict(replay.at_tau),
        "hindsight": asdict(judged.best),
        "wrong_kill_price": judged.wrong_kill_price,
    }
    return found if tau is None else {**found, "asked": {**asdict(policy_at(judged, tau)), "asked_tau": tau}}


def dicts(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """The rows of a frame."""
    return frame.with_columns(cs.float().fill_nan(None), cs.temporal().cast(pl.String)).to_dicts()
