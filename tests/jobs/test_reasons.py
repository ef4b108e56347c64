"""Reasons: features in words, and sums that stay exact."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stormpetrel.jobs.features import FeatureMatrix, features_at
from stormpetrel.jobs.history.history import History
from stormpetrel.jobs.model import Explained
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.reasons import count_reasons, feature_text, points_of_risk, reasons, risk_at, span
from tests.jobs.logs import make_log

NAMES = ("user.failed_rate_1h", "user.failed_rate_4d", "user.ended_total", "request.cpus")


def explained(contributions, values):
    features = FeatureMatrix(Moment.SUBMIT, NAMES, np.array([values], dtype=np.float32))
    return Explained(NAMES, np.array([contributions], dtype=np.float32), -2.0), features


def test_features_that_say_the_same_are_told_once_and_their_sum_is_kept():
    found = reasons(*explained([0.1, 0.5, 0.0, -0.3], [0.2, 0.6, 3.0, 1.4]))
    assert found[0].feature == "user.failed_rate_4d" and found[0].contribution == pytest.approx(0.6)
    assert sum(reason.contribution for reason in found) == pytest.approx(0.3)
    assert found[0].words == "failure rate of this user's jobs, last days: 60 %"


def test_a_rate_of_nobody_is_not_told_as_a_fact():
    found = reasons(*explained([0.1, 0.5, 0.0, -0.3], [0.2, 0.2, 0.0, 1.4]))
    assert found[0].words == "none of this user's jobs has ended yet"


def test_every_feature_of_every_moment_has_words():
    matrices = features_at(make_log(60), History(), MOMENTS)
    for matrix in matrices.values():
        for name, value in zip(matrix.names, matrix.values[-1], strict=True):
            words = feature_text(name, float(value))
            assert words.rpartition(": ")[2] and "." not in words.partition(":")[0], (name, words)
            assert "unknown" in feature_text(name, float("nan"))


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (59, "59 s"), (600, "10 min"), (5400, "1.5 h"), (864000, "10 d")])
def test_a_span_is_said_as_a_person_says_it(seconds, words):
    assert span(seconds) == words


CONTRIBUTIONS = st.lists(st.floats(-4, 4).map(lambda part: round(part, 3)), min_size=1, max_size=12)


@given(CONTRIBUTIONS, st.floats(-6, 4))
def test_points_have_the_sign_and_the_order_of_the_log_odds_and_lead_from_the_average_risk_to_this_one(parts, base):
    assume(abs(base + sum(parts)) < 27)  # log-odds are cut off beyond
    risk = risk_at(base + sum(parts))
    points = points_of_risk(parts, base, risk)
    assert np.all(np.sign(points) == np.sign(parts))
    assert np.all(np.diff(np.abs(points)[np.argsort(np.abs(parts), kind="stable")]) >= -1e-9)
    assert points.sum() == pytest.approx(100 * (risk - risk_at(base)), abs=1e-6)


@given(st.floats(-40, 40), st.floats(-40, 40))
def test_points_are_finite_also_where_a_risk_is_next_to_certain(base, part):
    assert np.isfinite(points_of_risk([part, -part], base, risk_at(base + part))).all()


def test_the_points_of_all_reasons_lead_to_the_risk_of_the_job():
    found = reasons(*explained([0.1, 0.5, 0.0, -0.3], [0.2, 0.6, 3.0, 1.4]))
    assert sum(reason.points for reason in found) == pytest.approx(100 * (risk_at(-2.0 + 0.3) - risk_at(-2.0)), abs=1e-4)


def test_the_strongest_reasons_alone_are_the_first_of_all_and_the_others_are_counted():
    case = explained([0.1, 0.5, 0.0, -0.3], [0.2, 0.6, 3.0, 1.4])
    assert reasons(*case, top=2) == reasons(*case)[:2]
    assert count_reasons(NAMES) == len(reasons(*case)) == 3
