"""The overview: every job once with the latest that was said, in pages that neither overlap nor leave out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from stormpetrel.answers.overview import overview as module
from stormpetrel.answers.overview.month import PREDICTION_COLUMNS, month_frame
from stormpetrel.answers.overview.overview import OVERVIEW_SCHEMA, Overview, TableFilter, TableQuery
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.records.jobs import KEY, JobRef
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from stormpetrel.store.upkeep.upkeep import compact, retain
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import T0, make_site
from tests.jobs.logs import made_jobs, make_log

ADA = Viewer("user1", is_admin=False)
JOBS = 240
COLUMNS = (*OVERVIEW_SCHEMA, "ref")


def log() -> pl.DataFrame:
    """Three months of jobs; some names and accounts are missing, some differ in capitals only, some jobs are array tasks."""
    jobs = make_log(JOBS, 4, days=80, unfinished=0.05)
    number = pl.int_range(pl.len())
    return jobs.with_columns(
        account=pl.when(number % 7 != 0).then("account"),
        job_name=pl.when(number % 11 == 0).then(pl.col("job_name").str.to_uppercase()).when(number % 13 != 0).then("job_name"),
        array_task=pl.when(number % 9 == 0).then(number % 5),
        job_id=pl.when(number % 9 == 0).then(1000 + number // 45 * 45).otherwise("job_id"),
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with make_site(tmp_path_factory.mktemp("overview") / "site") as site:
        jobs = log()
        put_jobs(site, jobs)
        risk = pl.col("req_cpus") / 20
        put_predictions(
            site,
            said_about(jobs.filter(pl.col("user") != "user3"), risk=risk),
            said_about(jobs.head(150), "start", risk=risk + 0.1),
        )
        yield site


@pytest.fixture(scope="module", params=[500_000, 1], ids=["in memory", "older months on disk"])
def overview(site, request):
    overview = Overview(in_memory=request.param)
    overview.refresh(site)
    return overview


def everything(overview, query=TableQuery(), viewer=LOCAL, limit=37):
    """All pages of a question, one below the other."""
    offsets = range(0, JOBS + limit, limit)
    pages = [overview.page(viewer, TableQuery(query.sort, query.filters, query.search, offset, limit)) for offset in offsets]
    assert {page.total for page in pages} == {sum(page.rows.height for page in pages)}
    return pl.concat([page.rows for page in pages])


def test_each_job_has_one_row_with_the_latest_that_was_said_about_it(site, overview):
    rows = everything(overview)
    assert rows.columns == list(COLUMNS)
    assert rows.height == rows["ref"].n_unique() == JOBS
    moments = dict(rows["moment"].value_counts().iter_rows())
    said = site.predictions.read().collect()
    assert moments["start"] == 150
    assert moments["submit"] == said.filter(pl.col("moment") == "submit").join(
        said.filter(pl.col("moment") == "start"), on=["job_id", "array_task", "submit_time"], how="anti", nulls_equal=True
    ).height  # fmt: skip
    later = rows.filter(pl.col("moment") == "start").drop_nulls("first_risk")
    assert np.allclose(later["risk"] - later["first_risk"], 0.1, atol=1e-6)


def test_confidence_is_the_probability_of_what_is_predicted(overview):
    rows = overview.rows(LOCAL).filter(pl.col("risk").is_not_null()).collect()
    fails = rows.filter(pl.col("flagged"))
    assert set(fails["prediction"]) == {"Fail"}
    assert set(rows.filter(~pl.col("flagged"))["prediction"]) == {"Complete"}
    assert np.allclose(fails["confidence"], 100 * fails["risk"])
    assert rows["confidence"].min() >= 50 - 1e-4
    nothing = overview.rows(LOCAL).filter(pl.col("risk").is_null()).collect()
    assert nothing.height and nothing["prediction"].null_count() == nothing["confidence"].null_count() == nothing.height


def test_failed_is_unknown_until_a_job_has_ended(overview):
    rows = overview.rows(LOCAL).collect()
    assert (
        rows.filter(pl.col("state") == "RUNNING")["failed"].null_count() == rows.filter(pl.col("state") == "RUNNING").height > 0
    )
    assert rows.filter(pl.col("state") == "FAILED")["failed"].all()
    assert not rows.filter(pl.col("state") == "COMPLETED")["failed"].any()


def test_a_job_that_waits_shows_what_it_asks_for(overview, site):
    jobs = site.jobs.read_jobs().filter(pl.col("cpus").is_null()).collect()
    rows = overview.rows(LOCAL).filter(pl.col("start_time").is_null()).collect()
    assert jobs.height == rows.height > 0
    assert sorted(rows["cpus"]) == sorted(jobs["req_cpus"])


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("column", COLUMNS)
def test_pages_cover_every_row_once_in_the_order_of_the_column(overview, column, descending):
    rows = everything(overview, TableQuery(sort=((column, descending),)))
    assert rows["ref"].n_unique() == rows.height == JOBS
    by = {"job": ["job_id", "array_task"], "ref": ["job_id", "array_task"]}.get(column, [column])
    told = rows.with_columns(pl.col(pl.String).str.to_lowercase())
    assert told.select(by).equals(told.select(by).sort(by, descending=descending, nulls_last=True))


@pytest.mark.parametrize("limit", [1, 7, 100, 1000])
def test_rows_that_are_equal_keep_one_order_whatever_the_size_of_the_page(overview, limit):
    sort = (("state", False), ("partition", True))
    whole = overview.page(LOCAL, TableQuery(sort=sort, limit=1000)).rows
    few = [overview.page(LOCAL, TableQuery(sort=sort, offset=offset, limit=limit)).rows for offset in range(0, JOBS, limit)]
    assert pl.concat(few)["ref"].equals(whole["ref"])
    plain = overview.rows(LOCAL).sort("state", "partition", descending=[False, True], nulls_last=True, maintain_order=True)
    assert whole["ref"].equals(plain.collect()["ref"])


def test_long_names_with_the_same_beginning_are_sorted_by_what_follows():
    long = [f"a_very_long_name_of_a_simulation_{number:03d}" for number in range(60)]
    names = [*long[::-1], "b" * 90, "a", "", "ähre", "\U0001f426", None]
    overview = overview_of(made_jobs(*({"job_name": name, "submit": 60 * place} for place, name in enumerate(names))))
    for descending in (False, True):
        query = TableQuery(sort=(("job_name", descending),))
        pages = [overview.page(LOCAL, TableQuery(query.sort, offset=offset, limit=9)).rows for offset in range(0, len(names), 9)]
        assert pl.concat(pages)["job_name"].to_list() == [*sorted(names[:-1], reverse=descending), None]


def test_a_column_that_says_the_same_of_all_leaves_the_order_as_it_is():
    overview = overview_of(made_jobs(*({"submit": 60 * place} for place in range(9)), {"user": None, "submit": 600}))
    for descending in (False, True):
        rows = overview.page(LOCAL, TableQuery(sort=(("user", descending),))).rows
        assert rows["job_id"].to_list() == [9, 8, 7, 6, 5, 4, 3, 2, 1, 10]


def overview_of(jobs: pl.DataFrame) -> Overview:
    """An overview of jobs of one month of which nothing was said."""
    nothing = pl.DataFrame(schema={name: PREDICTION_SCHEMA[name] for name in (*KEY, *PREDICTION_COLUMNS)})
    overview = Overview()
    overview.take({"2024-03": month_frame(jobs, nothing, ["FAILED"], [])})
    return overview


SPAN = (T0 + timedelta(days=20), T0 + timedelta(days=30))
FILTERS = [
    (TableFilter("user", "equals", "user1"), lambda row: row["user"] == "user1"),
    (TableFilter("user", "equals", "USER1"), lambda row: False),
    (TableFilter("user", "not_equal", "user1"), lambda row: row["user"] != "user1"),
    (TableFilter("account", "not_equal", "lab1"), lambda row: row["account"] != "lab1"),
    (TableFilter("job_name", "contains", "App1_"), lambda row: "app1_" in (row["job_name"] or "").lower()),
    (TableFilter("job_name", "not_contains", "App1_"), lambda row: "app1_" not in (row["job_name"] or "").lower()),
    (TableFilter("job_name", "starts_with", "aPP2"), lambda row: (row["job_name"] or "").lower().startswith("app2")),
    (TableFilter("job_name", "ends_with", "7"), lambda row: (row["job_name"] or "").endswith("7")),
    (TableFilter("account", "blank"), lambda row: row["account"] is None),
    (TableFilter("account", "not_blank"), lambda row: row["account"] is not None),
    (TableFilter("state", "is_in", ["FAILED", "TIMEOUT"]), lambda row: row["state"] in ("FAILED", "TIMEOUT")),
    (TableFilter("state", "is_in", []), lambda row: False),
    (TableFilter("job", "starts_with", "10"), lambda row: row["job"].startswith("10")),
    (TableFilter("job", "equals", "1017"), lambda row: row["job"] == "1017"),
    (TableFilter("job_id", "equals", "1017"), lambda row: row["job_id"] == 1017),
    (TableFilter("array_task", "not_equal", 1), lambda row: row["array_task"] != 1),
    (TableFilter("array_task", "is_in", [1, "2"]), lambda row: row["array_task"] in (1, 2)),
    (TableFilter("risk", "greater", 0.2), lambda row: row["risk"] is not None and row["risk"] > np.float32(0.2)),
    (TableFilter("elapsed_s", "greater_equal", "600"), lambda row: row["elapsed_s"] is not None and row["elapsed_s"] >= 600),
    (TableFilter("elapsed_s", "less", 600), lambda row: row["elapsed_s"] is not None and row["elapsed_s"] < 600),
    (TableFilter("cpus", "less_equal", 4), lambda row: row["cpus"] is not None and row["cpus"] <= 4),
    (TableFilter("cpus", "between", 2, 8), lambda row: row["cpus"] is not None and 2 <= row["cpus"] <= 8),
    (TableFilter("risk", "blank"), lambda row: row["risk"] is None),
    (TableFilter("risk", "not_blank"), lambda row: row["risk"] is not None),
    (TableFilter("failed", "equals", "true"), lambda row: row["failed"] is True),
    (TableFilter("flagged", "not_equal", True), lambda row: row["flagged"] is not True),
    (TableFilter("prediction", "equals", "Fail"), lambda row: row["prediction"] == "Fail"),
    (TableFilter("submit_time", "between", *SPAN), lambda row: SPAN[0] <= row["submit_time"] <= SPAN[1]),
    (TableFilter("submit_time", "less", SPAN[0].isoformat()), lambda row: row["submit_time"] < SPAN[0]),
    (TableFilter("submit_time", "equals", "2024-03-20"), lambda row: f"{row['submit_time']:%Y-%m-%d}" == "2024-03-20"),
    (TableFilter("submit_time", "greater", "2024-03-20"), lambda row: f"{row['submit_time']:%Y-%m-%d}" > "2024-03-20"),
    (TableFilter("submit_time", "less_equal", "2024-03-20"), lambda row: f"{row['submit_time']:%Y-%m-%d}" <= "2024-03-20"),
    (
        TableFilter("submit_time", "between", "2024-03-20", "2024-03-22"),
        lambda row: "2024-03-20" <= f"{row['submit_time']:%Y-%m-%d}" <= "2024-03-22",
    ),
]


@pytest.mark.parametrize(("one", "holds"), FILTERS, ids=[f"{one.column} {one.kind} {one.value}" for one, _ in FILTERS])
def test_a_filter_keeps_exactly_the_rows_that_it_describes(overview, one, holds):
    rows = everything(overview, TableQuery(filters=(one,)))
    expected = [row["ref"] for row in overview.rows(LOCAL).collect().iter_rows(named=True) if holds(row)]
    assert sorted(rows["ref"]) == sorted(expected)


def test_all_filters_and_the_search_must_hold_together(overview):
    filters = (TableFilter("state", "equals", "COMPLETED"), TableFilter("elapsed_s", "greater", 300))
    rows = everything(overview, TableQuery(filters=filters, search="USER5"))
    expected = overview.rows(LOCAL).filter(pl.col("state") == "COMPLETED", pl.col("elapsed_s") > 300, pl.col("user") == "user5")
    assert 0 < rows.height < JOBS
    assert sorted(rows["ref"]) == sorted(expected.collect()["ref"])


def test_a_reference_finds_its_job_and_nothing_else(overview):
    ref = overview.page(LOCAL, TableQuery(offset=50, limit=1)).rows["ref"].item()
    assert everything(overview, TableQuery(filters=(TableFilter("ref", "equals", ref),)))["ref"].to_list() == [ref]
    assert everything(overview, TableQuery(filters=(TableFilter("ref", "not_equal", ref),))).height == JOBS - 1
    assert overview.find(LOCAL, JobRef.parse(ref))["ref"].item() == ref


def test_the_search_finds_the_beginning_of_an_id_and_a_part_of_a_name(overview):
    found = everything(overview, TableQuery(search="101"))
    assert found.height and all(row["job"].startswith("101") or "101" in row["job_name"] for row in found.iter_rows(named=True))
    assert everything(overview, TableQuery(search=" app4_ "))["job_name"].str.to_lowercase().str.contains("app4_").all()
    assert everything(overview, TableQuery(search="no such thing")).is_empty()


HOSTILE = [
    "a.*b",
    "(",
    "[a-z]+",
    "100%",
    "a\\b",
    "$HOME",
    "<script>alert(1)</script>",
    "'; drop table jobs; --",
    "\x00",
    "a\nb",
    "ﬁt",
    "{0}",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_looked_for_letter_by_letter(text):
    jobs = made_jobs(*({"job_name": name, "submit": 60 * place} for place, name in enumerate([*HOSTILE, "aXXb", "abc", ""])))
    overview = overview_of(jobs)
    for query in (
        TableQuery(search=text if text.strip() else "no such thing"),
        TableQuery(filters=(TableFilter("job_name", "contains", text),)),
        TableQuery(filters=(TableFilter("job_name", "starts_with", text),)),
        TableQuery(filters=(TableFilter("job_name", "ends_with", text),)),
        TableQuery(filters=(TableFilter("job_name", "is_in", [text]),)),
    ):
        names = overview.page(LOCAL, query).rows["job_name"].to_list()
        assert all(text in name for name in names)
        assert text in names or "no such" in query.search
    rest = overview.page(LOCAL, TableQuery(filters=(TableFilter("job_name", "not_contains", text),)))
    assert rest.total == len([name for name in [*HOSTILE, "aXXb", "abc", ""] if text not in name])


@pytest.mark.parametrize(
    "query",
    [
        TableQuery(sort=(("rsk", True),)),
        TableQuery(filters=(TableFilter("password", "equals", "x"),)),
        TableQuery(filters=(TableFilter("work_dir", "contains", "x"),)),
        TableQuery(filters=(TableFilter("user", "matches", ".*"),)),
        TableQuery(filters=(TableFilter("user", "less", "x"),)),
        TableQuery(filters=(TableFilter("user", "equals", None),)),
        TableQuery(filters=(TableFilter("user", "is_in", "ada"),)),
        TableQuery(filters=(TableFilter("risk", "contains", "1"),)),
        TableQuery(filters=(TableFilter("risk", "greater", "much"),)),
        TableQuery(filters=(TableFilter("risk", "greater", float("nan")),)),
        TableQuery(filters=(TableFilter("risk", "between", 1, None),)),
        TableQuery(filters=(TableFilter("late", "equals", "perhaps"),)),
        TableQuery(filters=(TableFilter("late", "greater", True),)),
        TableQuery(filters=(TableFilter("submit_time", "less", "yesterday"),)),
        TableQuery(filters=(TableFilter("ref", "contains", "1"),)),
        TableQuery(filters=(TableFilter("ref", "equals", "1"),)),
        TableQuery(offset=-1),
        TableQuery(limit=-1),
        TableQuery(limit=1_000_000),
    ],
)
def test_a_question_that_makes_no_sense_is_refused_in_one_sentence(overview, query):
    with pytest.raises(UsageError) as refused:
        overview.page(LOCAL, query)
    assert refused.value.hint


def test_a_misspelt_column_is_answered_with_the_right_one(overview):
    with pytest.raises(UsageError, match="Did you mean 'risk'"):
        overview.page(LOCAL, TableQuery(sort=(("rsk", True),)))


def test_a_user_sees_only_rows_of_his_own(overview):
    mine = overview.rows(LOCAL).filter(pl.col("user") == "user1").collect()
    assert everything(overview, viewer=ADA)["ref"].sort().equals(mine["ref"].sort())
    foreign = TableQuery(filters=(TableFilter("user", "equals", "user2"),))
    assert everything(overview, foreign, viewer=ADA).is_empty()
    assert everything(overview, TableQuery(search="user2"), viewer=ADA).is_empty()
    assert overview.page(Viewer("", is_admin=False), TableQuery()).total == 0


def test_a_job_of_somebody_else_and_one_that_does_not_exist_are_told_alike(overview):
    ref = JobRef.parse(overview.rows(LOCAL).filter(pl.col("user") == "user2").collect()["ref"][0])
    with pytest.raises(NotThereError) as foreign:
        overview.find(ADA, ref)
    with pytest.raises(NotThereError) as missing:
        overview.find(ADA, JobRef(ref.cluster, ref.job_id, ref.array_task, datetime(1999, 1, 1, tzinfo=UTC), 0))
    assert str(foreign.value) == str(missing.value)


def test_a_job_without_a_user_is_nobodys():
    jobs = made_jobs({"user": None, "submit": 0}, {"user": "ada", "submit": 60})
    overview = overview_of(jobs)
    assert overview.page(LOCAL, TableQuery()).total == 2
    assert overview.page(Viewer("ada", is_admin=False), TableQuery()).total == 1
    assert overview.page(Viewer("None", is_admin=False), TableQuery()).total == 0


@pytest.fixture
def small(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, make_log(60, 1, days=85))
        yield site


def test_a_refresh_reads_only_the_months_that_changed(small):
    overview = Overview()
    assert overview.refresh(small)
    months = overview.rebuilt
    assert months == 3
    assert not overview.refresh(small)
    assert overview.rebuilt == months
    april = small.jobs.read_jobs().filter(pl.col("submit_time").dt.month() == 4).collect()
    put_predictions(small, said_about(april, risk=0.75))
    before = overview.frame
    assert overview.refresh(small)
    assert overview.rebuilt == months + 1
    assert overview.page(LOCAL, TableQuery(filters=(TableFilter("prediction", "equals", "Fail"),))).total == april.height
    assert before["risk"].null_count() == before.height  # whoever reads on, reads what was


def test_a_job_that_ends_is_seen_at_the_next_refresh(small):
    running = make_log(1, 9).with_columns(
        state=pl.lit("RUNNING"), end_time=None, job_id=pl.lit(7, dtype=pl.Int64), user=pl.lit("ada")
    )
    put_jobs(small, running, as_of=T0)
    overview = Overview()
    overview.refresh(small)
    put_jobs(small, running.with_columns(state=pl.lit("FAILED"), end_time=pl.col("submit_time") + timedelta(hours=1)))
    assert overview.refresh(small)
    rows = overview.page(LOCAL, TableQuery(filters=(TableFilter("job_id", "equals", 7),))).rows
    assert rows["state"].to_list() == ["FAILED"]


def test_compaction_underneath_changes_nothing(small):
    jobs = make_log(60, 2, days=85).with_columns(pl.col("job_id") + 5000)
    put_jobs(small, jobs)
    put_predictions(small, said_about(jobs.head(40)), said_about(jobs.head(30), "start"))
    overview = Overview()
    overview.refresh(small)
    before, files = everything(overview), set(small.jobs.table.files())
    compact(small)
    for table in (small.jobs.table, small.predictions.table):
        table.vacuum(keep_hours=0)
    assert files.isdisjoint(small.jobs.table.files())
    assert not any(path.exists() for path in files)
    row = before.filter(pl.col("moment") == "start").head(1)
    assert overview.whole_rows(small, row)["job_id"].to_list() == row["job_id"].to_list()
    assert sorted(overview.predictions(small, row)["moment"]) == ["start", "submit"]
    assert overview.refresh(small)
    assert everything(overview).equals(before)


def test_a_file_that_vanishes_while_it_is_read_is_looked_for_again(small, monkeypatch):
    real, calls = module.files_by_month, []

    def stale(table):
        calls.append(table)
        files = real(table)
        if len(calls) == 1:
            return {month: frozenset({*paths, next(iter(paths)).with_name("gone.parquet")}) for month, paths in files.items()}
        return files

    monkeypatch.setattr(module, "files_by_month", stale)
    overview = Overview()
    assert overview.refresh(small)
    assert overview.page(LOCAL, TableQuery()).total == 60


def test_months_that_are_deleted_are_gone(small, monkeypatch):
    overview = Overview()
    overview.refresh(small)
    monkeypatch.setattr(small, "now", lambda: T0 + timedelta(days=85))
    retain(small, days=20)
    assert overview.refresh(small)
    assert overview.frame["submit_time"].min() >= T0 + timedelta(days=65)


def test_a_site_without_jobs_has_an_empty_overview(tmp_path):
    with make_site(tmp_path / "site") as site:
        overview = Overview()
        assert not overview.refresh(site)
        page = overview.page(LOCAL, TableQuery(sort=(("user", True), ("risk", False)), search="x"))
        assert page.total == 0 and page.rows.columns == list(COLUMNS)


def test_a_start_reads_the_latest_months_and_the_next_refresh_the_rest(site, overview):
    first = Overview()
    assert first.refresh(site, most=1)
    months = set(first.frame["submit_time"].dt.strftime("%Y-%m"))
    every = sorted(set(overview.frame["submit_time"].dt.strftime("%Y-%m")))
    assert months == {every[-1]} and len(every) > 1
    assert first.refresh(site)
    assert first.frame.select(KEY).equals(overview.frame.select(KEY))
