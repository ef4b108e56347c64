"""The registry of models: versions count up, one is current, and a half-made one is never seen."""

import pytest
import sqlalchemy as sa

from stormpetrel.errors import ModelError
from stormpetrel.store.site import open_site
from stormpetrel.store.state import STATE_FORMAT, meta, models
from tests.builders import make_site


def save(text):
    def write(folder):
        folder.mkdir(parents=True)
        (folder / "model.json").write_text(text)

    return write


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


def test_one_model_does_not_touch_another(site):
    for name in ("jobs-submit", "jobs-start"):
        site.models.promote(name, site.models.add(name, save(name), {}).version)
    site.models.promote("jobs-submit", site.models.add("jobs-submit", save("new"), {}).version)
    assert [(v.name, v.version, v.current) for v in site.models.versions()] == [
        ("jobs-start", 1, True),
        ("jobs-submit", 1, False),
        ("jobs-submit", 2, True),
    ]


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
    from stormpetrel.store.backup import backup, restore

    site.models.promote("jobs-submit", site.models.add("jobs-submit", save("kept"), {"n_train": 3}).version)
    backup(site, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", tmp_path / "copy")
    with open_site(tmp_path / "copy") as copy:
        current = copy.models.current("jobs-submit")
        assert current.about == {"n_train": 3}
        assert (copy.models.folder_of("jobs-submit", current.version) / "model.json").read_text() == "kept"
