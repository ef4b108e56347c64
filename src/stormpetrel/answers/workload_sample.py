"""New jobs out of the site's generator, as a file to be taken along.

SampleWish + LiveSite + Viewer -> write_sample -> a file. The jobs are made whole before the first byte is sent: what goes wrong
is a sentence and not half a file. One at a time, in a thread; how many jobs is bounded, the command line makes more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from stormpetrel.answers.schemas.workload import MOST_JOBS
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.errors import StoreBusyError, UsageError
from stormpetrel.records.times import EARLIEST, LATEST

if TYPE_CHECKING:
    from stormpetrel.answers.live_site import LiveSite
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.lifecycle.workload_models import GeneratorInUse
    from stormpetrel.synth.contract import Wanted

# format -> (ending of the file, what it is for browsers)
FORMATS: Final = {
    "swf": (".swf", "text/plain; charset=utf-8"),
    "sacct": (".txt", "text/plain; charset=utf-8"),
    "csv": (".csv", "text/csv; charset=utf-8"),
    "parquet": (".parquet", "application/vnd.apache.parquet"),
}
_MORE: Final = "For more: stormpetrel synth sample"
_WAIT_S: Final = 20.0
_one_at_a_time: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class SampleWish:
    """What is asked for: how much, what should be different, and as which file. See `synth.contract.Wanted`."""

    jobs: int | None = None
    days: float | None = None
    seed: int = 0
    start: datetime | None = None
    users: float = 1.0
    gpu_jobs: float = 1.0
    group: str | None = None
    later_years: float = 0.0
    waits: bool = False
    cores: int | None = None  # of the machine whose scheduler gives the waits
    format: str = "swf"

    def wanted(self) -> Wanted:
        """The same, as generators are asked; UsageError where it makes no sense."""
        from stormpetrel.synth.contract import Wanted

        if self.format not in FORMATS:
            raise UsageError(f"There is no format '{self.format[:40]}'.", hint=f"Known: {', '.join(FORMATS)}.")
        if self.jobs is None and self.days is None:
            raise UsageError("It is not said how many jobs.", hint="Name a number of jobs, or of days.")
        if self.jobs is not None and not 0 < self.jobs <= MOST_JOBS:
            raise UsageError(f"{self.jobs:,} jobs are not made here: 1 to {MOST_JOBS:,} are.", hint=f"{_MORE} -n {self.jobs}")
        if self.start is not None and not EARLIEST <= self.start <= LATEST:
            raise UsageError(f"No log begins in {self.start.year}.", hint=f"Name a day from {EARLIEST:%Y} to {LATEST.year - 1}.")
        told = asdict(self)
        return Wanted(**{name: value for name, value in told.items() if name not in ("waits", "cores", "format")})

    @property
    def file_name(self) -> str:
        """A name for the file."""
        return f"workload-{self.seed}{FORMATS[self.format][0]}"


def write_sample(live: LiveSite, viewer: Viewer, wish: SampleWish, path: Path) -> int:
    """Write the jobs that are wished for to a file; how many. Administrators only; it stands in the audit trail."""
    viewer.require(MANAGE)
    wanted = wish.wanted()
    if not _one_at_a_time.acquire(timeout=_WAIT_S):
        raise StoreBusyError("Another workload is being made.", hint="Ask again in a minute.")
    try:
        from stormpetrel.lifecycle.workload_models import load_site_generator

        in_use = load_site_generator(live.site)
        written = _written(in_use, wish, wanted, path)
    finally:
        _one_at_a_time.release()
    about = {"training": in_use.training, "jobs": written, "format": wish.format, "seed": wish.seed}
    live.site.audit.record(viewer.user, "synth sample", about)
    return written


def _written(in_use: GeneratorInUse, wish: SampleWish, wanted: Wanted, path: Path) -> int:
    from stormpetrel.simulate.workload_files import write_workload

    frames = _bounded(in_use.generator.batches(wanted))
    if wish.waits:
        frames = _with_waits(frames, wish.cores)
    return write_workload(frames, path, format_name=wish.format)


def _bounded(frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The frames; UsageError as soon as they are more jobs than fit into one file, which days alone do not tell."""
    made = 0
    for frame in frames:
        made += frame.height
        if made > MOST_JOBS:
            raise UsageError(f"That would be more than {MOST_JOBS:,} jobs.", hint=f"Ask for fewer days. {_MORE}")
        yield frame


def _with_waits(frames: Iterator[pl.DataFrame], cores: int | None) -> Iterator[pl.DataFrame]:
    """The frames with waits, of a machine of so many cores; without a number one that these jobs keep usefully busy."""
    from stormpetrel.simulate.replay import replayed, sized

    machine, whole = sized(frames)
    return replayed(whole, machine if cores is None else replace(machine, cores=cores))
