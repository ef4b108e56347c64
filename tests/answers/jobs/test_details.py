"""One job in full: what the record, the predictions and past jobs say about it, its other tries; and nothing for strangers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import product

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from stormpetrel.answers.jobs.details import find_jobs, job_details
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.json_values import json_value
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.overview.overview import Overview, TableFilter, TableQuery
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.errors import AccessError, NotThereError, UsageError
from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.advice.advice import advise, next_request
from stormpetrel.records.jobs import KEY, JobRef
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import T0, make_site
from tests.jobs.logs import made_jobs, make_log, one_thread
from tests.lifecycle.sites import day, train

NOW = day(40)
GIB = 1 << 30
HOUR = 3600
MODEL_JOBS = 500


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A trained site with a log of two users' habits, and predictions of its last week."""
    with make_site(tmp_path_factory.mktemp("details") / "site") as site, pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "now", lambda: NOW)
        jobs = make_log(MODEL_JOBS, 3, days=38)
        put_jobs(site, jobs)
        with one_thread():
            train(site, until=day(30))
        site.predictions.begin(day(30))
        latest = jobs.filter(pl.col("submit_time") > day(30))
        put_predictions(site, said_about(latest, "start", risk=0.75), said_about(latest))
        live = LiveSite(site)
        live.refresh()
        yield live


def refs(live, **values):
    rows = live.overview.rows(LOCAL).filter(*(pl.col(name) == value for name, value in values.items())).collect()
    return [JobRef.parse(text) for text in rows["ref"]]


def test_details_hold_the_record_and_its_line_in_the_table(live):
    ref = refs(live)[3]
    details = job_details(live, LOCAL, ref)
    stored = live.site.jobs.read_jobs().filter(ref.is_row()).collect().row(0, named=True)
    assert details.job == {name: json_value(value) for name, value in stored.items() if value is not None}
    assert details.overview.ref == str(ref) == details.ref


def test_predictions_come_in_the_order_of_the_jobs_life_with_their_reasons(live):
    details = job_details(live, LOCAL, refs(live, moment="start")[0])
    assert [one.moment for one in details.predictions] == ["submit", "start"]
    assert [one.risk for one in details.predictions] == [0.25, 0.75]
    first = details.predictions[0].reasons[0]
    assert (first.feature, first.words, first.contribution) == ("user.failed_rate_12h", "failures at submit", 0.5)


def test_a_job_of_before_the_watch_says_why_nothing_was_predicted(live):
    early = job_details(live, LOCAL, refs(live)[-1])
    assert early.predictions == []
    assert any(f"before watching began, on {day(30):%Y-%m-%d}" in note for note in early.notes)


@pytest.mark.parametrize("jobs", [slice(1), pytest.param(slice(1, 6), marks=pytest.mark.slow)])
@pytest.mark.parametrize("state", ["COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED"])
def test_advice_is_what_the_command_line_says(live, state, jobs):
    for ref in refs(live, state=state)[jobs]:
        details = job_details(live, LOCAL, ref)
        told = explain_job(live.site, LOCAL, ref.job, now=NOW)
        assert details.next == told.next
        assert [_rounded(piece) for piece in details.advice] == [_rounded(piece) for piece in told.advice]


def _rounded(piece):
    """A piece of advice with its risks to four places: the command line walks the trees without XGBoost."""
    risks = {name: value and round(value, 4) for name in ("risk_before", "risk_after") for value in (getattr(piece, name),)}
    return piece.model_copy(update=risks)


def test_nobody_is_told_about_the_jobs_of_others(live):
    ref = refs(live, state="FAILED")[0]
    owner = explain_job(live.site, LOCAL, ref.job, now=NOW).job["user"]
    own = explain_job(live.site, Viewer(owner, is_admin=False), ref.job, now=NOW)
    assert own.job["user"] == owner
    with pytest.raises(NotThereError):
        explain_job(live.site, Viewer("mallory", is_admin=False), ref.job, now=NOW)
    with pytest.raises(AccessError):
        explain_job(live.site, Viewer(owner, False, frozenset()), ref.job, now=NOW)


