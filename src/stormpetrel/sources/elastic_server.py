"""A server of Elasticsearch or OpenSearch -> whole answers, or one sentence that says why there is none.

ElasticSection -> SearchServer -> ask / search -> JSON of all shards. The server is asked once what it is; a request is tried
again with growing pauses where it is slow, away or busy; an answer of some shards only is never taken for the whole.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from stormpetrel.config import ElasticSection
from stormpetrel.errors import MissingExtraError, SettingsError, SourceError, SourceFormatError, SourceUnavailableError
from stormpetrel.sources.elastic_clients import ELASTICSEARCH, OPENSEARCH, Exchange, Headers, TooLongError, address_of, connect
from stormpetrel.sources.server_connection import shown

Answer = dict[str, Any]

_PAUSE_S: Final = 1.0  # before the second try; doubled before each further one
_LONGEST_PAUSE_S: Final = 60.0  # also of what a server asks for
_BUSY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_OLDEST: Final = (7, 2)  # fixed_interval came with it
_INDEX: Final = re.compile(r"(?![_+]|\.\.?$)[^\s/\\?#\"<>|%]{1,255}")  # one that begins with - is left out of the others
_RANDOM: Final = secrets.SystemRandom()


class PartAnswerError(SourceUnavailableError):
    """Some shards, or clusters behind the server, did not answer: the rest must not be taken for the whole."""

    def __init__(self, what: str, *, hint: str = "", reason: str = "") -> None:
        super().__init__(what, hint=hint)
        self.reason = reason


class TooManyBucketsError(SourceUnavailableError):
    """The server will not make so many buckets at once."""


class _ForbiddenError(SourceUnavailableError):
    """Whoever asks may not do this."""


class _BusyError(Exception):
    """A retry may help; the text says what happened."""

    def __init__(self, what: str, pause_s: float = 0.0, *, part: bool = False) -> None:
        super().__init__(what)
        self.pause_s, self.part = pause_s, part


@dataclass(frozen=True, slots=True)
class Identity:
    """What a server says it is; no version where it may not be asked."""

    flavour: str
    version: tuple[int, ...] = ()

    def __str__(self) -> str:
        name = "OpenSearch" if self.flavour == OPENSEARCH else "Elasticsearch"
        return f"{name} {'.'.join(map(str, self.version))}".strip()


class SearchServer:
    """A server that answers searches, as a context manager; `resume` is where a reader would go on, for the words of an error."""

    def __init__(
        self,
        settings: ElasticSection,
        *,
        pause: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = _RANDOM.random,
    ) -> None:
        self.resume: datetime | None = None
        self.timeout_s = settings.timeout_s
        self._settings, self._pause, self._jitter = settings, pause, jitter
        self._address = address_of(settings.url)
        self._index = index_path(settings.index)
        self._close: Callable[[], None] = lambda: None
        self._exchange: Exchange | None = None
        self._identity: Identity | None = None
        self.name = f"Elasticsearch at {self._address}"

    def __enter__(self) -> SearchServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back; the next request opens new ones."""
        self._close()
        self._exchange, self._close = None, lambda: None

    @property
    def identity(self) -> Identity:
        """What the server is: by the settings, or as it says itself."""
        if self._identity is None:
            self._identity = self._ask_identity()
            self.name = f"{'OpenSearch' if self._identity.flavour == OPENSEARCH else 'Elasticsearch'} at {self._address}"
            self.close()  # the next request goes through the client that belongs to it
        return self._identity

    def search(self, body: Answer, *, point_in_time: bool = False, part_will_do: bool = False) -> Answer:
        """The answer to a search, of all shards: PartAnswerError where some stay away, unless a part will do."""
        target = "/_search" if point_in_time else f"/{self._index}/_search"
        lenient = {} if point_in_time else {"ignore_unavailable": "true", "allow_no_indices": "true"}
        limit = {"timeout": f"{max(1, int(self._settings.timeout_s))}s"}
        return self.ask("POST", target, {**body, **limit}, lenient, part_will_do=part_will_do)

    def on_index(self, verb: str, method: str = "POST", body: Answer | None = None, **parameters: str) -> Answer:
        """The answer to a request about the index of the settings, such as `_field_caps`."""
        return self.ask(method, f"/{self._index}/{verb}", body, parameters)

    def ask(
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
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        _ = self.identity
        content = None if body is None else json.dumps(body).encode()
        return self._tried(method, target, content, tries, part_will_do=part_will_do)

    def failure(self, kind: type[SourceError | SettingsError], what: str, hint: str) -> SourceError | SettingsError:
        """An error in the words of this server."""
        stays = f" The cursor stays at {self.resume:%Y-%m-%dT%H:%M:%SZ}; the next run resumes there." if self.resume else ""
        return kind(f"{self.name} {what}.{stays}", hint=hint)

    def no_index(self, said: str = "") -> SourceError | SettingsError:
        """The error that nothing is there to be read."""
        what = f"has no index {self._settings.index!r}{said}"
        return self.failure(SourceUnavailableError, what, "Set elastic.index; * stands for any text.")

    def _tried(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        tries: int | None = None,
        *,
        part_will_do: bool = False,
    ) -> Answer:
        tries = tries or self._settings.retries + 1
        for attempt in range(tries):
            try:
                answer = self._once(method, target, body)
                return answer if part_will_do else _whole(answer)
            except _BusyError as busy:
                last = busy
                if attempt < tries - 1:
                    backing_off_s = _PAUSE_S * 2**attempt * (0.5 + self._jitter() / 2)
                    self._pause(min(max(busy.pause_s, backing_off_s), _LONGEST_PAUSE_S))
        hint = "Check that it runs and can be reached; the next run tries again."
        told = self.failure(SourceUnavailableError, f"{last} ({tries} {'try' if tries == 1 else 'tries'})", hint)
        raise PartAnswerError(told.what, hint=hint, reason=str(last)) if last.part else told from None

    def _once(self, method: str, target: str, body: bytes | None) -> Answer:
        if self._exchange is None:
            flavour = self._identity.flavour if self._identity else ELASTICSEARCH  # its transport asks any server
            self._exchange, self._close = connect(flavour, self._address, self._settings)
        with _translated(self):
            status, headers, content = self._exchange(method, target, body)
        answer = _json_of(content)
        if not 200 <= status < 300:
            raise self._refusal(status, answer, headers)
        if answer is None and (content.lstrip()[:1] == b"<" or "html" in headers.get("content-type", "")):
            raise self.failure(
                SourceFormatError, "answered with a web page, not with data", "Check elastic.url and any proxy before it."
            )
        if answer is None:
            raise _BusyError("answered with something that is no JSON, or half of it")
        return answer

    def _ask_identity(self) -> Identity:
        chosen = self._settings.flavour
        try:
            answer = self._tried("GET", "/")
        except _ForbiddenError:  # whoever may only read an index may not always ask who the server is
            return Identity(OPENSEARCH if chosen == OPENSEARCH else ELASTICSEARCH)
        said = answer.get("version")
        if not isinstance(said, dict) or not isinstance(said.get("number"), str):
            hint = "Check elastic.url: it must lead to the server itself, such as https://host:9200."
            raise self.failure(SourceFormatError, "is neither Elasticsearch nor OpenSearch", hint)
        flavour = OPENSEARCH if said.get("distribution") == OPENSEARCH else ELASTICSEARCH
        version = tuple(int(part) for part in re.findall(r"\d{1,6}", said["number"])[:3])
        if flavour == ELASTICSEARCH and chosen != OPENSEARCH and version < _OLDEST:
            raise self.failure(
                SourceFormatError,
                f"is version {'.'.join(map(str, version))}",
                "Versions from 7.2 on can be read; update the server.",
            )
        return Identity(flavour if chosen == "auto" else chosen, version)

    def _refusal(self, status: int, answer: Answer | None, headers: Headers) -> Exception:
        said = words_of(answer)
        colon = f": {said}" if said else ""
        if "too_many_buckets" in said or "Trying to create too many buckets" in said:
            return self.failure(TooManyBucketsError, f"will not make so many buckets{colon}", "Lower elastic.page_size.")
        if status in _BUSY:
            return _BusyError(f"answered {status}{colon}", _asked_pause_s(headers.get("retry-after", "")))
        if status in (401, 403):
            return self._no_access(status, said)
        if 300 <= status < 400:
            where = shown(headers.get("location", ""))
            return self.failure(
                SettingsError, f"points to another address, {where!r}, which is not followed", "Set elastic.url to it."
            )
        if status == 404:
            return self.failure(
                SourceUnavailableError,
                f"has no index {self._settings.index!r}{colon}",
                "Set elastic.index; * stands for any text.",
            )
        return self._misunderstood(status, said)

    def _no_access(self, status: int, said: str) -> SourceError | SettingsError:
        if status == 401:
            hint = "Check elastic.api_key_file, or elastic.user and elastic.password_file: they may have expired."
            return self.failure(SourceUnavailableError, "refused the key or password, or wants one (401)", hint)
        hint = f"Grant the privileges read and view_index_metadata on {self._settings.index} to this key or user."
        return self.failure(_ForbiddenError, f"does not permit this (403){': ' + said if said else ''}", hint)

    def _misunderstood(self, status: int, said: str) -> SourceError | SettingsError:
        if "ielddata" in said or "Text fields are not optimised" in said:
            what = f"cannot count by a field of type text: {said}"
            return self.failure(SourceFormatError, what, "Use FIELD.keyword in the settings of elastic.")
        if "parse query" in said or "parse_exception" in said:
            return self.failure(SettingsError, f"does not understand elastic.query: {said}", "Write it in Lucene's syntax.")
        what = f"answered {status}{': ' + said if said else ''}"
        return self.failure(SourceFormatError, what, "Check the settings of elastic and the server's log.")


def index_path(index: str) -> str:
    """The index of the settings as a part of an address."""
    if index.startswith("-") or not all(_INDEX.fullmatch(part) for part in index.split(",")):
        raise SettingsError(f"elastic.index {shown(index)!r} is no name or pattern.", hint="Write it as fifebatch-events-*.")
    return quote(index, safe="*,")


def words_of(answer: Answer | None) -> str:
    """The reason in an error of the server, in its own words."""
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
        raise _BusyError(f"answered in part only: {missing}", part=True)
    return answer


def _shards_away(shards: object) -> str:
    if not isinstance(shards, dict) or not shards.get("failed"):
        return ""
    failures = shards.get("failures")
    first = failures[0] if isinstance(failures, list) and failures and isinstance(failures[0], dict) else {}
    reason = words_of({"error": first.get("reason")}) or "without a reason"
    return f"{shown(shards['failed'])} of {shown(shards.get('total'))} shards failed ({reason})"


def _clusters_away(clusters: object) -> str:
    """Of a search over several clusters: those that are away and may be left out by their settings."""
    away = {name: clusters.get(name) for name in ("skipped", "partial", "failed")} if isinstance(clusters, dict) else {}
    return ", ".join(f"{shown(number)} clusters {name}" for name, number in away.items() if number)


def _json_of(content: bytes) -> Answer | None:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _asked_pause_s(asked: str) -> float:
    """Retry-After, in seconds or as a date."""
    if asked.isascii() and asked.isdigit():
        return float(asked[:6])
    try:
        moment = parsedate_to_datetime(asked)
        return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return 0.0


@contextmanager
def _translated(server: SearchServer) -> Iterator[None]:
    """The errors of the clients and of what is below them, as ours."""
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (SourceError, SettingsError, MissingExtraError):
        raise
    except (OSError, HTTPError) as error:
        raise _problem(server, error) from error
    except Exception as error:  # each client has a tree of its own, which is there only where it is installed
        if type(error).__module__.partition(".")[0] not in ("elastic_transport", "elasticsearch", "opensearchpy"):
            raise
        raise _problem(server, error) from error


def _problem(server: SearchServer, error: Exception) -> Exception:
    cause = error.__cause__ or error.__context__ or error
    kind = f"{type(error).__name__} {type(cause).__name__}"
    if isinstance(cause, TooLongError):
        return server.failure(SourceFormatError, str(cause), "Lower elastic.page_size, and check elastic.url.")
    if "CERTIFICATE" in str(error) or "CERTIFICATE" in str(cause):
        return server.failure(SettingsError, "has a certificate that is not trusted", "Set elastic.ca_file to its authority.")
    if "Timeout" in kind:
        return _BusyError(f"did not answer within {server.timeout_s:g} s")
    return _BusyError(f"cannot be reached or broke off ({type(cause).__name__})")
