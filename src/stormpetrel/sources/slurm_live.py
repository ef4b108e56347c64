"""A running Slurm -> job records, a window of time after the other: through sacct, or through slurmrestd.

Each window is a source of its own with its own cursor, committed together with its rows: stopped anywhere, the next run goes on
where the last committed window ended, reading a little again (`overlap_hours`) for corrections that came late.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from stormpetrel.config import SiteSection, SlurmSection
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.sources.contract import Chunk, Cursor, JobSource, LiveSource, without_growth
from stormpetrel.sources.delimited import Layout
from stormpetrel.sources.pending_arrays import split_arrays
from stormpetrel.sources.sacct_text import SacctText

# Everything the job frame knows, and what advice and events will want; what this Slurm does not know is left out.
# Free text stands in the middle: a newline in it is then told from one that ends a record.
WANTED: Final = (
    "JobID,JobIDRaw,Cluster,JobName,WorkDir,Comment,SubmitLine,User,UID,Group,GID,Account,Partition,QOS,Submit,Eligible,Start,End,"
    "Elapsed,ExitCode,DerivedExitCode,Timelimit,ReqCPUS,AllocCPUS,ReqNodes,NNodes,ReqMem,MaxRSS,CPUTimeRAW,TotalCPU,UserCPU,"
    "SystemCPU,MaxDiskRead,MaxDiskWrite,ReqTRES,AllocTRES,NodeList,Reason,Priority,Flags,Constraints,Restarts,Reservation,WCKey,State"
).split(",")
_FIRST_RUN_DAYS: Final = 30


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time to ask for, and the cursor that says it has been read."""

    start: datetime
    end: datetime
    cursor: Cursor

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M} UTC"


class LiveSlurm:
    """A running Slurm: found, and asked what it knows, once; then asked for windows of time, again and again."""

    def __init__(self, slurm: SlurmSection, site: SiteSection) -> None:
        self._slurm, self._site = slurm, site
        self._ask = _rest_asker(slurm, site) if slurm.rest_url else _sacct_asker(slurm, site)

    def sources(
        self, cursor_of: Callable[[str], int | None], *, now: datetime, overlap_hours: float | None = None
    ) -> Iterator[JobSource]:
        """What has happened on each cluster since the last run, oldest first, pausing between two requests."""
        first = True
        overlap = self._slurm.overlap_hours if overlap_hours is None else overlap_hours
        for cluster in self._slurm.clusters or [""]:
            name = f"slurm:{cluster or 'local'}"
            for window in windows(self._slurm, name, cursor_of(name), now, overlap):
                if not first:
                    time.sleep(self._slurm.pause_s)
                first = False
                yield self._ask(cluster, window)

    def queue(self) -> Iterator[JobSource]:
        """What waits now. Accounting shows a job once it is eligible: one that is held, or to begin later, only squeue knows."""
        squeue = find_squeue(self._slurm)
        if squeue:
            yield SqueueNow(self._slurm, squeue, self._site.cluster or "cluster")


def find_squeue(slurm: SlurmSection) -> str | None:
    """The squeue in the settings, or the one that lies beside sacct; none where slurmrestd is asked."""
    if slurm.rest_url:
        return None
    if slurm.squeue:
        return shutil.which(slurm.squeue)
    sacct = shutil.which(slurm.sacct)
    return shutil.which("squeue", path=str(Path(sacct).parent)) if sacct else None


class SqueueNow(LiveSource):
    """The jobs that wait, as squeue shows them."""

    format = "squeue"

    def __init__(self, slurm: SlurmSection, command: str, cluster: str) -> None:
        super().__init__("squeue", None)
        self._slurm, self._command, self._cluster = slurm, command, cluster

    def chunks(self) -> Iterator[Chunk]:
        """Ask squeue, and read what it says."""
        from stormpetrel.sources.slurm_json import SlurmJson
        from stormpetrel.sources.slurm_rest import check_errors

        with tempfile.NamedTemporaryFile(prefix="stormpetrel-squeue-") as answer:
            run_sacct([self._command, "--all", "--json"], answer.fileno(), self._slurm.timeout_s)
            check_errors(Path(answer.name), self._command, hint="Does slurmctld answer? Try: scontrol ping.")
            source = SlurmJson(answer.name, cluster=self._cluster)
            for chunk in source.chunks():
                self._columns = source.fields()
                waiting = chunk.records.filter(state="PENDING")
                yield without_growth(split_arrays(replace(chunk, records=waiting, read=waiting.height + chunk.rejects.height)))


