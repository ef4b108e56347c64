"""Training models on a site: what the receipt says of them, and in whose name it stands in the audit trail."""

from __future__ import annotations

import pytest

from stormpetrel.answers.site.registry import train_jobs
from stormpetrel.answers.viewer import READ, Viewer
from stormpetrel.errors import AccessError
from stormpetrel.jobs.moments import Moment
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import few_trees, put_jobs, steady_log


def test_job_models_are_trained_in_the_name_of_who_asked(tmp_path):
    with one_thread(), few_trees(), make_site(tmp_path / "site") as site:
        put_jobs(site, steady_log(200))
        receipt = train_jobs(site, Viewer("ada", is_admin=True), [Moment.SUBMIT], progress=lambda _: None)
        current = {model.name: model.version for model in site.models.current_training("jobs").models}
        assert {model.name: model.version for model in receipt.models}.items() <= current.items()
        assert next(model for model in receipt.models if model.name == "jobs-submit").about["n_train"] > 0
        assert "ada" in {entry.user for entry in site.audit.recent()}


def test_who_may_only_read_trains_nothing(tmp_path):
    with make_site(tmp_path / "site") as site:
        with pytest.raises(AccessError):
            train_jobs(site, Viewer("root", True, frozenset({READ})), [Moment.SUBMIT], progress=lambda _: None)
        assert site.models.current_training("jobs") is None
