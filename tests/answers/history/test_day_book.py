"""The day book: sums by day out of which the same comes as out of the jobs themselves."""

from dataclasses import asdict
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings

from stormpetrel.answers.history import day_book
from stormpetrel.answers.history.day_book import book_of, book_of_site, make_book, sum_jobs
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview import month
from stormpetrel.answers.viewer import Viewer
from stormpetrel.config import Settings
from stormpetrel.jobs.preparation import prepare
from stormpetrel.jobs.profiles import SUBMIT, JobProfiles, with_profile
from stormpetrel.jobs.waste import SUMS, reconcile
from stormpetrel.store.site import open_site
from tests.answers.live_sites import put_jobs
from tests.builders import T0, make_site
from tests.jobs.logs import make_log, small_logs
from tests.parts.recorded_site import names, unpack_site


def settings_with(**sections):
    return Settings.model_validate(sections)


@given(small_logs())
@settings(max_examples=40, deadline=None)
def test_totals_and_what_is_left_out_are_those_of_the_log(jobs):
    month = sum_jobs(jobs, settings_with())
    whole = reconcile(jobs, by=[])
    assert month.totals["rows"].sum() == whole.rows
    assert month.totals.select(pl.col(SUMS).sum()).row(0, named=True) == asdict(whole.total)
    assert dict(month.uncounted.group_by("reason").agg(pl.col("jobs").sum()).iter_rows()) == whole.uncounted


def test_a_job_on_several_nodes_counts_on_each_of_them():
    log = make_log(40, 1).with_columns(node_list=pl.lit("n[1-3]"))
    nodes = sum_jobs(log, settings_with()).nodes
    assert nodes.group_by("node").agg(pl.col("judged").sum())["judged"].n_unique() == 1
    assert sorted(nodes["node"].cast(pl.String).unique()) == ["n1", "n2", "n3"]


def test_states_that_are_left_out_are_in_no_sum():
    log = make_log(200, 2)
    month = sum_jobs(log, settings_with(jobs={"dropped_states": ["CANCELLED"]}))
    assert month.totals["rows"].sum() == log.filter(pl.col("state") != "CANCELLED").height


def test_a_profile_is_put_in_words():
    log = make_log(300, 3)
    profiles = JobProfiles(SUBMIT).fit(prepare(log).frame)
    book = book_of({"": sum_jobs(log, settings_with(), lambda jobs: with_profile(jobs, profiles))}, profiles)
    assert set(book.profile_descriptions()) == set(book.days["profile"].cast(pl.String).unique())
    assert book_of({"": sum_jobs(log, settings_with())}).profile_descriptions() == {}


def test_a_user_sees_own_lines_only():
    book = book_of({"": sum_jobs(make_log(200, 4), settings_with())})
    own = book.seen_by(Viewer("user3", is_admin=False))
    for frame in (own.days, own.nodes, own.totals):
        assert frame["user"].cast(pl.String).unique().to_list() == ["user3"]
    assert own.days.height < book.days.height
    assert book.seen_by(Viewer("(unknown)", is_admin=False)).days.is_empty()  # as nobody is called, whatever a log calls him


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        yield LiveSite(site)


def test_only_months_that_changed_are_summed_anew(live, monkeypatch):
    log = make_log(300, 5, days=70)
    put_jobs(live.site, log)
    first = make_book(live, "", None)
    calls = []
    monkeypatch.setattr(day_book, "sum_jobs", lambda jobs, *rest: calls.append(jobs.height) or sum_jobs(jobs, *rest))
    assert make_book(live, "", first).months == first.months
    assert not calls
    late = make_log(10, 6).with_columns(pl.col("job_id") + 10_000, pl.col("submit_time", "end_time") + timedelta(days=65))
    put_jobs(live.site, late)
    second = make_book(live, "", first)
    assert len(calls) == len(set(late["submit_time"].dt.strftime("%Y-%m"))) < len(first.months)
    assert second.totals["rows"].sum() == 310


