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
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from stormpetrel.config import SiteSection, SlurmSection
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.records.cursor import Cursor
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.slurm.pending_arrays import split_arrays
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.sources.slurm.unfinished import in_one_form
from stormpetrel.sources.tables.delimited import Layout

if TYPE_CHECKING:
    from stormpetrel.sources.slurm.queue import Queue

# Everything the job frame knows, and what advice and events will want; what this Slurm does not know is left out.
# Free text stands in the middle: a newline in it is then told from one that ends a record.
WANTED: Final = (
    "JobID,JobIDRaw,Cluster,JobName,WorkDir,Comment,SubmitLine,User,UID,Group,GID,Account,Partition,QOS,Submit,Eligible,Start,End,"
    "Elapsed,ExitCode,DerivedExitCode,Timelimit,ReqCPUS,AllocCPUS,ReqNodes,NNodes,ReqMem,MaxRSS,CPUTimeRAW,TotalCPU,UserCPU,"
    "SystemCPU,TRESUsageInTot,TRESUsageInMax,NTasks,Suspended,ConsumedEnergyRaw,MaxDiskRead,MaxDiskWrite,ReqTRES,AllocTRES,NodeList,"
    "Reason,Priority,Flags,Constraints,Restarts,Reservation,WCKey,State"
).split(",")
_FIRST_RUN_DAYS: Final = 30
_WIDEST_DAYS: Final = 8.0  # that one request asks for where there seems to be nothing; busy days are asked for by `chunk_days`
_ENDED: Final = "CANCELLED,COMPLETED,FAILED,TIMEOUT,NODE_FAIL,OUT_OF_MEMORY,PREEMPTED,BOOT_FAIL,DEADLINE,REQUEUED,REVOKED"
_GOING_ON: Final = "PENDING,RUNNING,SUSPENDED"
# What a user's shell may set for his own eyes: squeue would show us his jobs only, sacct other clusters.
_OF_ONES_OWN: Final = ("SQUEUE_", "SACCT_")


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

    def __init__(self, slurm: SlurmSection, site: SiteSection, *, pause: Callable[[float], None] = time.sleep) -> None:
        self._slurm, self._pause = slurm, pause
        self.accounting: Accounting = _rest_accounting(slurm, site) if slurm.rest_url else _sacct_accounting(slurm, site)

    def sources(
        self,
        cursor_of: Callable[[str], int | None],
        *,
        now: datetime,
        overlap_hours: float | None = None,
        listed: Sequence[str] = (),
    ) -> Iterator[JobSource]:
        """What has happened on each cluster since the last run, oldest first, pausing between two requests.

        Of clusters whose controller has given its list (`listed`) only jobs that have ended are asked for. A window in which
        nothing was makes the next one twice as wide, and costs no pause if the answer came at once: the database had no work.
        """
        pause_s = 0.0
        overlap = self._slurm.overlap_hours if overlap_hours is None else overlap_hours
        for cluster in self._slurm.clusters or [""]:
            name = f"slurm:{cluster or 'local'}"
            cursor, days = cursor_of(name), self._slurm.chunk_days
            start = _first_moment(self._slurm, cursor, now, overlap)
            while start < now:
                window = _window(name, cursor, start, min(start + timedelta(days=days), now))
                source = self.accounting.window(cluster, window, ended_only=cluster in listed)
                if pause_s:
                    self._pause(pause_s)
                queried_s = time.monotonic()
                yield source
                nothing = source.rows_read == 0
                pause_s = 0.0 if nothing and time.monotonic() - queried_s < self._slurm.pause_s else self._slurm.pause_s
                days = min(2 * days, max(_WIDEST_DAYS, self._slurm.chunk_days)) if nothing else self._slurm.chunk_days
                start = window.end


def has_queues(slurm: SlurmSection) -> bool:
    """Whether there is anything that could show the list of a controller."""
    return bool(slurm.rest_url) or find_squeue(slurm) is not None


def find_queues(slurm: SlurmSection) -> dict[str, Queue]:
    """The doors to the lists of jobs of the controllers, by cluster as the settings name it (empty: the local one).

    Empty where only accounting can be asked: a sacct without a squeue next to it, a slurmrestd that shows accounting only.
    """
    from stormpetrel.sources.slurm.queue import Squeue
    from stormpetrel.sources.slurm.rest_jobs import rest_queue

    if slurm.rest_url:
        queue = rest_queue(slurm)
        return {} if queue is None else {queue.cluster if slurm.clusters else "": queue}
    command = find_squeue(slurm)
    return {cluster: Squeue(slurm, command, cluster) for cluster in slurm.clusters or [""]} if command else {}


