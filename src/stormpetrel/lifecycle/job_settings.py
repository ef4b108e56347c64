"""What a site's section [jobs] means for preparing jobs, training on them and grouping them.

JobsSection + time zone -> preparation_of -> PreparationSettings; training_of -> TrainingSettings; limits_of -> GroupLimits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stormpetrel.jobs.groups import GroupLimits
from stormpetrel.jobs.preparation import PreparationSettings

if TYPE_CHECKING:
    from stormpetrel.config import JobsSection
    from stormpetrel.jobs.training import TrainingSettings


def preparation_of(section: JobsSection, time_zone: str, *, allocation_as_request: bool = False) -> PreparationSettings:
    """Return how jobs are prepared; `allocation_as_request` is for logs that tell no requests."""
    return PreparationSettings(
        missing=section.missing,
        min_run_s=section.min_run_s or None,
        time_zone=time_zone,
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
        allocation_as_request=allocation_as_request,
    )


def training_of(section: JobsSection, time_zone: str = "UTC") -> TrainingSettings:
    """Return how models of jobs are trained."""
    from stormpetrel.jobs.training import TrainingSettings

    return TrainingSettings(
        failure_states=tuple(section.failure_states),
        dropped_states=tuple(section.dropped_states),
        time_zone=time_zone,
        min_run_s=section.min_run_s or None,
    )


def limits_of(section: JobsSection) -> GroupLimits:
    """Return where one group of users or jobs ends and the next begins."""
    return GroupLimits(
        short_below_s=section.short_below_s,
        long_above_s=section.long_above_s,
        new_below_jobs=section.new_below_jobs,
        frequent_from_jobs=section.frequent_from_jobs,
        mem_factor=section.memory_factor,
    )
