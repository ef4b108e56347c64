"""slurmrestd as a server: over a unix socket, or over HTTP with a JWT.

SlurmSection -> SlurmRest -> fetch (to a file) / get (in memory) -> JSON. It reports errors inside answers with status 200.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

from stormpetrel.config import SlurmSection
from stormpetrel.errors import SourceFormatError, SourceUnavailableError
from stormpetrel.sources.http import Address, BusyError, HttpServer, Reply, Retries, TooLongError, json_object, read_token, shown

_ERRORS: Final = re.compile(rb'"errors"\s*:\s*(\[\s*\{.*?\}\s*\])', re.DOTALL)
_EDGE_BYTES: Final = 65536
MOST_BYTES: Final = 4 * 1024**3  # of jobs; a million of them are some 3 GB
MOST_SMALL_BYTES: Final = 64 * 1024**2  # of anything else
_MOST_TIMES: Final = 20  # the time limit of one step, for a whole answer
_NOTHING_THERE: Final = 9003  # the error number with which 22.05 reports an empty window


class SlurmRest(HttpServer):
    """A slurmrestd; `tries` is how often a request is sent where it is slow, away or busy."""

    def __init__(self, slurm: SlurmSection, *, tries: int = 3, pause: Callable[[float], None] = time.sleep) -> None:
        example = "http://host:6820, https://… or unix:///path/to/socket"
        address = Address(
            "slurm", slurm.rest_url, timeout_s=slurm.timeout_s, example=example, product="slurmrestd", setting="rest_url"
        )
        super().__init__(address, headers=_token_headers(slurm), retries=Retries(tries), pause=pause)
        self._timeout_s = slurm.timeout_s

    def fetch(
        self,
        path: str,
        parameters: dict[str, str],
        out: IO[bytes],
        *,
        most_bytes: int = MOST_BYTES,
        within_s: float | None = None,
    ) -> None:
        """Write the body of an answer to a file, at its beginning; an answer that is cut short or refused raises SourceError."""
        limit_s = within_s or _MOST_TIMES * self._timeout_s
        self.retried(
            lambda: self._fetch_once(path, parameters, out, most_bytes, limit_s),
            hint="Check that slurmrestd runs and that the token is valid.",
        )

    def get(self, path: str, *, most_bytes: int = MOST_SMALL_BYTES, within_s: float | None = None) -> dict[str, Any]:
        """Return a small answer as a JSON object."""
        with tempfile.TemporaryFile() as answer:
            self.fetch(path, {}, answer, most_bytes=most_bytes, within_s=within_s)
            answer.seek(0)
            document = json_object(answer.read())
        if document is None:
            raise self.failure(SourceFormatError, "answered something that is no JSON object", "Check slurm.rest_url.")
        return document

    def versions(self, api: str, path: str, *, within_s: float | None = None) -> dict[str, int]:
        """Return the versions of an API (slurm or slurmdb) that offer a path, each with its last number; {} where none does."""
        with tempfile.TemporaryFile() as answer:
            self.fetch("/openapi/v3", {}, answer, most_bytes=MOST_SMALL_BYTES, within_s=within_s)
            answer.seek(0)
            text = answer.read().decode("utf-8", "replace").replace("\\/", "/")  # Slurm escapes its slashes
        return {version: int(number) for version, number in re.findall(rf'"/{api}/(v\d+\.\d+\.(\d+))/{path}/?"', text)}

    def newest_version(self, api: str, path: str, *, plugin: str, within_s: float | None = None) -> str:
        """Return the newest version of an API that offers a path; `plugin` of slurmrestd is the one that it needs."""
        versions = self.versions(api, path, within_s=within_s)
        if not versions:
            raise self.failure(
                SourceUnavailableError, f"offers no {api} API with {path}", f"Start slurmrestd with the {plugin} plugin (-s)."
            )
        return max(versions, key=lambda version: versions[version])

    def _fetch_once(self, path: str, parameters: dict[str, str], out: IO[bytes], most_bytes: int, limit_s: float) -> None:
        out.seek(0)
        out.truncate()
        try:
            reply = self.exchange("GET", path, params=list(parameters.items()), most_bytes=most_bytes, within_s=limit_s, out=out)
        except TooLongError as error:
            hint = "Check that it is slurmrestd; request less at once: lower slurm.chunk_days."
            raise self.failure(SourceUnavailableError, str(error), hint) from None
        if reply.status != 200:
            out.seek(0)
            raise self._refused(reply, _error_text(out.read(_EDGE_BYTES)))

    def _refused(self, reply: Reply, message: str) -> Exception:
        if reply.status in (401, 403):
            hint = "Renew it: scontrol token > FILE, and set slurm.rest_user to its user."
            return self.failure(SourceUnavailableError, f"refused the token ({reply.status})", hint)
        colon = f": {message}" if message else ""
        if reply.status >= 500:  # any of them: the controller behind it may be restarting
            return BusyError(f"answered {reply.status}{colon}", reply.retry_after_s)
        if 400 <= reply.status < 500 and reply.status not in (408, 425, 429):
            hint = "Check that slurmrestd runs and that the token is valid."
            return self.failure(SourceUnavailableError, f"answered {reply.status}{colon}", hint)
        return self.refusal(reply, message)


def check_errors(answer: Path, who: str, *, hint: str = "If it is about credentials, renew the token.") -> None:
    """Raise SourceUnavailableError where an answer in JSON lists errors next to its jobs.

    slurmrestd sends 200 and an empty list of jobs for an expired token; squeue exits with 0 and an empty list where slurmctld is
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


def clusters_of_rest(server: SlurmRest, version: str) -> list[str]:
    """Return the names of the clusters that the accounting database knows."""
    try:
        return [str(cluster["name"]) for cluster in server.get(f"/slurmdb/{version}/clusters")["clusters"]]
    except (KeyError, TypeError):
        raise server.failure(SourceUnavailableError, "does not list its clusters", "Leave slurm.clusters empty.") from None


def _token_headers(slurm: SlurmSection) -> dict[str, str]:
    if not slurm.rest_token_file:
        return {}
    token = read_token(Path(slurm.rest_token_file), hint="Write the output of scontrol token into it.")
    return {"X-SLURM-USER-NAME": slurm.rest_user, "X-SLURM-USER-TOKEN": token.removeprefix("SLURM_JWT=")}


def _error_text(body: bytes) -> str:
    listed = _ERRORS.search(body)
    if not listed:
        return ""
    try:
        errors = [error for error in json.loads(listed.group(1)) if error.get("error_number") != _NOTHING_THERE]
    except ValueError:
        return "unreadable error"
    if not errors:
        return ""
    return shown("; ".join(str(errors[0][name]) for name in ("error", "description") if errors[0].get(name))) or "unnamed error"
