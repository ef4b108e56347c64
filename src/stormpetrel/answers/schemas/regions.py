"""Known regions of the embedding: what people named, who lies inside, and which past windows were like a window."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from stormpetrel.answers.schemas.base import Answer


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


class KnownRegions(Answer):
    """The regions of a site, the oldest first, and as the model in use sees them."""

    regions: list[RegionLine]
    fitted: list[FittedRegion]


class RegionReceipt(Answer):
    """What was named, or taken back."""

    regions: list[RegionLine]
    removed: bool = False


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
