"""A server of Elasticsearch or OpenSearch -> whole answers, or one sentence that states why there is none.

ElasticSection -> SearchServer -> request / search -> JSON of all shards. Which of the two it is, is requested once. Requests
are plain JSON, which every version accepts (docs/adr/0023). An answer of some shards only is never taken for the whole.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

from stormpetrel.config import ElasticSection
from stormpetrel.errors import SettingsError, SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.http import Address, BusyError, HttpServer, Reply, Retries, TooLongError, json_object, read_secret, shown

Answer = dict[str, Any]

OPENSEARCH: Final = "opensearch"
ELASTICSEARCH: Final = "elasticsearch"
_NAMES: Final = {OPENSEARCH: "OpenSearch", ELASTICSEARCH: "Elasticsearch"}
_MOST_BYTES: Final = 256 * 1024**2  # of one answer: 10,000 buckets take some 5 MB
_PAUSE_S: Final = 1.0  # before the second try; doubled before each further one
_LONGEST_PAUSE_S: Final = 60.0
_OLDEST: Final = (7, 2)  # fixed_interval came with it
_INDEX: Final = re.compile(r"(?![_+]|\.\.?$)[^\s/\\?#\"<>|%]{1,255}")  # a name that begins with - is left out of the others
_RANDOM: Final = secrets.SystemRandom()
_JSON: Final = {"accept": "application/json", "content-type": "application/json"}


class PartAnswerError(SourceUnavailableError):
    """Some shards, or clusters behind the server, did not answer: the rest must not be taken for the whole."""

    def __init__(self, what: str, *, hint: str = "", reason: str = "") -> None:
        super().__init__(what, hint=hint)
        self.reason = reason


class TooManyBucketsError(SourceUnavailableError):
    """The server refuses to build so many buckets at once."""


class _ForbiddenError(SourceUnavailableError):
    """The key or user does not have this privilege."""


class _PartError(BusyError):
    """An answer of some shards only."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which server it is; no version where the key or user may not read it."""

    flavour: str
    version: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{_NAMES[self.flavour]} {'.'.join(map(str, self.version))}".strip()


