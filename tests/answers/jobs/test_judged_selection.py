"""Jobs of one's own choice, judged by the models in use: the same as the site says of them, from what was known then."""

from __future__ import annotations

import pytest

from stormpetrel.answers.jobs.judged_selection import explain_selected, judge_selection, moments_in_use
from stormpetrel.answers.jobs.models_in_use import models_in_use
from stormpetrel.answers.jobs.predictions import predict_jobs
from stormpetrel.answers.jobs.selection import select_jobs
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import ModelError, NotThereError, UsageError
from stormpetrel.jobs.moments import Moment
from stormpetrel.store.site import open_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import steady_log, trained_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with one_thread():
        folder = trained_site(tmp_path_factory.mktemp("judged") / "site", steady_log(200), until=20, moments=(Moment.SUBMIT,))
        with open_site(folder) as site:
            yield site


@pytest.fixture(scope="module")
def models(site):
    return models_in_use(site, LOCAL)


@pytest.fixture(scope="module")
def selection(site):
    return select_jobs(site, LOCAL)


def test_a_selection_is_judged_as_the_site_judges_its_jobs(site, models, selection):
    judged = judge_selection(models, selection, selection.frame.tail(20), moments=[Moment.SUBMIT])
    said = predict_jobs(site, LOCAL, moment=Moment.SUBMIT, last=20, now=site.now()).forecasts
    assert judged["risk"].sort(descending=True).to_list() == pytest.approx([job.risk for job in said])


def test_one_job_is_explained_with_the_risk_that_it_was_judged_with(models, selection):
    judged = judge_selection(models, selection, selection.frame.tail(1), moments=[Moment.SUBMIT])
    job = explain_selected(models, selection, str(judged["job_id"].item()))
    assert job.verdicts[-1].risk == pytest.approx(judged["risk"].item()) == job.row["risk"].item()
    with pytest.raises(NotThereError, match="There is no job 999999999 among these 200 jobs"):
        explain_selected(models, selection, "999999999")


def test_a_moment_without_a_model_is_refused_and_so_is_one_that_is_none(models):
    assert moments_in_use(models, None) == moments_in_use(models, "submit") == [Moment.SUBMIT]
    with pytest.raises(ModelError, match="no model for 'start'"):
        moments_in_use(models, "start")
    with pytest.raises(UsageError, match="not a moment"):
        moments_in_use(models, "later")
