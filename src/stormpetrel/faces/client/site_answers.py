"""The site as the API tells it: dictionaries with the names of its OpenAPI document; times are ISO text in UTC."""

from __future__ import annotations

from typing import Any, TypedDict

from stormpetrel.faces.client.capacity_answers import Capacity as Capacity
from stormpetrel.faces.client.capacity_answers import CapacityForecast as CapacityForecast
from stormpetrel.faces.client.capacity_answers import CapacityGroup as CapacityGroup
from stormpetrel.faces.client.capacity_answers import CapacityWait as CapacityWait
from stormpetrel.faces.client.capacity_answers import CapacityWeek as CapacityWeek
from stormpetrel.faces.client.grid_answers import GridAlarm as GridAlarm
from stormpetrel.faces.client.grid_answers import GridBucket as GridBucket
from stormpetrel.faces.client.grid_answers import GridCounts as GridCounts
from stormpetrel.faces.client.grid_answers import GridGap as GridGap
from stormpetrel.faces.client.grid_answers import GridOutage as GridOutage
from stormpetrel.faces.client.grid_answers import GridOutages as GridOutages
from stormpetrel.faces.client.grid_answers import GridTold as GridTold
from stormpetrel.faces.client.node_answers import NodeRow as NodeRow
from stormpetrel.faces.client.node_answers import Nodes as Nodes
from stormpetrel.faces.client.node_answers import ScoredWindow as ScoredWindow
from stormpetrel.faces.client.node_answers import ThreadTrace as ThreadTrace
from stormpetrel.faces.client.node_answers import WindowTraces as WindowTraces
from stormpetrel.faces.client.workload_answers import WorkloadFitting as WorkloadFitting
from stormpetrel.faces.client.workload_answers import WorkloadGenerator as WorkloadGenerator
from stormpetrel.faces.client.workload_answers import WorkloadGroup as WorkloadGroup
from stormpetrel.faces.client.workload_answers import WorkloadTold as WorkloadTold
from stormpetrel.faces.client.workload_answers import WorkloadWish as WorkloadWish


class CancelPolicy(TypedDict):
    """What cancelling two minutes in would have done, replayed on what was forecast then."""

    as_of: str
    own_only: bool
    jobs: int
    failed_jobs: int
    ended_before: int
    best: PolicyPoint
    at: PolicyPoint | None
    points: list[PolicyPoint]


class Health(TypedDict):
    """How the site is; administrators see more."""

    worst: str
    as_of: str
    read_only: bool
    lines: list[HealthLine]
    sources: list[HealthSource]
    versions: dict[str, str]


class HealthLine(TypedDict):
    """One thing that was looked at."""

    part: str
    name: str
    level: str
    words: str
    advice: str


class HealthSource(TypedDict):
    """One of the watch's own reads, as it is now."""

    name: str
    watcher: str
    last_good_look: str | None
    lag_s: float | None
    records: int
    problem: str


class Model(TypedDict):
    """One version of one model."""

    name: str
    version: int
    current: bool
    about: dict[str, Any]


class Mover(TypedDict):
    """A group whose failure rate in the last period is not what it was before."""

    by: str
    group: str
    period: str
    jobs: int
    failed: int
    rate: float
    earlier_jobs: int
    earlier_failed: int
    earlier_rate: float
    p_value: float
    sentence: str


class OpinionKept(TypedDict):
    """The opinion as it was kept; a later one on the same advice replaces it."""

    job: str
    advice: str
    useful: bool


class PolicyPoint(TypedDict):
    """What one threshold would have done."""

    tau: float
    cancelled: int
    failed_cancelled: int
    wrong_kills: int
    saved_core_seconds: int
    wrong_core_seconds: int
    redo_core_seconds: int
    net_core_seconds: float
    wrong_share: float | None


class Profile(TypedDict):
    """One kind of jobs."""

    profile: int
    words: str
    jobs: int
    cpu_mean: float | None
    mem_gb_mean: float | None
    run_time_s_mean: float | None
    wait_time_s_mean: float | None
    duration: dict[str, int]
    activity: dict[str, int]
    status: dict[str, int]
    types: dict[str, int]


class Profiles(TypedDict):
    """The kinds of jobs that the site runs."""

    as_of: str
    own_only: bool
    version: int | None
    why: str
    jobs: int
    never_started: int
    profiles: list[Profile]


class QualityLine(TypedDict):
    """How good some settled predictions were; null where they cannot tell."""

    moment: str
    model_version: int | None
    n: int
    failed: int
    failed_share: float | None
    pr_auc: float | None
    roc_auc: float | None
    brier: float | None
    ece: float | None
    slope: float | None
    intercept: float | None
    precision: float | None
    recall: float | None
    f1: float | None
    flagged_share: float | None
    late_share: float | None
    base_pr_auc: float | None
    base_brier: float | None
    last_pr_auc: float | None
    last_precision: float | None
    last_recall: float | None
    last_f1: float | None
    first: str | None
    last: str | None


class QualityPoint(TypedDict):
    """The same of one period."""

    time: str
    n: int
    failed_share: float | None
    roc_auc: float | None
    pr_auc: float | None
    precision: float | None
    recall: float | None
    ece: float | None
    brier: float | None


class OptimisticTold(TypedDict):
    """Why figures that are made of the site's history look better than they are."""

    rule: str
    jobs: int
    ended: int
    why: str


class QualityTold(TypedDict):
    """How good the forecasts have been, out of live predictions whose jobs have ended. The figures are of everybody's jobs."""

    as_of: str
    since: str
    settled: int
    waiting: int
    never_started: int
    quality: list[QualityLine]
    moment: str
    over_time: list[QualityPoint]
    optimistic: OptimisticTold | None


class Training(TypedDict):
    """Models that were trained together and are used together."""

    name: str
    current: bool
    created: str
    trained_until: str
    why: str
    previous: str | None
    versions: dict[str, int]
    jobs: int | None
    code_version: str


class TrainingInFull(TypedDict):
    """A training with its models."""

    name: str
    current: bool
    created: str
    trained_until: str
    why: str
    previous: str | None
    versions: dict[str, int]
    jobs: int | None
    code_version: str
    models: list[Model]


class Trainings(TypedDict):
    """Every training that is kept, newest first."""

    trainings: list[Training]


class TrendPoint(TypedDict):
    """The failure rate of one group in one period, with its 95 % interval."""

    by: str
    every: str
    group: str
    period: str
    jobs: int
    failed: int
    rate: float
    low: float
    high: float


class Trends(TypedDict):
    """Failure rates over time."""

    by: str
    every: str
    group: str | None
    as_of: str
    own_only: bool
    jobs: int
    failed: int
    never_started: int
    trend: list[TrendPoint]
    movers: list[Mover]


class Version(TypedDict):
    """What answers here."""

    version: str
    api: str


class View(TypedDict):
    """A link that you gave a name."""

    name: str
    link: str


class Views(TypedDict):
    """Your saved views, by name."""

    views: list[View]


class Waste(TypedDict):
    """What failed jobs held, the largest loss first."""

    by: str
    as_of: str
    own_only: bool
    first: str | None
    last: str | None
    groups: list[WasteGroup]
    total: WasteTotal
    uncounted: dict[str, int]


class WasteGroup(TypedDict):
    """What the jobs of one group held, and lost."""

    group: str
    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int
    share: float


class WasteTotal(TypedDict):
    """What all counted jobs sum up to; the groups sum up to exactly this."""

    jobs: int
    failed_jobs: int
    core_seconds: int
    lost_core_seconds: int
