"""Job scripts: what a person is about to submit to Slurm, PBS, LSF or HTCondor.

path or standard input -> text -> kind -> JobRequest; and back: a changed column -> the line to write in the script.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePath
from stat import S_ISDIR, S_ISFIFO, S_ISREG
from typing import BinaryIO, Final

from stormpetrel.errors import SourceError, SourceFormatError, UsageError
from stormpetrel.sources.lines import cannot_read
from stormpetrel.sources.scripts.htcondor import condor_line, read_condor, resembles_submit_description
from stormpetrel.sources.scripts.lsf import PREFIX as LSF_PREFIX
from stormpetrel.sources.scripts.lsf import lsf_line, read_lsf
from stormpetrel.sources.scripts.pbs import PREFIX as PBS_PREFIX
from stormpetrel.sources.scripts.pbs import pbs_line, read_pbs
from stormpetrel.sources.scripts.request import Directive, JobRequest, Reading, shown_path, shown_word
from stormpetrel.sources.scripts.signature import script_signature
from stormpetrel.sources.scripts.slurm import read_slurm, slurm_line
from stormpetrel.sources.scripts.slurm_options import PREFIX as SLURM_PREFIX

__all__ = ["KINDS", "Directive", "JobRequest", "change_line", "parse_job_script", "read_job_input", "read_job_script"]

MAX_FILE_BYTES: Final = 16 * 1024 * 1024  # a script with its data in it can be large; what is larger is no script
MAX_READ_BYTES: Final = 1024 * 1024  # directives come first
_SHELL_ENDINGS: Final = (".sh", ".bash", ".slurm", ".sbatch", ".batch", ".job", ".csh", ".tcsh", ".zsh", ".ksh")
_PBS_ENDINGS: Final = (".pbs", ".qsub", ".torque")
_LSF_ENDINGS: Final = (".lsf", ".bsub")
_BOM: Final = "\ufeff"
_SAMPLE_LETTERS: Final = 4096
_READERS: Final[dict[str, Callable[[Reading, list[str]], None]]] = {
    "pbs": read_pbs,
    "lsf": read_lsf,
    "condor": read_condor,
}
_WRITERS: Final[dict[str, Callable[[JobRequest, str, object], str]]] = {
    "slurm": slurm_line,
    "pbs": pbs_line,
    "lsf": lsf_line,
    "condor": condor_line,
}
KINDS: Final = tuple(_WRITERS)
_PREFIXES: Final = {SLURM_PREFIX: "slurm", PBS_PREFIX: "pbs", LSF_PREFIX: "lsf"}


def read_job_script(path: Path, *, kind: str | None = None, arguments: Sequence[str] = ()) -> JobRequest:
    """Read the script a person is about to submit; `kind` is slurm, pbs, lsf or condor, or is told from the text."""
    name = os.fsencode(path).decode("utf-8", "backslashreplace")
    try:
        _check_file(path, name)
        with path.open("rb") as file:
            data = file.read(MAX_READ_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        raise cannot_read(path, error if isinstance(error, OSError) else OSError(str(error))) from error
    return _parse_beginning(data, name, kind, arguments)


def read_job_input(file: BinaryIO, *, kind: str | None = None, arguments: Sequence[str] = ()) -> JobRequest:
    """Read a script from standard input, as sbatch does where no script is named; UsageError where nothing comes."""
    data = file.read(MAX_READ_BYTES + 1)
    if not data.strip():
        raise UsageError(
            "Which script? Standard input is empty.",
            hint="stormpetrel check job.sh, or as for sbatch: stormpetrel check -t 5 job.sh",
        )
    return _parse_beginning(data, "stdin", kind, arguments)


def _parse_beginning(data: bytes, name: str, kind: str | None, arguments: Sequence[str]) -> JobRequest:
    """Parse what was read of a script: whole lines of at most MAX_READ_BYTES, with a warning where there was more."""
    if len(data) <= MAX_READ_BYTES:
        return parse_job_script(data.decode("utf-8", "replace"), name=name, kind=kind, arguments=arguments)
    whole_lines = data[:MAX_READ_BYTES].rpartition(b"\n")[0] or data[:MAX_READ_BYTES]
    request = parse_job_script(whole_lines.decode("utf-8", "replace"), name=name, kind=kind, arguments=arguments)
    cut = f"Only the first {MAX_READ_BYTES // 1024**2} MiB of the script was looked at."
    return replace(request, warnings=(*request.warnings, cut))


def parse_job_script(text: str, *, name: str, kind: str | None = None, arguments: Sequence[str] = ()) -> JobRequest:
    """Read the text of a script; everything in it is data, and nothing of it is ever run or evaluated.

    `arguments` are options of sbatch that stand before the script.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(f"Unknown kind of job script {shown_word(kind)!r}.", hint=f"Known: {', '.join(KINDS)}.")
    text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair cannot be stored
    name = name.encode("utf-8", "backslashreplace").decode()
    _check_text(text, name)
    lines = [line.removesuffix("\r") for line in text.removeprefix(_BOM).split("\n")]
    reading = Reading(kind or _sniff(lines, name), name)
    _warn_of_encoding(reading, text)
    if reading.kind != "condor":
        reading.columns["script_path"] = name
        reading.signature = script_signature(text)
        _warn_of_both(reading, lines)
    if reading.kind == "slurm":
        read_slurm(reading, lines, arguments)
    elif arguments:
        raise UsageError(f"Options before the script are read for Slurm only, and {shown_path(name)} is of {reading.kind}.")
    else:
        _READERS[reading.kind](reading, lines)
    return reading.request()


