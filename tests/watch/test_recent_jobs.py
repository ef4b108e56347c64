from datetime import UTC, datetime, timedelta
from random import Random

import polars as pl
import pytest

from stormpetrel.ingest.commit import commit_jobs
from stormpetrel.jobs.predictor import known_by
from stormpetrel.records.jobs import JOB_SCHEMA, KEY, VALUES, field_mask
from stormpetrel.simulate.cluster import ClusterSpec, Fault, simulate
from stormpetrel.store.upkeep import upkeep
from stormpetrel.store.upkeep.upkeep import forget, tidy
from stormpetrel.watch.job_findings import SETTLED, JobFindings
from stormpetrel.watch.recent_jobs import RecentJobs, read_known_jobs
from tests.builders import make_site

START = datetime(2024, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
FIRST = START + 9 * DAY


@pytest.fixture(scope="module")
def jobs():
    spec = ClusterSpec(nodes=6, days=12, load=0.5, seed=3, start=START, faults=(Fault(2, 9 * 86_400, 12 * 86_400),))
    return pl.concat(simulate(spec))


@pytest.fixture
def site(tmp_path, jobs):
    with make_site(tmp_path / "site") as site:
        commit(site, known_by(jobs, FIRST), FIRST)
        yield site


def commit(site, jobs, now):
    rows = jobs.select(list(JOB_SCHEMA)).with_row_index("line").with_columns(pl.col("line").cast(pl.Int64))
    marks = rows.select(*KEY, "state", "end_time").hash_rows(seed=1).reinterpret(signed=True)
    commit_jobs(site.jobs, rows.with_columns(fingerprint=marks), fields=field_mask(frozenset(VALUES)), as_of=now)


def told_at(jobs, now, rng):
    """What a look brings: most records in time, some hours late, some corrected afterwards."""
    shown = known_by(jobs, now)
    recent = shown.filter(pl.coalesce("end_time", "start_time", "submit_time") > now - timedelta(hours=8))
    in_time = recent.sample(fraction=0.8, seed=rng.randint(0, 10**6))
    over = pl.col("end_time") < now - timedelta(hours=3)
    corrected = (
        shown.filter(over)
        .sample(n=5, seed=rng.randint(0, 10**6))
        .with_columns(state=pl.lit("FAILED"), exit_code=pl.lit(1, pl.Int32))
    )
    return pl.concat([in_time.join(corrected, on=list(KEY), how="anti", nulls_equal=True), corrected])


def looks(site, jobs, seed, count=8):
    """Moments of looks, each after its records were committed; sometimes files are merged, and once a user is forgotten."""
    rng, now = Random(seed), FIRST
    for number in range(count):
        now += timedelta(minutes=rng.choice([2, 47, 190]))
        commit(site, told_at(jobs, now, rng), now)
        if number % 5 == 3:
            tidy(site)
        if number == 6:
            forget(site, jobs["user"].drop_nulls().sort()[0])
        yield now


def test_what_is_kept_in_memory_is_what_a_reading_of_the_whole_table_gives(site, jobs, monkeypatch):
    monkeypatch.setattr(upkeep, "_MANY_FILES", 2)
    recent = RecentJobs(site)
    for now in looks(site, jobs, seed=0):
        since = now - 5 * DAY
        recent.read(since)
        kept, whole = recent.between(since, now), read_known_jobs(site, since, now)
        assert kept.height > 100 and kept.sort("ref").equals(whole.sort("ref"))


def test_a_watch_that_goes_on_finds_what_one_that_starts_anew_at_each_look_finds(site, jobs, monkeypatch):
    monkeypatch.setattr(upkeep, "_MANY_FILES", 2)
    goes_on, state, found = JobFindings(site, FIRST - DAY), "", 0
    for now in looks(site, jobs, seed=1):
        anew = JobFindings(site, FIRST - DAY, state=state)
        whole = JobFindings(site, FIRST - DAY, state=state).step(now - SETTLED)
        findings = goes_on.live_step(now, now)
        assert findings == anew.live_step(now, now)
        assert [one.jobs for one in findings] == [one.jobs for one in whole] and goes_on.state == anew.state
        state, found = goes_on.state, found + len(findings)
    assert found > 3


def test_what_was_found_and_could_not_be_kept_is_found_again(site, jobs):
    now = FIRST + 2 * DAY
    commit(site, known_by(jobs, now), now)
    findings = JobFindings(site, FIRST)
    before = findings.state
    first = findings.live_step(now, now)
    assert first and findings.live_step(now, now) == []
    findings.go_back(before)
    assert findings.live_step(now, now) == first


def test_without_a_failure_nothing_is_found_and_the_time_is_taken_note_of(site):
    findings = JobFindings(site, FIRST + DAY)
    assert findings.live_step(FIRST + 2 * DAY, FIRST + 2 * DAY) == []
    assert f"{FIRST + 2 * DAY - SETTLED:%Y-%m-%dT%H:%M:%S}" in findings.state


def test_only_files_that_are_new_are_read(site, jobs, monkeypatch):
    recent, read = RecentJobs(site), []
    scan = site.jobs.table.scan
    monkeypatch.setattr(site.jobs.table, "scan", lambda files=None: read.append(files) or scan(files))
    recent.read(START)
    read.clear()
    commit(site, known_by(jobs, FIRST + timedelta(hours=1)).filter(pl.col("submit_time") > FIRST), FIRST + timedelta(hours=1))
    read.clear()
    recent.read(START)
    recent.read(START)
    assert len(read) == 1
