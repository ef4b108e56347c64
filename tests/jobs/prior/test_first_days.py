"""The first days of a site, judged on logs that the prior has not seen."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.studies.first_days import evaluate_first_days
from stormpetrel.answers.studies.job_evaluation import JobInput
from stormpetrel.config import Settings
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prior import first_days as study
from stormpetrel.jobs.prior import shipped
from stormpetrel.jobs.prior.first_days import FORECASTERS, first_days, log_loss
from stormpetrel.jobs.prior.shipped import prior_of
from stormpetrel.jobs.prior.young_sites import DAY_S, PriorLog, young_site
from tests.jobs.logs import make_log, one_thread


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


def input_of(seed: int, n: int = 1500) -> JobInput:
    return JobInput(make_log(n, seed, days=12), Settings().jobs, "UTC")


@pytest.fixture(scope="module")
def log():
    return PriorLog.of("made", make_log(1500, 4, days=12))


def test_every_forecaster_is_judged_over_growing_periods(log):
    answer = first_days(log, prior_of(Moment.SUBMIT), starts=4, days=(1, 3))
    assert [period.days for period in answer.periods] == [1, 3] and answer.failures >= 300
    for period in answer.periods:
        assert set(period.roc_auc) == set(period.log_loss) == set(FORECASTERS)
        assert 0 < period.starts <= 4 and all(0 <= area <= 1 for area in period.roc_auc.values())
    first = answer.periods[0]
    assert first.roc_auc["own"] == first.roc_auc["user_rate"], "on the first day a site has no model of its own"
    assert first.roc_auc["blend"] == first.roc_auc["prior"]
    assert answer == first_days(log, prior_of(Moment.SUBMIT), starts=4, days=(1, 3)), "a seed repeats"


def test_what_becomes_of_later_jobs_changes_no_earlier_forecast(log):
    site = young_site(log, log.submit_s[0])
    later = log.submit_s >= log.submit_s[0] + 4 * DAY_S
    turned = log.jobs.drop("profile").with_columns(state=pl.when(pl.Series(later)).then(pl.lit("FAILED")).otherwise("state"))
    other = young_site(PriorLog.of("turned", turned), log.submit_s[0])
    before = study._forecasts(site, prior_of(Moment.SUBMIT), 12.0)
    after = study._forecasts(other, prior_of(Moment.SUBMIT), 12.0)
    late = site.age_s >= 4 * DAY_S
    for name in FORECASTERS:
        np.testing.assert_array_equal(before[name][~late], after[name][other.age_s < 4 * DAY_S])
        assert before[name][late].mean() < after[name][other.age_s >= 4 * DAY_S].mean()


def test_with_similar_names_the_sites_own_model_learns_of_them_from_its_first_refit_on():
    """Each job has a name of its own, so that without them nothing is known of any application."""
    jobs = make_log(1500, 4, days=12)
    words = pl.Series(["lattice-quench", "molecule-dock"])
    number = pl.int_range(pl.len())
    letters = pl.concat_str([(number // 26**place % 26 + 97).cast(pl.UInt8).map_elements(chr, pl.String) for place in range(3)])
    names = pl.when(pl.col("state") == "FAILED").then(pl.lit(words[0])).otherwise(pl.lit(words[1])) + "-" + letters
    log = PriorLog.of("named", jobs.with_columns(job_name=names))
    with_names, without = (
        first_days(log, prior_of(Moment.SUBMIT), starts=1, days=(1, 10), similar_names=similar).periods
        for similar in (True, False)
    )
    for forecaster in ("own", "blend"):
        assert with_names[1].roc_auc[forecaster] > without[1].roc_auc[forecaster] + 0.02
        assert with_names[1].log_loss[forecaster] < without[1].log_loss[forecaster]
    assert with_names[1].roc_auc["user_rate"] == without[1].roc_auc["user_rate"]


def test_log_loss_is_that_of_the_textbook():
    assert log_loss(np.array([True, False]), np.array([0.8, 0.4])) == pytest.approx(-(np.log(0.8) + np.log(0.6)) / 2)


def test_of_several_logs_each_is_judged_by_a_prior_of_the_others():
    few = JobInput(make_log(200, 8, days=12), Settings().jobs, "UTC")
    answer = evaluate_first_days({"one": input_of(1), "two": input_of(2), "few": few}, starts=2)
    assert [line.log for line in answer.logs] == ["one", "two"] and answer.prior == "learnt from the other logs"
    assert any(note.startswith("few has fewer than 300 failures") for note in answer.notes)


def test_a_log_that_the_shipped_prior_has_learnt_from_is_refused_alone(monkeypatch):
    data = input_of(3)
    log = PriorLog.of("known.swf", data.jobs)
    monkeypatch.setitem(prior_of(Moment.SUBMIT).metadata, "logs", {"known": log.fingerprint})
    with pytest.raises(UsageError, match=r"has learnt from known\.swf"):
        evaluate_first_days({"known.swf": data}, starts=2)


def test_one_log_alone_is_judged_by_the_shipped_prior():
    answer = evaluate_first_days({"mine": input_of(3)}, starts=2)
    assert answer.prior == f"prior-{shipped.VERSION}" and json.loads(answer.model_dump_json())["logs"][0]["periods"]


def test_logs_without_enough_failures_are_refused():
    with pytest.raises(NotEnoughJobsError, match="300 failures"):
        evaluate_first_days({"small": input_of(3, 100)}, starts=2)
