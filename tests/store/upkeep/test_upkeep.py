import json
import tarfile
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from stormpetrel.errors import StoreError, StoreVersionError, UsageError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.site import create_site, open_site
from stormpetrel.store.upkeep.backup import backup, restore
from stormpetrel.store.upkeep.upkeep import compact, forget, retain
from tests.builders import SACCT_FIELDS, Job, make_jobs, make_site, sacct_line, table_of, write_sacct


def take(site, path):
    return ingest_jobs(site, SacctText(path))


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def names_on_disk(site, word):
    """Files of the site in which a word can still be read: text, Parquet strings, SQLite pages."""
    found = []
    for path in site.folder.rglob("*"):
        if path.suffix == ".parquet":
            frame = pl.read_parquet(path, hive_partitioning=False)
            text = frame.select(pl.col(pl.String)).to_series(0).to_frame() if not frame.width else frame
            if any(word in str(value) for row in text.iter_rows() for value in row):
                found.append(path.name)
        elif path.is_file() and word.encode() in path.read_bytes():
            found.append(path.name)
    return found


def test_compaction_merges_files_and_keeps_every_row(site, tmp_path):
    for number in range(6):
        take(site, write_sacct(tmp_path / str(number), make_jobs(10, first_id=100 * number)))
    before = table_of(site)
    done = {entry.table: entry for entry in compact(site)}
    assert (done["jobs"].files_before, done["jobs"].files_after) == (6, 1)
    assert done["sightings"].files_after == 1
    assert table_of(site).equals(before)


def test_after_compaction_known_files_are_still_known(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(10))
    take(site, path)
    compact(site)
    assert take(site, path).known == 10


def test_retention_deletes_old_jobs_from_the_disk_too(site, tmp_path):
    old = [Job(job_id=1, user="oldtimer", submit=site.now() - timedelta(days=40))]
    new = [Job(job_id=2, user="newcomer", submit=site.now() - timedelta(days=2))]
    take(site, write_sacct(tmp_path / "a", old + new))
    assert retain(site, 30) == 1
    assert table_of(site)["job_id"].to_list() == [2]
    assert names_on_disk(site, "oldtimer") == []
    assert names_on_disk(site, "newcomer") != []


def test_retention_without_a_limit_is_one_sentence(site):
    with pytest.raises(UsageError, match="how long jobs are to be kept"):
        retain(site, 0)


def test_forgetting_a_user_leaves_no_trace_of_the_name(site, tmp_path):
    lines = [SACCT_FIELDS, *map(sacct_line, make_jobs(20)), sacct_line(Job(job_id=5, user="mallory", name="mallory-fit"))]
    lines += ["mallory|damaged", sacct_line(Job(job_id=6, user="bo"))]
    (tmp_path / "log").write_text("\n".join(lines) + "\n")
    take(site, tmp_path / "log")
    assert names_on_disk(site, "mallory") != []
    assert forget(site, "mallory") == 1
    assert table_of(site).height == 21
    assert names_on_disk(site, "mallory") == []


def test_a_forgotten_user_is_not_taken_in_again(site, tmp_path):
    path = write_sacct(tmp_path / "a", [Job(user="mallory"), Job(job_id=2, user="bo")])
    take(site, path)
    forget(site, "mallory")
    report = take(site, path)
    assert dict(report.quarantined) == {"forgotten_user": 1}
    assert report.read == report.known + report.kept + report.changed + sum(report.quarantined.values())
    assert table_of(site)["user"].to_list() == ["bo"]


def test_forgetting_only_the_past_lets_new_jobs_in(site, tmp_path):
    path = write_sacct(tmp_path / "a", [Job(user="mallory")])
    take(site, path)
    forget(site, "mallory", past_only=True)
    assert take(site, path).kept == 1


def test_pseudonyms_are_stable_and_nothing_else_names_the_user(tmp_path):
    fields = SACCT_FIELDS + "|UID|WorkDir|SubmitLine|Comment"
    job = Job(user="mallory", state="CANCELLED by 1947114711")
    line = sacct_line(job) + "|1947114711|/home/mallory/run|sbatch /home/mallory/run.sh|for mallory"
    (tmp_path / "log").write_text(f"{fields}\n{line}\nmallory|damaged\n")
    with make_site(tmp_path / "site", store={"pseudonymise_users": True}) as site:
        take(site, tmp_path / "log")
        row = table_of(site).row(0, named=True)
        assert row["user"].startswith("u") and row["user"] != "mallory"
        assert row["work_dir"] == f"/home/{row['user']}/run"
        assert (row["uid"], row["cancelled_by"], row["extra"], row["state"]) == (None, None, None, "CANCELLED")
        assert names_on_disk(site, "mallory") == []
        assert names_on_disk(site, "1947114711") == []
        assert row["user"] == site.privacy.pseudonym("mallory")
        assert forget(site, "mallory") == 1
        assert take(site, tmp_path / "log").quarantined["forgotten_user"] == 1


