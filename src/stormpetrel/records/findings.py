"""Findings: what one watcher saw, in figures, and when it could be known.

A finding is about one subject in the first place (a node, a user, a cluster). Nothing in it is a sentence: sentences are made of
incidents, in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class SubjectKind(StrEnum):
    """What can be in trouble."""

    NODE = "node"
    JOB = "job"
    USER = "user"
    GROUP = "group"  # of users: an account, an accounting group
    APPLICATION = "application"
    PARTITION = "partition"
    SUBMIT_HOST = "submit_host"
    CLUSTER = "cluster"
    SOURCE = "source"  # of records: accounting, a Prometheus, an event log


class FindingKind(StrEnum):
    """What was seen; of several in one incident, the first here tells most."""

    NODE_EATS_JOBS = "node_eats_jobs"
    NODE_DOWN = "node_down"
    SILENCE = "silence"  # a submit host, or a whole cluster, of which nothing is heard any more
    SOURCE_GONE = "source_gone"  # records are not to be had: nothing can be said about what they would tell
    CLOCK_AHEAD = "clock_ahead"  # this machine's clock is ahead of that of a source, or the source tells late
    BATCH_FAILS = "batch_fails"
    TIMEOUT_WAVE = "timeout_wave"
    OOM_WAVE = "oom_wave"
    HOLD_WAVE = "hold_wave"
    SHADOW_WAVE = "shadow_wave"  # HTCondor's shadows lose their jobs
    COUNTS_ODD = "counts_odd"  # events of jobs are other than expected
    WINDOWS_KNOWN = "windows_known"  # CPU traces of a node look like a trouble that somebody has named before
    WINDOWS_ODD = "windows_odd"  # CPU traces of a node are unlike the others'


class Unit(StrEnum):
    """What a figure counts; counts of new things add up over findings, of the rest the latest is kept."""

    JOBS = "jobs"
    SHARE = "share"
    COUNT = "count"
    EVENTS = "events"
    SECONDS = "seconds"
    NATS = "nats"  # natural logarithm of a ratio of likelihoods


@dataclass(frozen=True, slots=True, order=True)
class Subject:
    """Somebody or something that a finding is about."""

    kind: SubjectKind
    name: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One figure. Of `Unit.JOBS` those are counted that no earlier finding of the same kind and subject has counted."""

    name: str
    value: float
    unit: Unit


@dataclass(frozen=True, slots=True)
class Finding:
    """What one watcher saw. Times are UTC.

    `decided_at` is the time of the record that decided it: nothing later went into the decision. `known_at` is when the watcher
    looked, so never before that. `until` is the time of the newest record in it. `jobs` are the lost jobs in it (references as in
    `records/jobs.py`), the first `deciding_jobs` of them those that had ended at `decided_at`. `users` are those whose jobs
    they are: who may see it. It `continues` the finding of its kind and subjects before it if the trouble has not paused since.
    """

    family: str
    rule: str  # its name and version, node_eats_jobs/1; of a model its name and version
    kind: FindingKind
    cluster: str
    subjects: tuple[Subject, ...]  # the first is what it is about, others are involved
    since: datetime
    decided_at: datetime
    until: datetime
    known_at: datetime
    score: float  # higher is more abnormal
    threshold: float
    evidence: tuple[Evidence, ...]
    jobs: tuple[str, ...] = ()
    deciding_jobs: int = 0
    users: tuple[str, ...] = ()
    label: str = ""  # what was counted, where the kind does not say it: an event's kind
    continues: bool = False

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return self.subjects[0]

    def figure(self, name: str) -> float:
        """The value of one figure of the evidence; 0 where it has none."""
        return next((figure.value for figure in self.evidence if figure.name == name), 0.0)

    def has_figure(self, name: str) -> bool:
        """Whether a figure was measured: one that was not is no zero."""
        return any(figure.name == name for figure in self.evidence)
