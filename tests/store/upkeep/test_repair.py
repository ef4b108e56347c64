"""A state that was lost is not replaced in silence: the site is refused, and a repair brings back what can be brought back."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import polars as pl
import pytest

from stormpetrel.answers.site.doctor import examine
from stormpetrel.errors import StateLostError, StoreBusyError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.identity import (
    IDENTITY_FILE,
    Identity,
    Standing,
    disagreement,
    read_identity,
    standing,
    standing_of,
    write_identity,
)
from stormpetrel.store.registry.models import NewModel
from stormpetrel.store.site import Site, open_site
from stormpetrel.store.upkeep import repair as repairing
from stormpetrel.store.upkeep import upkeep
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.repair import repair
from stormpetrel.store.upkeep.upkeep import compact, forget, retain
from tests.builders import Job, make_jobs, make_site, table_of, write_sacct

MALLORY = [Job(job_id=900 + k, user="mallory") for k in range(3)]


def take(site: Site, path: Path):
    return ingest_jobs(site, SacctText(path))


def save(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "model.json").write_text(
        json.dumps({"kind": "job-outcome", "n_train": 7, "about": {"trained_until": "2024-03-04T00:00:00+00:00"}})
    )


def train(site: Site, family: str = "jobs", **about: object) -> str:
    names = ("jobs-profiles", "jobs-submit") if family == "jobs" else (f"{family}-vanilla",)
    return site.models.add_together({name: NewModel(save, about) for name in names}, promoted_by="ada").name


def all_readable(_site: Site, _training: object) -> None:
    return None


def mend(folder: Path, problem_of=all_readable):
    return repair(folder, problem_of=problem_of, user="ada")


def lose_state(folder: Path) -> None:
    for path in folder.glob("state.db*"):
        path.unlink()


@pytest.fixture
def folder(tmp_path):
    """A site with jobs, two trainings, a token and a forgotten user."""
    with make_site(tmp_path / "site") as site:
        take(site, write_sacct(tmp_path / "log", [*make_jobs(10), *MALLORY]))
        train(site, threshold=0.25)
        train(site, threshold=0.5)
        site.tokens.add("laptop", user="ada", scopes=["read"])
        forget(site, "mallory")
    return tmp_path / "site"


# --- refused ------------------------------------------------------------------------------------------------------------------


def test_tables_without_their_state_are_refused_with_the_way_out(folder):
    lose_state(folder)
    with pytest.raises(StateLostError, match=r"state\.db is missing.*stormpetrel doctor --repair") as raised:
        open_site(folder)
    assert "\n" not in str(raised.value)


def test_a_refused_site_stays_as_it_is(folder):
    lose_state(folder)
    before = sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*"))
    with pytest.raises(StateLostError):
        open_site(folder)
    assert sorted((path, path.stat().st_mtime_ns) for path in folder.rglob("*")) == before


def test_an_empty_state_beside_tables_is_refused(folder):
    lose_state(folder)
    (folder / "state.db").write_bytes(b"")
    with pytest.raises(StateLostError, match="doctor --repair"):
        open_site(folder)


def test_a_state_of_other_tables_is_refused(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    identity = read_identity(folder / "tables")
    write_identity(folder / "tables", Identity("0" * 32, identity.generation))
    with pytest.raises(StateLostError, match="belongs to other tables"):
        open_site(folder)
    with pytest.raises(StateLostError, match="belongs to other tables"):
        mend(folder)


def test_a_site_that_was_just_made_opens_again(tmp_path):
    make_site(tmp_path / "site").close()
    with open_site(tmp_path / "site") as site:
        assert standing_of(site) is Standing.TOGETHER


def test_tables_that_lost_only_their_identity_get_it_from_the_state(folder):
    (folder / "tables" / IDENTITY_FILE).unlink()
    with open_site(folder) as site:
        assert read_identity(site.tables) == site.state.identity()


@pytest.mark.parametrize(
    ("state", "tables", "expected"),
    [
        (("a", "3-00000000"), ("a", "3-00000000"), Standing.TOGETHER),
        (("a", "2-00000000"), ("a", "3-11111111"), Standing.STATE_OLDER),
        (("a", "10-00000000"), ("a", "9-11111111"), Standing.TABLES_OLDER),
        (("a", "3-00000000"), ("a", "3-11111111"), Standing.APART),
        (("a", "3-00000000"), ("b", "3-00000000"), Standing.STRANGERS),
    ],
)
def test_two_identities_stand_to_each_other_by_id_and_generation(state, tables, expected):
    assert standing(Identity(*state), Identity(*tables)) is expected


# --- rebuilt ------------------------------------------------------------------------------------------------------------------


def test_forgotten_for_good_holds_when_the_state_is_lost(folder, tmp_path):
    lose_state(folder)
    assert mend(folder).rebuilt
    with open_site(folder) as site:
        report = take(site, write_sacct(tmp_path / "again", [*MALLORY, Job(job_id=2000, user="bo")]))
        assert (report.kept, dict(report.quarantined)) == (1, {"forgotten_user": 3})
        assert "mallory" not in table_of(site)["user"].to_list()


def test_tombstones_name_nobody_and_survive_upkeep(folder, tmp_path):
    with open_site(folder) as site:
        site.now = lambda: make_jobs(1)[0].submit.replace(year=2030)
        compact(site)
        retain(site, 1)
        assert site.jobs.read_jobs().collect().height == 0
        assert site.forgotten.digests() == site.state.forgotten_digests() != frozenset()
    for path in (folder / "tables" / "forgotten").rglob("*"):
        assert not path.is_file() or b"mallory" not in path.read_bytes()


def test_tombstones_are_in_backups(folder, tmp_path):
    with open_site(folder) as site:
        backup(site, tmp_path / "b.tar")
    restore(tmp_path / "b.tar", tmp_path / "copy").close()
    lose_state(tmp_path / "copy")
    mend(tmp_path / "copy")
    with open_site(tmp_path / "copy") as copy:
        assert take(copy, write_sacct(tmp_path / "again", MALLORY)).quarantined["forgotten_user"] == 3


def test_the_registry_comes_back_with_everything_it_knew(folder):
    with open_site(folder) as site:
        before = site.models.versions()
    lose_state(folder)
    report = mend(folder)
    with open_site(folder) as site:
        after = site.models.versions()
    assert "Entered in the registry again, out of their folders: 4 models." in report.done
    told = [({**model.about, "promoted": None}, model.created) for model in after]
    assert told == [({**model.about, "promoted": None}, model.created) for model in before]
    assert [model.current for model in after] == [model.current for model in before]


def test_what_was_in_use_last_is_in_use_again_even_if_it_is_not_the_newest(folder):
    with open_site(folder) as site:
        site.models.rollback("jobs", user="ada")
        times = {"jobs-1": "2030-01-02T00:00:00+00:00", "jobs-2": "2030-01-01T00:00:00+00:00"}
    for path in folder.glob("models/*/*/entry.json"):  # the clock shows whole seconds
        entry = json.loads(path.read_text())
        entry["about"]["promoted"]["time"] = times[entry["about"]["training"]]
        path.write_text(json.dumps(entry))
    lose_state(folder)
    assert "jobs-1 is in use now." in mend(folder).done
    with open_site(folder) as site:
        assert site.models.current_training("jobs").name == "jobs-1"


def test_a_model_that_cannot_be_read_is_passed_over_and_told(folder):
    lose_state(folder)
    report = mend(folder, lambda _site, training: "it is damaged." if training.name == "jobs-2" else None)
    assert "jobs-1 is in use now (jobs-2 cannot be used: it is damaged)." in report.done


def test_a_family_without_a_readable_model_is_told_with_what_to_run(folder):
    lose_state(folder)
    report = mend(folder, lambda _site, _training: "it is damaged.")
    assert any(
        line.startswith("No model of jobs can be used") and line.endswith("Run: stormpetrel jobs train.") for line in report.gone
    )


def test_models_of_a_version_that_noted_nothing_beside_them_are_entered_from_their_own_records(folder):
    for path in folder.glob("models/*/*/entry.json"):
        path.unlink()
    lose_state(folder)
    mend(folder)
    with open_site(folder) as site:
        assert site.models.current_training("jobs").name == "jobs-2"
        assert site.models.current("jobs-submit").about["n_train"] == 7


def test_what_is_gone_is_said_in_plain_words(folder):
    lose_state(folder)
    words = " ".join(mend(folder).gone)
    assert all(word in words for word in ("Tokens", "Saved views", "opinions", "audit trail", "Outages"))
    assert "Who had been forgotten is not known" not in words


def test_a_site_whose_tables_keep_no_tombstones_yet_says_that_they_are_gone(folder):
    shutil.rmtree(folder / "tables" / "forgotten")
    (folder / "tables" / IDENTITY_FILE).unlink()
    lose_state(folder)
    assert any("Who had been forgotten is not known" in line for line in mend(folder).gone)
    open_site(folder).close()


def test_a_repair_is_in_the_audit_trail_of_the_new_state(folder):
    lose_state(folder)
    mend(folder)
    with open_site(folder) as site:
        assert any(entry.action == "doctor --repair" and entry.user == "ada" for entry in site.audit.recent())


def test_a_new_state_is_of_a_new_generation_of_the_same_site(folder):
    before = read_identity(folder / "tables")
    lose_state(folder)
    mend(folder)
    after = read_identity(folder / "tables")
    assert after.site_id == before.site_id and after.number > before.number
    with open_site(folder) as site:
        assert standing_of(site) is Standing.TOGETHER


@pytest.mark.parametrize("where", ["_remember_forgotten", "_enter_models", "_put_in_use", "_forget_again", "follow_state"])
def test_a_repair_that_is_killed_leaves_the_site_refused_or_whole(folder, tmp_path, monkeypatch, where):
    lose_state(folder)

    def die(*_words, **_more):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(repairing, where, die)
        with pytest.raises(KeyboardInterrupt):
            mend(folder)
    if where != "follow_state":  # the last word: by then everything is there
        with pytest.raises(StateLostError):
            open_site(folder)
        mend(folder)
    with open_site(folder) as site:
        assert site.models.current_training("jobs").name == "jobs-2"
        assert take(site, write_sacct(tmp_path / "again", MALLORY)).quarantined["forgotten_user"] == 3


def test_a_damaged_state_is_kept_aside_and_rebuilt(folder):
    lose_state(folder)
    (folder / "state.db").write_bytes(b"no database at all" * 500)
    report = mend(folder)
    assert report.rebuilt and any("state.db was damaged" in line for line in report.done)
    (kept,) = folder.glob("state.db.damaged-*")
    assert kept.read_bytes().startswith(b"no database")
    with open_site(folder) as site:
        assert site.models.current_training("jobs").name == "jobs-2"


def test_nothing_is_repaired_while_a_watch_runs(folder):
    with open_site(folder) as site, site.state.sole("watch"), pytest.raises(StoreBusyError, match="Another watch"):
        mend(folder)


def test_a_healthy_site_has_nothing_to_repair(folder):
    before = read_identity(folder / "tables")
    report = mend(folder)
    assert (report.rebuilt, report.done, report.gone) == (False, [], [])
    assert read_identity(folder / "tables") == before


# --- of two generations -------------------------------------------------------------------------------------------------------


def copy_state(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    with sqlite3.connect(source / "state.db") as old, sqlite3.connect(target / "state.db") as new:
        old.backup(new)
    old.close()
    new.close()


def test_an_old_state_put_back_keeps_nobody_who_was_forgotten_since(folder, tmp_path):
    copy_state(folder, tmp_path / "old")
    with open_site(folder) as site:
        forget(site, "user1")
    lose_state(folder)
    shutil.copy(tmp_path / "old" / "state.db", folder / "state.db")
    with open_site(folder) as site:
        report = take(site, write_sacct(tmp_path / "again", [Job(job_id=3000, user="user1")]))
        assert dict(report.quarantined) == {"forgotten_user": 1}


def test_an_old_state_is_a_problem_for_the_doctor_until_it_is_repaired(folder, tmp_path):
    copy_state(folder, tmp_path / "old")
    with open_site(folder) as site:
        forget(site, "user1")
    lose_state(folder)
    shutil.copy(tmp_path / "old" / "state.db", folder / "state.db")
    with open_site(folder) as site:
        (finding,) = [finding for finding in examine(site) if finding.check == "state"]
        assert finding.level == "problem" and "older than the tables" in finding.what and "doctor --repair" in finding.hint
    mend(folder)
    with open_site(folder) as site:
        assert disagreement(site) is None


def test_old_tables_put_back_lose_the_rows_of_users_forgotten_since_by_a_repair(folder, tmp_path):
    shutil.copytree(folder / "tables", tmp_path / "tables")
    with open_site(folder) as site:
        forget(site, "user1")
    shutil.rmtree(folder / "tables")
    shutil.copytree(tmp_path / "tables", folder / "tables")
    with open_site(folder) as site:
        assert table_of(site).filter(pl.col("user") == "user1").height == 2
        assert "may be there" in disagreement(site)
    report = mend(folder)
    assert "Deleted, since they were there again: 2 jobs of 1 forgotten user." in report.done
    with open_site(folder) as site:
        assert table_of(site).filter(pl.col("user") == "user1").height == 0 and disagreement(site) is None


def test_forgetting_that_is_killed_is_told_and_finished_by_a_repair(folder, monkeypatch):
    def die(*_words):
        raise KeyboardInterrupt

    with open_site(folder) as site, monkeypatch.context() as patched:
        patched.setattr(upkeep, "_keep_where", die)
        with pytest.raises(KeyboardInterrupt):
            forget(site, "user1")
    with open_site(folder) as site:
        assert "cut short" in disagreement(site)
    mend(folder)
    with open_site(folder) as site:
        assert table_of(site).filter(pl.col("user") == "user1").height == 0 and disagreement(site) is None


def test_a_restored_site_is_of_a_new_generation(folder, tmp_path):
    with open_site(folder) as site:
        backup(site, tmp_path / "b.tar")
        before = site.state.identity()
    with restore(tmp_path / "b.tar", tmp_path / "copy") as copy:
        after = copy.state.identity()
        assert standing_of(copy) is Standing.TOGETHER
    assert after.site_id == before.site_id and after.number == before.number + 1


def test_models_that_an_old_state_does_not_know_are_entered_and_not_put_in_use(folder, tmp_path):
    copy_state(folder, tmp_path / "old")
    with open_site(folder) as site:
        train(site, threshold=0.75)
    lose_state(folder)
    shutil.copy(tmp_path / "old" / "state.db", folder / "state.db")
    mend(folder)
    with open_site(folder) as site:
        assert [training.name for training in site.models.trainings()] == ["jobs-1", "jobs-2", "jobs-3"]
        assert site.models.current_training("jobs").name == "jobs-2"
