"""Sites that earlier versions have left behind open in this one, and nothing in them is lost."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from stormpetrel.answers.site.doctor import examine
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.checks import worst
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.identity import read_identity
from stormpetrel.store.site import Site, open_site
from stormpetrel.store.state import STATE_FORMAT
from stormpetrel.store.upkeep.backup import backup, restore
from tests.builders import Job, write_sacct
from tests.parts.recorded_site import contents_of, make_recorded_site, names, pack, row_counts, unpack_site

SITES = names()


@pytest.fixture(scope="module", params=SITES)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Site]]:
    """A recorded site, opened (and so migrated) by this version."""
    folder = unpack_site(request.param, tmp_path_factory.mktemp("recorded"))
    with open_site(folder) as site:
        yield request.param, site


@pytest.fixture(params=SITES)
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A recorded site as it was left behind."""
    return request.param, unpack_site(request.param, tmp_path)


def test_there_is_a_site_of_the_version_before_state_and_tables_knew_each_other():
    assert "site-0.1.0-state4" in SITES


def test_every_table_of_a_recorded_site_has_the_rows_it_had(recorded):
    name, site = recorded
    assert {table: row_counts(site)[table] for table in contents_of(name)["tables"]} == contents_of(name)["tables"]


def test_every_table_of_the_state_has_the_rows_it_had(recorded):
    name, site = recorded
    now = {table: len(rows) for table, rows in site.state.dump().items()}
    then = {table: rows for table, rows in contents_of(name)["state"].items() if table != "meta"}
    assert {table: now[table] for table in then} == then


def test_a_recorded_site_is_of_this_versions_format_once_it_was_opened(recorded):
    _, site = recorded
    with closing(sqlite3.connect(site.folder / "state.db")) as connection:
        assert connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone() == (str(STATE_FORMAT),)


def test_state_and_tables_of_a_recorded_site_know_each_other(recorded):
    _, site = recorded
    assert site.state.identity() is not None and site.state.identity() == read_identity(site.tables)


def test_who_was_forgotten_lies_among_the_tables_too(recorded):
    _, site = recorded
    assert site.forgotten.digests() == site.state.forgotten_digests() != frozenset()


def test_beside_every_model_lies_what_the_registry_knows_of_it(recorded):
    _, site = recorded
    for model in site.models.versions():
        entry = json.loads((site.models.folder_of(model.name, model.version) / "entry.json").read_text())
        assert (entry["name"], entry["version"], entry["about"]) == (model.name, model.version, dict(model.about))


def test_the_models_in_use_are_those_that_were(recorded):
    name, site = recorded
    assert {model.name: model.version for model in site.models.in_use().values()} == contents_of(name)["models"]


def test_the_doctor_finds_no_problem_in_a_recorded_site(recorded):
    _, site = recorded
    found = [finding for finding in examine(site) if finding.check not in ("ports", "extras", "disk", "file system")]
    assert worst(found) != "problem", found


def test_a_recorded_site_that_is_opened_again_is_as_it_was(fresh):
    _, folder = fresh
    with open_site(folder) as site:
        first = site.state.dump()
    with open_site(folder) as site:
        assert site.state.dump() == first


def test_a_user_who_was_forgotten_then_stays_out_now(fresh, tmp_path):
    name, folder = fresh
    user = contents_of(name)["forgotten"]
    with open_site(folder) as site:
        report = ingest_jobs(
            site, SacctText(write_sacct(tmp_path / "again", [Job(job_id=7, user=user), Job(job_id=8, user="bo")]))
        )
    assert (report.kept, dict(report.quarantined)) == (1, {"forgotten_user": 1})


def test_a_backup_of_a_recorded_site_is_restored_with_everything(fresh, tmp_path):
    name, folder = fresh
    with open_site(folder) as site:
        backup(site, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "copy") as copy:
        tables = row_counts(copy)
        assert {table: tables[table] for table in contents_of(name)["tables"]} == contents_of(name)["tables"]
        assert copy.forgotten.digests() == copy.state.forgotten_digests() != frozenset()


def test_the_clock_of_a_recorded_site_stands_where_it_stood(recorded):
    name, site = recorded
    assert site.now() == datetime.fromisoformat(contents_of(name)["now"])


@pytest.mark.slow
@pytest.mark.needs("torch")
def test_the_site_of_this_version_can_be_recorded(tmp_path):
    with make_recorded_site(tmp_path / "site") as site:
        packed = pack(site, tmp_path)
    told = json.loads(packed.with_name(packed.name.replace(".tar.xz", ".json")).read_text())
    assert packed.stat().st_size < 1_500_000 and all(told["tables"].values()) and told["state_format"] == STATE_FORMAT
    assert {name.partition("-")[0] for name in told["models"]} == {"jobs", "traces", "events", "synth"}