def odd_requests(jobs: pl.DataFrame) -> pl.DataFrame:
    """Requests of people and applications that the site knows well, a little and not at all."""
    unknown = pl.lit(None, dtype=pl.String)
    sample = jobs.gather_every(160)
    nameless = {"job_name": unknown, "script_path": unknown, "work_dir": unknown}
    return pl.concat(
        [
            jobs.gather_every(37),
            sample.with_columns(user=pl.lit("newcomer")),
            sample.with_columns(user=unknown),
            sample.with_columns(job_name=pl.lit("never_seen"), work_dir=pl.lit("/x")),
            sample.with_columns(**nameless),
            sample.with_columns(**nameless, user=unknown),
        ]
    )


def test_advice_from_part_of_the_past_is_that_from_all_of_it(live):
    whole = live.site.jobs.read_jobs().collect()
    names = set()
    for request in odd_requests(whole).iter_slices(1):
        part = live.past(request).collect()
        expected = advise(request, whole, now=NOW)
        assert advise(request, part, now=NOW) == expected
        assert next_request(request, part, now=NOW) == next_request(request, whole, now=NOW)
        names |= {advice.kind for advice in expected}
    assert len(names) >= 3


def test_the_kind_found_by_row_numbers_is_that_of_all_jobs(live):
    whole = live.site.jobs.read_jobs().collect()
    names = set()
    on_disk = Overview(in_memory=0)
    on_disk.refresh(live.site)
    for request in odd_requests(whole).iter_slices(1):
        for now, overview in product((NOW, request["submit_time"].item()), (live.overview, on_disk)):
            expected = kinds.find_kind(request, whole, now=now)
            kind, limits = overview.comparable(request, now=now)
            assert kind.name == expected.name
            assert_frame_equal(kind.jobs.select(expected.jobs.columns), expected.jobs)
            assert_frame_equal(kind.relatives.select(expected.relatives.columns), expected.relatives)
            assert limits == kinds.longest_limits(whole, now=NOW)
            names.add(kind.name)
    assert len(names) >= 4


def test_advice_is_the_same_where_older_months_lie_on_disk(live, monkeypatch):
    monkeypatch.setattr("stormpetrel.answers.jobs.past_jobs.kinds.OTHERS_CONSIDERED", 20)
    whole = live.site.jobs.read_jobs().collect()
    overview = Overview(in_memory=1)
    overview.refresh(live.site)
    for request in odd_requests(whole).gather_every(3).iter_slices(1):
        for now in (NOW, request["submit_time"].item()):
            part = overview.past(request, now=now)
            assert part.select(KEY).sort(KEY).equals(live.overview.past(request, now=now).select(KEY).sort(KEY))
            assert advise(request, part, now=now) == advise(request, live.overview.past(request, now=now), now=now)


def test_the_kind_is_the_same_where_only_the_latest_jobs_are_looked_through(live, monkeypatch):
    whole = live.site.jobs.read_jobs().collect()
    monkeypatch.setattr(kinds, "OWN_CONSIDERED", 12)
    monkeypatch.setattr(kinds, "OTHERS_CONSIDERED", 20)
    monkeypatch.setattr("stormpetrel.answers.overview.comparable._MOST_ENDS", 30)
    fresh = Overview()
    fresh.refresh(live.site)
    for request in odd_requests(whole).gather_every(2).iter_slices(1):
        for now in (NOW, request["submit_time"].item()):
            expected = kinds.find_kind(request, whole, now=now)
            kind, _ = fresh.comparable(request, now=now)
            assert kind.name == expected.name
            assert_frame_equal(kind.jobs.select(expected.jobs.columns), expected.jobs)


def test_the_profile_stands_beside_jobs_of_the_same_kind(live):
    details = job_details(live, LOCAL, refs(live, moment="start")[0])
    profile = details.profile
    assert profile.words.endswith("fail)")
    assert 0 < profile.jobs <= MODEL_JOBS
    figures = profile.figures
    assert figures["cpus"].value == details.job["req_cpus"]
    assert all(one.low <= one.median <= one.high for one in figures.values())
    assert figures["time_limit_s"].value == details.job["time_limit_s"]


