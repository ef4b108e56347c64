"""What a site's settings reach outside of it: commands to run, servers to ask, files to read, and who is believed.

Settings -> outside_settings -> one entry per setting that names something. After a restore an administrator looks at them first:
whoever wrote the backup wrote them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel

from stormpetrel.config import Settings

COMMAND: Final = "command"
SERVER: Final = "server"
FILE: Final = "file"
TRUST: Final = "trust"
_COMMANDS: Final = frozenset({"sacct", "squeue", "scontrol", "sinfo", "sacctmgr", "scancel", "condor_q"})
_FILES: Final = frozenset({"feed", "event_log", "state_dir", "template"})
_TRUSTED: Final = frozenset({"address", "admins", "cancel_by", "hosts", "login", "prefix", "proxies", "user_header"})


@dataclass(frozen=True, slots=True)
class OutsideSetting:
    """A setting that names something outside of the site."""

    kind: str  # command, server, file or trust
    name: str  # such as slurm.sacct
    value: str


def kind_of(key: str) -> str:
    """What a setting of this name reaches; empty where it reaches nothing."""
    if key in _COMMANDS or key.endswith("_command"):
        return COMMAND
    if key in ("url", "host", "recipients") or key.endswith("_url"):
        return SERVER
    if key in _FILES or key.endswith("_file"):
        return FILE
    return TRUST if key in _TRUSTED else ""


def outside_settings(settings: Settings) -> list[OutsideSetting]:
    """The settings that reach outside and are not as they come; passwords in addresses are left out."""
    sections: list[tuple[str, BaseModel]] = [(name, getattr(settings, name)) for name in type(settings).model_fields]
    sections += [(f"notify.routes.{route.name}", route) for route in settings.notify.routes]
    outside = []
    for section_name, section in sections:
        for key, field in type(section).model_fields.items():
            value = getattr(section, key)
            if kind_of(key) and value and value != field.default:
                shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
                outside.append(OutsideSetting(kind_of(key), f"{section_name}.{key}", _without_password(shown)))
    return sorted(outside, key=lambda entry: [COMMAND, SERVER, FILE, TRUST].index(entry.kind))


def _without_password(text: str) -> str:
    try:
        parts = urlsplit(text)
        if not parts.password:
            return text
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:…@{host}"))
    except ValueError:
        return text.partition("://")[0] + "://…"
