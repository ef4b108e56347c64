"""The contract of the families: every family × every verb, on a recorded site that has trainings of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stormpetrel.errors import ModelError, ModelFormatError, NotThereError, UsageError
from stormpetrel.learn.family import Family, Role, TrainingRecord
from stormpetrel.learn.saving import METADATA, RETIRED_KINDS
from stormpetrel.lifecycle import job_models
from stormpetrel.lifecycle.families import FAMILIES, describe_all, describe_training, family_named, promote_training
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.store.registry.models import NewModel
from stormpetrel.store.site import Site, open_site
from tests.builders import make_site
from tests.jobs.logs import one_thread
from tests.lifecycle.sites import QUICK
from tests.parts.recorded_site import names, unpack_site
from tests.traces.small import one_torch_thread

EVERY = pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread(), one_torch_thread():
        yield


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The newest recorded site; which training is in use may change, what is saved may not."""
    with open_site(unpack_site(names()[-1], tmp_path_factory.mktemp("recorded"))) as site:
        yield site


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Site]:
    """A copy for whoever damages or adds something."""
    with open_site(unpack_site(names()[-1], tmp_path)) as site:
        yield site


def other_of(site: Site, family: Family) -> str:
    """A training that is not in use."""
    return next(training.name for training in site.models.trainings(family.name) if not training.current)


def test_there_is_one_implementation_of_the_contract_for_each_family():
    assert set(FAMILIES) == set(ModelFamily) and all(isinstance(family, Family) for family in FAMILIES.values())
    kinds = [kind for family in FAMILIES.values() for kind in family.formats()]
    assert len(kinds) == len(set(kinds))


@EVERY
def test_the_models_in_use_are_those_of_the_current_training(recorded, family):
    current = recorded.models.current_training(family.name).name
    assert type(family.load(recorded)) is type(family.load(recorded, current))


@EVERY
def test_a_training_is_described_in_full(recorded, family):
    for training in recorded.models.trainings(family.name):
        told = family.describe(recorded, training.name)
        assert isinstance(told, TrainingRecord) and (told.family, told.name) == (family.name, training.name)
        assert told.data.rows > 0 and told.data.unit is family.unit and told.data.until.tzinfo is not None
        assert told.main.role is Role.MODEL and {model.name for model in told.models} == {m.name for m in training.models}
        if any(model.saved.kind in RETIRED_KINDS for model in told.models):
            assert "to be trained again" in told.problem
            continue
        for model in told.models:
            assert model.saved is not None and model.saved.format_version == family.formats()[model.saved.kind]
            assert len(model.saved.digest) == 64 and model.code_version and model.summary
        assert told.problem is None and told.why


@EVERY
def test_a_training_is_put_in_use_and_taken_back_and_it_is_noted_by_whom(recorded, family):
    before, other = recorded.models.current_training(family.name).name, other_of(recorded, family)
    put = promote_training(recorded, other, user="ada")
    assert put.current and put.name == other and put.previous == before
    assert put.promotion.user == "ada" and put.promotion.action == "models promote"
    back = family.roll_back(recorded, user="eve")
    assert back.current and back.name == before and not describe_training(recorded, other).current
    assert (back.promotion.user, back.promotion.action) == ("eve", "models rollback")


@EVERY
def test_a_training_of_another_family_is_refused(recorded, family):
    foreign = next(training.name for training in recorded.models.trainings() if training.family != family.name)
    for verb in (family.load, family.describe, family.promote):
        with pytest.raises(ModelError, match=f"no training of {family.name}"):
            verb(recorded, foreign)


@EVERY
def test_a_training_that_is_not_there_is_one_sentence(recorded, family):
    with pytest.raises(NotThereError, match="no training"):
        family.promote(recorded, f"{family.name}-99")


@EVERY
def test_what_cannot_be_read_is_refused_before_anything_changes(own, family):
    before, other = own.models.current_training(family.name).name, other_of(own, family)
    for model in own.models.training(other).models:
        (own.models.folder_of(model.name, model.version) / METADATA).write_text("{}")
    with pytest.raises(ModelFormatError):
        family.promote(own, other)
    own.models.promote_training(other, user="ada")
    own.models.promote_training(before, user="ada")  # what was in use before it, is damaged
    with pytest.raises(ModelFormatError):
        family.roll_back(own)
    assert own.models.current_training(family.name).name == before
    told = family.describe(own, other)  # what the registry knows is told all the same
    assert told.data.rows > 0 and all(model.saved is None for model in told.models)


def test_a_site_without_models_says_how_to_make_one(tmp_path):
    with make_site(tmp_path / "site") as site:
        for name, command in (("jobs", "jobs train"), ("events", "events train"), ("synth", "synth fit")):
            with pytest.raises(ModelError, match=f"stormpetrel {command}"):
                FAMILIES[name].load(site)
            with pytest.raises(ModelError, match=f"stormpetrel {command}"):
                FAMILIES[name].roll_back(site)
        assert describe_all(site) == []


def test_jobs_are_trained_through_the_contract_and_other_moments_stay(own, monkeypatch):
    monkeypatch.setattr(job_models, "training_settings", lambda _settings: replace(QUICK, rounds=4))
    steps = []
    made = FAMILIES["jobs"].train(own, "submit", why="tried", user="ada", progress=lambda *step: steps.append(step))
    assert made.current and made.why == "tried" and made.promotion.user == "ada" and steps
    assert made.main.sort == "submit" and made.main.data.table_version is not None
    assert "copy_of" in next(model for model in made.models if model.sort == "start").about


def test_an_entry_of_an_earlier_release_that_notes_little_is_described(tmp_path):
    def save(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / METADATA).write_text("[]")

    with make_site(tmp_path / "site") as site:
        for family, sorts in {
            "jobs": ("submit", "profiles"),
            "traces": ("fast",),
            "events": ("combined",),
            "synth": ("rows",),
        }.items():
            site.models.add_together({f"{family}-{sort}": NewModel(save, {}) for sort in sorts})
        for told in describe_all(site):
            assert told.data.rows == 0 and told.promotion is None and told.main.seed is None and told.main.saved is None
            assert not told.current


def test_an_unknown_family_is_answered_with_the_nearest_one():
    with pytest.raises(
        UsageError, match=r"Unknown model family 'trace'\. Known: jobs, traces, events, synth\. Did you mean 'traces'"
    ):
        family_named("trace")
