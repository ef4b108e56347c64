"""The stream says each thing once, in the order of time, whatever way it is fed."""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pytest

from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.jobs.stream import LOOKBACK, JobStream
from stormpetrel.jobs.training import TrainingSettings, train
from stormpetrel.records.jobs import KEY
from stormpetrel.records.predictions import PREDICTION_SCHEMA
from tests.jobs.logs import make_log

SAID = [*KEY, "moment", "moment_time", "as_of", "risk", "flagged", "known", "reason_words", "reason_contributions", "profile"]
ORDER = ["job_id", "submit_time", "moment"]
TICK = timedelta(microseconds=1)


@pytest.fixture(scope="module")
def log() -> pl.DataFrame:
    return make_log(900, seed=4, days=30.0)


@pytest.fixture(scope="module")
def trained(log):
    """Models and profiles of the first twenty days, and the moment that separates them from the rest."""
    cut = log["submit_time"].min() + timedelta(days=20)
    models, labelled = train(known_by(log, cut), TrainingSettings(rounds=8))
    return models, labelled.profiles, cut


@pytest.fixture
def stream(trained, log):
    def opened(horizon=None, began=None, said=None, past=None):
        models, profiles, cut = trained
        predictor = JobPredictor(models, profiles, log.clear(), now=cut, versions=dict.fromkeys(MOMENTS, 3))
        made = JobStream(predictor, horizon=horizon or cut, began=began or cut)
        made.recall(log if past is None else past, said)
        return made

    return opened


def test_a_restart_says_the_same_where_a_moment_has_no_model(trained, log):
    """What nobody could say about two minutes in is not missing: the jobs' ends are not put off by a restart."""
    models, profiles, cut = trained
    some = {moment: models[moment] for moment in (Moment.SUBMIT, Moment.START)}

    def opened(horizon, said=None):
        made = JobStream(JobPredictor(some, profiles, log.clear(), now=cut), horizon=horizon, began=cut)
        made.recall(known_by(log, horizon + TICK), said)
        return made

    half, until = cut + timedelta(days=2), cut + timedelta(days=4)
    whole = opened(cut)
    before = whole.advance(known_by(log, half + TICK), until=half)
    after = whole.advance(known_by(log, until + TICK), until=until)
    restarted = opened(half, before).advance(known_by(log, until + TICK), until=until)
    assert set(after["moment"]) == {"submit", "start"}
    assert comparable(restarted).equals(comparable(after))


def comparable(predictions: pl.DataFrame) -> pl.DataFrame:
    return predictions.select(SAID).sort(ORDER)


def in_steps(stream, log, until, step):
    """What is said when the table is looked at every so often, and shows at each look what was known then."""
    parts = []
    while stream.horizon < until:
        look = min(until, stream.horizon + step)
        shown = known_by(log, look + TICK)
        parts.append(stream.advance(shown.filter(stream.news()), until=look))
    return pl.concat(parts)


@pytest.fixture(scope="module")
def end(log):
    return log["end_time"].max() + timedelta(minutes=5)


def test_fed_in_pieces_of_any_size_it_says_the_same(stream, log, end):
    whole = stream().advance(log, until=end)
    assert whole.height > 500 and whole.schema == PREDICTION_SCHEMA
    for step in (timedelta(days=2), timedelta(hours=7, minutes=37, seconds=11)):
        assert comparable(in_steps(stream(), log, end, step)).equals(comparable(whole))


def test_fed_in_small_pieces_it_says_the_same(stream, log, trained):
    """Pieces of half an hour, so that a job is submitted, starts and ends in different ones; a day of them."""
    until = trained[2] + timedelta(days=1)
    whole = stream().advance(known_by(log, until + TICK), until=until)
    assert whole.height > 25
    assert comparable(in_steps(stream(), log, until, timedelta(minutes=37, seconds=11))).equals(comparable(whole))


@pytest.mark.slow
def test_fed_in_small_pieces_to_the_end_it_says_the_same(stream, log, end):
    whole = stream().advance(log, until=end)
    for step in (timedelta(hours=3), timedelta(minutes=37, seconds=11)):
        assert comparable(in_steps(stream(), log, end, step)).equals(comparable(whole))


def test_started_again_anywhere_it_says_the_same_and_nothing_twice(stream, log, end, trained):
    cut = trained[2]
    whole = stream().advance(log, until=end)
    for share in (0.1, 0.5, 0.83):
        middle = cut + share * (end - cut)
        before = stream().advance(known_by(log, middle + TICK), until=middle)
        again = stream(horizon=middle, began=cut, said=before)
        after = again.advance(log.filter(again.news()), until=end)
        assert comparable(pl.concat([before, after])).equals(comparable(whole))


