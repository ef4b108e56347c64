"""How a server is reached: its address in site.toml -> an HTTP client with token and certificates; and the files of secrets.

Address -> HttpServer: three tries where it is slow, away or busy; no redirect is followed, so that the token goes nowhere else;
an answer has a most size. A secret lies in a file that only its owner can read, and is never part of a message.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from stormpetrel.errors import SettingsError, SourceError, SourceUnavailableError

if TYPE_CHECKING:
    import httpx

Answer = TypeVar("Answer")

_TRIES: Final = 3
_PAUSE_S: Final = 0.5  # before the second try; doubled before the third
_LONGEST_PAUSE_S: Final = 10.0  # that a server may ask for
_USER_INFO: Final = re.compile(r"//[^/@]*@")
_SHOWN: Final = 300  # letters of what a server or a setting says
_LONGEST_SECRET: Final = 65_536  # letters


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and how it is spoken to; `section` is that of site.toml, for the words of an error."""

    section: str  # grafana, graphite, prometheus
    url: str
    token_file: str
    ca_file: str
    timeout_s: float
    example: str = "https://host"

    @property
    def product(self) -> str:
        """The name of the server, for people."""
        return self.section.capitalize()


class BusyError(Exception):
    """A retry may help; the text says what happened."""

    def __init__(self, what: str, pause_s: float = 0.0) -> None:
        super().__init__(what)
        self.pause_s = pause_s


class HttpServer:
    """A server, as a context manager; `resume` is where a reader would go on, for the words of an error."""

    def __init__(self, address: Address, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.resume: datetime | None = None
        self.name = f"{address.product} at {_USER_INFO.sub('//', address.url)}"
        self._address, self._pause = address, pause
        self._client = connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def failure(self, kind: type[SourceError | SettingsError], what: str, hint: str) -> SourceError | SettingsError:
        """An error about this server, in one sentence."""
        stays = f" The cursor stays at {self.resume:%Y-%m-%dT%H:%M:%SZ}; the next run resumes there." if self.resume else ""
        return kind(f"{self.name} {what}.{stays}", hint=hint)

    def _tried(self, once: Callable[[], Answer], *, hint: str) -> Answer:
        """What `once` returns; it is called again, after a pause, where it raises BusyError."""
        reason = ""
        for attempt in range(_TRIES):
            try:
                return once()
            except BusyError as busy:
                reason = str(busy)
                if attempt < _TRIES - 1:
                    self._pause(min(max(busy.pause_s, _PAUSE_S * 2**attempt), _LONGEST_PAUSE_S))
        raise self.failure(SourceUnavailableError, f"{reason} ({_TRIES} tries)", hint)

    def _exchanged(
        self,
        request: Callable[[], AbstractContextManager[httpx.Response]],
        *,
        most_bytes: int,
        too_long: Callable[[str], Exception],
    ) -> tuple[int, httpx.Headers, bytes]:
        """Status, headers and body of the answer to a request; what `too_long` makes is raised for a longer body."""
        import httpx

        give_up, body = time.monotonic() + self._address.timeout_s, bytearray()
        try:
            with request() as response:
                for piece in response.iter_bytes():
                    body += piece
                    if len(body) > most_bytes:
                        raise too_long(f"answered with more than {most_bytes // 1024**2} MiB")
                    if time.monotonic() > give_up:  # a drop at a time would never be late by httpx's own clock
                        raise httpx.ReadTimeout("the whole answer took too long")
                return response.status_code, response.headers, bytes(body)
        except httpx.TimeoutException as error:
            raise BusyError(f"did not answer within {self._address.timeout_s:g} s") from error
        except httpx.TransportError as error:
            if "CERTIFICATE" in str(error):
                hint = f"Set {self._address.section}.ca_file to its authority."
                raise self.failure(SettingsError, "has a certificate that is not trusted", hint) from None
            raise BusyError(f"cannot be reached or broke off ({type(error).__name__})") from error
        except httpx.HTTPError as error:
            raise BusyError(f"answered in a way that is no HTTP ({type(error).__name__})") from error


def trusted_for(url: str, *, ca_file: str = "") -> ssl.SSLContext | bool:
    """Whom a client of this address trusts: the authority named, those of the system (True), or, without encryption, nobody.

    To read the authorities of the system takes 25 ms, as long as many an answer.
    """
    if ca_file:
        return ssl.create_default_context(cafile=ca_file)
    return url.startswith("https://") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def connect(address: Address) -> httpx.Client:
    """A client for the address, which follows no redirection; SettingsError says which setting is wrong."""
    import httpx

    section, url = address.section, address.url
    if not url.startswith(("http://", "https://")):
        what = f"{section}.url {shown(url)!r} is no address." if url else f"Nothing says where {address.product} is."
        raise SettingsError(what, hint=f"Set {section}.url to {address.example} in site.toml.")
    headers = {}
    if address.token_file:
        headers = {"Authorization": f"Bearer {read_token(Path(address.token_file), hint=f'Set {section}.token_file.')}"}
    try:
        verify = trusted_for(url, ca_file=address.ca_file)
        return httpx.Client(base_url=url, headers=headers, timeout=address.timeout_s, verify=verify, follow_redirects=False)
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(
            f"{section}.ca_file {address.ca_file} cannot be read: {error}.", hint="It must be a PEM file of certificates."
        ) from None
    except (httpx.InvalidURL, ValueError) as error:
        raise SettingsError(f"{section}.url is no address: {error}.", hint=f"Write {address.example}.") from None


def read_token(path: Path, *, hint: str) -> str:
    """The token in a file: one word of ASCII; `hint` says what to do where the file cannot be read."""
    token = read_secret(path, hint=hint, name="token file")
    if not token.isascii() or " " in token:
        raise SettingsError(f"The token file {path} does not hold one token.", hint="Write nothing but the token into it.")
    return token


def read_secret(path: Path, *, hint: str, name: str = "file") -> str:
    """The only line of a file that only its owner can read; `hint` says what to do where it cannot be read."""
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


def shown(text: object) -> str:
    """What a server sent, as one line of text that does no harm on a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in str(text)).split())[:_SHOWN]