def test_the_history_is_what_the_user_submitted_before(live):
    ref = refs(live, user="user2")[4]
    details = job_details(live, LOCAL, ref)
    before = live.overview.rows(LOCAL).filter(pl.col("user") == "user2", pl.col("submit_time") < ref.submit_time).collect()
    assert details.history.jobs == before.height
    assert details.history.failed == before["failed"].sum()
    assert [row.ref for row in details.history.recent] == before["ref"].to_list()[:20]


def test_details_are_json(live):
    for ref in refs(live)[:60:20]:
        told = json.loads(json.dumps(job_details(live, LOCAL, ref).model_dump(mode="json"), allow_nan=False))
        assert told["ref"] == str(ref)
        assert told["job"]["submit_time"] == ref.submit_time.isoformat()


def test_details_say_that_general_experience_speaks(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, make_log(20, 1))
        live = LiveSite(site)
        live.refresh()
        details = job_details(live, LOCAL, refs(live)[0])
        assert details.profile is None and any(note.startswith("No history of this site yet") for note in details.notes)


def test_without_a_model_and_a_watch_details_say_so(tmp_path):
    with make_site(tmp_path / "site", jobs={"prior": False}) as site:
        put_jobs(site, make_log(20, 1))
        live = LiveSite(site)
        live.refresh()
        details = job_details(live, LOCAL, refs(live)[0])
        assert details.profile is None and details.predictions == []
        assert any("stormpetrel watch" in note for note in details.notes)
        assert any("stormpetrel jobs train" in note for note in details.notes)


FOREIGN = Viewer("user1", is_admin=False)
ASKED = {
    "job_details": lambda live, ref: job_details(live, FOREIGN, ref),
    "find": lambda live, ref: live.overview.find(FOREIGN, ref),
    "find_jobs by id": lambda live, ref: find_jobs(live, FOREIGN, ref.job),
    "find_jobs by reference": lambda live, ref: find_jobs(live, FOREIGN, str(ref)),
    "find_jobs by name": lambda live, ref: find_jobs(live, FOREIGN, "app"),
    "page": lambda live, ref: live.overview.page(FOREIGN, TableQuery(filters=(TableFilter("ref", "equals", str(ref)),))).rows,
    "page of all": lambda live, ref: live.overview.page(FOREIGN, TableQuery(limit=1000)).rows,
    "page of others": lambda live, ref: (
        live.overview.page(FOREIGN, TableQuery(filters=(TableFilter("user", "not_equal", "user1"),))).rows
    ),
    "rows": lambda live, ref: live.overview.rows(FOREIGN).collect(),
    "jobs": lambda live, ref: live.jobs(FOREIGN).collect(),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED)
def test_nobody_sees_a_job_of_somebody_else(live, asked):
    ref = refs(live, user="user2")[0]
    gone = JobRef(ref.cluster, ref.job_id, ref.array_task, datetime(1999, 1, 1, tzinfo=UTC), ref.restart)
    foreign, missing = told(asked, live, ref), told(asked, live, gone)
    assert foreign == missing if isinstance(foreign, str) else set(foreign["user"]) <= {"user1"}


def told(asked, live, ref):
    """The rows of an answer, or the words of a refusal."""
    try:
        return asked(live, ref)
    except NotThereError as refused:
        return str(refused)


def test_an_owner_sees_his_own_job_in_full_and_only_his_own_history(live):
    ref = refs(live, user="user1")[0]
    details = job_details(live, FOREIGN, ref)
    assert details.job["user"] == "user1"
    assert {row.user for row in details.history.recent} == {"user1"}


_opened = []


@pytest.fixture(autouse=True)
def _close_small_sites():
    yield
    while _opened:
        _opened.pop().close()