def live_sources(
    slurm: SlurmSection, site: SiteSection, cursor_of: Callable[[str], int | None], *, now: datetime
) -> Iterator[JobSource]:
    """What has happened on each cluster since the last run, oldest first, pausing between two requests."""
    yield from LiveSlurm(slurm, site).sources(cursor_of, now=now)


def _sacct_asker(slurm: SlurmSection, site: SiteSection) -> Callable[[str, Window], JobSource]:
    """What makes a source of a cluster and a window, with what has to be asked only once."""
    command = find_sacct(slurm.sacct)
    fields = available_fields(command, slurm.timeout_s)
    if slurm.clusters:
        check_clusters(slurm.clusters, clusters_of_sacct(command, slurm.timeout_s))
    return lambda cluster, window: SacctWindow(slurm, command, fields, cluster, site.cluster or "cluster", window)


def _rest_asker(slurm: SlurmSection, site: SiteSection) -> Callable[[str, Window], JobSource]:
    from stormpetrel.sources.slurm_rest import RestWindow, clusters_of_rest, connect, newest_version

    with connect(slurm) as client:
        version = slurm.rest_version or newest_version(client, slurm)
        if slurm.clusters:
            check_clusters(slurm.clusters, clusters_of_rest(client, version, slurm))
    return lambda cluster, window: RestWindow(slurm, version, cluster, site.cluster or "cluster", window)


def check_clusters(wanted: Sequence[str], known: Sequence[str]) -> None:
    """A cluster that Slurm does not know gives an empty answer, not an error: it has to be found out beforehand."""
    wrong = next((name for name in wanted if name not in known), None)
    if wrong is not None:
        raise SettingsError(
            f"Slurm has no cluster '{wrong}' (slurm.clusters).", hint=f"Known: {', '.join(known) or 'none'}. Nothing was read."
        )


def windows(
    slurm: SlurmSection, name: str, cursor: int | None, now: datetime, overlap_hours: float | None = None
) -> Iterator[Window]:
    """The spans from the cursor (less the overlap) to now; the cursor never moves back."""
    if cursor is not None:
        overlap = slurm.overlap_hours if overlap_hours is None else overlap_hours
        start = datetime.fromtimestamp(cursor, UTC) - timedelta(hours=overlap)
    else:
        start = _since(slurm.since) or now - timedelta(days=_FIRST_RUN_DAYS)
    while start < now:
        end = min(start + timedelta(days=slurm.chunk_days), now)
        yield Window(start, end, Cursor(name, max(cursor or 0, int(end.timestamp()))))
        start = end


