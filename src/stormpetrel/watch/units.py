"""systemd units for a site: `stormpetrel watch --unit` and `stormpetrel serve --unit` print them, ready to be installed."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stormpetrel.store.site import Site

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # what systemd gives to a service
_UNIT = """\
[Unit]
Description=Stormpetrel {role} of {site}
After=network-online.target{after}
Wants=network-online.target

[Service]
Type={kind}
User={user}
{environment}ExecStart={command}
Restart=on-failure
RestartSec=10
{watchdog}TimeoutStopSec=60
KillMode=mixed
Nice=5
# It needs its site and nothing else.
NoNewPrivileges=yes
ProtectSystem=strict
ReadWritePaths={site}{state}
ProtectHome={home}
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
UMask=0077

[Install]
WantedBy=multi-user.target
"""


def site_unit(role: str, site: Site) -> str:
    """The unit of `watch` or `serve` with what the settings of a site say."""
    return systemd_unit(role, site.folder, state_dir=site.settings.store.state_dir, sacct=site.settings.slurm.sacct)


def systemd_unit(
    role: str, site: Path, *, state_dir: str = "", sacct: str = "sacct", environment: Mapping[str, str] = os.environ
) -> str:
    """The unit of `watch` or `serve` for a site, for the user who asks for it.

    A service inherits no shell: what finds Slurm here (`SLURM_CONF`, the folder of `sacct` on PATH) is written into the unit.
    """
    folder = site.resolve()
    command = " ".join(_quoted(word) for word in (sys.executable, "-m", "stormpetrel", "--site", str(folder), role))
    watch = role == "watch"
    return _UNIT.format(
        role=role,
        site=_quoted(str(folder)),
        state=f" {_quoted(state_dir)}" if state_dir.startswith("/") else "",
        user=getpass.getuser(),
        environment="".join(f"Environment={_assigned(*pair)}\n" for pair in _finds_slurm(sacct, environment)),
        command=command,
        kind="notify" if watch else "simple",
        watchdog="WatchdogSec=600\n" if watch else "",
        after=" slurmdbd.service slurmctld.service" if watch else " stormpetrel-watch.service",
        home="no" if any(part in ("home", "root") for part in folder.parts[1:2]) else "read-only",
    )


def _finds_slurm(sacct: str, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables without which the service would find another Slurm than this shell does, or none."""
    conf = environment.get("SLURM_CONF", "")
    if conf and conf.isprintable():
        yield "SLURM_CONF", conf
    command = None if "/" in sacct else shutil.which(sacct, path=environment.get("PATH", os.defpath))
    folder = str(Path(command).absolute().parent) if command else ""
    if folder.isprintable() and folder not in ("", *_SYSTEM_PATH.split(":")):
        yield "PATH", f"{folder}:{_SYSTEM_PATH}"


def _assigned(name: str, value: str) -> str:
    """A variable as systemd reads it in Environment=: percent signs are doubled, a dollar means itself."""
    value = value.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{name}={value}"'


def _quoted(word: str) -> str:
    """A word as systemd reads it: percent signs are doubled, spaces quoted."""
    word = word.replace("%", "%%").replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{word}"' if any(letter.isspace() for letter in word) else word
