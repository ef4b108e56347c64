"""The real command line as a process of its own: run it, start it, and judge how it failed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stormpetrel.config import SITE_FILE, load_settings, settings_as_toml, settings_from

_MAIN = "from stormpetrel.faces.cli.main import main; main()"


def words_for(site: Path, *arguments: str) -> list[str]:
    """The command line that works on a site."""
    return [sys.executable, "-c", _MAIN, "--site", str(site), *arguments]


def run(site: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(words_for(site, *arguments), env=env, capture_output=True, text=True, timeout=120)


def start(site: Path, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a command and go on."""
    pipe = subprocess.PIPE
    return subprocess.Popen(words_for(site, *arguments), env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a command that went well printed with --json."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def complaint_of(done: subprocess.CompletedProcess[str]) -> str:
    """The one clear line of a command that failed: exit code 1, nothing else on either stream, no traceback."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    assert not done.stdout
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("stormpetrel: "), done.stderr
    return lines[0]


def change_settings(site: Path, **sections: Mapping[str, object]) -> None:
    """Set some keys in a site's site.toml, as a person would with an editor."""
    values = load_settings(site).model_dump()
    for name, keys in sections.items():
        values[name] |= keys
    (site / SITE_FILE).write_text(settings_as_toml(settings_from(values)))
