from __future__ import annotations

from dataclasses import replace

import polars as pl

from stormpetrel.faces.notebook import LoadedJobs, prepare_jobs
from stormpetrel.records.jobs import never_started
from tests.faces.notebook.hostile import assert_is_text, made_hostile


def test_nothing_but_what_never_started_is_dropped_unless_it_is_asked_for(jobs):
    prepared = prepare_jobs(jobs)
    ran = jobs.frame.filter(~never_started())
    assert len(prepared) == prepared.counts["kept"] == ran.height < prepared.counts["rows"] == len(jobs)
    assert prepared.counts["dropped_never_started"] == len(jobs) - ran.height
    assert prepared.kept.equals(ran)


def test_what_is_dropped_is_counted_and_gone(jobs):
    prepared = prepare_jobs(jobs, min_run_s=120)
    short = prepared.counts["dropped_too_short"]
    assert short > 0
    assert len(prepared) == len(jobs) - short - prepared.counts["dropped_never_started"]
    assert f"{short:,} were dropped: too short." in prepared.account()


def without(jobs: LoadedJobs, *columns: str, where: pl.Expr) -> LoadedJobs:
    """The jobs with holes in these columns."""
    return replace(jobs, frame=jobs.frame.with_columns(pl.when(~where).then(name).alias(name) for name in columns))


def test_what_is_filled_in_is_counted_with_its_value(jobs):
    some, every = pl.col("job_id") % 5 == 0, pl.lit(True)
    holes = without(without(jobs, "cpus", where=some), "mem_bytes", "alloc_tres", where=every)
    prepared = prepare_jobs(holes)
    lines = prepared.account()
    assert prepared.counts["imputed_cpu"] > 0
    assert any("missing values of cpu filled in with the median" in line for line in lines)
    assert any("tells nothing of" in line and "mem_gb" in line for line in lines)


def test_incomplete_records_go_where_that_is_asked_for(jobs):
    holes = without(jobs, "user", "uid", where=pl.col("job_id") % 2 == 0)
    assert prepare_jobs(holes, missing="drop").counts["dropped_no_user"] > 0


def test_the_account_is_what_is_shown(jobs):
    prepared = prepare_jobs(jobs)
    assert prepared.account()[0] in prepared._repr_html_()
    assert repr(prepared) == "\n".join(prepared.account())


def test_hostile_names_are_shown_as_text(jobs):
    html = prepare_jobs(replace(jobs, frame=made_hostile(jobs.frame)))._repr_html_()
    assert "&lt;img" in html
    assert_is_text(html)