class SearchServer(HttpServer):
    """A server that answers searches, as a context manager."""

    def __init__(
        self,
        settings: ElasticSection,
        *,
        pause: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = _RANDOM.random,
    ) -> None:
        _check_url(settings.url)
        address = Address(
            "elastic",
            settings.url,
            ca_file=settings.ca_file,
            timeout_s=settings.timeout_s,
            example="https://host:9200",
            product=_NAMES[ELASTICSEARCH],
        )
        retries = Retries(settings.retries + 1, _PAUSE_S, _LONGEST_PAUSE_S, jitter)
        super().__init__(address, headers={**_JSON, **_authorization(settings)}, retries=retries, pause=pause)
        self._settings = settings
        self._index = index_path(settings.index)
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        """Which server it is: by the settings, or as it reports itself."""
        if self._identity is None:
            self._identity = self._request_identity()
            self.name = f"{_NAMES[self._identity.flavour]} at {self._settings.url}"
        return self._identity

    def search(self, body: Answer, *, point_in_time: bool = False, part_will_do: bool = False) -> Answer:
        """The answer to a search, of all shards: PartAnswerError where some stay away, unless a part will do."""
        target = "/_search" if point_in_time else f"/{self._index}/_search"
        lenient = {} if point_in_time else {"ignore_unavailable": "true", "allow_no_indices": "true"}
        limit = {"timeout": f"{max(1, int(self._settings.timeout_s))}s"}
        return self.request("POST", target, {**body, **limit}, lenient, part_will_do=part_will_do)

    def on_index(self, verb: str, method: str = "POST", body: Answer | None = None, **parameters: str) -> Answer:
        """The answer to a request about the index of the settings, such as `_field_caps`."""
        return self.request(method, f"/{self._index}/{verb}", body, parameters)

    def request(
        self,
        method: str,
        path: str,
        body: Answer | None = None,
        parameters: Mapping[str, str] | None = None,
        *,
        tries: int | None = None,
        part_will_do: bool = False,
    ) -> Answer:
        """The answer to a request, as JSON; tried again after longer and longer pauses where the server is slow, away or busy."""
        _ = self.identity
        return self._answer(method, path, body, parameters, tries=tries, part_will_do=part_will_do)

    def no_index(self, colon: str = "") -> SourceError | SettingsError:
        """Return the error that there is no index to read; `colon` is the server's reason, with a colon before it."""
        what = f"has no index {self._settings.index!r}{colon}"
        return self.failure(SourceUnavailableError, what, "Set elastic.index; * stands for any text.")

    def _answer(
        self,
        method: str,
        path: str,
        body: Answer | None = None,
        parameters: Mapping[str, str] | None = None,
        *,
        tries: int | None = None,
        part_will_do: bool = False,
    ) -> Answer:
        content = None if body is None else json.dumps(body).encode()

        def once() -> Answer:
            try:
                reply = self.exchange(
                    method, path, params=list((parameters or {}).items()), content=content, most_bytes=_MOST_BYTES
                )
            except TooLongError as error:
                raise self.failure(SourceFormatError, str(error), "Lower elastic.page_size, and check elastic.url.") from None
            if not 200 <= reply.status < 300:
                raise self._refused(reply, error_of(json_object(reply.body)))
            answer = self.decoded(reply, json_object)
            return answer if part_will_do else _whole(answer)

        return self.retried(once, hint="Check that it runs and can be reached; the next run tries again.", tries=tries)

    def _gave_up(self, last: BusyError, tries: str, hint: str) -> SourceError | SettingsError:
        error = super()._gave_up(last, tries, hint)
        return PartAnswerError(error.what, hint=hint, reason=str(last)) if isinstance(last, _PartError) else error

    def _request_identity(self) -> Identity:
        flavour = self._settings.flavour
        try:
            answer = self._answer("GET", "/")
        except _ForbiddenError:  # a key that may only read an index may not always read the version
            return Identity(OPENSEARCH if flavour == OPENSEARCH else ELASTICSEARCH)
        reported = answer.get("version")
        if not isinstance(reported, dict) or not isinstance(reported.get("number"), str):
            hint = "Check elastic.url: it must lead to the server itself, such as https://host:9200."
            raise self.failure(SourceFormatError, "is neither Elasticsearch nor OpenSearch", hint)
        actual = OPENSEARCH if reported.get("distribution") == OPENSEARCH else ELASTICSEARCH
        version = tuple(int(part) for part in re.findall(r"\d{1,6}", reported["number"])[:3])
        if actual == ELASTICSEARCH and flavour != OPENSEARCH and version < _OLDEST:
            hint = "Versions from 7.2 on can be read; update the server."
            raise self.failure(SourceFormatError, f"is version {'.'.join(map(str, version))}", hint)
        return Identity(actual if flavour == "auto" else flavour, version)

    def _refused(self, reply: Reply, message: str) -> Exception:
        if "too_many_buckets" in message or "Trying to create too many buckets" in message:
            return self.failure(TooManyBucketsError, f"will not build so many buckets: {message}", "Lower elastic.page_size.")
        if reply.status in (401, 403):
            return self._no_access(reply.status, message)
        if reply.status == 404:
            return self.no_index(f": {message}" if message else "")
        return self._misunderstood(reply, message) if 400 <= reply.status < 500 else self.refusal(reply, message)

    def _no_access(self, status: int, message: str) -> SourceError | SettingsError:
        if status == 401:
            hint = "Check elastic.api_key_file, or elastic.user and elastic.password_file: they may have expired."
            return self.failure(SourceUnavailableError, "refused the key or password, or wants one (401)", hint)
        hint = f"Grant the privileges read and view_index_metadata on {self._settings.index} to this key or user."
        return self.failure(_ForbiddenError, f"does not permit this (403){': ' + message if message else ''}", hint)

    def _misunderstood(self, reply: Reply, message: str) -> Exception:
        if "ielddata" in message or "Text fields are not optimised" in message:
            what = f"cannot count by a field of type text: {message}"
            return self.failure(SourceFormatError, what, "Use FIELD.keyword in the settings of elastic.")
        if "parse query" in message or "parse_exception" in message:
            return self.failure(SettingsError, f"does not understand elastic.query: {message}", "Write it in Lucene's syntax.")
        return self.refusal(reply, message)