def _since(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise SettingsError(f"slurm.since {text!r} is not a day.", hint="Write it as 2024-03-31.") from None


class SacctWindow(LiveSource):
    """The jobs that sacct shows for one window of time."""

    format = "sacct"

    def __init__(
        self, slurm: SlurmSection, command: str, fields: list[str], cluster: str, default_cluster: str, window: Window
    ) -> None:
        self._arguments = ["-M", cluster] if cluster else []
        super().__init__(" ".join(["sacct", *self._arguments, str(window)]), window.cursor)
        self._slurm, self._command, self._names, self._window = slurm, command, fields, window
        self._cluster = cluster or default_cluster
        # Nobody can put into a job's name what he cannot guess: no text of a user is ever taken for the end of a field.
        token = secrets.token_hex(8)
        self._delimiter = f"\x1f{token}\x1f"
        self._layout = Layout(
            tuple(name.lower() for name in fields),
            self._delimiter.encode(),
            has_header=False,
            newline=f"\x1e{token}\x1e".encode(),
        )

    def chunks(self) -> Iterator[Chunk]:
        """Ask sacct, and read what it says; a sacct that fails or hangs commits nothing."""
        with tempfile.NamedTemporaryFile(prefix="stormpetrel-sacct-") as answer:
            self._ask(Path(answer.name))
            source = SacctText(answer.name, layout=self._layout, cluster=self._cluster)
            self._columns = source.fields()
            for chunk in source.chunks():
                yield without_growth(split_arrays(chunk))

    def _ask(self, answer: Path) -> None:
        arguments = [
            self._command,
            *self._arguments,
            "--allusers",
            "--duplicates",
            "--parsable2",
            "--noheader",
            f"--delimiter={self._delimiter}",
            f"--starttime={self._window.start:%Y-%m-%dT%H:%M:%S}",
            f"--endtime={self._window.end:%Y-%m-%dT%H:%M:%S}",
            f"--format={','.join(self._names)}",
        ]
        with answer.open("wb") as out:
            run_sacct(arguments, out.fileno(), self._slurm.timeout_s, resume=self._window.start)


def find_sacct(name: str) -> str:
    """The path of the sacct command; an error that says what to do where there is none."""
    found = shutil.which(name)
    if not found:
        raise SourceUnavailableError(
            f"There is no command '{name}' on this machine.",
            hint="Set slurm.sacct in site.toml to its path, set slurm.rest_url, or ingest a file: sacct -a -P … > FILE.",
        )
    return found


def available_fields(command: str, timeout_s: float) -> list[str]:
    """The wanted fields that this sacct knows."""
    with tempfile.TemporaryFile() as out:
        run_sacct([command, "--helpformat"], out.fileno(), timeout_s)
        out.seek(0)
        known = {word.lower() for word in out.read().decode("utf-8", "replace").split()}
    names = [name for name in WANTED if name.lower() in known]
    if "JobID" not in names or "Submit" not in names:
        raise SourceUnavailableError(
            f"{command} --helpformat does not list the fields of sacct.", hint="Set slurm.sacct to the real one."
        )
    return names


def clusters_of_sacct(command: str, timeout_s: float) -> list[str]:
    """The clusters that the accounting database knows, from the sacctmgr that lies beside sacct."""
    manager = shutil.which("sacctmgr", path=str(Path(command).parent)) or shutil.which("sacctmgr")
    if not manager:
        raise SourceUnavailableError(
            "There is no sacctmgr beside sacct to check slurm.clusters with.", hint="Leave slurm.clusters empty."
        )
    with tempfile.TemporaryFile() as out:
        run_sacct([manager, "--noheader", "--parsable2", "show", "cluster", "format=cluster"], out.fileno(), timeout_s)
        out.seek(0)
        return out.read().decode("utf-8", "replace").split()


def run_sacct(arguments: list[str], out: int, timeout_s: float, *, resume: datetime | None = None) -> None:
    """Run sacct without a shell; its time is limited, and its children end with it.

    Times are asked for and printed in UTC, as Unix seconds: no zone, no doubled hour.
    """
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
    stays = f" The cursor stays at {resume:%Y-%m-%dT%H:%MZ}; the next run resumes there." if resume else ""
    try:
        process = subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, env=environment, start_new_session=True
        )
    except OSError as error:
        raise SourceUnavailableError(
            f"{arguments[0]} cannot be run: {error.strerror}.{stays}", hint="Set slurm.sacct to the real one."
        ) from error
    with process:
        try:
            _, errors = process.communicate(timeout=timeout_s)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            raise SourceUnavailableError(
                f"{arguments[0]} did not answer within {timeout_s:.0f} s.{stays}",
                hint="Check slurmdbd, or raise slurm.timeout_s.",
            ) from None
    if process.returncode != 0:
        said = errors.decode("utf-8", "replace").strip().splitlines()
        reason = said[0][:300] if said else f"exit code {process.returncode}"
        raise SourceUnavailableError(
            f"{arguments[0]} failed: {reason}.{stays}", hint="Try the same by hand: sacct -a -S now-1hour."
        )
