"""Comparison with people alike: at the same mix, over people, and never with so few that one could be recognised."""

from __future__ import annotations

import polars as pl
import pytest

from stormpetrel.answers.personal.peers import FEWEST, FEWEST_JOBS, compare

SCHEMA = {"user": pl.String, "account": pl.String, "application": pl.String, "judged": pl.Int64, "judged_failed": pl.Int64}


def days(*rows: tuple[str, str, str, int, int]) -> pl.DataFrame:
    """user, account, application, judged, judged_failed."""
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def others(
    n: int, application: str, *, account: str = "lab", jobs: int = 10, failed: int = 1
) -> list[tuple[str, str, str, int, int]]:
    return [(f"{account}-{application}-{k}", account, application, jobs, failed) for k in range(n)]


def test_each_job_is_compared_with_its_own_application_in_its_own_account():
    rate = compare(
        days(
            ("ada", "lab", "fit", 30, 30),
            ("ada", "lab", "scan", 10, 0),
            *others(5, "fit", failed=2),
            *others(6, "scan", failed=6),
        ),
        "ada",
    )
    assert rate is not None and rate.rate == pytest.approx(0.75 * 0.2 + 0.25 * 0.6)
    assert (rate.fewest, rate.compared, rate.levels) == (5, 1.0, {"account+application": 1.0})
    assert rate.by_application == {"fit": 0.2, "scan": 0.6}


def test_where_a_group_is_too_small_a_larger_one_is_taken():
    elsewhere = others(5, "fit", account="other", failed=3)
    rate = compare(days(("ada", "lab", "fit", 10, 0), *others(FEWEST - 1, "fit"), *elsewhere), "ada")
    assert rate is not None and rate.levels == {"application": 1.0} and rate.fewest == 9
    rate = compare(days(("ada", "lab", "fit", 10, 0), *others(3, "x"), *others(2, "y", failed=6)), "ada")
    assert rate is not None and (rate.levels, rate.rate) == ({"account": 1.0}, 0.3)


@pytest.mark.parametrize("n", range(FEWEST))
def test_of_fewer_than_five_others_nothing_is_said(n: int):
    assert compare(days(("ada", "lab", "fit", 10, 0), *others(n, "fit")), "ada") is None


def test_people_with_a_job_or_two_do_not_count_and_nobody_weighs_more_for_having_many():
    assert compare(days(("ada", "lab", "fit", 10, 0), *others(9, "fit", jobs=FEWEST_JOBS - 1)), "ada") is None
    rate = compare(days(("ada", "lab", "fit", 10, 0), *others(4, "fit", failed=0), ("bo", "lab", "fit", 100_000, 100_000)), "ada")
    assert rate is not None and rate.rate == 0.2


def test_only_whole_per_cent_are_told():
    rate = compare(days(("ada", "lab", "fit", 10, 0), *others(7, "fit", jobs=7, failed=1)), "ada")
    assert rate is not None and rate.rate == 0.14


def test_who_has_no_jobs_is_not_compared():
    assert compare(days(*others(9, "fit")), "ada") is None
    assert compare(days(), "ada") is None
