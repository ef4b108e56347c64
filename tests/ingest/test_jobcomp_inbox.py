"""What Slurm pushes: on disk before it is acknowledged, in the table once, compared with accounting."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stormpetrel.errors import StoreBusyError
from stormpetrel.ingest import jobcomp_inbox
from stormpetrel.ingest.jobcomp_inbox import JobcompInbox, reconcile
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.records.jobs import SCRIPT_SIGNATURE
from stormpetrel.sources.scripts.signature import script_signature
from stormpetrel.store.site import Site
from stormpetrel.watch.reading import LiveReader
from tests.builders import Job, jobcomp_record, make_site, table_of
from tests.parts.told_slurm import ToldSlurm, row

TODAY = datetime.now(UTC).replace(microsecond=0)
SUBMITTED = TODAY - timedelta(hours=2)


def document(job_id: int) -> dict[str, object]:
    return jobcomp_record(Job(job_id=job_id, submit=SUBMITTED))


@pytest.fixture
def slurm(tmp_path: Path) -> ToldSlurm:
    return ToldSlurm(tmp_path / "bin")


@pytest.fixture
def site(slurm: ToldSlurm, tmp_path: Path) -> Iterator[Site]:
    with make_site(tmp_path / "site", slurm={**slurm.settings, "jobcomp": True}, watch={"address": ""}) as made:
        yield made


def ids(site: Site) -> list[int]:
    return sorted(table_of(site)["job_id"].to_list())


def left(site: Site) -> list[str]:
    return [path.name for path in (site.folder / "incoming").iterdir()]


def test_the_watch_takes_in_what_came_and_nothing_is_left(site: Site) -> None:
    inbox, reader = JobcompInbox(site), LiveReader(site)
    inbox.put([document(1), document(2)])
    inbox.put([document(3)])
    read = reader.read()
    assert (read.new, ids(site), left(site)) == (3, [1, 2, 3], [])
    inbox.put([document(3), document(4)])
    assert (reader.read().new, ids(site)) == (1, [1, 2, 3, 4])


def test_a_site_without_accounting_is_watched(tmp_path: Path) -> None:
    with make_site(tmp_path / "site", slurm={"sacct": str(tmp_path / "none"), "jobcomp": True}) as site:
        JobcompInbox(site).put([document(1)])
        assert LiveReader(site).read().new == 1


def test_files_are_for_us_alone_and_hold_no_script(site: Site) -> None:
    JobcompInbox(site).put([document(1)])
    (path,) = (site.folder / "incoming").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert b"./fit" not in path.read_bytes()


def test_killed_between_commit_and_deletion_it_is_read_again_and_known(site: Site) -> None:
    inbox = JobcompInbox(site)
    inbox.put([document(1)])
    sources = inbox.sources()
    assert ingest_jobs(site, next(sources)).kept == 1
    del sources  # killed before it asked for the next
    inbox.put([document(2)])
    reports = [ingest_jobs(site, source) for source in inbox.sources()]
    assert [(report.kept, report.known) for report in reports] == [(0, 1), (1, 0)]
    assert (ids(site), left(site)) == ([1, 2], [])


def test_half_a_line_of_a_killed_process_costs_nothing_else(site: Site) -> None:
    inbox = JobcompInbox(site)
    inbox.put([document(1)])
    (path,) = (site.folder / "incoming").iterdir()
    with path.open("ab") as file:
        file.write(b'{"jobid": 2, "@subm')
    inbox.put([document(3)])
    reports = [ingest_jobs(site, source) for source in inbox.sources()]
    assert ids(site) == [1, 3] and sum(reports[0].quarantined.values()) == 1


def test_a_folder_that_nobody_empties_is_bounded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobcomp_inbox, "_MOST_BYTES", 1000)
    inbox = JobcompInbox(site)
    inbox.put([document(1)])
    with pytest.raises(StoreBusyError, match="nobody reads it"):
        inbox.put([document(2)])


def test_the_night_says_what_only_one_of_the_two_knows(site: Site, slurm: ToldSlurm) -> None:
    inbox = JobcompInbox(site)
    inbox.put([document(1), document(2)])
    LiveReader(site).read()
    submit = int(SUBMITTED.timestamp())
    times = {"Start": submit + 10, "End": submit + 100}
    slurm.accounting(ended=tuple(row(number, "COMPLETED", submit=submit, **times) for number in (1, 3)))
    sentence = reconcile(site)
    assert (
        sentence is not None and "knows 2 jobs" in sentence and "not know 1 that" in sentence and "; 1 of its records" in sentence
    )
    assert ids(site) == [1, 2, 3]


def test_a_night_without_accounting_says_so_and_goes_on(site: Site, slurm: ToldSlurm) -> None:
    slurm.script("sacct", "echo 'sacct: error: slurmdbd is away' >&2; exit 1")
    assert "was not compared with accounting" in (reconcile(site) or "")


def test_a_site_to_which_nothing_is_pushed_is_not_compared(tmp_path: Path) -> None:
    with make_site(tmp_path / "site") as site:
        assert reconcile(site) is None


@pytest.mark.parametrize(("allowed", "hidden"), [(True, False), (True, True), (False, False)])
def test_a_signature_of_the_script_is_kept_only_where_similar_names_are_allowed(
    allowed: bool, hidden: bool, slurm: ToldSlurm, tmp_path: Path
) -> None:
    sections = {"jobs": {"similar_names": allowed}, "store": {"pseudonymise_users": hidden}}
    with make_site(tmp_path / "site", slurm={**slurm.settings, "jobcomp": True}, watch={"address": ""}, **sections) as site:
        inbox = JobcompInbox(site)
        inbox.put([{**document(1), "script": "#!/bin/sh\nsrun python train.py --lr 1\n", SCRIPT_SIGNATURE: "made up"}])
        assert LiveReader(site).read().new == 1
        extra = table_of(site)["extra"][0]
        entries = {entry["key"]: entry["value"] for entry in extra} if isinstance(extra, list) else dict(extra or {})
        expected = script_signature("srun python train.py --lr 1") if allowed and not hidden else None
        assert entries.get(SCRIPT_SIGNATURE) == expected
