"""Studies of a job log: its kinds of jobs, what its features are worth, its trends, its waste, and a replayed cancel policy."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Question, SparseAnswer
from stormpetrel.answers.schemas.history import EnergyBasis, Mover, PolicyPoint, TrendPoint, WasteGroup, WasteTotal


class ProfileQuestion(Question):
    """How profiles are found."""

    columns: Literal["end", "submit"] = Field(default="end", description="by what is known at the end, or at submission")
    method: Literal["gmm", "kmeans"] = Field(default="gmm", description="Gaussian mixture, or K-means")
    seed: int = 0


class StateShare(Answer):
    """How many jobs ended in one state, and what that is counted as."""

    state: str
    label: str
    count: int
    share: float


class Distortion(Answer):
    """How far jobs lie from the middle of their profile, in standardised units, with so many profiles."""

    k: int
    distortion: float


class Bic(Answer):
    """The Bayesian information criterion of a mixture of so many profiles; lower is better."""

    k: int
    bic: float


class ProfileSummary(Answer):
    """One profile in a sentence."""

    profile: int
    words: str


class ProfileResources(Answer):
    """What the jobs of one profile hold: mean and standard deviation, null where the log does not tell."""

    profile: int
    jobs: int
    cpu_mean: float | None
    cpu_std: float | None
    mem_gb_mean: float | None
    mem_gb_std: float | None
    run_time_s_mean: float | None
    run_time_s_std: float | None
    wait_time_s_mean: float | None
    wait_time_s_std: float | None


class ProfileLimits(Answer):
    """From where on a job is short or long, a user new or frequent, and a job one of memory."""

    short_below_s: float
    long_above_s: float
    new_below_jobs: int
    frequent_from_jobs: int
    mem_factor: float


class ProfileStudy(Answer):
    """The profiles of a log, from the lightest to the heaviest, and what led to them."""

    preparation: dict[str, int] = Field(description="jobs that were kept and left out, and values that were filled in")
    absent: list[str] = Field(description="columns of which the log tells nothing")
    labels: list[StateShare] = Field(description="how jobs ended, the most frequent state first")
    k: int = Field(description="how many profiles there are")
    k_elbow: int
    k_bic: int
    elbow: list[Distortion]
    columns: list[str] = Field(description="what profiles were found by")
    left_out: dict[str, str] = Field(description="columns that were not used, by why")
    profiles: list[ProfileSummary]
    resources: list[ProfileResources]
    duration: list[dict[str, int]] = Field(description="jobs per profile, by how long they ran")
    activity: list[dict[str, int]] = Field(description="users per profile, by how much they run")
    status: list[dict[str, int]] = Field(description="jobs per profile, by how they ended")
    type: list[dict[str, int]] = Field(description="jobs per profile, by what they ask for")
    bic: list[Bic]
    limits: ProfileLimits


class FeatureCorrelation(Answer):
    """How one feature varies with failing; null for one that is constant."""

    feature: str
    pearson: float | None
    spearman: float | None
    missing: float = Field(description="share of jobs of which it is not known")


class FeatureImportance(Answer):
    """How much one feature moves the forecast."""

    feature: str
    total_gain: float = Field(description="summed over the trees; of a model that was judged already, its share of that sum")
    mean_abs_shap: float = Field(description="mean |SHAP value|, log-odds")


class GroupAblation(Answer):
    """What is lost without one group of features, and what it can do alone."""

    group: str
    features: int
    roc_lost: float
    pr_lost: float
    pr_error: float = Field(description="standard error of pr_lost")
    roc_alone: float
    pr_alone: float


class FeatureAblation(Answer):
    """The areas with all features, and what each group adds to them, the greatest loss first."""

    roc_auc: float
    pr_auc: float
    groups: list[GroupAblation]


class FeatureVerdict(Answer):
    """Whether a feature earns its place, and why."""

    feature: str
    group: str
    verdict: Literal["keep", "drop"]
    reason: str


class CorrelationMatrix(Answer):
    """Pearson's r of all pairs, the outcome first, then the features that vary with it most; null for constants."""

    names: list[str]
    r: list[list[float | None]]


class WrittenFeatures(Answer):
    """A table of features that was written: `rows` and `features` by moment, and the most memory that any process held."""

    output: str
    jobs: int
    rows: dict[str, int]
    features: dict[str, int]
    pieces: int
    shards: int
    peak_bytes: int
    seconds: float


