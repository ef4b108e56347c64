"""Digests kept at commit, and the deep check that reads every file against them."""

import json
from datetime import UTC, datetime

import polars as pl
import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.cursor import Cursor
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.doctor.deep import check_model_files, check_table_files
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.upkeep import compact, forget, retain, tidy
from tests.builders import Job, make_jobs, make_site, write_sacct


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        ingest_jobs(opened, SacctText(write_sacct(tmp_path / "a", make_jobs(50))))
        yield opened


def levels(site):
    return {found.level for found in check_table_files(site)}


def problems(site):
    return [found for found in (*check_table_files(site), *check_model_files(site)) if found.level == "problem"]


def flip(path, at=None):
    """Turn one bit of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if at is None else at] ^= 1
    path.write_bytes(content)


def live_digests(site):
    table = site.jobs.table
    known = table.digests.read()
    return [str(path.relative_to(table.path)) in known for path in table.files()]


def test_every_file_has_its_digest_after_an_ingest(site):
    assert live_digests(site) == [True]
    assert levels(site) == {"ok"}


def test_corrections_compaction_retention_and_forgetting_keep_every_digest(site, tmp_path):
    ended = [Job(job_id=1000 + n, user=f"user{n % 5}", submit=job.submit, state="FAILED") for n, job in enumerate(make_jobs(9))]
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", ended)))  # a merge
    recent = [Job(job_id=9000 + n, submit=datetime(2026, 10, 5 + n, tzinfo=UTC), user="bo") for n in range(20)]
    for job in recent:
        ingest_jobs(site, SacctText(write_sacct(tmp_path / "c", [job])))
    for work in (compact, lambda site: retain(site, 365), lambda site: forget(site, "bo")):
        work(site)
        assert all(live_digests(site)) and levels(site) == {"ok"}


def test_upkeep_drops_the_digests_of_deleted_files_and_of_log_entries(site, monkeypatch):
    from stormpetrel.store.upkeep import upkeep

    for n in range(12):
        site.jobs.table.append(pl.DataFrame(schema=site.jobs.table.spec.schema), cursor=Cursor("x", n))
    monkeypatch.setattr(upkeep, "_MANY_FILES", 0)
    tidy(site)
    assert all((site.jobs.table.path / path).exists() for path in site.jobs.table.digests.read())
    assert levels(site) == {"ok"}


def test_a_flipped_bit_is_named_with_its_table_month_rows_and_what_to_restore(site):
    (file,) = site.jobs.table.files()
    flip(file)
    (found,) = problems(site)
    assert f"jobs: month=2024-03/{file.name} (month 2024-03, 50 rows) is not what was committed" in found.what
    assert f"tar -xf BACKUP -C {site.folder} tables/jobs/month=2024-03/{file.name}" in found.hint


def test_the_hint_of_a_damaged_file_restores_it(site, tmp_path):
    import tarfile

    backup(site, tmp_path / "b.tar")
    (file,) = site.jobs.table.files()
    flip(file)
    (found,) = problems(site)
    member = found.hint.split(";")[0].split()[-1]
    with tarfile.open(tmp_path / "b.tar") as archive:
        archive.extract(member, site.folder, filter="data")
    assert problems(site) == []


def test_a_file_that_is_missing_and_a_damaged_entry_of_the_log_are_told(site):
    (file,) = site.jobs.table.files()
    file.unlink()
    entry = site.jobs.table.path / "_delta_log" / f"{0:020d}.json"
    text = entry.read_text()
    entry.write_text(text.replace("stormpetrel_format", "stormpetrel_formal", 1))
    assert text != entry.read_text()
    assert sorted(found.what.split(") ")[1] for found in problems(site)) == ["is missing.", "is not what was written."]


def test_files_from_before_digests_are_counted_read_and_adopted_by_a_compaction(site, tmp_path):
    digests = site.jobs.table.path / "_delta_log" / "_digests.jsonl"
    digests.unlink()
    (warning,) = [found for found in check_table_files(site) if found.level == "warning"]
    assert "jobs: 1 file has no digest yet" in warning.what and "store compact" in warning.hint
    compact(site)
    assert levels(site) == {"ok"} and all(live_digests(site))


def test_a_damaged_file_without_a_digest_is_found_if_it_cannot_be_read(site):
    (site.jobs.table.path / "_delta_log" / "_digests.jsonl").unlink()
    (file,) = site.jobs.table.files()
    flip(file, at=-6)  # the length of the footer
    assert "cannot be read" in problems(site)[0].what


def test_a_commit_that_died_before_its_digests_gets_them_with_the_next(site, tmp_path):
    digests = site.jobs.table.path / "_delta_log" / "_digests.jsonl"
    lines = digests.read_bytes().splitlines(keepends=True)
    versions = [json.loads(line)["version"] for line in lines]
    digests.write_bytes(b"".join(lines[: versions.index(1)]) + lines[-1][:20])  # torn off in the middle
    assert live_digests(site) == [False]
    ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(3, first_id=7000))))
    assert live_digests(site) == [True, True] and levels(site) == {"ok"}


def test_digests_travel_with_a_backup(site, tmp_path):
    backup(site, tmp_path / "b.tar")
    with restore(tmp_path / "b.tar", tmp_path / "again") as again:
        assert levels(again) == {"ok"} and all(live_digests(again))


def test_a_digest_that_cannot_be_written_does_not_undo_the_commit(site, tmp_path):
    digests = site.jobs.table.path / "_delta_log" / "_digests.jsonl"
    digests.unlink()
    digests.mkdir()
    assert ingest_jobs(site, SacctText(write_sacct(tmp_path / "b", make_jobs(3, first_id=7000)))).kept == 3


def test_delta_lake_passes_over_the_digests(site):
    assert pl.read_delta(str(site.jobs.table.path)).height == 50


def test_every_flipped_bit_of_a_model_is_found(site):
    from stormpetrel.learn.saving import save_model

    def save(folder):
        save_model(folder, kind="jobs-x", format_version=1, metadata={"n": 1}, files={"trees.json": "[1, 2, 3]"})

    site.models.add("jobs-submit", save, {})
    assert problems(site) == []
    folder = site.models.folder_of("jobs-submit", 1)
    for name in ("trees.json", "model.json"):
        whole = (folder / name).read_bytes()
        for at in range(len(whole)):
            flip(folder / name, at)
            damaged = [found.what for found in check_model_files(site) if found.level == "problem"]
            assert damaged or json.loads((folder / name).read_bytes()) == json.loads(whole), (name, at)
            (folder / name).write_bytes(whole)
    flip(folder / "trees.json")
    assert "jobs-submit version 1: models/jobs-submit/00001/trees.json is not what was saved" in problems(site)[0].what
    assert "or train again" in problems(site)[0].hint
