"""What is asked and answered about jobs that are yet to be submitted, as JSON.

PredictionRequest -> Prediction; ScriptRequest -> ScriptAnswer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from stormpetrel.answers.schemas.base import Answer, IsoTime, Request

MOST_AT_ONCE: Final = 10_000
_MOST_COUNT: Final = 10_000_000
_MOST_BYTES: Final = 10**15  # a petabyte; every whole number up to here is exact in JSON
_MOST_SECONDS: Final = 1e9
_MOST_SCRIPT: Final = 300_000  # characters; written as \uXXXX they still fit into a request


def _whole(value: Any) -> Any:
    """JSON knows one kind of numbers: 4.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1, le=_MOST_COUNT), BeforeValidator(_whole)]
CountOrNone = Annotated[int, Field(ge=0, le=_MOST_COUNT), BeforeValidator(_whole)]
Bytes = Annotated[int, Field(ge=1, le=_MOST_BYTES), BeforeValidator(_whole)]
Index = Annotated[int, Field(ge=0, le=2**31 - 1), BeforeValidator(_whole)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=256)]
Path = Annotated[str, StringConstraints(min_length=1, max_length=4096)]


OptionValue = Annotated[str, StringConstraints(max_length=4096)]


class PredictionRequest(Request):
    """A job as it would be submitted; what is left out is not known."""

    user: Name | None = Field(
        None, description="whose job it will be; you, if left out. Only administrators may ask for others", examples=["ada"]
    )
    job_name: Name | None = Field(
        None, description="as given to the scheduler; jobs of one application share a stem", examples=["fit_12"]
    )
    account: Name | None = Field(None, description="account or project that pays", examples=["lab"])
    partition: Name | None = Field(None, description="partition or queue", examples=["batch"])
    qos: Name | None = Field(None, description="quality of service", examples=["normal"])
    cpus: Count = Field(1, description="CPUs asked for, of the whole job", examples=[16])
    nodes: Count = Field(1, description="nodes asked for", examples=[1])
    gpus: CountOrNone | None = Field(None, description="GPUs asked for, of the whole job", examples=[0])
    memory_bytes: Bytes | None = Field(None, description="memory asked for, of the whole job", examples=[34359738368])
    time_limit_s: float | None = Field(None, gt=0, le=_MOST_SECONDS, description="time limit in seconds", examples=[7200])
    work_dir: Path | None = Field(None, description="folder it is submitted from", examples=["/home/ada/run7"])
    script_path: Path | None = Field(None, description="its script", examples=["/home/ada/run7/job.sh"])
    array_task: Index | None = Field(None, description="index within a job array")


class Reason(Answer):
    """One reason for or against a failure."""

    feature: str = Field(description="the feature of the model", examples=["user.failed_rate_12h"])
    words: str = Field(description="the same for people", examples=["failure rate of this user's jobs, last 12 hours: 62 %"])
    contribution: float = Field(description="in log-odds; above zero speaks for a failure", examples=[0.71])
    value: float | None = Field(description="the value of the feature; null where it is not known", examples=[0.62])
    points: float = Field(
        description="what it adds to the risk, in points (hundredths): all reasons together lead from `base_risk` to `risk`",
        examples=[12.4],
    )


class Prediction(Answer):
    """How likely a job is to fail, if it were submitted now."""

    risk: float = Field(description="probability that it fails", ge=0, le=1, examples=[0.31])
    flagged: bool = Field(description="whether the risk reaches the threshold")
    threshold: float = Field(description="risk from which a job is flagged", ge=0, le=1, examples=[0.44])
    known: bool = Field(description="false where user or application are new: the risk is the habit of jobs that look alike")
    outcomes: dict[str, float] = Field(description="probability of each way to end", examples=[{"TIMEOUT": 0.2, "FAILED": 0.11}])
    likeliest: str | None = Field(description="if it fails, the likeliest way", examples=["TIMEOUT"])
    profile: str | None = Field(description="which kind of job it is, in words", examples=["small, short jobs (1–4 CPUs)"])
    model_version: int = Field(description="version of the model `jobs-submit` that said so", examples=[3])
    base: float | None = Field(None, description="log-odds before anything is known about the job; with `explain` only")
    base_risk: float | None = Field(None, description="the same as a risk: that of the average job; with `explain` only")
    reasons: list[Reason] | None = Field(None, description="strongest first; with `explain` only")


