"""The end of what a job wrote, where the site allows reading it: bounded, owned by the job's user, no links followed, never kept.

job row + allowed folders -> output_path -> read_tail -> text. A file that is not there, not readable, somebody else's, a link, or
outside the allowed folders gives None: `why` then goes by what else is known.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

TAIL_BYTES: Final = 64 * 1024
_LONGEST_PATH: Final = 4096
_OPTION: Final = re.compile(r"(?:--(?:output|error)=|(?:^|\s)(?:-o|-e|--output|--error)\s+)(\S+)")
_PLACEHOLDER: Final = re.compile(r"%(\d{0,2})([A-Za-z%])")


def output_path(job: Mapping[str, Any]) -> PurePosixPath | None:
    """Return where Slurm wrote the job's output, as far as its record says: the submit line, else slurm-ID.out in its folder."""
    folder = str(job.get("work_dir") or "")
    if not folder.startswith("/") or len(folder) > _LONGEST_PATH:
        return None
    named = _OPTION.search(str(job.get("submit_line") or "")[:_LONGEST_PATH])
    default = "slurm-%A_%a.out" if job.get("array_task") is not None else "slurm-%j.out"
    try:
        pattern = shlex.split(named[1])[0] if named else default
    except (ValueError, IndexError):
        return None
    name = _filled(pattern, job)
    return None if name is None or "\0" in name else PurePosixPath(folder) / name


def _filled(pattern: str, job: Mapping[str, Any]) -> str | None:
    """Return sbatch's filename pattern with its placeholders replaced; None where one is not known."""
    number, raw, task = job.get("job_id"), job.get("job_id_raw") or job.get("job_id"), job.get("array_task")
    values = {"j": raw, "J": raw, "A": number, "a": task, "u": job.get("user"), "x": job.get("job_name"), "%": "%"}
    if any(values.get(letter) is None for _, letter in _PLACEHOLDER.findall(pattern)):
        return None
    return _PLACEHOLDER.sub(lambda match: str(values[match[2]]).replace("/", "_").zfill(int(match[1] or 0)), pattern)


def read_tail(path: PurePosixPath, *, folders: Sequence[str], owner_uid: int | None) -> str | None:
    """Return the last 64 KiB of a file below one of the folders, if it is a plain file of its owner; None otherwise.

    Every folder on the way is opened by its own name below the one before, and no link is followed: what is read is what was
    named, also if somebody moves it meanwhile.
    """
    root = next((folder for folder in folders if PurePosixPath(folder) in path.parents), None)
    if root is None or ".." in path.parts:
        return None
    try:
        return _read_below(Path(root), path.relative_to(root).parts, owner_uid)
    except OSError:
        return None


def _read_below(root: Path, parts: Sequence[str], owner_uid: int | None) -> str | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(root, flags | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, flags | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = inner
        # Not blocking: a pipe of that name must not hold us up.
        file = os.open(parts[-1], flags | os.O_NONBLOCK, dir_fd=place)
    finally:
        os.close(place)
    with os.fdopen(file, "rb") as raw:
        facts = os.fstat(raw.fileno())
        is_owners = owner_uid is None or facts.st_uid == owner_uid
        if not stat.S_ISREG(facts.st_mode) or not is_owners or facts.st_nlink > 1:
            return None
        raw.seek(max(0, facts.st_size - TAIL_BYTES))
        return raw.read(TAIL_BYTES).decode("utf-8", "replace")
