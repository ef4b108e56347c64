"""Settings of what is learnt and scored: jobs, CPU traces, events."""

from __future__ import annotations

import difflib
from typing import Literal

from pydantic import Field, field_validator

from stormpetrel.config.servers import Section
from stormpetrel.records.states import DEFAULT_FAILURE_STATES, JobState


class JobsSection(Section):
    """What counts as what."""

    failure_states: list[str] = Field(
        default=[state.value for state in DEFAULT_FAILURE_STATES], description="states that count as a failure"
    )
    dropped_states: list[str] = Field(default=[], description="states that are left out when a model learns, such as CANCELLED")
    threshold: float = Field(
        default=0.0, ge=0, le=1, description="risk from which a job is flagged; 0: the model's own, chosen on its latest jobs"
    )
    recalibrate: bool = Field(default=True, description="the watch moves the threshold by predictions that have settled")
    missed_cost: float = Field(default=0.0, ge=0, le=1e6, description="wrong flags that a missed failure is worth; 0: best F1")
    flags_per_day: float = Field(default=0.0, ge=0, description="flag so many jobs a day, the riskiest; 0: as the costs say")
    missing: Literal["drop", "impute"] = Field(
        default="impute", description="jobs with missing values in profiles: leave them out, or fill in the median"
    )
    min_run_s: float = Field(default=0.0, ge=0, description="leave out jobs that ran for less; 120 as in the literature")
    short_below_s: float = Field(default=3600.0, gt=0, description="a job is Short below this run time")
    long_above_s: float = Field(default=28800.0, gt=0, description="a job is Long above this run time")
    answers: bool = Field(
        default=True, description="what administrators answered on single jobs (alarms ask) counts when a model is trained"
    )
    new_below_jobs: int = Field(default=10, ge=0, description="a user is New below this number of jobs")
    frequent_from_jobs: int = Field(default=100, ge=0, description="a user is Frequent from this number of jobs on")
    memory_factor: float = Field(
        default=2.0, ge=1, description="a job is Memory (Compute) above (below) this many times the site's memory per CPU"
    )

    prior: bool = Field(
        default=True, description="the prior (general experience) judges until the site has a model, which begins with it"
    )
    outlook: bool = Field(
        default=True, description="also learn what jobs need and how long they wait, and show it with `check`, `why` and jobs"
    )
    similar_names: bool = Field(
        default=False,
        description="new names and scripts begin with the history of similar ones; never with store.pseudonymise_users",
    )
    read_output: bool = Field(default=False, description="let `why` read the end of a failed job's own output; it is never kept")
    output_folders: list[str] = Field(
        default=["/home"], description="output is read only below these folders, and only files of the job's own user"
    )

    @field_validator("failure_states", "dropped_states")
    @classmethod
    def _known_states(cls, states: list[str]) -> list[str]:
        for state in states:
            if state not in set(JobState):
                close = difflib.get_close_matches(state, list(JobState), n=1)
                hint = f", did you mean '{close[0]}'?" if close else ""
                raise ValueError(f"'{state}' is not a job state{hint} Known: {', '.join(JobState)}")
        return states


class TracesSection(Section):
    """What the models of CPU traces see."""

    window_s: float = Field(default=100.0, gt=0, description="length of a window; `traces sampling` says which one fits the site")
    model: Literal["vanilla", "node_gnn", "job_gnn", "fast"] = Field(
        default="fast",
        description="which autoencoder scores: threads alone (`vanilla`, `fast`), with their node's, or with their job's",
    )
    alarm_share: float = Field(
        default=0.001, gt=0, lt=1, description="share of calm windows that may be flagged; promised once enough of them were seen"
    )
    watch: bool = Field(default=True, description="whether the watch reads and scores the CPU counters of prometheus.url")
    rotation: int = Field(
        default=32,
        ge=1,
        le=1024,
        description="when the watch cannot keep up, it judges each node at least in every so many windows; 1: always all nodes",
    )
    most_threads: int = Field(
        default=150_000,
        ge=1,
        description="threads that the watch reads in one window at most, 25 kB of memory each; of more, each node in its turn",
    )
    keep_windows_mb: float = Field(
        default=1500.0,
        gt=0,
        description="megabytes of windows that the watch keeps a day: all, or those of flagged nodes and of a sample of nodes",
    )
    keep_scores_mb: float = Field(
        default=150.0,
        gt=0,
        description="megabytes of scores that the watch keeps a day: all, or flagged ones, those of kept windows, and a sample",
    )


class EventsSection(Section):
    """The alarm for the cluster as a whole."""

    bucket_minutes: int = Field(
        default=60, ge=1, le=1440, description="events are counted per this many minutes; a day holds a whole number"
    )
    kinds: list[str] = Field(
        default=[],
        description="event kinds that the models see; empty: HTCondor's 13, or what job records can tell on a Slurm site",
    )
    model: Literal["auto", "supervised", "unsupervised", "combined"] = Field(
        default="auto",
        description="supervised learns from labelled outages, unsupervised forecasts, combined is both; auto: the best measured",
    )
    alarms_per_week: float = Field(default=1.0, gt=0, le=100, description="false alarms that calm operation may raise in a week")
    sequence_hours: float = Field(default=24.0, gt=0, le=336, description="how far back the recurrent network sees")
    since: str = Field(default="", description="first moment to read, YYYY-MM-DD; empty: 180 days before the first run")
    settle_minutes: float = Field(default=10.0, ge=0, description="a bucket is read this long after its end: events come late")
    overlap_hours: float = Field(default=26.0, ge=0, description="how far before its cursor a run counts again: late events")
    fast_failure_s: float = Field(default=60.0, gt=0, description="a job that fails within this time of its start failed fast")
    most_places: int = Field(
        default=100, ge=5, le=10000, description="sites, hosts, groups, nodes kept per bucket and kind; the rest is one"
    )

    @field_validator("model", mode="before")
    @classmethod
    def _retired_model(cls, model: object) -> object:
        return "auto" if model == "recurrent_forecast" else model  # it lost to the default everywhere, and is no longer there

    @field_validator("bucket_minutes")
    @classmethod
    def _divides_a_day(cls, minutes: int) -> int:
        if 1440 % minutes:
            raise ValueError(f"{minutes} minutes do not divide a day; such as 1, 5, 15, 30, 60, 360 or 1440 do")
        return minutes
