"""Jobs over HTTP: every job once, in the order that was asked for, and what was said about each."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

import polars as pl
import pytest

from stormpetrel.answers.jobs.details import job_details
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.records.jobs import JobRef, ref_text


@pytest.fixture(scope="module")
def failed_job(world):
    """The reference of a job that was judged, and ran out of something."""
    ended = pl.col("state").is_in(["OUT_OF_MEMORY", "TIMEOUT"]) & pl.col("risk").is_not_null()
    return world.jobs.filter(ended).select(ref_text())["ref"][0]


def walked(world, query, **options):
    """Every item of every page, by the links of the pages."""
    items, following = [], query
    while following is not None:
        page = world.get(f"/jobs{following}", **options)
        items += page["items"]
        following = page["next"]
    assert len(items) == page["total"]
    return items


@pytest.mark.parametrize("sort", ["submit_time", "-submit_time", "-risk", "user", "state", "-job", "array_task"])
def test_the_pages_hold_every_job_exactly_once(world, sort):
    refs = [item["ref"] for item in walked(world, f"?limit=333&sort={sort}")]
    assert sorted(refs) == sorted(world.jobs.select(ref_text())["ref"])
    assert len(set(refs)) == len(refs)


def test_the_pages_are_sorted_and_unknown_values_come_last(world):
    risks = [item["risk"] for item in walked(world, "?limit=1000&sort=-risk")]
    told = [risk for risk in risks if risk is not None]
    assert told == sorted(told, reverse=True) and risks == told + [None] * (len(risks) - len(told))


def test_filters_hold_together(world):
    user = world.users()[0]
    found = walked(world, f"?user={user}&flagged=true&risk_min=0.3&state=FAILED&state=TIMEOUT&state=OUT_OF_MEMORY&limit=100")
    expected = world.jobs.filter(
        pl.col("user") == user, "flagged", pl.col("risk") >= 0.3, pl.col("state").is_in(["FAILED", "TIMEOUT", "OUT_OF_MEMORY"])
    )
    assert found and {item["ref"] for item in found} == set(expected.select(ref_text())["ref"])


def test_times_are_bounds_that_belong_to_the_span(world):
    moments = world.jobs["submit_time"].sort()
    first, last = moments[len(moments) // 3], moments[len(moments) // 2]
    query = f"?submitted_since={_text(first)}&submitted_until={_text(last)}&limit=1000"
    expected = world.jobs.filter(pl.col("submit_time").is_between(first, last))
    assert world.get(f"/jobs{query}")["total"] == expected.height


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}Z"


def test_the_search_finds_ids_from_their_start_and_names(world):
    job = world.jobs.row(5, named=True)
    assert any(item["job"] == job["job"] for item in world.get(f"/jobs?search={job['job']}")["items"])
    assert world.get(f"/jobs?search={quote(job['job_name'][:4])}")["total"] > 0
    assert world.get("/jobs?search=%25%5C%27no-such-thing")["items"] == []


@pytest.mark.parametrize(
    "query",
    ["?limit=1001", "?limit=0", "?page=0", "?sort=password", "?limt=3", "?state=BROKEN", "?risk_min=2", "?submitted_since=0"],
)
def test_a_question_that_makes_no_sense_is_refused(world, query):
    refused = world.ask("GET", f"/jobs?{query}")
    assert refused.status_code == 422 and refused.json()["error"]["what"]


def test_a_job_is_told_in_full(world, failed_job):
    told = world.get(f"/jobs/{failed_job}")
    expected = job_details(world.live, LOCAL, JobRef.parse(failed_job)).model_dump(mode="json")
    assert told["job"] == expected["job"]
    assert [one["risk"] for one in told["predictions"]] == [one["risk"] for one in expected["predictions"]]
    assert told["next"] == expected["next"] and told["advice"] == expected["advice"]
    assert told["overview"]["ref"] == told["ref"] == failed_job
    parts = world.get(f"/jobs/{failed_job}/explanation") | world.get(f"/jobs/{failed_job}/advice")
    assert parts == {name: told[name] for name in parts}
    assert told["predictions"][0]["reasons"][0]["words"]


def test_advice_on_a_job_is_that_of_the_command_line(world, failed_job):
    told = world.get(f"/jobs/{failed_job}/advice")
    said = explain_job(world.site, LOCAL, JobRef.parse(failed_job).job, now=world.live.now()).model_dump(mode="json")
    assert (told["next"], told["advice"]) == (said["next"], said["advice"])
    assert told["next"]["sentence"]


def test_a_job_is_found_by_its_id(world):
    job = world.jobs.row(0, named=True)["job"]
    assert [item["job"] for item in world.get(f"/find?id={job}")["items"]] == [job]
    assert world.get("/find?id=99999999999")["items"] == []


@pytest.mark.parametrize("ref", ["12-1794746400000000-0-small", "9" * 18 + "-99999999999999999-0-x"])
def test_a_job_that_is_not_there_is_not_there(world, ref):
    refused = world.ask("GET", f"/jobs/{ref}")
    assert refused.status_code == 404 and set(refused.json()["error"]) == {"what", "hint"}


def test_times_are_utc_and_numbers_are_numbers(world):
    item = world.get("/jobs?limit=1&sort=-risk")["items"][0]
    assert item["submit_time"].endswith("Z") and isinstance(item["risk"], float) and len(str(item["risk"])) <= 8
