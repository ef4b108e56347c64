"""Where the site's service is: STORMPETREL_SERVICE, ~/.config/stormpetrel/client.toml or /etc/stormpetrel/client.toml.

environment + files -> find_service -> Where. The files hold lines `key = "value"`: service, token_file, ca_file.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "STORMPETREL_SERVICE"
TOKEN_VARIABLE = "STORMPETREL_TOKEN_FILE"  # noqa: S105 - the name of a variable
SITE_FILE = Path("/etc/stormpetrel/client.toml")
USUAL_SOCKET = Path("/run/stormpetrel/api.sock")
_LINE = re.compile(r'\s*([a-z_]+)\s*=\s*(?:"([^"\\]*)"|\'([^\']*)\')\s*(?:#.*)?')
_KEYS = ("service", "token_file", "ca_file")


class ClientError(Exception):
    """What went wrong, and what to do next; for people."""

    def __init__(self, what: str, hint: str = "", code: int = 2) -> None:
        super().__init__(f"{what} {hint}".strip())
        self.what, self.hint, self.code = what, hint, code


class Where(NamedTuple):
    """A service: `unix:///path` or `https://host[:port][/prefix]`; the token is in a file."""

    service: str
    token_file: str = ""
    ca_file: str = ""

    @property
    def socket_path(self) -> str | None:
        """The path of its Unix socket; None where it is at an address."""
        return self.service[len("unix://") :] if self.service.startswith("unix://") else None

    def token(self) -> str | None:
        """The token, where there is one; ClientError where others can read its file."""
        if not self.token_file:
            return None
        path = Path(self.token_file).expanduser()
        try:
            if path.stat().st_mode & 0o077:
                raise ClientError(f"Others can read {path}.", f"Run: chmod 600 {path}")
            token = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or error
            raise ClientError(f"The token file {path} cannot be read: {why}.", "Check token_file.") from error
        if not re.fullmatch(r"[!-~]+", token):
            raise ClientError(
                f"There is no token in {path}.", "Expected one line that begins with sp_, as tokens create printed it."
            )
        return token


def find_service(environment: Mapping[str, str], files: tuple[Path, ...] | None = None) -> Where:
    """The service that the environment or a file names, or the usual socket where there is one; ClientError where none is."""
    settings: dict[str, str] = {}
    for path in (SITE_FILE, *_own_files(environment)) if files is None else files:
        settings.update(_settings_in(path))
    settings.update(
        {key: environment[name] for key, name in (("service", VARIABLE), ("token_file", TOKEN_VARIABLE)) if environment.get(name)}
    )
    if not settings.get("service") and USUAL_SOCKET.is_socket():
        settings["service"] = f"unix://{USUAL_SOCKET}"
    service = settings.get("service", "")
    if not service:
        raise ClientError(
            "There is no site here, and nothing says where its service is.",
            f"Set {VARIABLE} to unix:///run/stormpetrel/api.sock or https://host, or ask for {SITE_FILE}; "
            "administrators name their site: stormpetrel --site FOLDER.",
        )
    if not service.startswith(("unix:///", "https://", "http://127.0.0.1", "http://[::1]", "http://localhost")):
        raise ClientError(
            f"{service!r} is no service that can be used.",
            "Expected unix:///path or https://host; http:// on this machine only.",
        )
    return Where(service.rstrip("/"), settings.get("token_file", ""), settings.get("ca_file", ""))


def _own_files(environment: Mapping[str, str]) -> list[Path]:
    """The file of who asks; none in the home of somebody else, which `sudo` and `setpriv` leave in the environment."""
    try:
        folder = Path(environment.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "stormpetrel"
        return [folder / "client.toml"] if folder.is_dir() else []
    except (RuntimeError, KeyError, OSError):  # a user without a home; a folder that may not be entered
        return []


def _settings_in(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{path} cannot be read: {error}.", "Ask your administrators.") from error
    settings = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None or match[1] not in _KEYS:
            raise ClientError(
                f"Line {number} of {path} makes no sense: {line.strip()[:60]!r}.",
                'Expected key = "value", with a key of ' + ", ".join(_KEYS) + ".",
            )
        settings[match[1]] = match[2] if match[2] is not None else match[3]
    return settings