def small_site(tmp_path, *rows, said=()):
    """A site with a few jobs, and with the risk that was given for some of them."""
    site = make_site(tmp_path / "site")
    _opened.append(site)
    jobs = made_jobs(*rows)
    put_jobs(site, jobs)
    for job_id, risk in said:
        put_predictions(site, said_about(jobs.filter(pl.col("job_id") == job_id), risk=risk))
    live = LiveSite(site)
    live.refresh()
    return live


def ran(submit, state="COMPLETED", *, run_s=600, mem=4, **values):
    times = {"submit": submit, "start": submit + 10, "end": submit + 10 + run_s}
    return {**times, "elapsed_s": float(run_s), "state": state, "req_mem_bytes": mem * GIB, **values}


def details_of(live, job_id):
    return job_details(live, LOCAL, refs(live, job_id=job_id)[0])


def test_a_resubmission_stands_beside_its_earlier_try_with_the_risk_before_and_after(tmp_path):
    rows = (ran(0, "OUT_OF_MEMORY"), ran(HOUR, "COMPLETED", mem=16, time_limit_s=7200.0), ran(2 * HOUR, mem=16))
    live = small_site(tmp_path, *rows, said=[(1, 0.75), (2, 0.125)])
    (earlier,) = details_of(live, 2).earlier
    assert earlier.job == "1" and earlier.state == "OUT_OF_MEMORY"
    assert {one.column: (one.before, one.after) for one in earlier.changes} == {
        "req_mem_bytes": (4 * GIB, 16 * GIB),
        "time_limit_s": (3600.0, 7200.0),
    }
    assert (earlier.risk_before, earlier.risk_after) == (0.75, 0.125)
    (later,) = details_of(live, 1).later
    assert later.job == "2"
    assert (later.risk_before, later.risk_after) == (0.75, 0.125)
    assert later.changes == earlier.changes
    assert details_of(live, 3).earlier == []  # the run before it went well
    assert details_of(live, 2).later == []


