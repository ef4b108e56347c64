"""The registry of models: versions count up, trainings are used whole, and a half-made one is never seen."""

import json
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa

from stormpetrel.errors import ModelError, NotThereError
from stormpetrel.store.audit import AuditTrail
from stormpetrel.store.registry.models import NewModel
from stormpetrel.store.site import open_site
from stormpetrel.store.state import STATE_FORMAT
from stormpetrel.store.state_tables import meta, models
from tests.builders import make_site


def save(text):
    def write(folder):
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(text)

    return write


def enter(site, *names, why="", until=None, by=None):
    """A training of some models; put in use by whom is named."""
    about = {"why": why, **({"trained_until": until} if until else {})}
    return site.models.add_together({name: NewModel(save(name), about) for name in names}, promoted_by=by)


def in_use(site):
    return {name: version.version for name, version in site.models.in_use().items()}


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def test_versions_count_up_and_nothing_is_current_until_it_is_promoted(site):
    first, second = (site.models.add("jobs-submit", save(text), {"n_train": 3}) for text in "ab")
    assert (first.version, second.version) == (1, 2)
    with pytest.raises(ModelError, match="stormpetrel jobs train"):
        site.models.current("jobs-submit")
    site.models.promote("jobs-submit", 2)
    site.models.promote("jobs-submit", 1)
    assert site.models.current("jobs-submit").version == 1
    assert (site.models.folder_of("jobs-submit", 1) / "model.json").read_text() == "a"


def test_one_family_does_not_touch_another(site):
    for name in ("jobs-submit", "traces-nodes"):
        site.models.promote(name, site.models.add(name, save(name), {}).version)
    site.models.promote("jobs-submit", site.models.add("jobs-submit", save("new"), {}).version)
    assert [(v.name, v.version, v.current) for v in site.models.versions()] == [
        ("jobs-submit", 1, False),
        ("jobs-submit", 2, True),
        ("traces-nodes", 1, True),
    ]
    assert [training.name for training in site.models.trainings()] == ["jobs-1", "jobs-2", "traces-1"]


def test_a_version_that_is_not_there_cannot_be_promoted(site):
    with pytest.raises(ModelError, match="no version 7"):
        site.models.promote("jobs-submit", 7)


def test_what_a_dead_training_left_behind_is_replaced(site):
    def die(folder):
        save("half")(folder)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        site.models.add("jobs-submit", die, {})
    assert site.models.versions() == []
    assert site.models.add("jobs-submit", save("whole"), {}).version == 1
    assert (site.models.folder_of("jobs-submit", 1) / "model.json").read_text() == "whole"


def test_a_site_of_the_version_before_gets_its_registry_and_keeps_the_rest(tmp_path):
    with make_site(tmp_path / "old") as opened:
        opened.state.record_ingest("a log", {"read": 1})
        with opened.state.transaction() as connection:
            models.drop(connection)
            connection.execute(sa.update(meta).where(meta.c.key == "format").values(value="1"))
    with open_site(tmp_path / "old") as opened:
        assert opened.models.versions() == []
        assert opened.state.past_ingests()[0]["source"] == "a log"
        with opened.state.transaction() as connection:
            assert connection.execute(sa.select(meta.c.value).where(meta.c.key == "format")).scalar() == str(STATE_FORMAT)