def _check_url(url: str) -> None:
    """Refuse an address that is none, and one that holds a secret."""
    try:
        parts = urlsplit(url)
        port_is_number = parts.port is None or parts.port > 0
    except ValueError:
        parts, port_is_number = urlsplit(""), False
    if url and (
        not port_is_number or parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment
    ):
        raise SettingsError("elastic.url is no address.", hint="Write it as https://host:9200.")
    if parts.username or parts.password:
        raise SettingsError(
            "elastic.url holds a user or a password.", hint="Set elastic.user and elastic.password_file (mode 0600) instead."
        )


def _authorization(settings: ElasticSection) -> dict[str, str]:
    if settings.api_key_file and settings.user:
        raise SettingsError("elastic has both an API key and a user.", hint="Leave api_key_file or user empty.")
    if settings.api_key_file:
        key = read_secret(Path(settings.api_key_file), hint="Set elastic.api_key_file.")
        # Kibana shows a key encoded, or as ID:KEY.
        encoded = base64.b64encode(key.encode()).decode() if ":" in key else key
        return {"authorization": f"ApiKey {encoded}"}
    if settings.user:
        if not settings.password_file:
            raise SettingsError("elastic.user is set without a password.", hint="Set elastic.password_file (mode 0600).")
        password = read_secret(Path(settings.password_file), hint="Set elastic.password_file.")
        pair = f"{settings.user}:{password}"
        return {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def index_path(index: str) -> str:
    """The index of the settings as a part of an address."""
    if index.startswith("-") or not all(_INDEX.fullmatch(part) for part in index.split(",")):
        raise SettingsError(f"elastic.index {shown(index)!r} is no name or pattern.", hint="Write it as fifebatch-events-*.")
    return quote(index, safe="*,")


def error_of(answer: Answer | None) -> str:
    """Return the reason in an error of the server."""
    error = (answer or {}).get("error")
    if not isinstance(error, dict):
        return shown(error or "")
    causes = error.get("root_cause")
    first = causes[0] if isinstance(causes, list) and causes and isinstance(causes[0], dict) else error
    return shown(": ".join(str(first[name]) for name in ("type", "reason") if first.get(name)))


def part_missing(answer: Answer) -> str:
    """What an answer lacks, in words; "" where all shards have answered."""
    if answer.get("timed_out") is True:
        return "the search timed out"
    return _shards_away(answer.get("_shards")) or _clusters_away(answer.get("_clusters"))


def _whole(answer: Answer) -> Answer:
    """An answer of all the shards; one of some of them is no answer."""
    missing = part_missing(answer)
    if missing:
        raise _PartError(f"answered in part only: {missing}")
    return answer


def _shards_away(shards: object) -> str:
    if not isinstance(shards, dict) or not shards.get("failed"):
        return ""
    failures = shards.get("failures")
    first = failures[0] if isinstance(failures, list) and failures and isinstance(failures[0], dict) else {}
    reason = error_of({"error": first.get("reason")}) or "without a reason"
    return f"{shown(shards['failed'])} of {shown(shards.get('total'))} shards failed ({reason})"


def _clusters_away(clusters: object) -> str:
    """Of a search over several clusters: those that are away and may be left out by their settings."""
    away = {name: clusters.get(name) for name in ("skipped", "partial", "failed")} if isinstance(clusters, dict) else {}
    return ", ".join(f"{shown(number)} clusters {name}" for name, number in away.items() if number)
