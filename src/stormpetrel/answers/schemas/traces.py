"""What the trace model in use says of the newest windows of a site: the most abnormal, the map, the diagnosis.

Known regions of the embedding: what people named, who lies inside, and which past windows were like a window.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer


class TraceModelAnswer(Answer):
    """Which model it is that says so."""

    model: str = Field(examples=["traces-vanilla"])
    version: int
    title: str = Field(description="what the model is called where its scores are shown")
    shipped: bool = Field(description="whether it is the shipped encoder, which was not trained on this site")


class Abnormal(Answer):
    """How far the windows of a node, a thread or a job are from what the model has learnt."""

    windows: int
    flagged: int = Field(description="windows that scored above the threshold")
    mean_score: float
    highest_score: float = Field(description="of the windows in which no thread changed hands, where there are any")
    max_iowait: float | None = Field(description="largest share of iowait in any of its windows, 0 to 1")


class AbnormalNode(Abnormal):
    """A node, by all of its threads."""

    node: str


class AbnormalThread(AbnormalNode):
    """One thread of a node."""

    cpu: int


class AbnormalJob(Abnormal):
    """A job, on all of its threads."""

    job_id: str
    job_type: str | None


class CalmWindows(Answer):
    """The calm windows that a threshold was set by."""

    windows: int
    independent: int
    hours: float


class ThresholdPromise(Answer):
    """What may be expected of a threshold, and what it would take to promise the share that the settings ask for."""

    asked: float = Field(description="share of calm windows that may be flagged, as the settings say")
    share: float | None = Field(description="share that can be promised now; null: no threshold can be kept")
    threshold: float | None
    calm: CalmWindows
    needed_windows: int
    needed_hours: float | None
    sentence: str = Field(description="the promise in words")


class MostAbnormal(TraceModelAnswer):
    """The nodes, threads and jobs with the largest share of flagged windows, then with the highest mean score."""

    nodes: list[AbnormalNode]
    threads: list[AbnormalThread]
    jobs: list[AbnormalJob]


class ScoringReceipt(MostAbnormal):
    """What scoring has done, and who is the most abnormal after it."""

    threshold: float | None
    promise: ThresholdPromise
    scored: int = Field(description="windows that were scored now")
    flagged: int
    other_length: int = Field(description="windows of another length or step than the model sees")
    commits: int


class JobTypeOnMap(Answer):
    """Where the windows of a job type lie on the map, and how far off they are."""

    job_type: str | None = Field(description="empty where nobody said the type")
    windows: int
    x: float | None
    y: float | None
    median_score: float
    flagged_share: float


class MapPoint(Answer):
    """One window on the map."""

    node: str
    cpu: int
    window_start: datetime
    job_id: str | None
    job_type: str | None
    x: float | None
    y: float | None
    score: float
    flagged: bool
    region: str | None = Field(default=None, description="the known region that it lies in")


class FittedRegion(Answer):
    """A region as the model in use sees it; those of one name are one."""

    name: str
    examples: int
    radius: float = Field(description="distance to the nearest example within which a window lies inside; 0: nothing does")
    coverage: float | None = Field(
        description="share of the examples that lie within the radius of one of another moment; null: all are of one moment"
    )
    calm_inside: float = Field(description="share of calm windows that lie inside")
    x: float | None = Field(description="place of its examples on the map, their mean")
    y: float | None


class TraceMap(TraceModelAnswer):
    """Where the windows of each job type lie on the map of the model."""

    explained: list[float] = Field(description="share of the variance that each axis explains")
    job_types: list[JobTypeOnMap]
    points: list[MapPoint] = Field(description="every window, oldest first; empty where they were not asked for")
    regions: list[FittedRegion] = Field(default=[], description="troubles that people have named, and where they lie")


class Suspect(Answer):
    """A job on a node (or a thread, where no job is known) some of whose windows lie in the region of Bad IO."""

    job_id: str = Field(description="empty for a thread")
    job_type: str
    node: str
    cpus: list[int]
    windows: int
    near: int
    nearest: float
    max_iowait: float


class NearBadIo(Answer):
    """Who lies near Bad IO without being it, and whether the distance goes with iowait."""

    windows: int
    near: int = Field(description="windows in the region of Bad IO")
    radius: float | None = Field(description="null where the model knows no Bad IO")
    high_iowait: float | None
    rank_correlation: float | None = Field(description="of distance and largest iowait; -1: the nearer, the more iowait")
    suspects: list[Suspect]


class SimilarNodeWindow(Answer):
    """A node window before that was odd in the same way."""

    node: str
    window_start: datetime
    likeness: float = Field(description="1 is the same direction, 0 none")


class OddNode(Answer):
    """A node that does what calm nodes of this site hardly ever do, and why."""

    sentence: str = Field(examples=["node n003: 11 of 32 threads wait for files (iowait 1% before, 84% now) since 14:02"])
    node: str
    window_start: datetime
    since: datetime
    score: float = Field(description="-log10 of the share of calm node windows that are as odd")
    threads: list[int] = Field(description="CPU numbers")
    of_threads: int
    mode: str = Field(description="that changed most")
    before: float = Field(description="mean share of it, of these threads")
    now: float
    similar: list[SimilarNodeWindow]


class WholeNode(Answer):
    """A node as a whole at one moment, or all nodes together: one score out of its threads, jobs and other metrics."""

    level: Literal["node", "cluster"]
    node: str = Field(description="empty for all nodes together")
    window_start: datetime
    score: float = Field(description="-log10 of the share of calm moments that are as unusual: 3 is one in a thousand")
    unusual: str | None = Field(description="the metric that is farthest from what is usual", examples=["memory_pressure"])
    now: float | None = Field(description="its share at that moment")
    usual: float | None = Field(description="and its mean in training")
    sentence: str = Field(examples=["node n003: memory pressure 43%, usually 1%; one in 2,000 calm moments is as unusual"])


class SlidingNode(Answer):
    """A node some of whose threads are above the threshold now, second by second; one for each job on it."""

    sentence: str = Field(
        examples=["node n003: 11 of 32 threads above what one calm second in 1,000 reaches, since 14:02:31 (job 4711)"]
    )
    node: str
    job_id: str | None = Field(description="null for threads without a known job")
    threads: int = Field(description="of the job on this node that had scores")
    threads_above: int = Field(description="with at least one score above the threshold in the newest span")
    above_share: float = Field(description="of their scores above the threshold")
    since: datetime = Field(description="end of the first second above, of all spans without a break up to now")
    earlier: bool = Field(description="whether it may have begun earlier: an hour is looked back at most")
    peak: float = Field(description="the highest score, divided by the threshold")
    cpu: int = Field(description="of the thread with that score")


class SlidingNow(Answer):
    """The quick score of every thread in every second, summed up over the newest span of about a minute.

    It shows what happens now; incidents come from whole windows.
    """

    fresh: bool = Field(description="whether it is of now; false: see why_not")
    until: datetime | None = Field(description="end of the newest span that was scored; null: none in the last hour")
    why_not: str = Field(description="why nothing is scored now, and what to do; empty where it is")
    threads: int = Field(description="with scores in that span")
    above_share: float | None = Field(description="of their scores above the threshold; null: nothing is scored now")
    expected_share: float | None = Field(description="of calm windows that may be; null: the model has no threshold yet")
    sentence: str = Field(description="all of it in words; times are in the zone of the site")
    nodes: list[SlidingNode] = Field(description="those above the threshold now, most scores above first; 500 at most")


class RegionSuspect(Answer):
    """A job on a node (or a node's threads without a job) some of whose windows lie in a known region."""

    region: str
    node: str
    job_id: str | None
    job_type: str | None
    cpus: list[int]
    windows: int
    inside: int
    nearest: float = Field(description="smallest distance to an example of the region")
    since: datetime = Field(description="when the first of them began")
    until: datetime = Field(description="when the last of them began")


class PastWindow(Answer):
    """A window of the past that was like another."""

    node: str
    cpu: int
    window_start: datetime
    job_id: str | None
    job_type: str | None
    flagged: bool
    distance: float
    region: str | None = Field(description="the known region that it lies in")


class LikeBefore(Answer):
    """A window, and the past windows of other jobs that were most like it."""

    node: str
    cpu: int
    window_start: datetime
    job_id: str | None
    region: str | None
    past: list[PastWindow]


class TraceDiagnosis(TraceModelAnswer, NearBadIo):
    """The same, of a site's windows; which nodes the detector finds odd; who lies in a known region, and what was like it."""

    findings: list[OddNode] | None = Field(default=None, description="oddest first; null where the model has no detector")
    nodes: list[WholeNode] = Field(default=[], description="each node as a whole, and all together, the most unusual first")
    sliding: SlidingNow | None = Field(default=None, description="the quick score of every second, as it is now")
    regions: list[FittedRegion] = Field(default=[])
    inside: list[RegionSuspect] = Field(default=[], description="who lies in a known region, most windows first")
    like: list[LikeBefore] = Field(
        default=[], description="for the newest windows that lie in a region or were flagged: past windows of other jobs"
    )


class SiteTraces(MostAbnormal):
    """All that the model in use says of the newest windows of a site."""

    windows: int
    node_count: int
    job_count: int
    flagged: int
    first: datetime = Field(description="when the first of the windows begins")
    last: datetime
    promise: ThresholdPromise
    explained: list[float]
    job_types: list[JobTypeOnMap]
    diagnosis: NearBadIo | None = Field(description="null where the model knows no Bad IO")


class RegionLine(Answer):
    """A trouble that somebody named, and what the model in use makes of it."""

    name: str = Field(examples=["hung allreduce"])
    added: datetime
    added_by: str
    incident: int | None = Field(description="whose confirmation named it; null: named by hand")
    job_type: str | None = Field(description="windows of this type are its examples, and are never learnt as normal")
    job_id: str | None
    node: str | None
    since: datetime | None
    until: datetime | None
    examples: int = Field(description="windows that are kept with it")


class KnownRegions(Answer):
    """The regions of a site, the oldest first, and as the model in use sees them."""

    regions: list[RegionLine]
    fitted: list[FittedRegion]


class RegionReceipt(Answer):
    """What was named, or taken back."""

    regions: list[RegionLine]
    removed: bool = False
