"""Waste of a site: a ledger that adds up for whoever looks, and a policy replayed on what was really said."""

from dataclasses import asdict
from datetime import timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pydantic import ValidationError

from stormpetrel.answers.background import Snapshot
from stormpetrel.answers.history.day_book import DayBook, book_of, sum_jobs
from stormpetrel.answers.history.settled import JOB, PREDICTION_COLUMNS, settled_of
from stormpetrel.answers.history.waste import (
    cancel_policy,
    policy_answer,
    policy_point,
    policy_text,
    waste,
    waste_answer,
    waste_weeks,
)
from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.history import PolicyPoint, PolicyQuestion, WasteQuestion
from stormpetrel.answers.viewer import LOCAL, Viewer
from stormpetrel.config import Settings
from stormpetrel.errors import AccessError, StormpetrelError
from stormpetrel.figures.answer_rows import frame_of
from stormpetrel.jobs.cancel_policy import cancel_curve, policy_at
from stormpetrel.jobs.held.energy import PowerModel
from stormpetrel.jobs.outcomes import failed
from stormpetrel.jobs.waste import SUMS, ledger, reconcile
from tests.answers.live_sites import put_jobs, put_predictions, said_about
from tests.builders import T0, make_site
from tests.jobs.logs import make_log

LOG = make_log(700, 9, days=60, unfinished=0.02).with_columns(
    energy_j=pl.when(pl.col("job_id") % 3 == 0).then(pl.col("elapsed_s").fill_null(0.0) * 100 + 1).cast(pl.Int64)
)
ADA = Viewer("user2", is_admin=False)
RISK = pl.col("job_id") % 97 / 100


def book(log=LOG):
    return Snapshot(book_of({"": sum_jobs(log, Settings())}), 1, T0)


def said():
    """Everybody's forecasts two minutes in, and some at the start, which no policy looks at."""
    frame = pl.concat([said_about(LOG, "2min", risk=RISK), said_about(LOG, "start", risk=0.9)])
    return Snapshot(settled_of(frame.select(PREDICTION_COLUMNS), LOG.select(JOB), Settings(), since=T0), 1, T0)


def asked(**question):
    return WasteQuestion.model_validate(question)


@pytest.mark.parametrize("by", ["user", "account", "application", "partition", "profile", "outcome", "week"])
def test_the_ledger_is_that_of_the_jobs(by):
    made = book()
    answer = waste_answer(made, LOCAL, asked(by=by))
    assert_frame_equal(frame_of(answer.groups).select("group", *SUMS, "share"), ledger(LOG, by=[by]).rename({by: "group"}))
    assert_frame_equal(waste_weeks(made, LOCAL, asked(by=by)), ledger(LOG, by=["week", "outcome"]))


@pytest.mark.parametrize("viewer", [LOCAL, ADA])
@pytest.mark.parametrize("weeks", [None, 3])
def test_totals_reconcile_with_the_jobs_whoever_looks(viewer, weeks):
    answer = waste_answer(book(), viewer, asked(by="application", weeks=weeks))
    seen = LOG.filter(viewer.sees())
    if weeks is not None:
        last = seen["end_time"].max()
        monday = (last - timedelta(days=last.weekday() + 7 * (weeks - 1))).replace(hour=0, minute=0, second=0, microsecond=0)
        seen = seen.filter(pl.col("end_time") >= monday)
    expected = reconcile(seen, by=["application"])
    assert (answer.total.model_dump(include=set(SUMS)), answer.uncounted) == (asdict(expected.total), expected.uncounted)
    assert answer.own_only is not viewer.is_admin


def test_users_see_what_they_lost_themselves():
    (line,) = waste_answer(book(), ADA, asked(by="user")).groups
    expected = ledger(LOG.filter(pl.col("user") == "user2"), by=["user"]).rename({"user": "group"})
    assert line.model_dump(include={"group", *SUMS, "share"}) == expected.row(0, named=True)


