"""Seals: a model is loaded only where entry and files are those that this site entered."""

from __future__ import annotations

import json
import shutil

import pytest
import sqlalchemy as sa

from stormpetrel.errors import ModelFormatError
from stormpetrel.store.registry.entries import KEYED, SEAL
from stormpetrel.store.registry.models import NewModel
from stormpetrel.store.site import create_site, open_site
from stormpetrel.store.state_tables import meta, models
from stormpetrel.store.upkeep.backup import backup, restore
from tests.builders import make_site

NAME = "jobs-submit"


def save(text):
    def write(folder):
        (folder / "deeper").mkdir(parents=True)
        (folder / "model.json").write_text(text)
        (folder / "deeper" / "weights").write_text(text * 3)

    return write


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        for text in "ab":
            opened.models.add_together({NAME: NewModel(save(text), {"figures": {1: 0.5, 10: None}})}, promoted_by="ada")
        yield opened


def change(site, version=2, **values):
    with site.state.transaction() as connection:
        connection.execute(sa.update(models).where(models.c.name == NAME, models.c.version == version).values(**values))


def about_of(site, version=2):
    query = sa.select(models.c.about).where(models.c.name == NAME, models.c.version == version)
    with site.state.transaction() as connection:
        return json.loads(connection.execute(query).scalar())


def assert_refused(site, version=2):
    with pytest.raises(ModelFormatError, match="not the one that this site entered") as caught:
        site.models.verified_folder(NAME, version)
    assert "\n" not in str(caught.value)


def make_legacy(site):
    """As an earlier version left it: entries without seals."""
    with site.state.transaction() as connection:
        connection.execute(sa.update(models).values(about=json.dumps({"training": "jobs-1"})))
        connection.execute(sa.delete(meta).where(meta.c.key == KEYED))


def test_a_model_that_was_entered_here_is_loaded_also_after_it_was_promoted_and_taken_back(site):
    assert site.models.verified_folder(NAME, 2) == site.models.folder_of(NAME, 2)
    site.models.rollback("jobs", user="ada")
    for version in (1, 2):
        site.models.verified_folder(NAME, version)


def test_a_seal_is_not_shown_among_what_is_told_of_a_model(site):
    assert set(site.models.current(NAME).about) == {"figures", "training", "promoted", "previous"}


def test_a_file_with_other_contents_is_refused(site):
    (site.models.folder_of(NAME, 2) / "deeper" / "weights").write_text("other")
    assert_refused(site)


def test_a_file_too_many_and_a_file_too_few_are_refused(site):
    (site.models.folder_of(NAME, 2) / "more").write_text("x")
    assert_refused(site)
    (site.models.folder_of(NAME, 2) / "more").unlink()
    site.models.verified_folder(NAME, 2)
    (site.models.folder_of(NAME, 2) / "model.json").unlink()
    assert_refused(site)


def test_a_link_among_the_files_is_refused(site, tmp_path):
    (tmp_path / "elsewhere").write_text("b")
    (site.models.folder_of(NAME, 2) / "model.json").unlink()
    (site.models.folder_of(NAME, 2) / "model.json").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelFormatError, match="no plain file"):
        site.models.verified_folder(NAME, 2)


def test_the_folder_of_another_version_is_refused(site):
    shutil.rmtree(site.models.folder_of(NAME, 2))
    shutil.copytree(site.models.folder_of(NAME, 1), site.models.folder_of(NAME, 2))
    assert_refused(site)


def test_an_entry_that_tells_something_else_is_refused(site):
    change(site, about=json.dumps(about_of(site) | {"figures": {"1": 0.9}}))
    assert_refused(site)


def test_the_seal_of_another_version_does_not_fit(site):
    change(site, about=json.dumps(about_of(site, version=1)))
    shutil.rmtree(site.models.folder_of(NAME, 2))
    shutil.copytree(site.models.folder_of(NAME, 1), site.models.folder_of(NAME, 2))
    assert_refused(site)


def test_an_entry_whose_seal_was_taken_away_is_refused_also_after_the_site_is_opened_again(site):
    change(site, about=json.dumps({name: value for name, value in about_of(site).items() if name != SEAL}))
    assert_refused(site)
    with open_site(site.folder) as again:
        assert_refused(again)


def test_an_entry_that_was_changed_is_not_sealed_anew_by_promoting_it(site):
    change(site, version=1, about=json.dumps(about_of(site, version=1) | {"figures": {}}))
    with pytest.raises(ModelFormatError, match="not the one that this site entered"):
        site.models.promote_training("jobs-1", user="mallory")
    assert site.models.current(NAME).version == 2
    assert_refused(site, version=1)


def test_models_of_another_site_are_refused(site, tmp_path):
    with create_site(tmp_path / "other") as other:
        other.models.add_together({NAME: NewModel(save("a"), {})}, promoted_by="bo")
        change(other, version=1, about=json.dumps(about_of(site, version=1)))
        assert_refused(other, version=1)


def test_entries_of_an_earlier_version_are_sealed_when_the_site_is_opened_and_never_again(site):
    make_legacy(site)
    with open_site(site.folder) as again:
        for version in (1, 2):
            again.models.verified_folder(NAME, version)
            assert SEAL in about_of(again, version)
        change(again, about="{}")
        assert_refused(again)


def test_entries_of_an_earlier_version_that_cannot_be_sealed_yet_can_be_read(site):
    """As on a read-only disk."""
    make_legacy(site)
    assert site.models.verified_folder(NAME, 2).is_dir()


def test_a_backup_brings_the_seals_along_and_an_old_one_gets_them(site, tmp_path):
    backup(site, tmp_path / "new.tar")
    make_legacy(site)
    backup(site, tmp_path / "old.tar")
    for name in ("new", "old"):
        with restore(tmp_path / f"{name}.tar", tmp_path / name) as copy:
            copy.models.verified_folder(NAME, 2)
            assert SEAL in about_of(copy)
            (copy.models.folder_of(NAME, 2) / "model.json").write_text("other")
            assert_refused(copy)
