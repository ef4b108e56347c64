"""Predictions of a site's jobs as a table: job, user, start, risk of failing, flagged or not, what a failure would be.

Site -> predict_jobs -> frame, most likely to fail first.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from stormpetrel.jobs.moments import MOMENTS, Moment

if TYPE_CHECKING:
    import polars as pl

    from stormpetrel.store.site import Site


def predict_jobs(site: Site, *, moment: Moment | None, last: int | None, now: datetime) -> pl.DataFrame:
    """Jobs that wait or run now, each at its latest moment; with `last` the last N submitted ones, as they were known then."""
    import numpy as np
    import polars as pl

    from stormpetrel.jobs.features import features_at
    from stormpetrel.jobs.history import History, event_times
    from stormpetrel.jobs.predictor import known_by
    from stormpetrel.jobs.request_profiles import with_profile
    from stormpetrel.jobs.stream import likeliest_failure
    from stormpetrel.lifecycle.job_models import load_predictor
    from stormpetrel.records.states import UNFINISHED

    known = known_by(site.jobs.read_jobs(until=now).collect(), now).sort("submit_time", maintain_order=True)
    predictor = load_predictor(site, now=now, past=known.head(0), moments=[moment] if moment else None)
    wanted = np.zeros(known.height, dtype=bool)
    if last:
        wanted[-last:] = True
    else:
        wanted = known["state"].is_in([str(state) for state in UNFINISHED]).to_numpy()
    history = History(
        predictor.history.failure_states, predictor.history.dropped_states, stand_in=dict(predictor.history.stand_in or {})
    )
    features = features_at(
        with_profile(known, predictor.profiles, dict(history.stand_in or {})),
        history,
        list(predictor.models),
        time_zone=predictor.time_zone,
    )
    tables = []
    came = event_times(known) <= now.timestamp()  # a job that runs has its second minute still to come
    for at, matrix in features.items():
        reached = wanted & came[:, MOMENTS.index(at)]
        risk = predictor.models[at].predict_proba(matrix.rows(reached))
        threshold = site.settings.jobs.threshold or predictor.models[at].threshold
        table = known.filter(reached).select(
            pl.concat_str(pl.col("job_id"), pl.concat_str(pl.lit("_"), pl.col("array_task")).fill_null("")).alias("job"),
            "user",
            "submit_time",
            "start_time",
            "state",
            pl.lit(str(at)).alias("at"),
        )
        fails = risk["risk"] >= threshold
        tables.append(
            table.with_columns(
                prediction=fails.replace_strict({True: "Fail", False: "Complete"}, return_dtype=pl.String),
                confidence=100 * pl.Series(np.where(fails.to_numpy(), risk["risk"].to_numpy(), 1 - risk["risk"].to_numpy())),
                risk=risk["risk"],
                threshold=pl.lit(threshold),
                flagged=fails,
                likeliest=likeliest_failure(risk, predictor.models[at].failure_outcomes_)[0],
                known=risk["known"],
                row=pl.Series(np.flatnonzero(reached)),
            )
        )
    latest = pl.concat(tables).sort("row", maintain_order=True).unique("row", keep="last", maintain_order=True)
    return latest.sort("risk", descending=True, maintain_order=True).drop("row")