class FeatureStudy(Answer):
    """What each feature of one moment is worth."""

    at: str = Field(description="the moment", examples=["submit"])
    jobs: int = Field(description="jobs that ended and reached that moment")
    correlations: list[FeatureCorrelation] = Field(description="the strongest first")
    importance: list[FeatureImportance] = Field(description="the most important first")
    ablation: FeatureAblation | None = Field(description="null where no model was fitted without groups")
    verdicts: list[FeatureVerdict] | None = Field(description="the most important features first; null without ablation")
    matrix: CorrelationMatrix


class ColumnStudy(Answer):
    """How the columns of the published study vary with failing, and with each other; null where one is constant."""

    correlations: list[FeatureCorrelation] = Field(description="the strongest first")
    matrix: CorrelationMatrix
    cpu_and_memory: float | None = Field(description="Pearson's r")
    user_and_profile: float | None


class TrendStudy(Answer):
    """Failure rates of a log over time, and whose has changed by more than chance."""

    by: str
    every: str
    never_started: int = Field(description="jobs that were over before they ran: in no rate")
    trend: list[TrendPoint] = Field(description="the groups with the most failures, oldest period first")
    movers: list[Mover] = Field(description="among all groups, the clearest first")
    changes: list[str] = Field(
        default=[], description="what is new in the last week against the four before: applications, users, accounts, load"
    )


class ChosenOn(Answer):
    """The earlier splits, on which the threshold was chosen."""

    splits: int
    jobs: int
    best: PolicyPoint


class JudgedOn(Answer):
    """The later splits, on which it was judged."""

    splits: int
    jobs: int
    failed_jobs: int


class RequestedPoint(PolicyPoint):
    """What a threshold that was requested would have done; `tau` is the nearest risk at or below it."""

    asked_tau: float


class PolicyReplay(SparseAnswer):
    """Cancelling two minutes in, replayed: τ chosen on the earlier splits, judged on the later ones."""

    where_asked: ClassVar[frozenset[str]] = frozenset({"asked"})
    chosen_on: ChosenOn
    judged_on: JudgedOn
    tau: float
    at_tau: PolicyPoint
    hindsight: PolicyPoint = Field(description="the best on the later splits, which nobody could have known")
    wrong_kill_price: float
    asked: RequestedPoint | None = Field(default=None, description="the threshold that was asked for")


class WasteStudy(SparseAnswer):
    """What failed jobs of a log held, the largest loss first; it adds up to the log's own totals to the core-second."""

    where_asked: ClassVar[frozenset[str]] = frozenset({"policy"})
    by: str
    groups: list[WasteGroup]
    total: WasteTotal
    uncounted: dict[str, int] = Field(description="jobs that are not in it, by why")
    dropped: int = Field(description="jobs in a state that is left out: in no sum")
    reconciled: bool
    energy: EnergyBasis
    policy: PolicyReplay | None = Field(default=None, description="what cancelling early would have saved")


_OWN_ONLY: Final = "whether only your own jobs are counted; administrators see everybody's"
_AS_OF: Final = "the state of the site that this is of"


class Profile(Answer):
    """One kind of jobs."""

    profile: int
    words: str = Field(
        description="what it is like", examples=["small, short jobs (1–4 CPUs, typically 12 min) that mostly complete"]
    )
    jobs: int = Field(description="how many of the jobs that you may see")
    cpu_mean: float | None
    mem_gb_mean: float | None
    run_time_s_mean: float | None
    wait_time_s_mean: float | None
    duration: dict[str, int] = Field(description="jobs by how long they ran")
    activity: dict[str, int] = Field(description="users by how much they run")
    status: dict[str, int] = Field(description="jobs by how they ended")
    types: dict[str, int] = Field(description="jobs by what they ask for")


class Profiles(Answer):
    """The kinds of jobs that the site runs."""

    as_of: datetime = Field(description=_AS_OF)
    own_only: bool = Field(description=_OWN_ONLY)
    version: int | None = Field(description="version of the model `jobs-profiles`; null where there is none yet")
    why: str = Field(description="why so many")
    jobs: int
    never_started: int = Field(description="jobs that are not among these: they were over before they ran")
    profiles: list[Profile]
