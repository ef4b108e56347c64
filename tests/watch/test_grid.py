"""The grid's part of the watch: an event log that grows becomes counts, scores and an alarm in words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from stormpetrel.config import settings_from
from stormpetrel.ingest import job_event_counts
from stormpetrel.lifecycle.event_models import train_event_model
from stormpetrel.simulate.grid.grid import GridSpec, simulate_grid
from stormpetrel.store.site import Site, create_site
from stormpetrel.watch.event_findings import GridWatch
from stormpetrel.watch.metrics import WatchMetrics
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.lifecycle.sites import steady_log
from tests.parts.grid_event_log import write_event_log

WEEKS = 5
HOURS = WEEKS * 168
LIMIT_S = 60.0


def _site(tmp_path: Path, event_log: Path) -> Site:
    settings = {"htcondor": {"event_log": str(event_log)}, "events": {"settle_minutes": 0.0}}
    return create_site(tmp_path / "site", settings_from(settings))


def test_a_site_without_any_source_of_events_is_left_alone(tmp_path: Path) -> None:
    settings = settings_from({"slurm": {"sacct": "no-such-command"}})
    with create_site(tmp_path / "site", settings) as site:
        assert GridWatch(site).step() is None


def test_the_log_is_read_once_per_bucket_and_a_missing_one_is_told_not_raised(tmp_path: Path) -> None:
    log = tmp_path / "EventLog"
    with _site(tmp_path, log) as site:
        watch = GridWatch(site)
        first = watch.step()
        assert first is not None and first.problem is not None and "EventLog" in first.problem
        assert watch.step() is None  # not before some minutes have passed


def test_a_full_job_table_is_counted_in_pieces_that_give_way_and_it_is_the_same_as_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number, piece_jobs in enumerate([1000, 20]):
        monkeypatch.setattr(job_event_counts, "PIECE_JOBS", piece_jobs)
        gave_way: list[bool] = []
        with make_site(tmp_path / f"site{number}") as site:
            put_jobs(site, steady_log(120))
            watch = GridWatch(site, give_way=lambda site=site, gave_way=gave_way: gave_way.append(is_free(site)))
            step = watch.step()
            assert step is not None and step.problem is None
            counts.append(site.event_counts.read(places=True).collect().sort("bucket_start", "place", "kind", "value"))
        assert all(gave_way) and len(gave_way) > (1 if piece_jobs == 1000 else 5)
    assert counts[0].height and counts[1].equals(counts[0])


def is_free(site: Site) -> bool:
    """Whether another thread can write to the site's tables now."""

    def write() -> bool:
        with site.state.writer_lock():
            return True

    with ThreadPoolExecutor(1) as other:
        return other.submit(write).result(LIMIT_S)


def test_a_log_that_grows_is_counted_and_scored_and_its_silence_is_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = datetime(2026, 3, 5, 12, tzinfo=UTC)
    start = end - timedelta(hours=HOURS)
    spec = GridSpec(hours=HOURS, seed=5, start=start, nodes=20, sites=3, hosts=2, groups=3, slots=80, maintenance_weeks=9)
    whole, log = tmp_path / "whole", tmp_path / "EventLog"
    write_event_log(simulate_grid(spec), whole, 0, HOURS)
    text = whole.read_bytes()
    cut = text.index(f" {end - timedelta(hours=3):%Y-%m-%d %H}:".encode())
    log.write_bytes(text[: text.rindex(b"...\n", 0, cut) + 4])
    with _site(tmp_path, log) as site:
        moment = [end - timedelta(hours=3) + timedelta(minutes=1)]
        monkeypatch.setattr(site, "now", lambda: moment[0])
        watch, metrics = GridWatch(site), WatchMetrics()
        first = watch.step()
        assert first is not None and first.problem is None and not first.rows.height  # counted; there is no model yet
        train_event_model(site)
        log.write_bytes(text)
        moment[0] = end + timedelta(minutes=1)
        grown = watch.step()
        assert grown is not None and grown.newest is not None
        assert grown.newest["bucket_start"] == end - timedelta(hours=1)
        assert watch.step() is None  # the bucket under way is not over
        moment[0] = end + timedelta(hours=2, minutes=1)
        silent = watch.step()
        assert silent is not None and silent.rows.height == 2
        assert silent.words()[0].startswith("No event of any kind since")
        metrics.note_grid(silent)
        assert b"stormpetrel_grid_alarm 1.0" in metrics.text()
