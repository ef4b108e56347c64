"""How a prediction is said: the risk of failing, what a failure would be, and the effect of each reason."""

import pytest

from stormpetrel.jobs.advice.text import job_facts
from stormpetrel.jobs.moments import Moment
from stormpetrel.jobs.prediction_text import format_points, percent, prediction_text, reason_text, verdict_text
from stormpetrel.jobs.predictor import Verdict
from stormpetrel.jobs.reasons import Reason


def made_verdict(outcomes, failures, risk=0.26):
    return Verdict(Moment.SUBMIT, risk, True, 0.2, True, outcomes, (), -2.0, None, failures)


def test_a_prediction_tells_the_risk_of_failing_whether_it_is_flagged_or_not():
    assert prediction_text(0.26, flagged=True, threshold=0.2) == "26 % risk of failing, flagged (threshold 20 %)"
    assert prediction_text(0.26, flagged=False, threshold=0.4) == "26 % risk of failing, not flagged (threshold 40 %)"


def test_what_a_failure_would_be_is_said_as_a_condition():
    assert prediction_text(0.02, flagged=False, threshold=0.4, likeliest="FAILED").endswith("; if it fails: crash")


def test_kinds_of_failure_are_shares_of_the_failures_and_add_up():
    words = verdict_text(made_verdict({"FAILED": 0.195, "TIMEOUT": 0.065, "CANCELLED": 0.3}, ("FAILED", "TIMEOUT")))
    assert words.endswith("if it fails: crash 75 %, time-out 25 %")


def test_an_outcome_that_is_no_failure_is_not_what_a_failure_would_be():
    outcomes = {"FAILED": 0.1, "CANCELLED": 0.3}
    assert made_verdict(outcomes, ("FAILED",)).likeliest == "FAILED"
    assert made_verdict(outcomes, ("FAILED", "CANCELLED")).likeliest == "CANCELLED"


@pytest.mark.parametrize(
    ("points", "words"),
    [(12.4, "+12 points"), (-1.2, "−1 point"), (0.37, "+0.4 points"), (-0.02, "±0.0 points"), (0.97, "+1 point")],
)
def test_an_effect_is_told_in_points_of_risk(points, words):
    assert format_points(points) == words


def test_log_odds_are_told_on_request():
    reason = Reason("user.failed_rate_4d", "failure rate of this user's jobs: 60 %", 0.71, 0.6, 12.1)
    assert reason_text(reason) == "+12 points: failure rate of this user's jobs: 60 %"
    assert reason_text(reason, log_odds=True).startswith("+0.71 log-odds: ")


@pytest.mark.parametrize(("share", "words"), [(None, "–"), (0.0, "0 %"), (0.004, "under 1 %"), (0.5, "50 %"), (1.0, "over 99 %")])
def test_nothing_is_ever_quite_certain(share, words):
    assert percent(share) == words


@pytest.mark.parametrize(
    ("by", "text"),
    [
        ("1000", "cancelled by its user"),
        ("wren", "cancelled by its user"),
        ("0", "cancelled by root: an administrator or Slurm itself"),
        ("1001", "cancelled by user 1001"),
        (None, "cancelled"),
    ],
)
def test_a_cancelled_job_says_who_cancelled_it(by: str | None, text: str) -> None:
    job = {"state": "CANCELLED", "user": "wren", "uid": 1000, "cancelled_by": by, "elapsed_s": 4.0}
    assert job_facts(job, never_started=False) == [text, "ran 4 s"]
