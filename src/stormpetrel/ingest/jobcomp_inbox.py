"""Documents that Slurm's jobcomp plug-in sends -> a file of lines in the site's folder -> the job table; checked every night.

put: documents -> disk, before the sender is told that they were taken. sources -> what is there, each part deleted once it is in
the table: killed in between, it is read again, and known records are dropped. reconcile -> what accounting says of them.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import polars as pl

from stormpetrel.errors import SourceError, StoreBusyError
from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.contract import JobSource
from stormpetrel.sources.formats import DEFAULT_CLUSTER
from stormpetrel.sources.slurm.jobcomp import JobCompletions, without_script
from stormpetrel.sources.slurm.live import LiveSlurm
from stormpetrel.store.site import Site

_FOLDER: Final = "incoming"
_CURRENT: Final = "jobcomp.jsonl"
_PART: Final = "jobcomp-*.part"
_MOST_BYTES: Final = 1 << 30  # beyond that nobody takes them
_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_BACK: Final = timedelta(days=2)  # how far a night looks back
_LATE: Final = timedelta(minutes=10)  # within that accounting may not have heard of a job


class JobcompInbox:
    """The documents of one site that are not in its job table yet."""

    def __init__(self, site: Site) -> None:
        self._folder = site.folder / _FOLDER
        self._signs = site.settings.allows_similar_names
        self._cluster = site.settings.site.cluster or DEFAULT_CLUSTER

    def put(self, documents: Sequence[Mapping[str, Any]]) -> None:
        """Keep documents, on disk when this returns; StoreBusyError where nobody has taken any for very long."""
        lines = b"".join(json.dumps(without_script(document, sign=self._signs)).encode() + b"\n" for document in documents)
        with self._locked():
            descriptor = os.open(self._folder / _CURRENT, _APPEND, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                if size + len(lines) > _MOST_BYTES:
                    raise StoreBusyError(
                        "A gigabyte of job records waits, and nobody reads it.",
                        hint="Start stormpetrel watch; Slurm keeps what is refused, and sends it again.",
                    )
                if size and os.pread(descriptor, 1, size - 1) != b"\n":  # half a line of a process that was killed
                    lines = b"\n" + lines
                with os.fdopen(descriptor, "wb", closefd=False) as file:
                    file.write(lines)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def sources(self) -> Iterator[JobSource]:
        """What waits, oldest first; asking for the next says that the one before is in the table."""
        if not self._folder.is_dir():
            return
        for part in self._parts():
            yield JobCompletions(part, cluster=self._cluster)
            part.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        current = self._folder / _CURRENT
        with self._locked():
            if current.is_file():
                current.rename(self._folder / f"jobcomp-{time.time_ns()}.part")
        return sorted(self._folder.glob(_PART))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from appending or taking."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def reconcile(site: Site) -> str | None:
    """Read the last two days of accounting again where documents are pushed; a sentence for people, None where they are not."""
    settings = site.settings
    if not settings.slurm.jobcomp:
        return None
    now = site.now()
    try:
        slurm = LiveSlurm(settings.slurm, settings.site)
        reports = [
            ingest_jobs(site, source)
            for source in slurm.sources(site.jobs.cursor, now=now, overlap_hours=_BACK / timedelta(hours=1))
        ]
    except SourceError as error:
        return f"jobcomp was not compared with accounting: {error.what}"
    ended = pl.col("end_time").is_between(now - _BACK, now - _LATE)
    by_source = dict(site.jobs.read_jobs().filter(ended).group_by("source").len().collect().iter_rows())
    unknown = by_source.pop(JobCompletions.format, 0)
    return (
        f"Accounting knows {sum(by_source.values()):,} jobs that ended in the last two days. It does not know {unknown:,} that "
        f"jobcomp reported; {sum(report.kept for report in reports):,} of its records were new to us."
    )
