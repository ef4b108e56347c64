"""`stormpetrel demo` goes on with a workload that was recorded as a site, as it does with its own cluster."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.answers.workload.recorded_site import record_workload_site
from stormpetrel.errors import SettingsError
from stormpetrel.faces.cli.demo import command as demo
from stormpetrel.simulate.feed import Feed
from stormpetrel.store.site import Site
from tests.builders import table_of
from tests.parts.command_line import report_of, run
from tests.synth.writers.sample_workload import made_workload

ADDRESS = "127.0.0.1:8050"  # where the demo answers; nobody listens there

JOBS = made_workload(400)


@pytest.fixture
def recorded(tmp_path):
    record_workload_site(tmp_path / "mine", [JOBS])
    return tmp_path / "mine"


def taken_in(site: Site) -> pl.DataFrame:
    demo._stop_clock(site, quiet=True)
    demo._ingest_live(site, quiet=True)
    return table_of(site)


def test_a_site_is_made_around_the_recorded_jobs(recorded, monkeypatch):
    monkeypatch.chdir(recorded)
    with demo._open_or_create(recorded.relative_to(recorded), ADDRESS) as site:
        assert site.settings.slurm.since == f"{JOBS['submit_time'][0]:%Y-%m-%d}"
        seen = taken_in(site)
        assert seen.height == JOBS.filter(pl.col("submit_time") <= site.now()).height > 250
        assert set(seen["user"]) <= set(JOBS["user"])
        owner = demo._write_example(site, recorded / "job.sh")
    failed = seen.filter(pl.col("state").is_in(["FAILED", "TIMEOUT"])).sort("submit_time")
    assert owner == failed["user"][-1] and f"--job-name={failed['job_name'][-1]}" in (recorded / "job.sh").read_text()
    assert not list(recorded.parent.glob(".*")), "nothing is left beside it"


def test_the_jobs_to_come_come_as_the_clock_runs(recorded):
    feed, first = Feed(recorded / "feed"), JOBS["submit_time"][0]
    with demo._open_or_create(recorded, ADDRESS) as site:
        before, later = site.now(), site.now() + timedelta(hours=6)
        demo._start_clock(site, 3600.0)
    assert Feed(feed.folder).speed == 3600.0
    assert feed.rows(first, before, now=before).height < feed.rows(first, later, now=later).height


@pytest.mark.parametrize("made", [False, True], ids=["before the site was there", "after it"])
def test_a_demo_that_was_killed_while_it_made_the_site_goes_on(recorded, made):
    if made:
        demo._open_or_create(recorded, ADDRESS).close()
    aside = recorded.with_name(".mine.feed")
    (recorded / "feed").rename(aside)  # as if it had been killed between two moves
    with demo._open_or_create(recorded, ADDRESS) as site:
        assert site.settings.slurm.since == f"{JOBS['submit_time'][0]:%Y-%m-%d}"
    assert (recorded / "feed" / "sacct").exists() and not aside.exists()


def test_a_folder_with_other_things_beside_the_feed_is_left_alone(recorded):
    (recorded / "mine.txt").write_text("mine")
    with pytest.raises(SettingsError, match="not an empty folder"):
        demo._open_or_create(recorded, ADDRESS)
    assert sorted(path.name for path in recorded.iterdir()) == ["feed", "mine.txt"]


@pytest.mark.slow
def test_the_demo_learns_from_a_workload_and_judges_it(tmp_path):
    record_workload_site(tmp_path / "site", [made_workload(12_000)])
    told = report_of(run(tmp_path, "demo", str(tmp_path / "site"), "--no-serve", "--json"))
    assert told["ingest"]["quarantined"] == {} and told["ingest"]["kept"] == told["summary"]["jobs"] > 8_900
    assert told["judged"] == 200
