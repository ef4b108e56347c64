"""Training beside the loop: when it is due, what it says, and that a failure changes nothing."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest

from stormpetrel.config import load_settings
from stormpetrel.lifecycle.job_models import training_settings
from stormpetrel.lifecycle.live import current_versions
from stormpetrel.lifecycle.nightly import LAST_NIGHT
from stormpetrel.lifecycle.training_needs import training_needs
from stormpetrel.watch import training as watch_training
from stormpetrel.watch.loop import Watch
from stormpetrel.watch.training import TrainingSchedule
from tests.parts.made_once import made_once
from tests.parts.watched_site import START, TRAINED, make_watched_site, move_clock

LATER = TRAINED + timedelta(days=1)
PROMETHEUS = "http://127.0.0.1:9"  # nobody is asked: whether a night is due is read from the state


@pytest.fixture
def eager(prepared, copied):
    """The site, told to train every hour on whatever has ended, a day after its last training."""
    return copied(prepared, watch={"retrain_hours": 1.0, "retrain_min_jobs": 5})


@pytest.fixture
def new_site(tmp_path_factory, copied):
    """A site that nobody has trained, an hour after its first job ended; with settings of the section `watch`."""
    new = made_once(tmp_path_factory, "watched-site-new", _make_new)
    return lambda **watch: copied(new, watch={"retrain_hours": 24.0, **watch})


def _make_new(folder):
    make_watched_site(folder, trained=False, now=START + timedelta(hours=6)).close()


def result_of(schedule: TrainingSchedule, now) -> dict:
    give_up = time.monotonic() + 120
    while (report := schedule.finished(now)) is None:
        assert time.monotonic() < give_up, "the training does not end"
        time.sleep(0.02)
    return report


def test_it_is_due_when_time_has_passed_and_jobs_have_ended_and_not_right_after_the_start(eager):
    schedule = TrainingSchedule(eager)
    assert not schedule.due(TRAINED + timedelta(minutes=30))
    move_clock(eager, LATER)
    assert not TrainingSchedule(eager).due(LATER), "a watcher that has just been started has jobs to catch up with"
    assert not schedule.due(LATER), "nothing has been read since"
    Watch(eager).step()
    assert not schedule.due(LATER), "it does not count jobs at every turn"
    assert schedule.due(LATER + timedelta(minutes=6))


def test_a_site_without_a_model_is_trained_as_soon_as_there_are_jobs(untrained, copied):
    site = copied(untrained, watch={"retrain_hours": 24.0})
    schedule = TrainingSchedule(site)
    assert schedule.due(TRAINED)
    schedule.start()
    assert not schedule.due(TRAINED), "one at a time"
    assert "first model" in result_of(schedule, TRAINED)["why"]
    assert set(current_versions(site).values()) == {1}
    watch = Watch(site)
    move_clock(site, TRAINED + timedelta(hours=6))
    assert watch.step().predictions.height, "what it learnt is used at once"


def test_a_new_site_says_what_it_waits_for_and_how_long_that_will_take(new_site):
    site = new_site(retrain_min_jobs=5000)
    schedule = TrainingSchedule(site)
    now = site.now()
    assert not schedule.due(now)
    words = schedule.missing_model(now)
    assert re.fullmatch(
        r"There is no job model yet: \d+ of 5,000 ended jobs, \d+ of 10 failed ones; at this pace in about \d+ (hours|days)"
        r"\. It is trained by itself then\. Until then general experience speaks \(prior-1\)\.",
        words,
    )


def test_a_site_that_trains_by_hand_says_how_to(new_site):
    site = new_site(retrain_hours=0.0)
    assert "Train it then: stormpetrel jobs train" in TrainingSchedule(site).missing_model(site.now())


def test_a_first_training_does_not_wait_for_a_day_to_pass(new_site, monkeypatch):
    monkeypatch.setattr(watch_training, "_COUNT_EVERY_S", 0.0)
    monkeypatch.setattr(watch_training, "_AT_MOST", 0.0)
    site = new_site(retrain_min_jobs=150)
    schedule = TrainingSchedule(site)
    assert not schedule.due(site.now()), "too few jobs have ended"
    for days in (1, 2, 3, 4, 5):
        move_clock(site, START + timedelta(days=days))
        Watch(site).step()
        if schedule.due(site.now()):
            break
    enough = training_needs(site, training_settings(site.settings), until=site.now())
    assert schedule.due(site.now()) and enough.is_enough(150), "it is due at the first look that shows enough"


def test_a_training_that_was_refused_is_tried_again_within_the_hour(new_site):
    site = new_site(retrain_min_jobs=1)
    schedule = TrainingSchedule(site)
    schedule.start()
    assert "too few jobs to learn from" in result_of(schedule, site.now())["why"]
    move_clock(site, START + timedelta(days=5))
    Watch(site).step()
    assert schedule.due(site.now())


def test_never_means_never(site):
    assert load_settings(site.folder).watch.retrain_hours == 0
    assert not TrainingSchedule(site).due(LATER + timedelta(days=300))


def test_a_training_that_dies_is_told_and_changes_nothing(eager):
    before = current_versions(eager)
    schedule = TrainingSchedule(eager)
    schedule.start()
    schedule._process.kill()
    report = result_of(schedule, LATER)
    assert "problem" in report
    assert current_versions(eager) == before
    move_clock(eager, LATER)
    Watch(eager).step()
    assert not schedule.due(LATER + timedelta(minutes=30)), "it is not tried again at once"
    assert schedule.due(LATER + timedelta(hours=2))


def test_a_watch_that_stops_ends_its_training(eager):
    schedule = TrainingSchedule(eager)
    schedule.start()
    process = schedule._process
    schedule.stop()
    assert process.returncode is not None


def tracing(copied, prepared, **watch):
    """A site that watches traces, whose jobs alone would not be trained for a year."""
    site = copied(prepared, watch={"retrain_hours": 24.0, "retrain_min_jobs": 10**6, **watch}, prometheus={"url": PROMETHEUS})
    schedule = TrainingSchedule(site)
    schedule._not_before = None  # the minutes after the start are over
    return site, schedule


def test_a_site_that_watches_traces_has_a_night_whenever_its_hours_are_over(prepared, copied):
    pytest.importorskip("onnxruntime")
    site, schedule = tracing(copied, prepared)
    assert schedule.due(LATER), "there was no night yet"
    site.state.set_fact(LAST_NIGHT, LATER.isoformat())
    assert not schedule.due(LATER + timedelta(hours=23))
    assert schedule.due(LATER + timedelta(hours=24, minutes=6))


def test_without_traces_no_night_is_due_for_them(prepared, copied):
    site = copied(prepared, watch={"retrain_hours": 24.0, "retrain_min_jobs": 10**6})
    schedule = TrainingSchedule(site)
    schedule._not_before = None
    assert not schedule.due(LATER)
    _, never = tracing(copied, prepared, retrain_hours=0.0)
    assert not never.due(LATER), "nothing is trained by itself"


def test_without_what_scores_traces_no_night_is_due_for_them(prepared, copied, monkeypatch):
    monkeypatch.setattr("stormpetrel.watch.trace_findings.find_spec", lambda _name: None)
    _, schedule = tracing(copied, prepared)
    assert not schedule.due(LATER)
