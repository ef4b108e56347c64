"""Very many new jobs, in parts that workers make at the same time: each writes its Parquet file, one process commits them.

generator, Wanted (days, start), a folder, Engine -> write_shards -> part-00000.parquet …, manifest.json -> WorkloadSample. Each
part is a span of time of its own with a seed of its own, so that the files depend on the seed and on the number of parts, and not
on where they were made. At the border between two parts nobody goes on with a session.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from stormpetrel.answers.schemas.workload import WorkloadSample
from stormpetrel.answers.workload.sample import JobCounts
from stormpetrel.engine import Engine, KeptResults, Progress, no_progress
from stormpetrel.engine.codecs import JsonCodec
from stormpetrel.errors import UsageError
from stormpetrel.private_files import write_private
from stormpetrel.synth.contract import Wanted, WorkloadGenerator
from stormpetrel.synth.writers.files import write_workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
_RECEIPTS: Final = ".parts"  # of finished parts: a second run with the same wishes does not make them again


@dataclass(frozen=True, slots=True)
class Part:
    """What a worker wrote: the jobs of one span of time."""

    file: str
    digest: str
    jobs: int
    users: tuple[str, ...]
    first: datetime | None
    last: datetime | None
    core_s: float


def write_shards(
    generator: WorkloadGenerator, wanted: Wanted, parts: int, folder: Path, engine: Engine, *, progress: Progress = no_progress
) -> WorkloadSample:
    """Write the jobs of so many parts, and then the manifest that says which files belong together; a killed run goes on.

    UsageError where the spans of the parts are not known beforehand: it needs a number of days and a start.
    """
    if wanted.days is None or wanted.start is None:
        raise UsageError("The spans of the parts are not known.", hint="With --parts name both --days and --start.")
    began = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    run = {"wanted": {**asdict(wanted), "start": wanted.start.isoformat()}, "parts": parts, "generator": _digest_of(generator)}
    kept = KeptResults(folder / _RECEIPTS, run, JsonCodec[Part](Part))
    write = _WritePart(generator, wanted, parts, folder.resolve())
    (folder / MANIFEST).unlink(missing_ok=True)
    at = replace(engine, shared=folder)
    done = list(at.map(write, range(parts), name=lambda number: f"part {number + 1} of {parts}", progress=progress, kept=kept))
    _refuse_changed(folder, done)
    manifest = {
        "format": FORMAT,
        **run,
        "files": [{"file": part.file, "sha256": part.digest, "jobs": part.jobs} for part in done],
    }
    write_private(folder / MANIFEST, json.dumps(manifest, indent=1))
    return _receipt(done, wanted, folder, time.perf_counter() - began)


@dataclass(frozen=True, slots=True, eq=False)
class _WritePart:
    """Makes the jobs of one span, and writes them."""

    generator: WorkloadGenerator
    wanted: Wanted
    parts: int
    folder: Path

    def __call__(self, number: int, progress: Progress) -> Part:
        wanted = wanted_of_part(self.wanted, number, self.parts)
        counts = JobCounts()
        path = self.folder / f"part-{number:05}.parquet"
        frames: Iterator[pl.DataFrame] = counts.counted(self.generator.batches(wanted), wanted, progress)
        write_workload(frames, path, format_name="parquet")
        digest = _sha256(path)
        return Part(path.name, digest, counts.jobs, tuple(sorted(counts.users)), counts.first, counts.last, counts.core_s)


def wanted_of_part(wanted: Wanted, number: int, parts: int) -> Wanted:
    """The wishes of one part: its share of the days, from where the part before it ends, with a seed drawn from that of all."""
    assert wanted.days is not None and wanted.start is not None
    span = timedelta(days=wanted.days) / parts
    seed = int(np.random.SeedSequence([wanted.seed, number]).generate_state(1)[0])
    return replace(wanted, days=span / timedelta(days=1), start=wanted.start + number * span, seed=seed)


def _digest_of(generator: WorkloadGenerator) -> str:
    """Of what it would draw: of the first jobs that it makes of a fixed seed."""
    frame = next(iter(generator.batches(Wanted(jobs=200, seed=0))))
    return hashlib.sha256(frame.write_csv().encode()).hexdigest()[:16]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _refuse_changed(folder: Path, parts: Sequence[Part]) -> None:
    for part in parts:
        path = folder / part.file
        if not path.is_file() or _sha256(path) != part.digest:
            raise UsageError(
                f"{path} is not the file that was written.", hint=f"Delete {folder / _RECEIPTS}, and run the command again."
            )


def _receipt(parts: Sequence[Part], wanted: Wanted, folder: Path, seconds: float) -> WorkloadSample:
    users: set[str] = set()
    users.update(*(part.users for part in parts))
    firsts, lasts = [part.first for part in parts if part.first], [part.last for part in parts if part.last]
    counts: dict[str, Any] = {"jobs": sum(part.jobs for part in parts), "users": len(users)}
    return WorkloadSample(
        **counts,
        first=min(firsts, default=None),
        last=max(lasts, default=None),
        core_hours=round(sum(part.core_s for part in parts) / 3600, 1),
        seconds=round(seconds, 2),
        output=str(folder),
        format="parquet",
        seed=wanted.seed,
    )
