"""Nodes and the windows of their CPU threads: questions and answers."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer, Problem, Question
from stormpetrel.answers.schemas.jobs import Moment
from stormpetrel.answers.schemas.traces import OddNode, RegionSuspect, SlidingNow, WholeNode

WINDOW_PATTERN: Final = r"^[0-9]{1,8}-[0-9]{1,17}-.{1,600}$"
WINDOW_EXAMPLE: Final = "12-1763200000000000-node3-live-cluster"
MOST_WINDOWS: Final = 200  # that one answer lists
MOST_LETTERS: Final = 256  # of a name that is requested
_REF: Final = "of its job in the list of jobs; null where that is not known"
_SCORE: Final = "reconstruction error: higher is more abnormal"


class NodesQuestion(Question):
    """Which windows: of the hour, day or week before the latest one, or all; of a campaign, a job type, a node, a time."""

    span: Literal["hour", "day", "week", "all"] = Field(default="day", description="the last one, counted from the latest window")
    campaign: str | None = Field(
        default=None, min_length=1, max_length=MOST_LETTERS, description="of this campaign only", examples=["monday"]
    )
    job_type: str | None = Field(
        default=None, min_length=1, max_length=MOST_LETTERS, description="of this job type only", examples=["Bad IO"]
    )
    node: str | None = Field(
        default=None, min_length=1, max_length=MOST_LETTERS, description="of this node only", examples=["node3"]
    )
    since: Moment | None = Field(default=None, description="that begin at this time or later")
    until: Moment | None = Field(default=None, description="that begin before this time")
    limit: int = Field(default=100, ge=1, le=MOST_WINDOWS, description="so many windows, those with the highest scores")


class NodeRow(Answer):
    """What the models say about one node."""

    node: str = Field(examples=["node3"])
    threads: int
    windows: int
    flagged: int = Field(description="windows that scored above the threshold")
    worst: float = Field(description="the highest score of any thread")
    kind: str = Field(description="job type of that window, or its job's name where nobody said its type")
    job_id: str | None
    ref: str | None = Field(description=_REF)


class ScoredWindow(Answer):
    """One window of one thread, and its score."""

    key: str = Field(description="what the window is called in links", examples=[WINDOW_EXAMPLE])
    node: str
    cpu: int
    window_start: datetime
    window_s: float
    trace: str = Field(description="the campaign; `live` for what came from a server")
    kind: str
    job_id: str | None
    ref: str | None = Field(description=_REF)
    score: float = Field(description=_SCORE)
    flagged: bool
    x: float | None = Field(description="place on the map: first principal component of the embeddings")
    y: float | None = Field(description="second principal component")
    max_iowait: float | None = Field(description="largest share of iowait in the window, 0 to 1")
    bad_io_distance: float | None = Field(description="from the centre of Bad IO; null where none is known")
    region: str | None = Field(default=None, description="the known region that it lay in when it was scored")


class Nodes(Answer):
    """The nodes, the worst first, and their windows with the highest scores."""

    as_of: datetime
    own_only: bool = Field(description="whether only windows of your own jobs are counted; administrators see everybody's")
    lack: Literal["windows", "scores"] | None = Field(description="the first step that has not been done; null: none")
    model: str = Field(examples=["traces-vanilla"])
    model_version: int
    shipped: bool = Field(description="whether the scores come from the shipped encoder, which was not trained on this site")
    threshold: float | None = Field(description="windows above it are flagged; null: nothing is, the scores are a ranking")
    promise: str = Field(description="what share of calm windows may be flagged, or why nothing is; in words")
    near: float | None = Field(
        default=None, description="distance from the centre of Bad IO within which a window counts as near it"
    )
    windows: int
    flagged: int
    threads: int
    first: datetime | None = Field(default=None, description="when the first of the windows begins; null: there are none")
    last: datetime | None = Field(default=None, description="when the last of them ends")
    latest: datetime | None = Field(
        default=None, description="when the latest window ends that you may see, whatever was asked for"
    )
    left_out: int = Field(default=0, description="windows that are too old to be counted; 0 for all but administrators")
    nodes: list[NodeRow]
    worst: list[ScoredWindow]


class NodeFindings(Answer):
    """What is odd on the nodes now, in sentences, and the one score of each node and of all nodes together."""

    as_of: datetime
    windows_until: datetime | None = Field(default=None, description="end of the newest scored window; null: there is none")
    model: str
    model_version: int
    shipped: bool = Field(description="whether it is the shipped encoder, which has neither detector nor levels")
    judged: bool = Field(description="whether the model has a detector; false: train one on the site's own windows")
    share: float = Field(description="share of calm node windows that may be as odd as a finding: `traces.alarm_share`")
    findings: list[OddNode] = Field(description="oddest first")
    nodes: list[WholeNode] = Field(description="the newest score of each node, the most unusual first; 500 at most")
    cluster: WholeNode | None = Field(description="null where the model has no levels above the thread")
    inside: list[RegionSuspect] = Field(
        default=[], description="who lay in a known region in the day before the newest window, most windows first"
    )
    sliding: SlidingNow | None = Field(default=None, description="the quick score of every second; null from older servers")


class NodeNames(Answer):
    """The names that a question about nodes can choose from, each list in its order."""

    node: list[str]
    campaign: list[str]
    job_type: list[str]


class ThreadTrace(Answer):
    """One thread during a window: what it did, and what the model makes of it; a list of shares for each mode."""

    key: str
    node: str
    cpu: int
    kind: str
    job_id: str | None
    ref: str | None
    score: float = Field(description=_SCORE)
    flagged: bool
    max_iowait: float | None
    same_job: bool = Field(description="whether it runs the job of the window that was asked for")
    original: list[list[float]]
    reconstruction: list[list[float]] | None


class WindowTraces(Answer):
    """A window, next to the threads of its job and its node at the same moment."""

    window_start: datetime
    window: ScoredWindow | None = Field(default=None, description="the window that was asked for")
    judged: bool | None = Field(
        default=None, description="whether it was held against a threshold: not before there was one, nor where its job changed"
    )
    step_s: float
    modes: list[str] = Field(description="in the order of the lists")
    of_threads: int = Field(description="how many threads there are; at most 129 are listed")
    problem: str | None = Field(description="why there is no reconstruction; null: there is")
    error: Problem | None = Field(default=None, description="the same problem in its two parts")
    threads: list[ThreadTrace] = Field(description="those of its job first, then the rest of its node")