def test_what_was_heard_of_late_and_not_said_before_a_restart_is_said_after_it(stream, log, end, trained):
    cut = trained[2]
    middle = cut + (end - cut) / 2
    before = stream().advance(known_by(log, middle + TICK), until=middle)
    lately = before.filter(pl.col("moment_time") > middle - LOOKBACK / 2)
    lost = lately.filter(pl.col("moment") == "submit").head(1)
    kept = before.join(lost, on=list(KEY), how="anti", nulls_equal=True)
    again = stream(horizon=middle, began=cut, said=kept)
    after = again.advance(log.filter(again.news()), until=middle)
    of_lost = before.join(lost, on=list(KEY), how="semi", nulls_equal=True)
    assert after.select(*KEY, "moment").sort("moment").equals(of_lost.select(*KEY, "moment").sort("moment"))


def test_every_job_is_judged_at_every_moment_that_it_saw(stream, log, end, trained):
    said = stream().advance(log, until=end)
    later = log.filter(pl.col("submit_time") > trained[2])
    assert said.filter(moment="submit").height == later.height
    started = log.filter(pl.col("start_time") > trained[2])
    assert said.filter(moment="start").height == started.height
    long = (pl.col("end_time") - pl.col("start_time")) > timedelta(minutes=2)
    seen = log.filter(long, pl.col("start_time") + timedelta(minutes=2) > trained[2])
    assert said.filter(moment="2min").height == seen.height > 0
    assert not said.select(*KEY, "moment").is_duplicated().any()


def test_the_same_table_shown_again_is_no_news(stream, log, end):
    watched = stream()
    assert watched.advance(log, until=end).height
    assert not watched.advance(log, until=end).height
    assert not watched.advance(log, until=end + timedelta(days=3)).height


def test_it_says_what_the_predictor_says_at_that_moment(stream, log, end, trained):
    models, profiles, _ = trained
    said = stream().advance(log, until=end)
    for row in said.sort("moment", "job_id").gather_every(97).iter_rows(named=True):
        then = row["moment_time"]
        predictor = JobPredictor(models, profiles, log, now=then)
        job = log.filter(pl.col("job_id") == row["job_id"])
        verdict = predictor.judge(job, Moment(row["moment"]), then)
        assert verdict.risk == pytest.approx(row["risk"], abs=1e-6)
        assert verdict.reasons[0].words == row["reason_words"][0]
        assert row["model_version"] == 3


def test_a_job_heard_of_late_is_judged_by_what_is_known_now_and_says_so(stream, log, trained):
    cut = trained[2]
    horizon = cut + timedelta(days=2)
    late = log.filter(pl.col("submit_time").is_between(horizon - timedelta(hours=9), horizon - timedelta(hours=1))).head(1)
    others = log.join(late, on=list(KEY), how="anti", nulls_equal=True)
    watched = stream(past=others)
    watched.advance(known_by(others, horizon + TICK), until=horizon)
    now = horizon + timedelta(seconds=4)
    said = watched.advance(known_by(log, now + TICK).filter(watched.news()), until=now)
    of_late = said.join(late, on=list(KEY), how="semi", nulls_equal=True)
    assert of_late.height >= 1
    assert (of_late["as_of"] == horizon).all()
    assert (of_late["moment_time"] < horizon).all()


def test_when_it_was_said_is_left_to_whoever_commits_it(stream, log, end):
    said = stream().advance(log, until=end)
    assert said.select("predicted_at", "late").null_count().row(0) == (said.height, said.height)


def test_nothing_is_said_about_what_was_before_it_began(stream, log, end, trained):
    began = trained[2] + timedelta(days=3)
    said = stream(began=began).advance(log, until=end)
    assert said.height and (said["moment_time"] > began).all()


def test_following_without_judging_keeps_the_history_current(stream, log, end):
    judged, followed = stream(), stream()
    judged.advance(log, until=end)
    assert not followed.advance(log, until=end, judge=False).height
    job = log.tail(1)
    both = [each.predictor.judge(job, Moment.SUBMIT, end).risk for each in (judged, followed)]
    assert both[0] == both[1]


def test_old_jobs_are_not_remembered_for_ever(stream, log, end):
    watched = stream()
    watched.advance(log, until=end)
    watched.advance(log.filter(watched.news()), until=end + LOOKBACK)
    assert watched.open_jobs == 0
    assert not log.filter(watched.news()).height


@pytest.mark.parametrize("state", ["CANCELLED", "VANISHED"])
def test_a_job_that_was_over_before_it_started_is_no_longer_open(stream, log, trained, state):
    _, _, cut = trained
    past = known_by(log, cut + TICK).filter(pl.col("end_time").is_not_null())
    waits = log.filter(pl.col("submit_time") > cut).head(1).with_columns(
        submit_time=pl.lit(cut + timedelta(minutes=1)), start_time=None, end_time=None, elapsed_s=None, state=pl.lit("PENDING")
    )  # fmt: skip
    waits = waits.cast(dict(log.schema))
    made = stream(past=past)
    before = made.open_jobs
    minutes = lambda count: cut + timedelta(minutes=count)  # noqa: E731
    made.advance(waits, until=minutes(2))
    assert made.open_jobs == before + 1
    over = waits.with_columns(state=pl.lit(state), end_time=pl.lit(minutes(3)).cast(log.schema["end_time"]))
    said = made.advance(over, until=minutes(4))
    assert made.open_jobs == before and said.is_empty()