def test_models_come_back_from_a_backup(tmp_path, site):
    from stormpetrel.store.upkeep.backup import backup, restore

    site.models.promote("jobs-submit", site.models.add("jobs-submit", save("kept"), {"n_train": 3}).version)
    backup(site, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", tmp_path / "copy").close()
    with open_site(tmp_path / "copy") as copy:
        current = copy.models.current("jobs-submit")
        assert current.about["n_train"] == 3
        assert (copy.models.folder_of("jobs-submit", current.version) / "model.json").read_text() == "kept"


# --- trainings ----------------------------------------------------------------------------------------------------------------


def test_models_of_a_training_are_entered_and_promoted_together(site):
    first = enter(site, "jobs-profiles", "jobs-submit", "jobs-start", by="ada")
    assert first.name == "jobs-1" and first.current and first.previous is None
    second = enter(site, "jobs-profiles", "jobs-submit")
    assert second.name == "jobs-2" and not second.current
    assert in_use(site) == {"jobs-profiles": 1, "jobs-submit": 1, "jobs-start": 1}
    site.models.promote("jobs-submit", 2, user="bob")  # any of its models stands for all
    assert in_use(site) == {"jobs-profiles": 2, "jobs-submit": 2}
    assert site.models.current_training("jobs").previous == "jobs-1"


def test_promoting_again_what_is_in_use_forgets_nothing(site):
    enter(site, "jobs-submit", by="ada")
    enter(site, "jobs-submit", by="ada")
    site.models.promote_training("jobs-2", user="ada")
    assert site.models.current_training("jobs").previous == "jobs-1"


def test_rollback_goes_back_step_by_step_to_what_was_in_use(site):
    enter(site, "jobs-submit", by="ada")
    enter(site, "jobs-submit")  # never in use
    enter(site, "jobs-submit", by="ada")
    enter(site, "jobs-submit", by="ada")
    assert [site.models.rollback("jobs", user="bob").name for _ in range(2)] == ["jobs-3", "jobs-1"]
    with pytest.raises(ModelError, match="nothing was in use before jobs-1"):
        site.models.rollback("jobs", user="bob")
    assert in_use(site) == {"jobs-submit": 1}
    site.models.promote_training("jobs-4", user="bob")
    assert site.models.rollback("jobs", user="bob").name == "jobs-1"  # what was in use just before


def test_rollback_without_a_model_says_how_to_get_one(site):
    with pytest.raises(ModelError, match="stormpetrel jobs train"):
        site.models.rollback("jobs", user="ada")


def test_every_change_leaves_its_trace_in_the_audit_trail(site):
    enter(site, "jobs-submit", by="ada", why="first")
    enter(site, "jobs-submit")
    site.models.promote_training("jobs-2", user="bob")
    site.models.rollback("jobs", user="eve")
    told = [(e.user, e.action, e.about["training"], e.about["previous"]) for e in reversed(AuditTrail(site.state).recent())]
    assert told == [
        ("ada", "models promote", "jobs-1", None),
        ("bob", "models promote", "jobs-2", "jobs-1"),
        ("eve", "models rollback", "jobs-1", "jobs-2"),
    ]
    assert site.models.training("jobs-1").promoted["action"] == "models rollback"
    assert "eve" not in json.dumps([dict(version.about) for version in site.models.versions()])  # names stand in one place


def test_a_training_of_which_one_model_cannot_be_saved_is_not_entered(site):
    def die(folder):
        raise OSError(28, "No space left on device")

    enter(site, "jobs-profiles", "jobs-submit", by="ada")
    before = site.models.versions()
    broken = {"jobs-profiles": NewModel(save("a"), {}), "jobs-submit": NewModel(die, {})}
    with pytest.raises(Exception, match="is full"):
        site.models.add_together(broken, promoted_by="ada")
    assert site.models.versions() == before
    assert enter(site, "jobs-profiles", "jobs-submit", by="ada").name == "jobs-2"


def test_readers_see_one_training_or_the_other_and_nothing_between(site):
    """Another process that reads while a training is made current: its snapshot is whole."""
    names = ("jobs-profiles", "jobs-submit")
    enter(site, *names, by="ada")
    with open_site(site.folder) as other, site.state.transaction() as connection:
        connection.execute(sa.update(models).where(models.c.name == "jobs-submit").values(current=False))  # half-way
        assert in_use(other) == dict.fromkeys(names, 1)
        connection.rollback()


def test_unknown_trainings_are_one_sentence(site):
    with pytest.raises(NotThereError, match=r"no training 'jobs-9'\. See which there are: stormpetrel models list"):
        site.models.training("jobs-9")


def test_who_put_a_training_in_use_last_stands_in_the_audit_trail(site):
    enter(site, "jobs-profiles", "jobs-submit", by="ada")
    enter(site, "jobs-profiles", "jobs-submit")
    assert site.models.promoted_by("jobs-1") == "ada" and site.models.promoted_by("jobs-2") is None
    site.models.promote_training("jobs-1", user="bob")
    assert site.models.promoted_by("jobs-1") == "bob" and site.models.promoted_by("jobs-%") is None


def test_versions_of_earlier_releases_are_grouped_by_when_they_were_made(site):
    """They did not note their training, nor up to when they had seen jobs."""
    rows = [
        ("jobs-profiles", 1, "2024-03-04T08:00:00+00:00"), ("jobs-submit", 1, "2024-03-04T08:00:00+00:00"),
        ("jobs-start", 1, "2024-03-04T08:00:01+00:00"), ("jobs-profiles", 2, "2024-03-05T08:00:00+00:00"),
        ("jobs-submit", 2, "2024-03-05T08:00:00+00:00"),
    ]  # fmt: skip
    with site.state.transaction() as connection:
        for name, version, created in rows:
            entry = {
                "name": name,
                "version": version,
                "created": created,
                "about": "{}",
                "current": version == 2 or "start" in name,
            }
            connection.execute(sa.insert(models).values(entry))
    site.models.sign_unsigned()  # as the first opening by this version does
    first, second = site.models.trainings()
    assert (first.name, second.name) == ("jobs-1", "jobs-2")
    assert {model.name for model in first.models} == {"jobs-profiles", "jobs-submit", "jobs-start"}
    assert site.models.current_training("jobs").name == "jobs-2"
    assert second.trained_until == datetime(2024, 3, 5, 8, tzinfo=UTC) and second.why == ""
    assert enter(site, "jobs-profiles", "jobs-submit", by="ada").previous == "jobs-2"
    assert site.models.rollback("jobs", user="ada").name == "jobs-2"


# --- pruning ------------------------------------------------------------------------------------------------------------------


def folders(site):
    return sorted(path.parent.name + path.name for path in (site.folder / "models").glob("*/*"))


def test_pruning_keeps_the_newest_the_one_in_use_and_the_one_before(site):
    for by in (None, "ada", "ada", None, None, None):
        enter(site, "jobs-submit", by=by)
    assert site.models.prune(keep=1) == ["jobs-1", "jobs-4", "jobs-5"]
    assert [training.name for training in site.models.trainings()] == ["jobs-2", "jobs-3", "jobs-6"]
    assert folders(site) == ["jobs-submit00002", "jobs-submit00003", "jobs-submit00006"]
    assert site.models.rollback("jobs", user="ada").name == "jobs-2"
    assert site.models.prune(keep=10) == []


def test_what_was_pruned_cannot_be_gone_back_to(site):
    for _ in range(3):
        enter(site, "jobs-submit", by="ada")
    assert site.models.prune(keep=1) == ["jobs-1"]
    site.models.rollback("jobs", user="ada")
    with pytest.raises(ModelError, match="jobs-1, in use before jobs-2, is no longer kept"):
        site.models.rollback("jobs", user="ada")


def test_pruning_clears_what_died_half_way_and_nothing_else(site):
    for _ in range(3):
        enter(site, "jobs-submit", by="ada")
    site.models.prune(keep=2)
    for left in ("jobs-submit/00001", "jobs-submit/.making-x", "jobs-submit/00009", "jobs-submit/notes", "other/00001"):
        (site.folder / "models" / left).mkdir(parents=True)
    assert site.models.prune(keep=2) == []
    left = ["jobs-submit00002", "jobs-submit00003", "jobs-submit00009", "jobs-submitnotes", "other00001"]
    assert folders(site) == left  # one that was not entered yet is replaced by the next training


def test_numbers_are_not_given_twice_after_pruning(site):
    for _ in range(3):
        enter(site, "jobs-submit")
    site.models.prune(keep=1)
    assert enter(site, "jobs-submit").name == "jobs-4"