def change_line(request: JobRequest, column: str, value: object) -> str:
    """How a person writes another value of a column in the language of the script, and in the form the script uses.

    The value is of the whole job (bytes, seconds, counts); a script that asks per node, CPU or GPU gets one's share, rounded up.
    """
    return _WRITERS[request.kind](request, column, value)


def _check_file(path: Path, name: str) -> None:
    stat = path.stat()
    if S_ISDIR(stat.st_mode):
        raise SourceError(f"{name} is a folder, not a job script.", hint="Name the script in it.")
    if not (S_ISREG(stat.st_mode) or S_ISFIFO(stat.st_mode)):
        raise SourceError(f"{name} is no plain file, and so no job script.", hint="Name the script that you submit.")
    if stat.st_size > MAX_FILE_BYTES:
        raise SourceFormatError(
            f"{name} has {stat.st_size:,} bytes: too large for a job script (at most {MAX_FILE_BYTES:,}).",
            hint="Name the script that you submit, not its data.",
        )


def _check_text(text: str, name: str) -> None:
    hint = "Name the script that you give to sbatch, qsub, bsub or condor_submit."
    if not text.removeprefix(_BOM).strip():
        raise SourceFormatError(f"{shown_path(name)} is empty: there is no job in it.", hint=hint)
    sample = text[:_SAMPLE_LETTERS]
    odd = sum(letter == "\ufffd" or (letter < " " and letter not in "\t\n\r\f\v\x1b") for letter in sample)
    if "\0" in text or odd * 3 > len(sample):
        raise SourceFormatError(f"{shown_path(name)} holds binary data, and is no job script.", hint=hint)


def _sniff(lines: list[str], name: str) -> str:
    for prefix, kind in _PREFIXES.items():
        if any(line.startswith(prefix) for line in lines):
            return kind
    if resembles_submit_description(lines):
        return "condor"
    # A shell script without directives is legal; Slurm is the likeliest to get it.
    ending = PurePath(name).suffix.lower()
    if ending in (*_PBS_ENDINGS, *_LSF_ENDINGS):
        return "pbs" if ending in _PBS_ENDINGS else "lsf"
    if lines[0].startswith("#!") or ending in _SHELL_ENDINGS:
        return "slurm"
    raise SourceFormatError(
        f"{shown_path(name)} is no job script: no #SBATCH, #PBS or #BSUB lines, "
        "no commands of condor_submit, no #! at its start.",
        hint=f"Name the script that you submit, or say what it is: {', '.join(KINDS)}.",
    )


def _warn_of_encoding(reading: Reading, text: str) -> None:
    if text.startswith(_BOM):
        reading.warn("The file begins with a byte order mark, which schedulers and shells take for text; save it without.")
    if "\r\n" in text and reading.kind != "condor":
        reading.warn("The lines end as on Windows (CR LF), and sbatch refuses such a script; run dos2unix on it.")


def _warn_of_both(reading: Reading, lines: list[str]) -> None:
    prefixes = [prefix for prefix in _PREFIXES if any(line.startswith(prefix) for line in lines)]
    if len(prefixes) > 1:
        reading.warn(f"The script has {' and '.join(prefixes)} lines; it is read as {reading.kind}.")