def test_two_sites_give_one_user_two_pseudonyms(tmp_path):
    with create_site(tmp_path / "a") as one, create_site(tmp_path / "b") as two:
        assert one.privacy.pseudonym("ada") != two.privacy.pseudonym("ada")


def test_a_backup_restores_to_an_equal_site(site, tmp_path):
    path = write_sacct(tmp_path / "a", make_jobs(30, failed=3))
    (tmp_path / "b").write_text("JobID|Submit|State\nx|y|z\n")
    take(site, path)
    take(site, tmp_path / "b")
    forget(site, "user1")
    (site.folder / "models" / "v1").mkdir()
    (site.folder / "models" / "v1" / "weights").write_bytes(b"123")
    backup(site, tmp_path / "site.tar")
    assert (tmp_path / "site.tar").stat().st_mode & 0o077 == 0
    with restore(tmp_path / "site.tar", tmp_path / "again") as copy:
        assert table_of(copy).equals(table_of(site))
        assert copy.quarantine.read().collect().equals(site.quarantine.read().collect())
        assert (copy.folder / "models" / "v1" / "weights").read_bytes() == b"123"
        assert take(copy, path).known == 24, "the copy knows what the site knew"
        assert copy.state.forgotten_digests() == site.state.forgotten_digests()
        assert copy.folder.stat().st_mode & 0o777 == 0o700


def test_a_backup_never_overwrites_and_a_restore_never_mixes(site, tmp_path):
    (tmp_path / "site.tar").write_text("precious")
    with pytest.raises(UsageError, match="exists"):
        backup(site, tmp_path / "site.tar")
    assert (tmp_path / "site.tar").read_text() == "precious"
    backup(site, tmp_path / "new.tar")
    with pytest.raises(UsageError, match="is not empty"):
        restore(tmp_path / "new.tar", site.folder)


def test_a_damaged_backup_is_refused_whole(site, tmp_path):
    take(site, write_sacct(tmp_path / "a", make_jobs(30)))
    backup(site, tmp_path / "site.tar")
    data = bytearray((tmp_path / "site.tar").read_bytes())
    for name, change in (("cut", data[: len(data) // 2]), ("flipped", data.replace(b"PAR1", b"PAR2", 1)), ("empty", b"")):
        (tmp_path / name).write_bytes(change)
        with pytest.raises(StoreError):
            restore(tmp_path / name, tmp_path / f"from-{name}")
        assert not (tmp_path / f"from-{name}").exists()


def test_a_hostile_backup_writes_nothing_outside_its_folder(site, tmp_path):
    backup(site, tmp_path / "site.tar")
    (tmp_path / "evil").write_text("gotcha")
    with tarfile.open(tmp_path / "site.tar") as good, tarfile.open(tmp_path / "evil.tar", "w") as bad:
        for member in good.getmembers():
            if member.name == "manifest.json":
                manifest = json.loads(good.extractfile(member).read())
            else:
                bad.addfile(member, good.extractfile(member))
        bad.add(tmp_path / "evil", "../escaped")
        import hashlib
        import io

        manifest["digests"]["../escaped"] = hashlib.sha256(b"gotcha").hexdigest()
        data = json.dumps(manifest).encode()
        info = tarfile.TarInfo("manifest.json")
        info.size = len(data)
        bad.addfile(info, io.BytesIO(data))
    with pytest.raises(StoreError):
        restore(tmp_path / "evil.tar", tmp_path / "deep" / "site")
    assert not (tmp_path / "deep" / "escaped").exists()


def test_a_backup_of_a_newer_version_is_refused(site, tmp_path, monkeypatch):
    monkeypatch.setattr("stormpetrel.store.upkeep.backup_archive.BACKUP_FORMAT", 99)
    backup(site, tmp_path / "site.tar")
    monkeypatch.undo()
    with pytest.raises(StoreVersionError, match="newer version"):
        restore(tmp_path / "site.tar", tmp_path / "again")


def test_reports_of_forgotten_users_are_scrubbed(site, tmp_path):
    (tmp_path / "log").write_text(f"{SACCT_FIELDS}\n{sacct_line(Job())}\nmallory|damaged\n")
    take(site, tmp_path / "log")
    assert "mallory" in json.dumps(site.state.past_ingests())
    forget(site, "mallory")
    assert "mallory" not in json.dumps(site.state.past_ingests())


def test_what_is_kept_is_read_by_span_of_time(site, tmp_path):
    take(site, write_sacct(tmp_path / "a", make_jobs(60)))
    since, until = datetime(2024, 3, 4, 8, 10, tzinfo=UTC), datetime(2024, 3, 4, 8, 20, tzinfo=UTC)
    assert site.jobs.read_jobs(since=since, until=until).collect().height == 10


def test_a_site_opens_again_as_it_was(site, tmp_path):
    take(site, write_sacct(tmp_path / "a", make_jobs(5)))
    with open_site(site.folder) as again:
        assert table_of(again).equals(table_of(site))
