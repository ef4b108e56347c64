"""HTTP to every server: retries, time limits, TLS, token files, and what "busy" means.

Address -> HttpServer -> exchange -> Reply (status, headers, body). `HttpClient` is one exchange, bounded in time and size;
`HttpServer` adds the tries and the sentences of errors that all sources share. What an answer means, only its own server knows:
`JsonServer` (Grafana, Graphite) is here, Prometheus, Elasticsearch and slurmrestd are in their folders, receivers of alarms in
`watch/notify`. No redirect is followed, so that a token goes nowhere else. A secret is read from a file that only its owner can
read, and is never part of a message.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar

import httpx

from stormpetrel.errors import SettingsError, SourceError, SourceFormatError, SourceUnavailableError

T = TypeVar("T")
Parameters = Sequence[tuple[str, str]]
Headers = Mapping[str, str]  # by lower-case name

BUSY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})  # a retry may help
_MOST_BYTES: Final = 64 * 1024**2  # of one answer
_USER_INFO: Final = re.compile(r"//[^/@]*@")
_LONGEST_TEXT: Final = 300  # characters of what a server or a setting holds, in a message
_LONGEST_ERROR_BYTES: Final = 65_536
_LONGEST_SECRET: Final = 65_536  # characters


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and how it is reached; `section` is that of site.toml, which errors name."""

    section: str  # grafana, graphite, prometheus, elastic, slurm
    url: str  # http://, https://, or unix:// with the path of a socket
    token_file: str = ""
    ca_file: str = ""
    timeout_s: float = 10.0
    example: str = "https://host"
    product: str = ""  # the server's name for people; the section's, where empty
    setting: str = "url"  # of the section, that holds the address

    @property
    def server_name(self) -> str:
        """The server's name for people, such as Prometheus."""
        return self.product or self.section.capitalize()


@dataclass(frozen=True, slots=True)
class Retries:
    """How often a request is sent, and the pauses between; a server's Retry-After lengthens a pause up to `longest_pause_s`."""

    tries: int = 3
    pause_s: float = 0.5  # before the second try; doubled before each further one
    longest_pause_s: float = 10.0
    jitter: Callable[[], float] = field(default=lambda: 1.0)  # 0..1: a pause is between half and the whole of its length

    def pause_after(self, attempt: int, wanted_s: float) -> float:
        """The pause after the attempt (from 0), where the server wants one of `wanted_s` seconds (0: none)."""
        backoff_s = self.pause_s * float(2**attempt) * (0.5 + self.jitter() / 2)
        return min(max(wanted_s, backoff_s), self.longest_pause_s)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of a server; the body is empty where it was written to a file."""

    status: int
    headers: Headers
    body: bytes

    @property
    def is_web_page(self) -> bool:
        """Whether a page of a proxy or of a login came instead of data."""
        return self.body.lstrip()[:1] == b"<" or "html" in self.headers.get("content-type", "")

    @property
    def retry_after_s(self) -> float:
        """The pause that the server wants, from Retry-After in seconds or as a date; 0 without one."""
        text = self.headers.get("retry-after", "")
        if text.isascii() and text.isdigit():
            return float(text[:6])
        try:
            return max(0.0, (parsedate_to_datetime(text).astimezone(UTC) - datetime.now(UTC)).total_seconds())
        except (ValueError, TypeError, OverflowError):
            return 0.0


class BusyError(Exception):
    """A retry may help. `pause_s` is what the server wants; `may_have_arrived`: the request may have been carried out."""

    def __init__(self, what: str, pause_s: float = 0.0, *, may_have_arrived: bool = False) -> None:
        super().__init__(what)
        self.pause_s, self.may_have_arrived = pause_s, may_have_arrived


class UntrustedError(Exception):
    """The server's certificate is signed by nobody whom the client trusts."""


class TooLongError(Exception):
    """An answer is longer than the limit; `reply` holds its status, headers and the body up to there."""

    def __init__(self, most_bytes: int, reply: Reply) -> None:
        super().__init__(f"answered with more than {most_bytes // 1024**2} MiB")
        self.reply = reply


