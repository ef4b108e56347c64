"""Jobs and predictions as the API tells them: dictionaries with the names of its OpenAPI document; times are ISO text in UTC."""

from __future__ import annotations

from typing import Any, TypedDict


class PredictionRequest(TypedDict, total=False):
    """A job as it would be submitted; what is left out is not known."""

    user: str | None
    job_name: str | None
    account: str | None
    partition: str | None
    qos: str | None
    cpus: int
    nodes: int
    gpus: int | None
    memory_bytes: int | None
    time_limit_s: float | None
    work_dir: str | None
    script_path: str | None
    array_task: int | None


class Prediction(TypedDict):
    """How likely a job is to fail, if it were submitted now."""

    risk: float
    flagged: bool
    threshold: float
    known: bool
    outcomes: dict[str, float]
    likeliest: str | None
    profile: str | None
    model_version: int
    base: float | None
    base_risk: float | None
    reasons: list[Reason] | None


class Reason(TypedDict):
    """One reason for or against a failure."""

    feature: str
    words: str
    contribution: float
    value: float | None
    points: float


class ClusterProblem(TypedDict):
    """One thing about a script that does not fit the cluster, and the smallest change that does."""

    rule: str
    never_runs: bool
    words: str
    change: str
    column: str | None
    proposed: int | float | str | None
    line: str | None


class ClusterFit(TypedDict):
    """Whether the cluster can run a script at all."""

    can_run: bool | None
    problems: list[ClusterProblem]
    read_at: str | None
    age_s: float | None
    note: str | None


class ScriptAnswer(TypedDict):
    """What is to be said about a script; the same as `stormpetrel check --json`."""

    script: str
    kind: str
    request: dict[str, int | float | str | bool | None]
    warnings: list[str]
    cluster: ClusterFit | None
    risk: float | None
    flagged: bool | None
    threshold: float | None
    known: bool | None
    outcomes: dict[str, float] | None
    likeliest: str | None
    base_risk: float | None
    profile: str | None
    reasons: list[Reason] | None
    advice: list[Advice]
    notes: list[str]


class Advice(TypedDict):
    """One change of a request that past jobs support."""

    column: str | None
    now: int | float | str | None
    proposed: int | float | str | None
    sentence: str
    evidence: list[str]
    support: int
    kind: str
    saves: bool
    risk_before: float | None
    risk_after: float | None
    line: str | None


class JobRow(TypedDict):
    """A job with the latest that was said about it."""

    ref: str
    cluster: str | None
    job_id: int | None
    array_task: int | None
    submit_time: str | None
    restart: int | None
    user: str | None
    account: str | None
    partition: str | None
    job_name: str | None
    state: str | None
    start_time: str | None
    end_time: str | None
    elapsed_s: float | None
    cpus: int | None
    nodes: int | None
    time_limit_s: float | None
    req_mem_bytes: int | None
    max_rss_bytes: int | None
    moment: str | None
    moment_time: str | None
    predicted_at: str | None
    late: bool | None
    model_version: int | None
    risk: float | None
    flagged: bool | None
    known: bool | None
    likeliest: str | None
    profile: int | None
    job: str
    prediction: str | None
    confidence: float | None
    first_risk: float | None
    failed: bool | None
    never_started: bool | None
    waiting: str | None
    waiting_words: str | None
    never_runs: bool


class Waiting(TypedDict):
    """What the scheduler says of a job that has not started."""

    kind: str
    reason: str
    never_runs: bool
    sentence: str
    change: str | None
    command: str | None
    waits_for: list[str]


class JobPage(TypedDict):
    """Some jobs, and how many there are in all."""

    items: list[JobRow]
    total: int
    page: int
    next: str | None


class JobList(TypedDict):
    """Jobs that were found, the latest first; at most fifty."""

    items: list[JobRow]


class JobInFull(TypedDict):
    """Everything there is to say about one job."""

    ref: str
    job: dict[str, Any]
    overview: JobRow
    waiting: Waiting | None
    predictions: list[StoredPrediction]
    next: Advice | None
    advice: list[Advice]
    profile: ProfileComparison | None
    history: UserHistory
    earlier: list[Try]
    later: list[Try]
    notes: list[str]


class StoredPrediction(TypedDict):
    """What was said about a job at one of its moments; it is never changed afterwards."""

    moment: str
    moment_time: str
    as_of: str
    predicted_at: str
    late: bool
    model_version: int
    risk: float
    threshold: float
    flagged: bool
    known: bool
    likeliest: str | None
    likeliest_probability: float | None
    base: float | None
    base_risk: float | None
    reasons: list[StoredReason]


class StoredReason(TypedDict):
    """One reason for a risk, as it was given then."""

    feature: str
    words: str
    contribution: float | None
    points: float | None


class ProfileComparison(TypedDict):
    """What kind of job it is, and where its figures stand among jobs of that kind."""

    profile: int
    words: str
    jobs: int
    failed_share: float | None
    figures: dict[str, ProfileFigure]


class ProfileFigure(TypedDict):
    """A figure of the job beside the quartiles of jobs with the same profile; null where nobody knows it."""

    value: float | None
    low: float | None
    median: float | None
    high: float | None


class UserHistory(TypedDict):
    """What its user had submitted before."""

    user: str | None
    jobs: int
    ended: int
    failed: int
    never_started: int
    recent: list[JobRow]


class Change(TypedDict):
    """What was changed in the request from one try to the next."""

    column: str
    before: Any
    after: Any


class Try(TypedDict):
    """Another run of the same work; changes and risks are told from the earlier of the two jobs to the later one."""

    ref: str
    job: str
    state: str | None
    failed: bool | None
    submit_time: str
    changes: list[Change]
    risk_before: float | None
    risk_after: float | None


class Explanation(TypedDict):
    """What was said about a job at each of its moments, and why."""

    ref: str
    predictions: list[StoredPrediction]
    notes: list[str]


class JobAdvice(TypedDict):
    """What to ask for instead, or next time, with the evidence."""

    ref: str
    next: Advice | None
    advice: list[Advice]
    notes: list[str]
