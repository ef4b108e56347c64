"""What is said about a job in words."""

from types import SimpleNamespace

import pytest

from stormpetrel.faces.dashboard.pages.job_sections import headline, value_text


def said(**changed):
    values = {"moment": "2min", "risk": 0.87, "flagged": True, "likeliest": "OUT_OF_MEMORY", "known": True, "late": False}
    return SimpleNamespace(model_version=3, threshold=0.44, **{**values, **changed})


def details(state, *predictions, failed=None, elapsed_s=None, waiting=None):
    overview = SimpleNamespace(state=state, elapsed_s=elapsed_s, failed=failed, never_started=None)
    return SimpleNamespace(overview=overview, predictions=predictions, waiting=waiting)


def test_a_job_at_risk_is_told_with_its_risk_and_the_likeliest_outcome():
    told = headline(details("RUNNING", said()))
    assert told.words == "87\u00a0% risk of failing, flagged (threshold 44\u00a0%); if it fails: out of memory."
    assert told.tone == "fail"


def test_a_job_that_is_not_flagged_is_told_with_its_risk_of_failing_as_well():
    told = headline(details("PENDING", said(risk=0.12, flagged=False)))
    assert told.words.startswith("12\u00a0% risk of failing, not flagged")
    assert told.tone == "complete"


def test_the_forecast_of_a_job_that_cannot_run_is_said_as_a_condition():
    told = headline(details("PENDING", said(risk=0.12, flagged=False), waiting=SimpleNamespace(never_runs=True)))
    assert told.words.startswith("If it could run: 12\u00a0% risk of failing") and told.tone == "open"


@pytest.mark.parametrize(
    ("failed", "flagged", "words"), [(True, True, "Flagged in time"), (True, False, "Missed"), (False, True, "False alarm")]
)
def test_a_job_that_is_over_is_held_against_its_forecast(failed, flagged, words):
    told = headline(details("TIMEOUT" if failed else "COMPLETED", said(flagged=flagged), failed=failed, elapsed_s=720.0))
    assert told.words.endswith("after 12 min.")
    assert told.behind.startswith(words)


def test_a_job_cancelled_in_the_queue_was_cancelled_before_it_started():
    job = details("CANCELLED", said(), elapsed_s=0.0)
    job.overview.never_started = True
    assert headline(job).words == "This job was cancelled before it started."
    assert (headline(job).behind, headline(job).tone) == ("", "open")


def test_a_job_of_which_nothing_was_said_says_so():
    assert "nothing was predicted" in headline(details("RUNNING")).words
    assert headline(details("COMPLETED", failed=False)).behind == ""


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("req_mem_bytes", 2**34, "16 GB"),
        ("elapsed_s", 90.0, "1 min 30 s"),
        ("cpus", 1200, "1,200"),
        ("partition", "batch", "batch"),
    ],
)
def test_values_carry_their_units(column, value, words):
    assert value_text(column, value).replace("\u00a0", " ") == words
