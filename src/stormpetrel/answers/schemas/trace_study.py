"""Studies of recorded campaigns: how good trace models are on them, and how often threads should be sampled."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, FlatAnswer, Question


class Spread(Answer):
    """A figure measured several times; mean and standard deviation are null where it could not be measured."""

    mean: float | None
    std: float | None
    n: int


class ModelFigures(Answer):
    """The figures of one architecture; null where the test windows cannot tell."""

    re_normal: Spread | None = Field(description="reconstruction error on normal windows")
    re_anomalous: Spread | None
    silhouette: Spread | None
    roc_auc: Spread | None


class JobTypeErrors(Answer):
    """How the errors of one job type lie, over all models of an architecture: mean and quantiles."""

    windows: int
    mean: float
    p05: float
    p25: float
    p50: float
    p75: float
    p95: float


class RunErrors(Answer):
    """The error on the normal windows of one campaign or run."""

    re_normal: Spread


class TraceEvaluationAnswer(Answer):
    """How good trace models are on test windows, by architecture; an architecture that could not be trained is null."""

    model: dict[str, ModelFigures | None]
    why: dict[str, str] = Field(description="why an architecture could not be trained, or `detector` not be judged")
    baselines: dict[str, dict[str, float | None]]
    by_job_type: dict[str, dict[str, JobTypeErrors]]
    per_run: dict[str, dict[str, RunErrors]]


class TraceStudyAnswer(TraceEvaluationAnswer):
    """The same, with what was trained on which windows."""

    judged: dict[str, int] = Field(description="how many models of each architecture were judged")
    windows: dict[str, int] = Field(description="to learn from, to stop by, to judge by; left out for gaps; of mixed jobs")
    windows_per_second_per_core: dict[str, float | None]
    seconds: dict[str, Any] = Field(description="that each part of the study took")


class FaultFigures(Answer):
    """How well one scorer tells node windows with a fault from untouched ones."""

    roc_auc: float | None
    recall: float | None = Field(description="share of faulty node windows that are seen at one false alarm per node and day")


class FaultSummary(Answer):
    """The exam as a whole: means over the cells (fault and severity) that are visible to a classifier trained on them."""

    mean_roc_auc: dict[str, float | None] = Field(description="of each scorer")
    interval: dict[str, tuple[float, float] | None] = Field(description="95 % of it, by resampling spans of time")
    busy: dict[str, float | None] = Field(description="on nodes with a mean share of user of 5 % or more")
    idle: dict[str, float | None]
    windows: dict[str, int] = Field(description="untouched node windows: in all, of busy and of idle nodes")
    learnt: int = Field(description="calm node windows that the detector learnt from")
    spans: int = Field(description="spans of time that the test windows lie in")
    not_visible: list[tuple[str, str]] = Field(description="fault and severity whose ceiling is below .9")
    promised: dict[str, float] = Field(description="promised share of flagged calm node windows -> realised share")
    kept_aside: list[str] = Field(description="faults of the bench that the detector was not tuned on")


class TraceStudyRun(TraceStudyAnswer):
    """The same, with what it was asked to do."""

    faults: dict[str, dict[str, dict[str, FaultFigures]]] = Field(
        default_factory=dict, description="fault -> severity -> scorer, per node window"
    )
    fault_summary: FaultSummary | None = None

    campaigns: dict[str, str | None] = Field(description="what each campaign is for: train, validation or test")
    simulated: bool
    models: int
    seed: int


class TypeSpectrum(Answer):
    """The spectral density of one job type."""

    frequency_hz: list[float]
    power: dict[str, list[float]] = Field(description="of each mode, in 1/Hz")
    segment_s: float
    stretches: int = Field(description="pieces of a thread's trace that were averaged")
    dominant_hz: float | None = Field(description="lowest dominant frequency; null where nothing stands out")


class IntervalFigures(Answer):
    """How well job types separate at one sampling interval."""

    interval_s: float
    samples: int = Field(description="per window and mode")
    silhouette: Spread
    explained: list[float]
    silhouette_of_means: Spread
    movement_kept: float = Field(description="share of the variance within windows that is left")


class SamplingAnswer(Answer):
    """How often to sample threads, and how long windows should be."""

    spectra: dict[str, TypeSpectrum]
    lowest_hz: float | None
    window_s: float
    intervals: list[IntervalFigures]
    interval_s: float
    windows: int
    advice: str


class SamplingRun(SamplingAnswer):
    """The same, with what it was asked to do."""

    campaigns: list[str]
    simulated: bool
    seed: int


class CampaignRun(Question):
    """Which jobs are run on this machine, and what the recording is for."""

    split: Literal["train", "validation", "test"] = "train"
    whole_set: bool = Field(default=False, description="three campaigns, for train, validation and test")
    name: str = Field(default="", description="empty: the next free one, such as train-1")
    types: str = Field(description="job types, separated by commas", examples=["np,bad_io"])
    seconds_per_job: float = 300.0
    repeat: int = Field(default=1, description="how often the whole set of jobs is run")
    cpus: str = Field(default="", description="such as 0,1 or 0-3; empty: all")
    prometheus: str = Field(default="", description="a server that scrapes an exporter here; empty: both are started")
    node: str = Field(default="", description="what that server calls this machine")
    scratch: Path | None = Field(default=None, description="a folder on a disk, for the files of the IO jobs")
    seed: int = 0


class CampaignSimulation(Question):
    """How many campaigns of a simulated cluster, and how large."""

    train: int = 3
    validation: int = 1
    test: int = 1
    nodes: int = 5
    threads: int = Field(default=32, description="per node")
    minutes: float = 30.0
    seed: int = 0


class WrittenCampaign(FlatAnswer):
    """A campaign on disk; in JSON what is known about it stands next to its path."""

    flat: ClassVar[str] = "facts"
    path: str
    facts: dict[str, Any] = Field(description="as in the JSON file beside it: split, steps, step_s, types, problems, …")


class CampaignReceipt(Answer):
    """The campaigns that were written, in their order."""

    campaigns: list[WrittenCampaign]
