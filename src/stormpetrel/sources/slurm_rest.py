"""slurmrestd -> job records: over a unix socket, or over HTTP with a JWT."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SettingsError, SourceUnavailableError
from stormpetrel.sources.contract import Chunk, JobSource, LiveSource
from stormpetrel.sources.pending_arrays import split_arrays
from stormpetrel.sources.server_connection import read_token, trusted_for
from stormpetrel.sources.slurm_json import SlurmJson
from stormpetrel.sources.unfinished import in_one_form, is_unfinished

if TYPE_CHECKING:
    import httpx

    from stormpetrel.sources.slurm_live import Window, WindowSource

_PATHS: Final = re.compile(r'"/slurmdb/(v\d+\.\d+\.(\d+))/jobs/?"')
_ERRORS: Final = re.compile(rb'"errors"\s*:\s*(\[\s*\{.*?\}\s*\])', re.DOTALL)
_EDGE_BYTES: Final = 65536
_TRIES: Final = 3
_MOST_BYTES: Final = 4 * 1024**3  # of jobs; a million of them are some 3 GB
_MOST_SMALL_BYTES: Final = 64 * 1024**2  # of anything else
_MOST_TIMES: Final = 20  # the time limit of one step, for a whole answer
_NOTHING_FOUND: Final = 9003  # how 22.05 says that a window is empty


@dataclass(frozen=True, slots=True)
class RestAccounting:
    """The accounting database through slurmrestd."""

    slurm: SlurmSection
    version: str
    default_cluster: str
    most_ids: int = 50  # each is a request of its own

    def window(self, cluster: str, window: Window, *, ended_only: bool) -> WindowSource:
        """The jobs of a window of time."""
        return RestWindow(self, cluster, window, ended_only=ended_only)

    def lookup(self, cluster: str, ids: Sequence[str]) -> JobSource:
        """Jobs by their ids; one that was never eligible is found only so."""
        return RestLookup(self, cluster, ids)

    def going_on(self, cluster: str, start: datetime, end: datetime) -> JobSource | None:
        """Nothing that the controller would not tell as well."""
        del cluster, start, end
        return None


class RestAnswer(LiveSource):
    """What slurmrestd answers to requests for jobs of the accounting database."""

    format = "slurmrestd"

    def __init__(self, accounting: RestAccounting, cluster: str, what: str, window: Window | None = None) -> None:
        super().__init__(f"{accounting.slurm.rest_url} {what}", window.cursor if window else None)
        self._accounting, self._slurm, self._window = accounting, accounting.slurm, window
        self._asked_cluster, self._cluster = cluster, cluster or accounting.default_cluster

    def _chunks_of(self, client: httpx.Client, path: str, parameters: dict[str, str]) -> Iterator[Chunk]:
        if self._asked_cluster:
            parameters = {**parameters, "cluster": self._asked_cluster}
        resume = self._window.start if self._window else None
        with tempfile.NamedTemporaryFile(prefix="stormpetrel-rest-") as answer:
            fetch(client, f"/slurmdb/{self._accounting.version}/{path}", parameters, answer.file, self._slurm, resume=resume)
            answer.flush()
            check_errors(Path(answer.name), self._slurm.rest_url)
            source = SlurmJson(answer.name, cluster=self._cluster)
            for chunk in source.chunks():
                self._columns = source.fields()
                yield split_arrays(in_one_form(chunk), most=self._slurm.array_tasks, notes=self.notes)


class RestWindow(RestAnswer):
    """The jobs that slurmrestd shows for one window of time."""

    def __init__(self, accounting: RestAccounting, cluster: str, window: Window, *, ended_only: bool) -> None:
        super().__init__(accounting, cluster, str(window), window)
        self._span, self._ended_only = window, ended_only

    def chunks(self) -> Iterator[Chunk]:
        """Ask the server, and read what it says; one that fails commits nothing."""
        # "uts" and Unix seconds is the one form that every slurmrestd from 22.05 on reads, whatever its time zone.
        start, end = (f"uts{int(moment.timestamp())}" for moment in (self._span.start, self._span.end))
        rows = 0
        with connect(self._slurm) as client:
            for chunk in self._chunks_of(client, "jobs", {"start_time": start, "end_time": end}):
                rows += chunk.read
                yield ended_of(chunk) if self._ended_only else chunk
        self.rows_read = rows


class RestLookup(RestAnswer):
    """Jobs that are asked for one by one."""

    def __init__(self, accounting: RestAccounting, cluster: str, ids: Sequence[str]) -> None:
        super().__init__(accounting, cluster, f"{len(ids)} jobs by their ids")
        self._ids = sorted({text.partition("_")[0] for text in ids})

    def chunks(self) -> Iterator[Chunk]:
        """Ask for each of them; one that the server does not know is left out."""
        with connect(self._slurm) as client:
            for number in self._ids:
                yield from self._chunks_of(client, f"job/{number}", {})


def ended_of(chunk: Chunk) -> Chunk:
    """The records of a chunk whose jobs have ended."""
    if not chunk.records.height:
        return chunk
    records = chunk.records.filter(~is_unfinished(chunk.records))
    return replace(chunk, records=records, read=chunk.read - chunk.records.height + records.height)


def connect(slurm: SlurmSection) -> httpx.Client:
    """A client for the address in the settings, with the token where one is set."""
    import httpx

    headers = {}
    if slurm.rest_token_file:
        token = read_token(Path(slurm.rest_token_file), hint="Write the output of scontrol token into it.")
        headers = {"X-SLURM-USER-NAME": slurm.rest_user, "X-SLURM-USER-TOKEN": token.removeprefix("SLURM_JWT=")}
    url = slurm.rest_url
    if url.startswith("unix://"):
        transport = httpx.HTTPTransport(uds=url.removeprefix("unix://"), verify=trusted_for(url))
        return httpx.Client(transport=transport, base_url="http://localhost", headers=headers, timeout=slurm.timeout_s)
    if not url.startswith(("http://", "https://")):
        raise SettingsError(
            f"slurm.rest_url {url!r} is no address.", hint="Write http://host:6820, https://… or unix:///path/to/socket."
        )
    return httpx.Client(base_url=url, headers=headers, timeout=slurm.timeout_s, verify=trusted_for(url))


def newest_version(client: httpx.Client, slurm: SlurmSection) -> str:
    """The newest version of the accounting API that the server speaks."""
    with tempfile.TemporaryFile() as answer:
        fetch(client, "/openapi/v3", {}, answer, slurm, most_bytes=_MOST_SMALL_BYTES)
        answer.seek(0)
        found = _PATHS.findall(answer.read().decode("utf-8", "replace").replace("\\/", "/"))  # Slurm escapes its slashes
    if not found:
        raise SourceUnavailableError(
            f"{slurm.rest_url} offers no accounting API.", hint="Start slurmrestd with the slurmdbd plugin (-s)."
        )
    return str(max(found, key=lambda version: int(version[1]))[0])


def clusters_of_rest(client: httpx.Client, version: str, slurm: SlurmSection) -> list[str]:
    """The clusters that the accounting database knows."""
    with tempfile.TemporaryFile() as answer:
        fetch(client, f"/slurmdb/{version}/clusters", {}, answer, slurm, most_bytes=_MOST_SMALL_BYTES)
        answer.seek(0)
        try:
            return [str(cluster["name"]) for cluster in json.load(answer)["clusters"]]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceUnavailableError(
                f"{slurm.rest_url} does not tell its clusters.", hint="Leave slurm.clusters empty."
            ) from error


def fetch(
    client: httpx.Client,
    path: str,
    parameters: dict[str, str],
    out: IO[bytes],
    slurm: SlurmSection,
    *,
    resume: datetime | None = None,
    most_bytes: int = _MOST_BYTES,
) -> None:
    """Write the body of an answer to a file; three tries where the server is slow or away, and no end to it is no answer."""
    import httpx

    stays = f" The cursor stays at {resume:%Y-%m-%dT%H:%MZ}; the next run resumes there." if resume else ""
    reason = ""
    for _ in range(_TRIES):
        out.seek(0)
        out.truncate()
        try:
            with client.stream("GET", path, params=parameters) as response:
                if response.status_code in (401, 403):
                    raise SourceUnavailableError(
                        f"{slurm.rest_url} refused the token ({response.status_code}).{stays}",
                        hint="Renew it: scontrol token > FILE, and set slurm.rest_user to its user.",
                    )
                _write_bounded(response, out, slurm, most_bytes, stays)
                if response.status_code == 200:
                    return
                reason = f"answered {response.status_code}"
                if response.status_code < 500:
                    break
        except httpx.HTTPError as error:
            reason = f"did not answer ({type(error).__name__})"
    out.seek(0)
    detail = _error_text(out.read(_EDGE_BYTES))
    raise SourceUnavailableError(
        f"{slurm.rest_url} {reason} ({_TRIES} tries at most){': ' + detail if detail else ''}.{stays}",
        hint="Check that slurmrestd runs and that the token is valid.",
    )


def _write_bounded(response: httpx.Response, out: IO[bytes], slurm: SlurmSection, most_bytes: int, stays: str) -> None:
    written, give_up = 0, time.monotonic() + _MOST_TIMES * slurm.timeout_s
    for piece in response.iter_bytes():
        written += len(piece)
        if written > most_bytes or time.monotonic() > give_up:
            what = f"more than {most_bytes / 1e6:,.0f} MB" if written > most_bytes else "an answer that does not end"
            raise SourceUnavailableError(
                f"{slurm.rest_url} sent {what}.{stays}",
                hint="Check that it is slurmrestd; ask for less at once: lower slurm.chunk_days.",
            )
        out.write(piece)


def check_errors(answer: Path, who: str, *, hint: str = "If it is about credentials, renew the token.") -> None:
    """Look at the errors beside the jobs of an answer in JSON.

    Slurmrestd says 200 and an empty list of jobs for an expired token; squeue exits with 0 and an empty list where slurmctld is
    down.
    """
    with answer.open("rb") as file:
        head = file.read(_EDGE_BYTES)
        file.seek(0, 2)
        file.seek(max(0, file.tell() - _EDGE_BYTES))
        tail = file.read()
    detail = _error_text(head) or _error_text(tail)
    if detail:
        raise SourceUnavailableError(f"{who} answered with an error: {detail}.", hint=hint)


def _error_text(body: bytes) -> str:
    found = _ERRORS.search(body)
    if not found:
        return ""
    try:
        errors = [error for error in json.loads(found.group(1)) if error.get("error_number") != _NOTHING_FOUND]
    except ValueError:
        return "unreadable error"
    if not errors:
        return ""
    first = errors[0]
    words = [str(first.get(name)) for name in ("error", "description") if first.get(name)]
    return "; ".join(words)[:300] or "unnamed error"