def test_several_tries_are_told_one_after_the_other(tmp_path):
    live = small_site(tmp_path, *(ran(hour * HOUR, "OUT_OF_MEMORY", mem=2**hour) for hour in range(4)), ran(5 * HOUR, mem=64))
    tries = details_of(live, 5).earlier
    assert [int(one.job) for one in tries] == [4, 3, 2, 1]
    assert [(one.changes[0].before // GIB, one.changes[0].after // GIB) for one in tries] == [(8, 64), (4, 8), (2, 4), (1, 2)]
    assert [int(one.job) for one in details_of(live, 1).later] == [2, 3, 4, 5]


@pytest.mark.parametrize(
    "other",
    [
        ran(HOUR, user="bob"),
        ran(HOUR, job_name="assemble"),
        ran(HOUR, work_dir="/home/ada/other"),
        ran(HOUR, array_task=3),
        ran(300),  # while the first one still ran
        ran(20 * 24 * HOUR),
    ],
)
def test_other_work_is_no_resubmission(tmp_path, other):
    live = small_site(tmp_path, ran(0, "FAILED"), other)
    assert details_of(live, 1).later == []
    assert details_of(live, 2).earlier == []


def test_a_namesake_is_the_try_where_a_sweep_has_others(tmp_path):
    live = small_site(
        tmp_path,
        ran(0, "FAILED", job_name="fit_1"),
        ran(10, "FAILED", job_name="fit_2"),
        ran(HOUR, job_name="fit_1"),
        ran(2 * HOUR, job_name="fit_2"),
    )
    assert [int(one.job) for one in details_of(live, 3).earlier] == [1]
    assert [int(one.job) for one in details_of(live, 2).later] == [4]


def test_a_try_that_was_cancelled_went_wrong_and_one_that_was_taken_back_says_nothing(tmp_path):
    live = small_site(tmp_path, ran(0, "TIMEOUT"), ran(HOUR, "PREEMPTED"), ran(2 * HOUR, "CANCELLED"), ran(3 * HOUR))
    assert [int(one.job) for one in details_of(live, 4).earlier] == [3, 1]
    assert [int(one.job) for one in details_of(live, 1).later] == [3, 4]


def test_a_try_that_still_runs_is_shown(tmp_path):
    running = {**ran(HOUR, "RUNNING"), "end": None, "elapsed_s": None}
    live = small_site(tmp_path, ran(0, "TIMEOUT"), running)
    assert [(int(one.job), one.failed) for one in details_of(live, 1).later] == [(2, None)]


def test_a_node_failure_is_no_fault_of_the_request(tmp_path):
    live = small_site(tmp_path, ran(0, "NODE_FAIL"))
    assert any("A node failed" in note for note in details_of(live, 1).notes)


def test_a_job_cancelled_in_the_queue_says_so_and_is_no_ended_job_of_its_user(tmp_path):
    waited = {"submit": HOUR, "end": HOUR + 60, "elapsed_s": 0.0, "state": "CANCELLED"}
    live = small_site(tmp_path, ran(0), waited, ran(2 * HOUR, "FAILED"), ran(3 * HOUR))
    assert any("was cancelled before it started" in note for note in details_of(live, 2).notes)
    history = details_of(live, 4).history
    assert (history.jobs, history.ended, history.failed, history.never_started) == (3, 2, 1, 1)


def test_quartiles_of_a_handful_of_jobs_are_not_told(tmp_path, live):
    from stormpetrel.answers.jobs.details import _quartiles

    frame = live.overview.frame.head(4).with_columns(profile=pl.lit(0))
    row = _quartiles(frame).row(0, named=True)
    assert row["jobs"] == 4
    assert all(row[name] is None for name in row if name not in ("profile", "jobs"))


def test_an_id_finds_no_job_that_only_begins_with_it_is_called_so_or_has_it_as_its_internal_number(tmp_path):
    rows = (
        ran(0, job_id=3, job_id_raw=3),
        ran(60, job_id=34, job_id_raw=34, job_name="run3"),
        ran(70, job_id=87, array_task=1, job_id_raw=3),
    )
    live = small_site(tmp_path, *rows)
    assert find_jobs(live, LOCAL, "3")["job"].to_list() == ["3"]
    assert find_jobs(live, LOCAL, "8").is_empty()
    assert find_jobs(live, LOCAL, "run3")["job"].to_list() == ["34"]


def test_jobs_are_found_by_id_by_task_by_raw_id_and_by_reference(tmp_path):
    rows = (
        ran(0, job_id=12345, job_id_raw=12345),
        ran(60, job_id=200, array_task=7, job_id_raw=207),
        ran(70, job_id=200, array_task=8, job_id_raw=208),
        ran(80, job_id=12345, job_id_raw=12345),
    )
    live = small_site(tmp_path, *rows)
    assert find_jobs(live, LOCAL, "12345")["submit_time"].to_list() == [T0 + timedelta(seconds=80), T0]
    assert find_jobs(live, LOCAL, " 200_8 ")["job"].to_list() == ["200_8"]
    assert find_jobs(live, LOCAL, "207")["job"].to_list() == ["200_7"]
    assert find_jobs(live, LOCAL, "200").height == 2
    ref = find_jobs(live, LOCAL, "200_7")["ref"].item()
    assert find_jobs(live, LOCAL, ref)["job"].to_list() == ["200_7"]
    assert find_jobs(live, LOCAL, "FIT").height == 4
    assert find_jobs(live, LOCAL, "9" * 400).is_empty()
    with pytest.raises(UsageError):
        find_jobs(live, LOCAL, "  ")


def test_hostile_names_stay_text(tmp_path):
    name = "<img src=x onerror=alert(1)>\n\x1b[31m"
    live = small_site(tmp_path, ran(0, "FAILED", job_name=name, work_dir="/tmp/%s"), ran(HOUR, job_name=name, work_dir="/tmp/%s"))
    details = details_of(live, 1)
    assert details.job["job_name"] == name
    assert json.loads(details.model_dump_json())["job"]["job_name"] == name
    assert [one.state for one in details.later] == ["COMPLETED"]
