"""What the last rehearsals of a site came to: small files beside its tables and state, which no rehearsal touches.

report (plain values) -> save_report -> mysite/rehearsal/<name>.json; load_report -> report.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from stormpetrel.private_files import write_private

FOLDER: Final = "rehearsal"
HISTORY: Final = "history"  # faults in a copy of the past
LIVE: Final = "live"  # faults in a copy of the live stream
LIVE_TRIALS: Final = "live-trials"  # each of them, so that the next run goes on counting
_LONGEST: Final = 4_000_000  # bytes of a report that is read


def rehearsal_folder(site_folder: Path) -> Path:
    """Return the folder of a site's rehearsals; it may be missing."""
    return site_folder / FOLDER


def save_report(site_folder: Path, name: str, report: dict[str, Any]) -> bool:
    """Keep a report in place of the last one of this name; False where the folder cannot be written."""
    folder = rehearsal_folder(site_folder)
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        write_private(folder / f"{name}.json", json.dumps(report))
        return True
    return False


def load_report(site_folder: Path, name: str) -> dict[str, Any] | None:
    """Return the last report of this name; None where there is none that can be read."""
    path = rehearsal_folder(site_folder) / f"{name}.json"
    with suppress(OSError, ValueError):
        if path.stat().st_size <= _LONGEST:
            report = json.loads(path.read_text(encoding="utf-8"))
            return report if isinstance(report, dict) else None
    return None
