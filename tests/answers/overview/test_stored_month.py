"""Old months of the overview on disk: found again, made anew where they do not fit, read in parts."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.overview import month, stored_month
from stormpetrel.answers.overview.month import submission_spans, submitted_within
from stormpetrel.answers.overview.overview import Overview, TableQuery
from stormpetrel.answers.overview.stored_month import StoredMonth, facts_of, find_month, store_month
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.records.jobs import KEY
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import make_log

MADE_OF = {"files": ["a.parquet"]}


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, make_log(200, 1, days=85))
        yield site


@pytest.fixture
def frame(site):
    overview = Overview()
    overview.refresh(site)
    return overview.frame


def stored_months(site):
    overview = Overview(in_memory=1)
    overview.refresh(site)
    return {name: found.stored for name, found in overview._now.months.items() if found.stored}


def stored_files(site):
    return sorted(path.name for path in site.snapshots.glob("overview-*.parquet"))


def test_a_later_process_finds_the_months_that_an_earlier_one_has_left(site):
    first, second = Overview(in_memory=1), Overview(in_memory=1)
    first.refresh(site)
    second.refresh(site)
    assert first.rebuilt == 3 and second.rebuilt == 1
    assert second.frame.equals(first.frame)
    assert second.height == 200


def test_a_month_is_found_as_it_was_written_and_not_for_something_else(site, frame):
    written = store_month(site, "2026-01", MADE_OF, [frame])
    again = find_month(site, "2026-01", MADE_OF)
    assert written is not None and again is not None
    assert again.lazy().collect().equals(frame)
    assert again.facts.longest.equals(written.facts.longest)
    assert {name: getattr(again.facts, name) for name in ("jobs", "users", "texts", "last_end", "last_event")} == {
        name: getattr(written.facts, name) for name in ("jobs", "users", "texts", "last_end", "last_event")
    }
    assert find_month(site, "2026-01", {"files": ["b.parquet"]}) is None
    written.path.write_bytes(written.path.read_bytes()[:-1] + b"x")
    assert find_month(site, "2026-01", MADE_OF) is None


def test_a_month_that_changes_leaves_no_older_file(site, frame):
    store_month(site, "2026-01", MADE_OF, [frame])
    newer = store_month(site, "2026-01", {"files": ["b.parquet"]}, [frame.head(3)])
    assert stored_files(site) == [newer.path.name]


def test_a_month_is_the_same_whether_it_is_worked_on_at_once_or_piece_by_piece(site, frame, monkeypatch):
    whole = {name: stored.facts for name, stored in stored_months(site).items()}
    rows = Overview()
    rows.refresh(site)
    monkeypatch.setattr(month, "PIECE_JOBS", 20)
    monkeypatch.setattr(stored_month, "_GROUP", 16)
    for path in site.snapshots.glob("overview-*"):
        path.unlink()
    assert len(submission_spans(site.jobs.table, site.jobs.table.files())) > 8
    pieces = {name: stored.facts for name, stored in stored_months(site).items()}
    assert len(pieces) == 2
    for name, facts in whole.items():
        assert facts.longest.sort("partition").equals(pieces[name].longest.sort("partition"))
        assert replace(facts, longest=frame) == replace(pieces[name], longest=frame)
    for overview in (Overview(), Overview(in_memory=1)):
        overview.refresh(site)
        assert overview.frame.equals(rows.frame)
    assert not [path for path in site.snapshots.iterdir() if path.is_dir()], "the pieces go"


def test_files_without_rows_have_one_span_with_nothing_in_it(site):
    (span,) = submission_spans(site.jobs.table, [])
    assert site.jobs.table.scan().filter(submitted_within(span)).collect().is_empty()


def test_files_that_go_are_made_again_at_the_next_refresh(site):
    overview = Overview(in_memory=1)
    overview.refresh(site)
    before = stored_files(site)
    assert len(before) == 2
    (site.snapshots / before[0]).unlink()
    assert overview.refresh(site)
    assert stored_files(site) == before
    assert overview.page(LOCAL, TableQuery(limit=500)).rows.height == 200


def test_a_month_that_cannot_be_written_stays_in_memory_and_is_not_tried_at_every_refresh(site):
    site.snapshots.write_text("no folder")
    overview = Overview(in_memory=1)
    assert overview.refresh(site)
    assert overview.height == 200 and overview.rebuilt == 3
    assert not overview.refresh(site)
    assert overview.rebuilt == 3


def test_an_end_that_is_told_late_is_news_even_in_an_old_month_on_disk(tmp_path):
    log = make_log(200, 1, days=85)
    old = log.sort("submit_time").filter(pl.col("end_time").is_not_null()).head(1)
    is_old = pl.col("job_id") == old["job_id"].item()
    running = old.with_columns(state=pl.lit("RUNNING"), end_time=None, elapsed_s=None)
    since = log["end_time"].max() + timedelta(days=9)
    overview = Overview(in_memory=1)
    with make_site(tmp_path / "other") as site:
        put_jobs(site, pl.concat([log.filter(~is_old), running.select(log.columns).cast(dict(log.schema))]))
        overview.refresh(site)
        overview.heard()
        assert overview.unheard(since).filter(is_old).collect().height == 1, "something may still happen to it"
        put_jobs(site, old)
        overview.refresh(site)
        assert overview.unheard(since).filter(is_old).select("end_time").collect().item() == old["end_time"].item()
        overview.heard()
        assert overview.unheard(since).filter(is_old).collect().is_empty(), "it is over, and known"


def test_a_site_that_cannot_be_written_keeps_all_months_in_memory(site, monkeypatch):
    monkeypatch.setattr(type(site), "read_only", property(lambda _: True), raising=False)
    overview = Overview(in_memory=1)
    overview.refresh(site)
    assert overview.height == 200 and not stored_files(site)


def test_rows_are_read_in_the_order_that_is_asked_for_from_the_parts_that_hold_them(site, frame, monkeypatch):
    monkeypatch.setattr(stored_month, "_GROUP", 8)
    month = store_month(site, "2026-01", MADE_OF, [frame])
    rows = np.array([130, 3, 4, 131, 3, 199])
    assert month.rows(rows, (*KEY, "user")).equals(frame.select(*KEY, "user")[rows])
    assert month.rows(np.zeros(0, np.int64), ("user",)).schema == frame.select("user").schema
    everything = np.arange(199, -1, -1)
    assert month.rows(everything, ("user", "state")).equals(frame.select("user", "state")[everything])


def test_sums_of_a_month_are_worked_out_once(site, frame):
    month = StoredMonth(store_month(site, "2026-01", MADE_OF, [frame]).path, facts_of(frame))
    calls = []
    for _ in range(3):
        assert month.kept("sums", lambda: calls.append(1) or 7) == 7
    assert len(calls) == 1


def test_an_overview_gives_up_its_turn_and_goes_on_where_it_was(site):
    overview = Overview(in_memory=1)
    heights = []
    for _ in range(4):
        overview.refresh(site, patience_s=0.0)
        heights.append(overview.height)
    assert heights[0] < heights[1] < heights[2] == heights[3] == 200
    assert overview.frame.unique(KEY).height == 200
