"""What the section [jobs] means is read once."""

from stormpetrel.config import JobsSection
from stormpetrel.lifecycle.job_models import limits_of, preparation_of, training_of

SECTION = JobsSection(failure_states=["TIMEOUT"], dropped_states=["CANCELLED"], min_run_s=120, missing="drop", memory_factor=3)


def test_preparing_and_training_leave_out_the_same_jobs():
    preparation, training = preparation_of(SECTION, "Europe/Berlin"), training_of(SECTION, "Europe/Berlin")
    for name in ("failure_states", "dropped_states", "min_run_s", "time_zone"):
        assert getattr(preparation, name) == getattr(training, name)
    assert (preparation.dropped_states, preparation.min_run_s, preparation.missing) == (("CANCELLED",), 120, "drop")


def test_no_shortest_run_is_none_and_not_zero():
    assert preparation_of(JobsSection(), "UTC").min_run_s is None and training_of(JobsSection()).min_run_s is None


def test_limits_of_groups_are_those_of_the_settings():
    assert limits_of(SECTION).mem_factor == 3 and limits_of(SECTION).short_below_s == SECTION.short_below_s