def find_squeue(slurm: SlurmSection) -> str | None:
    """The squeue in the settings, or the one that lies next to sacct; none where slurmrestd is asked."""
    if slurm.rest_url:
        return None
    if slurm.squeue:
        return shutil.which(slurm.squeue)
    sacct = shutil.which(slurm.sacct)
    return shutil.which("squeue", path=str(Path(sacct).parent)) if sacct else None


def live_sources(
    slurm: SlurmSection, site: SiteSection, cursor_of: Callable[[str], int | None], *, now: datetime
) -> Iterator[JobSource]:
    """What has happened on each cluster since the last run, oldest first, pausing between two requests."""
    yield from LiveSlurm(slurm, site).sources(cursor_of, now=now)


class WindowSource(JobSource, Protocol):
    """A window's jobs, and how many records there were; None until it has been read to its end."""

    rows_read: int | None


class Accounting(Protocol):
    """The accounting database: jobs of a window of time, and jobs by their ids."""

    @property
    def most_ids(self) -> int:
        """How many ids one poll may ask for."""
        ...

    def window(self, cluster: str, window: Window, *, ended_only: bool) -> WindowSource:
        """The jobs of a window; of those that go on nothing, if another source tells of them."""
        ...

    def lookup(self, cluster: str, ids: Sequence[str]) -> JobSource:
        """Jobs by their ids, `123` or `123_4`, whenever they were."""
        ...

    def going_on(self, cluster: str, start: datetime, end: datetime) -> JobSource | None:
        """What it knows of jobs that wait or run besides what their controller tells; None where that is nothing."""
        ...


@dataclass(frozen=True, slots=True)
class SacctAccounting:
    """The accounting database through sacct: the command, and the fields that it knows."""

    slurm: SlurmSection
    command: str
    fields: list[str]
    default_cluster: str
    most_ids: int = 1000

    def window(self, cluster: str, window: Window, *, ended_only: bool) -> WindowSource:
        """The jobs of a window of time."""
        selection = [*_span(window.start, window.end), *([f"--state={_ENDED}"] if ended_only else [])]
        return SacctAnswer(self, cluster, selection, str(window), window)

    def lookup(self, cluster: str, ids: Sequence[str]) -> JobSource:
        """Jobs by their ids; one that was never eligible is found only so."""
        return SacctAnswer(self, cluster, [f"--jobs={','.join(ids)}"], f"{len(ids)} jobs by their ids")

    def going_on(self, cluster: str, start: datetime, end: datetime) -> JobSource | None:
        """Jobs that wait or run: their submit lines, which squeue does not tell before Slurm 23.02."""
        return SacctAnswer(self, cluster, [*_span(start, end), f"--state={_GOING_ON}"], "jobs that wait or run")


def _sacct_accounting(slurm: SlurmSection, site: SiteSection) -> Accounting:
    command = find_sacct(slurm.sacct)
    fields = available_fields(command, slurm.timeout_s)
    if slurm.clusters:
        check_clusters(slurm.clusters, clusters_of_sacct(command, slurm.timeout_s))
    return SacctAccounting(slurm, command, fields, site.cluster or "cluster")


def _rest_accounting(slurm: SlurmSection, site: SiteSection) -> Accounting:
    from stormpetrel.sources.slurm.rest import SlurmRest, clusters_of_rest  # an HTTP client takes a tenth of a second
    from stormpetrel.sources.slurm.rest_jobs import RestAccounting

    with SlurmRest(slurm) as server:
        version = slurm.rest_version or server.newest_version("slurmdb", "jobs", plugin="slurmdbd")
        if slurm.clusters:
            check_clusters(slurm.clusters, clusters_of_rest(server, version))
    return RestAccounting(slurm, version, site.cluster or "cluster")


def check_clusters(wanted: Sequence[str], known: Sequence[str]) -> None:
    """A cluster that Slurm does not know gives an empty answer, not an error: it has to be found out beforehand."""
    wrong = next((name for name in wanted if name not in known), None)
    if wrong is not None:
        raise SettingsError(
            f"Slurm has no cluster '{wrong}' (slurm.clusters).", hint=f"Known: {', '.join(known) or 'none'}. Nothing was read."
        )


