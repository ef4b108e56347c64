"""Forecasts of a site's jobs: the most likely to fail first, and only of jobs that the viewer may see."""

from __future__ import annotations

import pytest

from stormpetrel.answers.jobs.predictions import predict_jobs
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.jobs.moments import Moment
from stormpetrel.store.site import open_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import steady_log, trained_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with one_thread():
        folder = trained_site(tmp_path_factory.mktemp("forecasts") / "site", steady_log(200), until=20, moments=(Moment.SUBMIT,))
        with open_site(folder) as site:
            yield site


def forecasts(site, viewer):
    return predict_jobs(site, viewer, moment=Moment.SUBMIT, last=30, now=site.now()).forecasts


def test_the_most_likely_to_fail_comes_first(site):
    jobs = forecasts(site, LOCAL)
    assert len(jobs) == 30 and [job.risk for job in jobs] == sorted((job.risk for job in jobs), reverse=True)
    for job in jobs:
        assert job.flagged == (job.risk >= job.threshold) == (job.prediction == "Fail") and job.at == "submit"
        assert job.confidence == pytest.approx(100 * (job.risk if job.flagged else 1 - job.risk))


def test_a_user_is_told_about_the_own_jobs_only_and_the_same_as_an_administrator(site):
    everyone = forecasts(site, LOCAL)
    user = everyone[0].user
    own = forecasts(site, Viewer(user, is_admin=False))
    assert own == [job for job in everyone if job.user == user] and len(own) < len(everyone)


def test_times_are_printed_with_their_offset(site):
    assert forecasts(site, LOCAL)[0].model_dump(mode="json")["submit_time"].endswith("+00:00")
