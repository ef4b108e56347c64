"""Learning a prior, and what becomes of it as a site's own history grows.

PriorRows of several logs -> fit_prior -> JobOutcomeModel; prior + the site's labels -> begin_with -> Beginning.

A site's own model begins with the prior's trees and grows its own on what they leave unexplained; the answers of its own trees
count by how much the site has seen, and from some thousands of failures on the prior is left out. It is one file of trees like
any other: nothing that reads it has to know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from stormpetrel.jobs.features import FeatureMatrix
from stormpetrel.jobs.model import Beginning, JobOutcomeModel
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior.trees import trees_over
from stormpetrel.jobs.prior.young_sites import PriorRows

ROUNDS: Final = 150
DEPTH: Final = 4
HALF_AT: Final = 200.0  # jobs of the rarer outcome with which a site's own trees count half
ENOUGH_WEIGHT: Final = 0.95  # from here on the prior is left out: nothing changes for a site with a long history
_COMMON_WAYS: Final = ("FAILED", "TIMEOUT", "OUT_OF_MEMORY")  # ways to fail that do not depend on a site's habits


def fit_prior(rows: Sequence[PriorRows], moment: Moment, *, seed: int = 0, threshold: float = 0.5) -> JobOutcomeModel:
    """A model of one moment out of the young sites of several logs, each of which counts by its rows."""
    parts = [log for log in rows if log.failed[moment].size]
    names = parts[0].features[moment].names
    values = np.concatenate([log.features[moment].values for log in parts])
    failed = np.concatenate([log.failed[moment] for log in parts])
    model = JobOutcomeModel(moment, rounds=ROUNDS, depth=DEPTH, seed=seed, threshold=threshold)
    model.fit_risk(FeatureMatrix(moment, names, values), failed)
    counts = [sum(int((log.outcome[moment] == name).sum()) for log in parts) for name in _COMMON_WAYS]
    model.outcomes_ = model.failure_outcomes_ = _COMMON_WAYS
    model.outcome_shares_ = tuple(count / max(1, sum(counts)) for count in counts)
    return model


def own_weight(failed: NDArray[np.bool_]) -> float:
    """How much a site's own trees count beside the prior, from 0 to 1: by how many jobs of the rarer outcome they have seen."""
    rarer = min(int(failed.sum()), int((~failed).sum()))
    return rarer / (rarer + HALF_AT)


def begin_with(prior: JobOutcomeModel, names: tuple[str, ...], failed: NDArray[np.bool_]) -> Beginning | None:
    """The prior's trees for a site's own model of these features to begin with; None where the site has seen enough itself."""
    weight = own_weight(failed)
    if weight >= ENOUGH_WEIGHT or not set(prior.names_) <= set(names):
        return None
    return Beginning(trees_over(prior.risk_trees(), prior.names_, names), weight)
