"""The registry of models: who may see it, who may change it, and what the receipts say."""

from __future__ import annotations

import pytest

from stormpetrel.answers.schemas.registry import ModelVersions
from stormpetrel.answers.site import registry
from stormpetrel.answers.viewer import LOCAL, READ, Viewer
from stormpetrel.errors import AccessError, NotThereError
from stormpetrel.jobs.moments import Moment
from stormpetrel.lifecycle import nightly
from stormpetrel.lifecycle.contests.decision import Compute, FamilyNight
from stormpetrel.lifecycle.retraining import Comparison, Retrained
from stormpetrel.store.site import open_site
from stormpetrel.store.upkeep.upkeep import Compacted
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import day, steady_log, train, trained_site
from tests.parts.recorded_site import names, unpack_site

ADA = Viewer("ada", is_admin=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A site with two trainings of the model at submission, the second in use; each test leaves it so."""
    with one_thread():
        folder = trained_site(tmp_path_factory.mktemp("registry") / "site", steady_log(200), until=20, moments=(Moment.SUBMIT,))
        with open_site(folder) as site:
            train(site, until=day(25), moments=(Moment.SUBMIT,))
            yield site


def test_every_training_is_listed_with_what_it_learnt_from(site):
    first, second = registry.trainings_of_all(site, LOCAL).trainings
    assert (first.training, first.current, second.training, second.current) == ("jobs-1", False, "jobs-2", True)
    assert second.models == {"jobs-profiles": 2, "jobs-submit": 2} and second.previous == "jobs-1"
    assert second.jobs > 0 == second.windows == second.buckets
    assert second.learnt_from == f"{second.jobs:,} jobs" and second.problem is None
    assert second.model_dump(mode="json")["trained_until"].endswith("+00:00")


def test_a_name_is_that_of_a_training_or_of_a_model(site):
    shown = registry.show_model(site, LOCAL, "jobs-2")
    assert set(shown.about) == set(shown.summaries) == {"jobs-profiles", "jobs-submit"}
    versions = registry.show_model(site, LOCAL, "jobs-submit")
    assert isinstance(versions, ModelVersions)
    assert [(line.version, line.current, line.about["training"]) for line in versions.versions] == [
        (1, False, "jobs-1"),
        (2, True, "jobs-2"),
    ]
    with pytest.raises(NotThereError):
        registry.show_model(site, LOCAL, "jobs-none")


def test_a_receipt_says_what_is_in_use_now_and_what_was(site):
    receipt = registry.promote(site, ADA, "jobs-1")
    assert (receipt.training, receipt.current, receipt.before, receipt.changed, receipt.taken_up) == (
        "jobs-1", True, "jobs-2", True, True,
    )  # fmt: skip
    again = registry.promote(site, ADA, "jobs-1")
    assert (again.before, again.changed) == (None, False)
    back = registry.roll_back(site, ADA, "jobs")
    assert (back.training, back.before) == ("jobs-2", "jobs-1")
    assert [(entry.user, entry.action) for entry in site.audit.recent(2)] == [
        ("ada", "models rollback"),
        ("ada", "models promote"),
    ]


def test_every_family_is_told_in_the_same_fields_and_without_names_of_people(tmp_path):
    with open_site(unpack_site(names()[-1], tmp_path)) as recorded:
        trainings = registry.trainings_of_all(recorded, LOCAL).trainings
        assert {training.family for training in trainings} == {"jobs", "traces", "events", "synth"}
        for training in trainings:
            assert sum(rows > 0 for rows in (training.jobs, training.windows, training.buckets)) == 1
            assert set(training.models) == {model.name for model in recorded.models.training(training.training).models}
            assert training.promoted is None or set(training.promoted.model_dump()) == {"time", "action"}


def test_only_who_manages_the_site_changes_what_is_in_use(site):
    reader, user = Viewer("root", True, frozenset({READ})), Viewer("kim", is_admin=False)
    for viewer in (reader, user):
        assert registry.trainings_of_all(site, viewer).trainings
        for act in (
            lambda viewer=viewer: registry.promote(site, viewer, "jobs-1"),
            lambda viewer=viewer: registry.roll_back(site, viewer, "jobs"),
            lambda viewer=viewer: registry.run_night(site, viewer, progress=print),
        ):
            with pytest.raises(AccessError):
                act()
    assert site.models.current_training("jobs").name == "jobs-2"


def test_a_night_is_told_with_its_figures(site, monkeypatch):
    better = Comparison("submit", 812, 160, 0.4, 0.5, -0.12, -0.08, 0.61, None)
    retrained = Retrained(True, "better", "jobs-3", "jobs-2", (better,))
    families = (FamilyNight("events", False, "not clearly better", None, "events-1", compute=Compute(2.0, 1.5, 10)),)
    night = nightly.Nightly(retrained, families, ("one",), ("two",), 4, ("jobs-1",), (Compacted("jobs", 9, 1, 8),))
    monkeypatch.setattr(registry, "run_nightly", lambda _site, progress: night)
    receipt = registry.run_night(site, LOCAL, progress=print)
    assert (receipt.promoted, receipt.training, receipt.deleted_trainings) == (True, "jobs-3", ["jobs-1"])
    assert receipt.comparisons[0].pr_auc == 0.61 and receipt.comparisons[0].pr_auc_current is None
    assert receipt.compacted[0].files_after == 1 and receipt.keep_days == 0
    assert receipt.events == "events-1 stays in use; not clearly better." == receipt.families[0].sentence
    assert (receipt.families[0].cpu_s, receipt.shadows) == (1.5, ["two"])
