"""Table I under honest time: the same recipes on what is known at a moment, the last fifth of the log by time.

LabelledJobs -> honest_table -> TableOne, with our own model as its first line.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Final

import numpy as np

from stormpetrel.engine import ONE_PROCESS, Engine
from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.seed_models import RECIPES, TrainingRows
from stormpetrel.jobs.seed_protocol import VALID_SHARE, FitRecipe, Forecast, Progress, TableOne, judge_recipes, row_of
from stormpetrel.jobs.training import LabelledJobs, TrainingSettings, fit_at
from stormpetrel.learn.splits import TIME_CUT, splits_at

OURS: Final = "stormpetrel"
MOST_ROWS: Final = 60_000  # of training, the most recent ones: SMOTE and forests on 190 columns take minutes beyond


def honest_table(
    labelled: LabelledJobs,
    moment: Moment,
    settings: TrainingSettings,
    *,
    recipes: Sequence[str] = tuple(RECIPES),
    progress: Progress | None = None,
    engine: Engine = ONE_PROCESS,
) -> TableOne:
    """Fit our model and every recipe on what had ended by the cut, and judge them at probability .5 as the seed does."""
    (split,) = splits_at((TIME_CUT,), labelled.submit, labelled.end, labelled.reached(moment)) or (None,)
    if split is None:
        raise NotEnoughJobsError("No job of this log can be judged.", hint="Use a longer log.")
    features = labelled.features[moment]
    before = np.flatnonzero(split.train)[-MOST_ROWS:]
    test = np.flatnonzero(split.test)
    begun = perf_counter()
    model = fit_at(labelled, moment, split.train, settings)
    rows, forecasts = [], {}
    for part, chosen in (("train", before), ("test", test)):
        forecasts[OURS] = Forecast(labelled.failed[chosen], model.risk(features.rows(chosen)))
        rows.append(row_of(OURS, "Stormpetrel", part, forecasts[OURS]))
    seconds = {OURS: perf_counter() - begun}
    known = ~np.isnan(features.values[before]).all(axis=0)
    x, y = features.values[:, known], labelled.failed
    train, valid = np.split(before, [round((1.0 - VALID_SHARE) * before.size)])
    work = FitRecipe(
        TrainingRows(x[train], y[train], x[valid], y[valid]),
        {"train": (x[before], y[before]), "test": (x[test], y[test])},
        settings.seed,
    )
    names = tuple(np.array(features.names)[known])
    table = judge_recipes("time", names, work, recipes, rules=(rows, forecasts), progress=progress, engine=engine)
    table.seconds.update(seconds)
    return table