def test_sums_are_the_same_whether_a_month_is_read_at_once_or_piece_by_piece(live, monkeypatch):
    log = make_log(300, 5, days=70)
    put_jobs(live.site, log)
    whole = make_book(live, "", None)
    calls = []
    monkeypatch.setattr(month, "PIECE_JOBS", 20)
    monkeypatch.setattr(day_book, "sum_jobs", lambda jobs, *rest: calls.append(jobs.height) or sum_jobs(jobs, *rest))
    pieces = make_book(live, "", None)
    assert len(calls) > 2 * len(whole.months) and sum(calls) == log.height
    for name in ("days", "nodes", "totals", "uncounted"):
        rows = getattr(whole, name).rows()
        assert len(rows) == len(set(rows)) and set(getattr(pieces, name).rows()) == set(rows)


def test_a_site_without_jobs_has_an_empty_book(live):
    book = live.boards.books.wait(live).value
    assert book.days.is_empty() and book.totals["rows"].sum() == 0 and book.nodes.is_empty()


def test_days_are_those_of_the_sites_zone():
    log = make_log(50, 7).with_columns(end_time=pl.lit(T0.replace(hour=23, minute=30)))
    days = {zone: sum_jobs(log, settings_with(site={"time_zone": zone})).days["day"] for zone in ("UTC", "Europe/Stockholm")}
    assert (days["Europe/Stockholm"].max() - days["UTC"].max()) == timedelta(days=1)


def test_sums_of_a_large_month_are_kept_and_read_where_nothing_has_changed(live, monkeypatch):
    put_jobs(live.site, make_log(300, 5, days=70))
    monkeypatch.setattr(day_book, "_WORTH_KEEPING", 50)
    first = make_book(live, "", None)
    kept = sorted(live.site.snapshots.glob("days-*.npz"))
    assert kept and all(path.stat().st_mode & 0o077 == 0 for path in kept)
    calls = []
    monkeypatch.setattr(day_book, "sum_jobs", lambda jobs, *rest: calls.append(jobs.height) or sum_jobs(jobs, *rest))
    again = make_book(live, "", None)
    assert len(calls) == len(first.months) - len(kept)
    for name in ("days", "nodes", "totals", "uncounted"):
        assert set(getattr(again, name).rows()) == set(getattr(first, name).rows())
    for path in kept:  # one bit is another
        content = bytearray(path.read_bytes())
        content[-9] ^= 1
        path.write_bytes(content)
    calls.clear()
    make_book(live, "", None)
    assert len(calls) == len(first.months)
    for sections in ({"jobs": {"failure_states": ["TIMEOUT"]}}, {"energy": {"watts_per_cpu": 7.0}}):
        live.site.settings = settings_with(**sections)
        calls.clear()
        make_book(live, "", None)
        assert len(calls) == len(first.months)


def test_what_a_kwh_is_at_the_site_needs_no_new_sums(live, monkeypatch):
    put_jobs(live.site, make_log(300, 5, days=70))
    monkeypatch.setattr(day_book, "_WORTH_KEEPING", 1)
    make_book(live, "", None)
    monkeypatch.setattr(day_book, "sum_jobs", lambda *_: pytest.fail("summed anew"))
    live.site.settings = settings_with(energy={"pue": 1.4, "grams_co2_per_kwh": 40.0})
    assert make_book(live, "", None).totals["joules"].sum() > 0


@pytest.mark.parametrize("name", names())
def test_jobs_of_a_table_from_before_energy_was_read_are_estimated(name, tmp_path):
    with open_site(unpack_site(name, tmp_path)) as site:
        stored = [set(pl.read_parquet_schema(path)) for path in site.jobs.table.files()]
        totals = book_of_site(site).totals
    assert not any("energy_j" in columns for columns in stored)
    assert totals["joules"].sum() > 0 and totals["measured_joules"].sum() == 0