class HttpClient:
    """Sends requests to one address, each once; SettingsError where the address or its certificates cannot be used."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float,
        headers: Headers | None = None,
        basic: tuple[str, str] | None = None,  # user and password
        ca_file: str = "",
        ca_setting: str = "ca_file",
    ) -> None:
        self._timeout_s = timeout_s
        self._url = "http://localhost" if url.startswith("unix://") else url
        httpx.URL(self._url)  # raises InvalidURL
        verify = trusted_for(url, ca_file=ca_file, setting=ca_setting)
        transport = httpx.HTTPTransport(uds=url.removeprefix("unix://"), verify=verify) if url.startswith("unix://") else None
        self._client = httpx.Client(
            transport=transport, headers=headers, auth=basic, timeout=timeout_s, verify=verify, follow_redirects=False
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def exchange(
        self,
        method: str,
        path: str = "",
        *,
        params: Parameters = (),
        form: Mapping[str, str] | None = None,
        content: bytes | None = None,
        headers: Headers | None = None,
        most_bytes: int = _MOST_BYTES,
        within_s: float | None = None,
        out: IO[bytes] | None = None,
    ) -> Reply:
        """Send a request once and read the whole answer, of at most `most_bytes` and within a time, into memory or `out`.

        `path` is appended to the path of the address. Each step of an exchange has the time limit of the client; `within_s` is
        that of the whole answer, where it may take longer. Raises BusyError, UntrustedError or TooLongError.
        """
        url = f"{self._url.rstrip('/')}/{path.lstrip('/')}" if path else self._url
        give_up, body, size = time.monotonic() + (within_s or self._timeout_s), bytearray(), 0
        step_s = min(self._timeout_s, within_s or self._timeout_s)
        try:
            with self._client.stream(
                method, url, params=list(params) or None, data=form, content=content, headers=headers, timeout=step_s
            ) as response:
                for piece in response.iter_bytes():
                    size += len(piece)
                    if size > most_bytes:
                        raise TooLongError(most_bytes, Reply(response.status_code, response.headers, bytes(body)))
                    if time.monotonic() > give_up:  # httpx limits each step: one byte at a time would never be late
                        raise httpx.ReadTimeout("the whole answer took too long")
                    if out is None:
                        body += piece
                    else:
                        out.write(piece)
                return Reply(response.status_code, response.headers, bytes(body))
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise _translated(error, within_s or self._timeout_s) from error


def _translated(error: Exception, limit_s: float) -> Exception:
    """An error of httpx as one of ours."""
    if "CERTIFICATE" in str(error):
        return UntrustedError("has a certificate that is not trusted")
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol):
        return BusyError(f"cannot be reached ({type(error).__name__})")
    if isinstance(error, httpx.TimeoutException):
        return BusyError(f"did not answer within {limit_s:g} s", may_have_arrived=True)
    return BusyError(f"broke off ({type(error).__name__})", may_have_arrived=True)


class HttpServer:
    """A server that a source reads, as a context manager; `resume` is where its reader would continue, for messages."""

    def __init__(
        self,
        address: Address,
        *,
        headers: Headers | None = None,
        retries: Retries | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.resume: datetime | None = None
        self.name = f"{address.server_name} at {_USER_INFO.sub('//', address.url)}"
        self._address, self._headers, self._pause = address, headers or {}, pause
        self._retries = retries or Retries()
        self._connection: HttpClient | None = connect(address, headers=self._headers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def failure(self, kind: type[SourceError | SettingsError], what: str, hint: str) -> SourceError | SettingsError:
        """Return an error about this server, in one sentence, with the cursor where it stays."""
        stays = f" The cursor stays at {self.resume:%Y-%m-%dT%H:%M:%SZ}; the next run resumes there." if self.resume else ""
        return kind(f"{self.name} {what}.{stays}", hint=hint)

    def exchange(self, method: str, path: str, **options: Any) -> Reply:
        """Send a request once; see HttpClient.exchange."""
        if self._connection is None:
            self._connection = connect(self._address, headers=self._headers)
        try:
            return self._connection.exchange(method, path, **options)
        except UntrustedError as error:
            hint = f"Set {self._address.section}.ca_file to its authority."
            raise self.failure(SettingsError, str(error), hint) from None

    def retried(self, once: Callable[[], T], *, hint: str, tries: int | None = None) -> T:
        """Return what `once` returns; it is called again, after a pause, where it raises BusyError."""
        most = tries or self._retries.tries
        for attempt in range(most):
            try:
                return once()
            except BusyError as busy:
                last = busy
                if attempt < most - 1:
                    self._pause(self._retries.pause_after(attempt, busy.pause_s))
        raise self._gave_up(last, f"{most} {'try' if most == 1 else 'tries'}", hint) from None

    def _gave_up(self, last: BusyError, tries: str, hint: str) -> SourceError | SettingsError:
        return self.failure(SourceUnavailableError, f"{last} ({tries})", hint)

    def decoded(self, reply: Reply, decode: Callable[[bytes], T | None]) -> T:
        """Return the decoded body; where `decode` returns None it is a web page (an error) or half an answer (BusyError)."""
        answer = decode(reply.body)
        if answer is not None:
            return answer
        if reply.is_web_page:
            hint = f"Check {self._address.section}.{self._address.setting}, the credentials, and any proxy before it."
            raise self.failure(SourceFormatError, "answered with a web page, not with data", hint)
        raise BusyError("answered with something that is no JSON, or half of it", may_have_arrived=True)

    def refusal(self, reply: Reply, message: str, *, not_found: str = "") -> Exception:
        """Return the error of a reply that is no success, where its status has the meaning that it has everywhere.

        `message` is the server's own reason ("" for none), `not_found` what a 404 means.
        """
        section, status = self._address.section, reply.status
        colon = f": {message}" if message else ""
        if status in BUSY_STATUSES:
            return BusyError(f"answered {status}{colon}", reply.retry_after_s)
        if status in (401, 403):
            hint = f"Check {section}.token_file: the token may have expired, or may not read this."
            return self.failure(SourceUnavailableError, f"refused the token, or wants one ({status}){colon}", hint)
        if 300 <= status < 400:
            what = f"points to another address, {shown(reply.headers.get('location', ''))!r}, which is not followed"
            hint = f"Set {section}.{self._address.setting} to it; a login page means that a token is missing."
            return self.failure(SettingsError, what, hint)
        if status == 404 and not_found:
            return self.failure(SettingsError, f"{not_found} (404)", f"Check {section}.url: it may need a path.")
        return self.failure(SourceFormatError, f"answered {status}{colon}", f"Check the settings of {section}, and its log.")


class JsonServer(HttpServer):
    """A server that answers GET requests with JSON (Grafana, Graphite)."""

    def get(self, path: str, params: Parameters, *, not_found: str) -> Any:
        """Return the answer to a request as JSON; `not_found` says what a 404 means here."""
        return self.retried(
            lambda: self._once(path, params, not_found), hint=f"Check that it runs, and {self._address.section}.url."
        )

    def _once(self, path: str, params: Parameters, not_found: str) -> Any:
        try:
            reply = self.exchange("GET", path, params=params, most_bytes=_MOST_BYTES)
        except TooLongError as error:
            raise self.failure(SourceFormatError, str(error), f"Request less, or check {self._address.section}.url.") from None
        if reply.status == 200:
            return self.decoded(reply, json_value)
        raise self.refusal(reply, error_text(reply.body), not_found=not_found)


def connect(address: Address, *, headers: Headers | None = None) -> HttpClient:
    """Return a client for the address, with its token; SettingsError names the setting that is wrong."""
    section, url, name = address.section, address.url, f"{address.section}.{address.setting}"
    if not url.startswith(("http://", "https://", "unix://")):
        what = f"{name} {shown(url)!r} is no address." if url else f"Nothing says where {address.server_name} is."
        raise SettingsError(what, hint=f"Set {name} to {address.example} in site.toml.")
    token = {}
    if address.token_file:
        token = {"Authorization": f"Bearer {read_token(Path(address.token_file), hint=f'Set {section}.token_file.')}"}
    try:
        return HttpClient(
            url,
            timeout_s=address.timeout_s,
            headers={**token, **(headers or {})},
            ca_file=address.ca_file,
            ca_setting=f"{section}.ca_file",
        )
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"{name} is no address: {error}.", hint=f"Write {address.example}.") from None


def trusted_for(url: str, *, ca_file: str = "", setting: str = "ca_file") -> ssl.SSLContext | bool:
    """Whom a client of this address trusts: the authority named, those of the system, or, without encryption, nobody.

    To read the authorities of the system takes 25 ms, as long as many an answer. True stands for httpx's own list, which is used
    where the system has none.
    """
    try:
        if ca_file:
            return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"{setting} {ca_file} cannot be read: {error}.", hint="It must be a PEM file of certificates."
        ) from None
    if not url.startswith("https://"):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    system = ssl.get_default_verify_paths()
    return ssl.create_default_context() if system.cafile or system.capath else True


def read_token(path: Path, *, hint: str) -> str:
    """Return the token in a file: one word of ASCII; `hint` says what to do where the file cannot be read."""
    token = read_secret(path, hint=hint, name="token file")
    if not token.isascii() or " " in token:
        raise SettingsError(f"The token file {path} does not hold one token.", hint="Write nothing but the token into it.")
    return token


def read_secret(path: Path, *, hint: str, name: str = "file") -> str:
    """Return the only line of a file that only its owner can read; `hint` says what to do where it cannot be read."""
    try:
        if path.stat().st_mode & 0o077:
            raise SettingsError(f"The {name} {path} can be read by others.", hint=f"Run: chmod 600 {path}")
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"The {name} {path} cannot be read: {error}.", hint=hint) from None
    if not secret or not secret.isprintable() or len(secret) > _LONGEST_SECRET:
        held = "token" if name == "token file" else "line"
        raise SettingsError(f"The {name} {path} does not hold one {held}.", hint="Write nothing but the secret into it.")
    return secret


def json_value(body: bytes) -> Any:
    """Return the JSON value of a body; None where it is no JSON, or nested too deep."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def json_object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object of a body; None where it is anything else."""
    value = json_value(body)
    return value if isinstance(value, dict) else None


def error_text(body: bytes) -> str:
    """Return the reason in an error of a server: the message of its JSON, or the first line of its text; "" of a web page."""
    text = body[:_LONGEST_ERROR_BYTES].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return ""
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        return shown(text.partition("\n")[0])
    return shown(answer.get("message") or answer.get("error") or "") if isinstance(answer, dict) else ""


def shown(text: object) -> str:
    """Return text from outside as one printable line of at most 300 characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())[:_LONGEST_TEXT]