def test_energy_of_a_ledger_is_that_of_the_sites_settings():
    settings = Settings.model_validate({"energy": {"pue": 2.0, "grams_co2_per_kwh": 500.0, "watts_per_cpu": 9.0}})
    made = Snapshot(book_of({"": sum_jobs(LOG, settings)}, energy=settings.energy), 1, T0)
    answer = waste_answer(made, LOCAL, asked(by="account"))
    joules = reconcile(LOG, by=[], power=PowerModel(9.0)).total.lost_joules
    assert answer.total.lost_kwh == pytest.approx(joules / 3.6e6 * 2)
    assert answer.total.lost_co2_kg == pytest.approx(joules / 3.6e6)
    assert sum(group.lost_kwh for group in answer.groups) == pytest.approx(answer.total.lost_kwh)
    assert answer.energy.known == "partly estimated" and 0 < answer.energy.measured_share < 1


def test_a_ledger_that_does_not_add_up_is_not_shown():
    whole = book().value
    cooked = {name: getattr(whole, name) for name in ("days", "nodes", "totals", "uncounted")}
    cooked["days"] = whole.days.filter(pl.col("jobs") > 0).head(-1)
    with pytest.raises(StormpetrelError, match="sums to"):
        waste_answer(Snapshot(DayBook(**cooked, profiles=None, months={}), 1, T0), LOCAL, asked())


@pytest.mark.parametrize("question", [{"by": "colour"}, {"weeks": 0}, {"weeks": 10**9}])
def test_what_makes_no_sense_is_no_question(question):
    with pytest.raises(ValidationError):
        asked(**question)


def test_reading_needs_the_scope():
    nobody = Viewer("user2", is_admin=False, scopes=frozenset())
    for ask in (lambda: waste_answer(book(), nobody, asked()), lambda: policy_point(said(), nobody, 0.5)):
        with pytest.raises(AccessError, match="read"):
            ask()


@pytest.mark.parametrize("viewer", [LOCAL, ADA])
def test_the_policy_is_replayed_on_what_was_said_two_minutes_in(viewer):
    settled = said()
    jobs = LOG.filter(viewer.sees()).with_columns(failed(), risk=RISK.cast(pl.Float32).cast(pl.Float64))
    jobs = jobs.filter(pl.col("failed").is_not_null() & (pl.col("submit_time") < pl.col("end_time")))
    for tau in (0.0, 0.25, 0.8, 1.0):
        expected = policy_at(cancel_curve(jobs, most_points=None), tau)
        assert policy_answer(settled, viewer, PolicyQuestion(threshold=tau)).at == PolicyPoint(**asdict(expected))


def test_a_figure_of_the_policy_has_both_ends_and_few_points():
    points = policy_answer(said(), LOCAL, PolicyQuestion()).points
    assert len(points) <= 501
    assert (points[0].tau, points[-1].tau) == (0.0, 1.0)


def point(*values):
    return PolicyPoint(**dict(zip(PolicyPoint.model_fields, values, strict=True)))


def test_a_threshold_is_told_in_one_sentence():
    told = point(0.8, 41, 38, 3, 1240 * 3600, 80 * 3600, 5 * 3600, 0.0, 0.01)
    words = "At 80 %: 41 jobs cancelled, 1,240 core hours saved, 3 would have completed (85 core hours lost)."
    assert policy_text(told, 0.8) == words
    clean = point(0.9, 1, 1, 0, 7200, 0, 0, 0.0, 0.0)
    assert policy_text(clean, 0.9) == "At 90 %: 1 job cancelled, 2 core hours saved, none of them would have completed."
    nothing = point(1.0, 0, 0, 0, 0, 0, 0, 0.0, 0.0)
    assert policy_text(nothing, 1.0) == "At 100 %: no job would have been cancelled."


def test_answers_go_to_other_programs(tmp_path):
    with make_site(tmp_path / "site", watch={"quality_days": 36_500.0}) as site:
        put_jobs(site, LOG)
        put_predictions(site, said_about(LOG, "2min", risk=RISK))
        live = LiveSite(site)
        answer, policy = waste(live, LOCAL, asked(by="week")), cancel_policy(live, LOCAL)
    assert sum(group.lost_core_seconds for group in answer.groups) == answer.total.lost_core_seconds
    assert policy.jobs > 0 and policy.points[0].tau == 0.0 and policy.at is None