class JobForecast(Answer):
    """The prediction for a job of the site at one of its moments."""

    job: str = Field(examples=["12345_7"])
    user: str | None
    submit_time: IsoTime
    start_time: IsoTime | None
    state: str | None
    at: str = Field(description="the moment: submit, start or 2min")
    prediction: Literal["Fail", "Complete"]
    confidence: float = Field(description="probability of the prediction, in per cent")
    risk: float = Field(description="probability that it fails")
    threshold: float
    flagged: bool
    likeliest: str | None = Field(description="if it fails, the likeliest way")
    known: bool = Field(description="false where user or application are new")


class JobForecasts(Answer):
    """Forecasts of jobs of the site, the most likely to fail first."""

    forecasts: list[JobForecast]
    notes: list[str] = Field(default=[], description="that general experience speaks, and no model of the site")


class PredictionList(Answer):
    """Predictions in the order of the requests."""

    predictions: list[Prediction]


class ScriptRequest(Request):
    """A job script before it is submitted. It is read, never run."""

    text: str = Field(
        min_length=1,
        max_length=_MOST_SCRIPT,
        description="the script: #SBATCH, #PBS, #BSUB, or an HTCondor submit description",
        examples=["#!/bin/bash\n#SBATCH --time=2:00:00 --mem=4G --job-name=fit_12\nsrun fit\n"],
    )
    name: Path = Field("job.sh", description="the script's file name; the job is called so where it does not say otherwise")
    kind: Literal["slurm", "pbs", "lsf", "condor"] | None = Field(None, description="found from the text if left out")
    user: Name | None = Field(None, description="whose job it will be; you, if left out. Only administrators may ask for others")
    folder: Path | None = Field(None, description="folder it is submitted from", examples=["/home/ada/run7"])
    arguments: list[Annotated[str, StringConstraints(max_length=4096)]] = Field(
        default=[], max_length=256, description="options of sbatch that stand before the script; they win", examples=[["-t", "5"]]
    )


class SubmitRequest(Request):
    """A job while it is being submitted: the options that sbatch ended up with, as cli_filter writes them, or its script."""

    options: dict[Annotated[str, StringConstraints(max_length=100)], OptionValue | list[OptionValue]] = Field(
        {},
        max_length=200,
        description="by their long names; `argv` holds the script and its arguments",
        examples=[{"time": "00:05:00"}],
    )
    script: ScriptRequest | None = Field(None, description="what a wrapper of sbatch or condor_submit sends in place of options")


class Advice(Answer):
    """One change of a request that past jobs support."""

    column: str | None = Field(
        description="what to change; null where no change of the request helps", examples=["req_mem_bytes"]
    )
    now: int | float | str | None = Field(description="what is asked for", examples=[2147483648])
    proposed: int | float | str | None = Field(description="what to ask for instead; null where past jobs support no value")
    sentence: str = Field(description="the advice for people", examples=["Ask for 4 GB of memory instead of 2 GB."])
    evidence: list[str] = Field(description="the past jobs that speak for it, in words; they are counted, never shown")
    support: int = Field(description="how many past jobs are behind it")
    kind: str = Field(description="which past jobs those are")
    saves: bool = Field(description="whether less than asked for would do")
    risk_before: float | None = Field(description="the risk as asked for")
    risk_after: float | None = Field(description="the risk with the change")
    line: str | None = Field(description="how to write the change in the script", examples=["#SBATCH --mem=4G"])
    experiment: bool = Field(default=False, description="whether it is one run that tells what others like it need")
    wait_before_s: float | None = Field(default=None, description="the wait as asked for, in seconds: half start sooner")
    wait_after_s: float | None = Field(default=None, description="the wait with the change")
    core_hours_saved: float | None = Field(
        default=None, description="not lost to a shortage, or not kept from others for nothing"
    )
    mem_update: str | None = Field(
        default=None,
        description="where Slurm can do it (26.05 and later): give back what is not used while the job runs",
        examples=["#SBATCH --mem-update=50@30"],
    )


class NeedOutlook(Answer):
    """What a job will use of a resource (bytes, seconds, CPUs or GPUs), at most, with these probabilities."""

    request: float | None = Field(description="what it asks for")
    p50: float
    p90: float
    p99: float
    short: float | None = Field(description="the probability that it needs more than it asks for")
    similar: int = Field(description="ended runs of the same work behind it; 0: jobs of others that look alike")
    group: str = Field(description="whose runs those are")