def _first_moment(slurm: SlurmSection, cursor: int | None, now: datetime, overlap_hours: float) -> datetime:
    """Where to begin: the cursor less the overlap, or what the settings say of a first run."""
    if cursor is not None:
        return datetime.fromtimestamp(cursor, UTC) - timedelta(hours=overlap_hours)
    return _since(slurm.since) or now - timedelta(days=_FIRST_RUN_DAYS)


def _window(name: str, cursor: int | None, start: datetime, end: datetime) -> Window:
    """A span to ask for; the cursor never moves back."""
    return Window(start, end, Cursor(name, max(cursor or 0, int(end.timestamp()))))


def _since(text: str) -> datetime | None:
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:
        raise SettingsError(f"slurm.since {text!r} is not a day.", hint="Write it as 2024-03-31.") from None


class SacctAnswer(LiveSource):
    """The jobs that sacct shows for some selection of them."""

    format = "sacct"

    def __init__(
        self, sacct: SacctAccounting, cluster: str, selection: list[str], what: str, window: Window | None = None
    ) -> None:
        where = ["-M", cluster] if cluster else []
        super().__init__(" ".join(["sacct", *where, what]), window.cursor if window else None)
        self._sacct, self._selection, self._window = sacct, [*where, *selection], window
        self._cluster = cluster or sacct.default_cluster
        # Nobody can put into a job's name what he cannot guess: no text of a user is ever taken for the end of a field.
        token = secrets.token_hex(8)
        self._delimiter = f"\x1f{token}\x1f"
        self._layout = Layout(
            tuple(name.lower() for name in sacct.fields),
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
            rows = 0
            for chunk in source.chunks():
                rows += chunk.read
                yield split_arrays(in_one_form(chunk), most=self._sacct.slurm.array_tasks, notes=self.notes)
            self.rows_read = rows

    def _ask(self, answer: Path) -> None:
        arguments = [
            self._sacct.command,
            *self._selection,
            "--allusers",
            "--duplicates",
            "--parsable2",
            "--noheader",
            f"--delimiter={self._delimiter}",
            f"--format={','.join(self._sacct.fields)}",
        ]
        resume = self._window.start if self._window else None
        with answer.open("wb") as out:
            run_sacct(arguments, out.fileno(), self._sacct.slurm.timeout_s, resume=resume)


def _span(start: datetime, end: datetime) -> list[str]:
    return [f"--starttime={start:%Y-%m-%dT%H:%M:%S}", f"--endtime={end:%Y-%m-%dT%H:%M:%S}"]


def _by_hand(arguments: Sequence[str]) -> str:
    """What an administrator types to see what we see."""
    name = Path(arguments[0]).name
    return {"squeue": "squeue --all", "scontrol": "scontrol show config"}.get(name, "sacct -a -S now-1hour")


def find_sacct(name: str) -> str:
    """The path of the sacct command; an error that says what to do where there is none."""
    path = shutil.which(name)
    if not path:
        raise SourceUnavailableError(
            f"There is no command '{name}' on this machine.",
            hint="Set slurm.sacct in site.toml to its path, set slurm.rest_url, or ingest a file: sacct -a -P … > FILE.",
        )
    return path


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
    """The clusters that the accounting database knows, from the sacctmgr that lies next to sacct."""
    manager = shutil.which("sacctmgr", path=str(Path(command).parent)) or shutil.which("sacctmgr")
    if not manager:
        raise SourceUnavailableError(
            "There is no sacctmgr next to sacct to check slurm.clusters with.", hint="Leave slurm.clusters empty."
        )
    with tempfile.TemporaryFile() as out:
        run_sacct([manager, "--noheader", "--parsable2", "show", "cluster", "format=cluster"], out.fileno(), timeout_s)
        out.seek(0)
        return out.read().decode("utf-8", "replace").split()


def run_sacct(arguments: list[str], out: int, timeout_s: float, *, resume: datetime | None = None) -> None:
    """Run sacct without a shell; its time is limited, and its children end with it.

    Times are asked for and printed in UTC, as Unix seconds: no zone, no doubled hour.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_OF_ONES_OWN)}
    # Without SLURM_BITSTR_LEN a list of waiting tasks breaks off after 64 characters.
    environment = {**inherited, "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
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
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        reason = lines[0][:300] if lines else f"exit code {process.returncode}"
        raise SourceUnavailableError(
            f"{arguments[0]} failed: {reason.rstrip('.')}.{stays}", hint=f"Try the same by hand: {_by_hand(arguments)}."
        )
