"""How a server is reached: its address in site.toml -> an HTTP client with token and certificates; and the files of secrets.

Address -> connect -> httpx.Client. A secret lies in a file that only its owner can read, and is never part of a message.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from stormpetrel.errors import SettingsError

if TYPE_CHECKING:
    import httpx

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
        verify = ssl.create_default_context(cafile=address.ca_file) if address.ca_file else True
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
