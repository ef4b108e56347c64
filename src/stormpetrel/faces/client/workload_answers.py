"""The workload as the API tells it: dictionaries with the names of its OpenAPI document; times are ISO text in UTC."""

from __future__ import annotations

from typing import Any, TypedDict


class WorkloadGroup(TypedDict):
    """Users that can be asked for by a name; the names are the generator's, not the site's."""

    name: str
    words: str


class WorkloadGenerator(TypedDict):
    """The generator in use."""

    training: str
    generator: str
    fitted_at: str
    jobs: int
    since: str | None
    until: str
    table_version: int | None
    columns: list[str]
    groups: list[WorkloadGroup]
    scorecard: dict[str, Any] | None
    scored_jobs: int | None
    not_scored: str


class WorkloadFitting(TypedDict):
    """How far the fitting of another generator is, as it was last asked for on the page."""

    running: bool
    share: float
    words: str
    problem: str


class WorkloadTold(TypedDict):
    """The generator of the site's workload: which is in use, and how good it is."""

    as_of: str
    generator: WorkloadGenerator | None
    fitting: WorkloadFitting


class WorkloadWish(TypedDict, total=False):
    """Which jobs are to be made: `jobs` or `days`, and what should be different from the log that was learnt from."""

    jobs: int | None
    days: float | None
    seed: int
    start: str | None
    users: float
    gpu_jobs: float
    group: str | None
    later_years: float
    waits: bool
    cores: int | None
    format: str
