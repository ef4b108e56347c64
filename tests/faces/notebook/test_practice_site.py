from __future__ import annotations

from datetime import timedelta

from stormpetrel.jobs.moments import MOMENTS
from stormpetrel.lifecycle.job_models import model_name
from stormpetrel.store.site import open_site


def test_it_is_a_site_whose_clock_stands_still_with_a_model_that_lacks_the_last_days(practice_site, model):
    with open_site(practice_site) as site:
        assert site.now() == site.now()
        assert model.trained_until == site.now() - timedelta(days=4)
        assert all(site.models.current(model_name(moment)).current for moment in MOMENTS)
        jobs = site.jobs.read_jobs().collect()
    assert jobs["submit_time"].max() <= site.now()
    assert {"COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "RUNNING"} <= set(jobs["state"])