class WaitOutlook(Answer):
    """When a job will start: how long it waits from its submission on, in seconds; null with a reason where nobody can say."""

    p50_s: float | None = Field(description="half of such jobs start sooner")
    p90_s: float | None = Field(description="nine of ten such jobs start sooner")
    waited_s: float = Field(description="how long it has waited")
    reason: str | None = Field(description="why there is no estimate", examples=["No estimate of the start: it is held."])


class ClusterProblem(Answer):
    """One thing about a script that does not fit the cluster, and the smallest change that does."""

    rule: str = Field(examples=["time_above_partition"])
    never_runs: bool = Field(description="true: it cannot run as it stands; false: it would have to wait")
    words: str = Field(examples=["It asks for 3 days; the limit of partition short is 1 day."])
    change: str = Field(examples=["Ask for --time=1-00:00:00."])
    column: str | None = Field(description="what to change", examples=["time_limit_s"])
    proposed: int | float | str | None = Field(
        description="the value that fits; null where no single one does", examples=[86400.0]
    )
    line: str | None = Field(description="how to write the change in the script", examples=["#SBATCH --time=1-00:00:00"])


class ClusterFit(Answer):
    """Whether the cluster can run a script at all."""

    can_run: bool | None = Field(description="false: it can never run as it stands; null: the cluster could not be asked")
    problems: list[ClusterProblem] = Field(description="what can never run first")
    read_at: datetime | None = Field(description="when partitions, nodes and QOS were read from the scheduler")
    age_s: float | None = Field(description="how long ago that was, in seconds")
    note: str | None = Field(description="why they could not be read since")


class Verdict(Answer):
    """The verdict on a job at one moment."""

    moment: str = Field(description="`submit`, `start` or `2min`")
    risk: float = Field(description="probability that it fails", examples=[0.31])
    flagged: bool = Field(description="whether the risk reaches the threshold")
    threshold: float = Field(description="risk from which a job is flagged")
    known: bool = Field(description="false where user or application are new: the risk is the habit of jobs that look alike")
    outcomes: dict[str, float] = Field(description="probability of each way to end")
    failures: list[str] = Field(description="which of the outcomes are failures")
    likeliest: str | None = Field(description="if it fails, the likeliest way", examples=["TIMEOUT"])
    base: float | None = Field(description="log-odds before anything is known about the job")
    base_risk: float | None = Field(description="the same as a risk: that of the average job")
    profile: str | None = Field(description="which kind of job it is, in words")
    reasons: list[Reason] = Field(description="strongest first")
    more_reasons: int = Field(description="how many weaker reasons there are besides")


class ComponentAnswer(Answer):
    """The check of one component of a heterogeneous job."""

    number: int = Field(description="from 1 on")
    request: dict[str, int | float | str | bool | None] = Field(description="what this component asks for")
    warnings: list[str]
    can_run: bool | None = Field(description="whether the cluster can run it; null: not known")
    risk: float | None
    likeliest: str | None
    advice: list[Advice]
    needs: dict[str, NeedOutlook] | None
    wait: WaitOutlook | None


class ScriptAnswer(Answer):
    """The check of a script; the same as `stormpetrel check --json`."""

    script: str
    kind: str = Field(description="slurm, pbs, lsf or condor")
    request: dict[str, int | float | str | bool | None] = Field(description="what the script asks for, of the whole job")
    warnings: list[str] = Field(description="what is odd about the script")
    cluster: ClusterFit | None = Field(None, description="whether it can run at all; null where there is no Slurm to ask")
    risk: float | None = Field(description="probability that it fails; null without a trained model", examples=[0.31])
    flagged: bool | None = None
    threshold: float | None = None
    known: bool | None = None
    outcomes: dict[str, float] | None = None
    likeliest: str | None = Field(None, description="if it fails, the likeliest way", examples=["TIMEOUT"])
    base_risk: float | None = Field(None, description="the risk before anything is known about the job: that of the average job")
    profile: str | None = None
    reasons: list[Reason] | None = Field(None, description="the strongest twelve, strongest first")
    verdict: Verdict | None = Field(None, description="all of this about the risk as one object; null without a trained model")
    advice: list[Advice] = Field(description="at most three, best first")
    needs: dict[str, NeedOutlook] | None = Field(
        None, description="what it will use of `memory` and `time`; null without a model"
    )
    wait: WaitOutlook | None = Field(None, description="when it would start; null without a model")
    notes: list[str]
    components: list[ComponentAnswer] = Field(
        default=[],
        description="of a heterogeneous job, whose sums and highest risk are said above",
    )
