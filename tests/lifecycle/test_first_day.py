"""The first day of a site: what it waits for, and what it can use before it has everything."""

from __future__ import annotations

import shutil
from datetime import timedelta

import polars as pl
import pytest
from typer.testing import CliRunner

from stormpetrel.answers.jobs.predictions import predict_jobs
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import ModelError, NotEnoughJobsError
from stormpetrel.faces.cli.main import app
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.training import TrainingSettings
from stormpetrel.lifecycle import job_models, retraining
from stormpetrel.lifecycle.job_models import JOBS, load_predictor, missing_text, train_job_models
from stormpetrel.lifecycle.live import current_versions, first_horizon, open_stream
from stormpetrel.lifecycle.retraining import retrain
from stormpetrel.lifecycle.training_needs import training_needs
from stormpetrel.store.site import open_site
from tests.builders import make_site
from tests.jobs.logs import make_log, one_thread
from tests.lifecycle.sites import DAYS, QUICK, day, put_jobs

NOW = day(DAYS + 1)
MISSING = "no model two minutes in: it needs 10 failed and 10 other jobs that ran longer than two minutes, and has 0 and 0"


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_models, "training_settings", lambda _settings: QUICK)
        patch.setattr(retraining, "training_settings", lambda _settings: QUICK)
        yield


def short_log(n: int = 200, seed: int = 3) -> pl.DataFrame:
    """Jobs that all end within two minutes."""
    ran = pl.col("elapsed_s") > 0
    return make_log(n, seed, days=DAYS - 1, cancelled=0.0).with_columns(
        end_time=pl.col("start_time") + pl.duration(seconds=90), elapsed_s=pl.when(ran).then(90.0).otherwise("elapsed_s")
    )


