"""Reading records into a site: receipts add up, a source that fails keeps nobody out, and only who manages the site may."""

from __future__ import annotations

import json
from contextlib import nullcontext
from datetime import timedelta

import pytest

from stormpetrel.answers.schemas.ingest import JobFiles
from stormpetrel.answers.site import ingest
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, UsageError
from stormpetrel.ingest.report import EventReport
from stormpetrel.store.events.gaps import EventGap
from tests.builders import T0, make_jobs, make_site, write_sacct


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield site


def silent(_title, _size):
    return nullcontext(lambda _bytes, _records: None)


def test_the_receipts_of_files_add_up_to_the_total(site, tmp_path):
    files = [str(write_sacct(tmp_path / name, jobs)) for name, jobs in (("a", make_jobs(10)), ("b", make_jobs(15, failed=2)))]
    ingested = ingest.ingest_job_files(site, LOCAL, JobFiles(files=files), bar=silent)
    (_, first), (_, second) = ingested.sources
    total = ingested.total
    assert total.read == first.read + second.read and total.kept == first.kept + second.kept == 15
    assert total.read == total.kept + total.known + total.changed + total.folded + sum(total.quarantined.values())
    assert ingested.problems == ()


def test_a_file_that_cannot_be_read_keeps_no_other_out(site, tmp_path):
    good = str(write_sacct(tmp_path / "good", make_jobs(5)))
    ingested = ingest.ingest_job_files(site, LOCAL, JobFiles(files=[str(tmp_path / "none"), good]), bar=silent)
    assert ingested.total.kept == 5 and len(ingested.problems) == 1


def test_a_receipt_prints_what_is_remembered_of_the_ingest(site, tmp_path):
    file = str(write_sacct(tmp_path / "a", make_jobs(5)))
    ((_, receipt),) = ingest.ingest_job_files(site, LOCAL, JobFiles(files=[file]), bar=silent).sources
    printed = json.loads(receipt.model_dump_json(by_alias=True))
    (remembered,) = site.state.past_ingests()
    assert printed == {name: remembered[name] for name in printed}


def test_gaps_are_told_from_and_to():
    gap = EventGap(T0, T0 + timedelta(hours=2), "asleep")
    receipt = ingest.event_receipt(EventReport("condor", gaps=[gap] * 25, notes=["x"] * 60, first=T0, last=T0))
    assert receipt.model_dump(mode="json", by_alias=True)["gaps"][0] == gap.as_dict()
    assert (len(receipt.gaps), receipt.gap_count, len(receipt.notes), receipt.note_count) == (20, 25, 50, 60)


def test_an_event_file_that_cannot_be_read_stands_among_the_problems(site, tmp_path):
    ingested = ingest.ingest_event_files(
        site, LOCAL, [tmp_path / "none"], format_name="condor-events", year=None, progress=lambda *_: None
    )
    assert len(ingested.problems) == 1 and ingested.read == 0 and len(ingested.sources) == 1


def test_a_site_that_names_no_source_of_events_says_so(site):
    with pytest.raises(UsageError, match="Nothing says where events come from"):
        ingest.ingest_live_events(site, LOCAL, raw=False, progress=lambda *_: None)


def test_only_who_manages_the_site_reads_records_into_it(site, tmp_path):
    kim = Viewer("kim", is_admin=False)
    quiet = {"progress": lambda *_: None}
    for act in (
        lambda: ingest.ingest_job_files(site, kim, JobFiles(files=["a"]), bar=silent),
        lambda: ingest.ingest_live_jobs(site, kim, bar=silent),
        lambda: ingest.ingest_event_files(site, kim, [tmp_path], format_name=None, year=None, **quiet),
        lambda: ingest.ingest_live_events(site, kim, raw=False, **quiet),
        lambda: ingest.drop_event_table(site, kim, "table:a"),
        lambda: ingest.ingest_campaign_files(site, kim, [tmp_path], **quiet),
        lambda: ingest.ingest_live_traces(site, kim, **quiet),
    ):
        with pytest.raises(AccessError):
            act()
