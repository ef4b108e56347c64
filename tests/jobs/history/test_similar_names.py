"""Similar names: an application leans on its group, live as in the sweep, and nothing is made of names without the switch."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl

from stormpetrel.jobs.features import features_at, features_now
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.history.keys import SIMILAR, SPACES, SPACES_WITH_SIMILAR
from stormpetrel.jobs.moments import Moment
from stormpetrel.records.jobs import SCRIPT_SIGNATURE, job_frame
from tests.builders import T0


def jobs_named(*names: str, state: str = "FAILED", first: int = 100, **more: object) -> pl.DataFrame:
    rows = [
        {
            "cluster": "c",
            "job_id": number,
            "submit_time": T0 + timedelta(hours=number),
            "start_time": T0 + timedelta(hours=number),
            "end_time": T0 + timedelta(hours=number, minutes=5),
            "elapsed_s": 300.0,
            "state": state,
            "user": f"user{number}",
            "job_name": name,
            "restart": 0,
            **more,
        }
        for number, name in enumerate(names, first)
    ]
    return job_frame(rows)


def rate_of_the_last(jobs: pl.DataFrame, *, similar: bool, feature: str = "family.failed_rate_30d") -> float:
    matrix = features_at(jobs, History(similar_names=similar), [Moment.SUBMIT])[Moment.SUBMIT]
    return float(matrix.values[-1, matrix.names.index(feature)])


def test_a_new_application_begins_with_the_rate_of_similar_names():
    others = jobs_named(*["postprocess"] * 8, state="COMPLETED", first=0)
    jobs = pl.concat([others, jobs_named("train-a", "train-b", "train-c", "train-d")])
    assert rate_of_the_last(jobs, similar=True) > rate_of_the_last(jobs, similar=False) + 0.1


def test_a_new_name_begins_with_the_rate_of_similar_scripts():
    signature = "-".join(f"{value:04x}" for value in range(16))
    others = jobs_named(*["postprocess"] * 8, state="COMPLETED", first=0)
    signed = jobs_named("abc", "defgh", "ijklm", "nopqr", extra={SCRIPT_SIGNATURE: signature})
    jobs = pl.concat([others, signed])
    rates = [rate_of_the_last(jobs, similar=True, feature=f"{name}.failed_rate_30d") for name in ("similar_script", "family")]
    assert min(rates) > rate_of_the_last(jobs, similar=False) + 0.1


def test_a_script_says_more_than_a_name():
    signature = "-".join(f"{value:04x}" for value in range(16))
    named = jobs_named(*["train-a"] * 8, state="COMPLETED", first=0)
    signed = jobs_named("abc", "defgh", "ijklm", "train-b", extra={SCRIPT_SIGNATURE: signature})
    jobs = pl.concat([named, signed])
    unsigned = jobs.with_columns(extra=pl.lit(None, dtype=jobs.schema["extra"]))
    assert rate_of_the_last(jobs, similar=True) > rate_of_the_last(unsigned, similar=True) + 0.1


def test_an_application_without_a_script_leans_on_similar_names_though_others_have_scripts():
    signature = "-".join(f"{value:04x}" for value in range(16))
    signed = jobs_named(*["postprocess"] * 8, state="COMPLETED", first=0, extra={SCRIPT_SIGNATURE: signature})
    jobs = pl.concat([signed, jobs_named("train-a", "train-b", "train-c", "train-d")])
    assert rate_of_the_last(jobs, similar=True) > rate_of_the_last(jobs, similar=False) + 0.1


def test_a_new_application_of_a_user_begins_with_that_users_similar_ones():
    mine = jobs_named("train-a", "train-b", "train-c", "train-d", user="anna")
    others = jobs_named(*["postprocess"] * 8, state="COMPLETED", first=0, user="anna")
    jobs = pl.concat([others, mine])
    feature = "user_family.failed_rate_30d"
    assert rate_of_the_last(jobs, similar=True, feature=feature) > rate_of_the_last(jobs, similar=False, feature=feature) + 0.1


def test_run_times_of_similar_scripts_are_compared_with_this_limit():
    signature = "-".join(f"{value:04x}" for value in range(16))
    jobs = jobs_named("abc", "defgh", "ijklm", time_limit_s=600.0, extra={SCRIPT_SIGNATURE: signature})
    ratio = rate_of_the_last(jobs, similar=True, feature="similar_script.run_to_this_limit")
    assert np.isclose(ratio, np.log1p(300) - np.log1p(600), atol=1e-5)


def test_without_the_switch_nothing_is_made_of_similar_names():
    jobs = jobs_named("train-a", "train-b")
    history = History()
    names = features_at(jobs, history, [Moment.SUBMIT])[Moment.SUBMIT].names
    similar = {space.name for space in SIMILAR}
    assert not {name.partition(".")[0] for name in names} & similar
    assert not {name.partition(".")[0] for name in history.to_arrays()} & similar
    leaning = {"family", "user_family"}
    assert [space for space in SPACES_WITH_SIMILAR if space.name not in similar | leaning] == [
        space for space in SPACES if space.name not in leaning
    ]


def test_what_is_read_live_is_what_the_sweep_read():
    jobs = jobs_named("train-a", "align-reads", "train-b", "align-reads-dna", "train-c")
    swept = features_at(jobs, History(similar_names=True), [Moment.SUBMIT])[Moment.SUBMIT]
    history = History(similar_names=True)
    history.sweep(jobs.head(4))
    last = jobs.tail(1)
    now = np.array([last["submit_time"][0].timestamp()])
    live = features_now(last, history, Moment.SUBMIT, now)
    similar = [column for column, name in enumerate(live.names) if name.startswith(("similar_name", "family."))]
    np.testing.assert_array_equal(live.values[0, similar], swept.values[-1, similar])
    assert np.isfinite(live.values[0, live.names.index("similar_name.failed_rate_30d")])


def test_a_model_that_knows_similar_names_judges_jobs_of_which_none_are_known():
    jobs = jobs_named("train-a", "train-b", "train-c")
    with_groups, without = (features_at(jobs, History(similar_names=on), [Moment.SUBMIT])[Moment.SUBMIT] for on in (True, False))
    aligned = without.aligned(with_groups.names)
    assert aligned.names == with_groups.names
    assert np.isnan(aligned.values[:, aligned.names.index("similar_name.failed_rate_30d")]).all()
    assert with_groups.aligned(without.names).names == without.names