def long_log(n: int = 100) -> pl.DataFrame:
    """Jobs of the last day that all run for longer than two minutes, some of them still."""
    jobs = make_log(n, 9, days=1, cancelled=0.0).with_columns(
        pl.col("job_id") + 100_000, pl.col("^.*_time$") + timedelta(days=DAYS - 1)
    )
    return jobs.with_columns(end_time=pl.col("start_time") + pl.duration(seconds=900), elapsed_s=900.0)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A site whose jobs all end within two minutes, trained for the first time."""
    folder = tmp_path_factory.mktemp("short") / "site"
    with make_site(folder) as site:
        put_jobs(site, short_log())
        retrain(site, now=day(DAYS - 1))
    return folder


@pytest.fixture
def site(short, tmp_path):
    shutil.copytree(short, tmp_path / "site")
    with open_site(tmp_path / "site") as opened:
        yield opened


def test_a_site_of_short_jobs_gets_its_first_two_models_and_hears_what_the_third_needs(site):
    assert set(current_versions(site)) == {"jobs-profiles", "jobs-submit", "jobs-start"}
    assert site.models.current_training("jobs").why == f"the first model of this site; {MISSING}"


def test_a_training_by_hand_makes_the_models_that_it_can_and_says_what_is_missing(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, short_log())
        entries = train_job_models(site, until=NOW)
    assert [entry.name for entry in entries] == ["jobs-profiles", "jobs-submit", "jobs-start"]
    assert missing_text(entries[0]) == [MISSING]


def test_the_command_line_says_what_is_missing(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, short_log().with_columns(pl.col("^.*_time$") - timedelta(days=3650)))
    done = CliRunner().invoke(
        app, ["--site", str(tmp_path / "site"), "jobs", "train"], env={"COLUMNS": "300"}, catch_exceptions=False
    )
    assert f"There is {MISSING}." in done.output


def test_asking_for_the_third_alone_is_refused_with_what_it_needs(site):
    with pytest.raises(NotEnoughJobsError, match=f"There is {MISSING}"):
        train_job_models(site, [Moment.TWO_MINUTES], until=NOW)


def test_a_third_model_joins_the_others_as_soon_as_there_are_jobs_for_it(site):
    before = job_models.load_fitted(site, site.models.current_training("jobs"))
    put_jobs(site, long_log())
    done = retrain(site, now=NOW)
    assert done.promoted and done.previous == "jobs-1"
    assert done.why == "the first model two minutes in; the others stay as they are"
    assert set(current_versions(site)) == {"jobs-profiles", "jobs-submit", "jobs-start", "jobs-2min"}
    after = job_models.load_fitted(site, site.models.current_training("jobs"))
    assert after.models[Moment.SUBMIT].metadata == before.models[Moment.SUBMIT].metadata, "the same model, in its new place"


def test_going_back_from_three_models_to_two_leaves_two_in_use(site):
    put_jobs(site, long_log())
    retrain(site, now=NOW)
    assert JOBS.roll_back(site).name == "jobs-1"
    assert set(current_versions(site)) == {"jobs-profiles", "jobs-submit", "jobs-start"}


def test_a_model_for_which_no_jobs_are_left_stays_in_use_beside_new_ones(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, pl.concat([short_log(), long_log()]))
        train_job_models(site, until=NOW)
        entries = train_job_models(site, until=day(DAYS - 1))  # as if the long ones had been deleted
        assert [entry.name for entry in entries] == ["jobs-profiles", "jobs-submit", "jobs-start"]
        assert set(current_versions(site)) == {"jobs-profiles", "jobs-submit", "jobs-start", "jobs-2min"}
        assert missing_text(entries[0]) == []


def test_jobs_that_run_are_judged_at_the_latest_moment_that_has_a_model(site):
    put_jobs(site, long_log().with_columns(state=pl.lit("RUNNING"), end_time=None, elapsed_s=None))
    forecasts = predict_jobs(site, LOCAL, moment=None, last=None, now=NOW).forecasts
    assert len(forecasts) == 100 and {job.at for job in forecasts} == {"start"}
    with pytest.raises(ModelError, match="jobs-2min"):
        predict_jobs(site, LOCAL, moment=Moment.TWO_MINUTES, last=None, now=NOW)


def test_a_job_that_reached_a_moment_without_a_model_is_explained_at_the_others(site):
    put_jobs(site, long_log())
    answer = explain_job(site, LOCAL, "101000", now=NOW)
    assert list(answer.at) == ["submit", "start"]
    assert "There is no model two minutes in yet." in answer.notes


def test_the_predictor_of_a_site_has_the_moments_that_there_are(site):
    assert list(load_predictor(site, now=NOW).models) == [Moment.SUBMIT, Moment.START]


def test_a_model_that_came_later_says_nothing_about_what_was_before_it(site):
    began = first_horizon(site, day(DAYS - 1))
    put_jobs(site, long_log())
    until = day(DAYS - 0.5)
    first = open_stream(site, horizon=began, began=began)
    site.predictions.append(first.advance(site.jobs.read_jobs().collect(), until=until), horizon=until)
    assert set(site.predictions.read().collect()["moment"]) == {"submit", "start"}
    retrain(site, now=until)
    assert "jobs-2min" in current_versions(site)
    again = open_stream(site, horizon=until, began=began)
    later = again.advance(site.jobs.read_jobs().collect(), until=NOW).filter(pl.col("moment") == "2min")
    assert later.height and (later["moment_time"] > until).all()


# --- what it waits for --------------------------------------------------------------------------------------------------------


def needs_of(site, now=NOW):
    return training_needs(site, TrainingSettings(), until=now)


def few(n: int, failed: int, *, hours: float) -> pl.DataFrame:
    """So many jobs that ended evenly in the hours before now, the first of them failed."""
    ends = [NOW - timedelta(hours=hours) * (1 - number / n) for number in range(n)]
    return make_log(n, 1, cancelled=0.0).with_columns(
        state=pl.Series(["FAILED"] * failed + ["COMPLETED"] * (n - failed)),
        submit_time=pl.Series(ends) - timedelta(minutes=9),
        start_time=pl.Series(ends) - timedelta(minutes=8),
        end_time=pl.Series(ends),
        elapsed_s=480.0,
    )  # fmt: skip


def test_a_site_that_waits_says_how_far_it_is_and_how_long_it_will_take(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, few(40, 4, hours=2))
        needs = needs_of(site)
    assert not needs.is_enough(200)
    assert needs.progress(200) == "40 of 200 ended jobs, 4 of 10 failed ones; at this pace in about 8 hours"


def test_a_kind_of_job_that_was_never_seen_gives_no_pace(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, few(250, 0, hours=2))
        assert needs_of(site).progress(200) == (
            "250 of 200 ended jobs, 0 of 10 failed ones; no job has failed yet, so nobody can say how long that will take"
        )


def test_a_site_without_jobs_says_so(tmp_path):
    with make_site(tmp_path / "site") as site:
        assert needs_of(site).progress(200) == (
            "0 of 200 ended jobs, 0 of 10 failed ones; no job has ended yet, so nobody can say how long that will take"
        )


def test_a_training_by_hand_is_refused_with_the_same_words(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, few(40, 4, hours=2))
        with pytest.raises(NotEnoughJobsError, match="40 ended jobs, 4 of 10 failed ones; at this pace in about 3 hours"):
            train_job_models(site, until=NOW)
