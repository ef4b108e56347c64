"""Campaigns on disk: one folder, and for each campaign NAME.npz (the labelled trace) and NAME.json (what is known about it).

Trace, facts -> write_campaign -> both files or neither. A campaign that is there is never written over.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormpetrel import __version__
from stormpetrel.errors import UsageError
from stormpetrel.private_files import writing_private
from stormpetrel.records.traces import Trace
from stormpetrel.rehearse.labelling import summary_by_type
from stormpetrel.sources.trace_files import SUFFIX, write_trace
from stormpetrel.store.filesystem import writing

FORMAT_VERSION: Final = 1
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign that was written."""

    path: Path
    facts: dict[str, Any]


def campaign_facts(trace: Trace, *, kind: str, seed: int) -> dict[str, Any]:
    """The facts that every campaign has; `kind` says where it comes from (`recorded`, `simulated`)."""
    return {
        "format_version": FORMAT_VERSION,
        "stormpetrel": __version__,
        "kind": kind,
        "name": trace.name,
        "split": trace.split.value if trace.split else "",
        "seed": seed,
        "step_s": trace.step_s,
        "steps": trace.steps,
        "types": summary_by_type(trace),
    }


def free_name(folder: Path, name: str, *, numbered: bool) -> str:
    """A name that no campaign in the folder has; `numbered` asks for the first free of `name-1`, `name-2` and so on."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:100]!r} is no name for a campaign.", hint="Letters, digits, dots, dashes; at most 80.")
    if numbered:
        return next(f"{name}-{number}" for number in range(1, 1_000_000) if not _taken(folder, f"{name}-{number}"))
    if _taken(folder, name):
        raise UsageError(f"There is a campaign {name} in {folder} already.", hint="Choose another --name; none is written over.")
    return name


def write_campaign(folder: Path, trace: Trace, facts: dict[str, Any]) -> Campaign:
    """Write the trace and its facts, both or neither; a campaign that is there is never written over."""
    path = folder / f"{trace.name}{SUFFIX}"
    with writing(folder, doing="write a campaign"):
        folder.mkdir(parents=True, exist_ok=True)
        if _taken(folder, trace.name):
            raise UsageError(f"There is a campaign {trace.name} in {folder} already.", hint="None is written over.")
        with writing_private(path.with_suffix(".json")) as described:
            described.write((json.dumps(facts, indent=1, ensure_ascii=False) + "\n").encode())
            write_trace(trace, path)
    return Campaign(path, facts)


def _taken(folder: Path, name: str) -> bool:
    return any((folder / f"{name}{suffix}").exists() for suffix in (SUFFIX, ".json"))
