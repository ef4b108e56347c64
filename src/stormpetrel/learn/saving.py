"""Saving models: a folder of files (JSON, safetensors, ONNX) with a record of what they are, and a digest of each.

dict of texts or bytes + metadata <-> folder. No pickle: nothing in a model folder is ever run.

Models of older formats are read through UPGRADES: for each kind, a step from each format to the next, in memory (the folder stays
as it was saved). A family that changes what it saves raises its FORMAT_VERSION and adds a step. Where the old contents lack what
the new format needs, it adds none: the model then counts as outdated and is trained again automatically. So does a model of a
kind that this version no longer has (RETIRED_KINDS).
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stormpetrel.errors import ModelError, ModelFormatError, ModelOutdatedError, ModelVersionError
from stormpetrel.learn.family import SavedFormat
from stormpetrel.private_files import create_private
from stormpetrel.records.model_families import ModelFamily, family_of, train_command

METADATA: Final = "model.json"
LARGEST_BYTES: Final = 512 * 1024 * 1024
# Removed because other models were better in every measurement (docs/log.md).
RETIRED_KINDS: Final = frozenset({"events-recurrent-forecast", "synth-copulagan-sessions"})


@dataclass(frozen=True, slots=True)
class Contents:
    """What a model folder holds: its record, and its files by name."""

    record: dict[str, Any]
    files: dict[str, bytes]


Upgrade = Callable[[Contents], Contents]

UPGRADES: Final[Mapping[str, Mapping[int, Upgrade]]] = {}  # every kind is in its first format


def save_model(
    folder: Path, *, kind: str, format_version: int, metadata: Mapping[str, Any], files: Mapping[str, str | bytes]
) -> None:
    """Write a model to a folder that does not exist yet; it appears there whole or not at all."""
    if folder.exists():
        raise ModelFormatError(f"{folder} exists already.", hint="Models are never overwritten: choose another folder.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    contents = {name: content.encode() if isinstance(content, str) else content for name, content in files.items()}
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    record = {"kind": kind, "format_version": format_version, "files": digests, **metadata}
    record["digest"] = _digest(record)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".making-") as temporary:
        whole = Path(temporary) / "whole"
        whole.mkdir(mode=0o700)
        for name, content in {**contents, METADATA: json.dumps(record, indent=1, allow_nan=False).encode()}.items():
            create_private(whole / name, content)
        whole.rename(folder)


def load_model(folder: Path, *, kind: str, format_version: int) -> tuple[dict[str, Any], dict[str, str]]:
    """The metadata and the files of a model whose files are all text, checked; ModelFormatError says what is wrong with it."""
    record, contents = load_model_bytes(folder, kind=kind, format_version=format_version)
    try:
        return record, {name: content.decode("utf-8") for name, content in contents.items()}
    except UnicodeDecodeError:
        raise ModelFormatError(f"A file of the model in {folder} is no text.", hint=_again(kind)) from None


def load_model_bytes(folder: Path, *, kind: str, format_version: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The metadata and the files of a model, checked; ModelFormatError says what is wrong with it."""
    record = _record(folder, kind)
    if record.get("kind") != kind:
        raise ModelFormatError(f"{folder} holds a model of kind {record.get('kind')!r}, not {kind!r}.")
    saved_version = record.get("format_version")
    problem = _format_problem(folder, kind, saved_version, format_version)
    if problem is not None:
        raise problem
    digests = record.get("files")
    if not isinstance(digests, dict) or not all(isinstance(digest, str) for digest in digests.values()):
        raise ModelFormatError(f"The record of {folder} has no proper 'files'.", hint=_again(kind))
    files = {name: _checked_bytes(folder, name, digest, kind) for name, digest in digests.items()}
    if record.get("digest") != _digest(record):
        raise ModelFormatError(f"{folder / METADATA} is not the record that was saved.", hint=_again(kind))
    return _upgraded(kind, record, files, format_version)


def format_problem(folder: Path, formats: Mapping[str, int]) -> ModelError | None:
    """Why the format of a saved model cannot be read, from its record alone; None where it can. Cheap: no file is checked.

    `formats` says which format each kind is read in; a kind that is not in it is none of ours to judge.
    """
    record = _record(folder, "")
    kind = str(record.get("kind"))
    if kind in RETIRED_KINDS:
        return retired_model(folder, kind)
    return _format_problem(folder, kind, record.get("format_version"), formats[kind]) if kind in formats else None


def retired_model(folder: Path, kind: str) -> ModelOutdatedError:
    """What to raise for a model of a kind that this version no longer has."""
    return ModelOutdatedError(
        f"The model in {folder} is of kind {kind!r}, which this version no longer has: it is to be trained again.",
        hint=_trained_again(kind),
    )


def saved_format(folder: Path) -> SavedFormat | None:
    """What the record of a saved model says of its files; None where there is none that can be read. No file is checked."""
    try:
        record = _record(folder, "")
        settings = record.get("settings")
        return SavedFormat(
            kind=str(record["kind"]),
            format_version=int(record["format_version"]),
            digest=str(record["digest"]),
            settings=settings if isinstance(settings, dict) else {},
        )
    except (ModelFormatError, KeyError, TypeError, ValueError):
        return None


def _format_problem(folder: Path, kind: str, saved: object, wanted: int) -> ModelError | None:
    """A newer format is refused; an older one is brought up to date, or is to be trained again."""
    if not isinstance(saved, int) or isinstance(saved, bool):
        return ModelFormatError(f"The model in {folder} has format version {saved!r}, which is none.", hint=_again(kind))
    if saved > wanted:
        return ModelVersionError(
            f"The model in {folder} was saved by a newer version (format version {saved}; this one reads {wanted}).",
            hint="Run: pip install --upgrade stormpetrel",
        )
    if any(step not in UPGRADES.get(kind, {}) for step in range(saved, wanted)):
        return ModelOutdatedError(
            f"The model in {folder} was saved by an earlier version (format version {saved}; this one reads {wanted}): it is "
            "to be trained again.",
            hint=_trained_again(kind),
        )
    return None


def _upgraded(kind: str, record: dict[str, Any], files: dict[str, bytes], wanted: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    contents = Contents(record, files)
    for step in range(int(record["format_version"]), wanted):
        contents = UPGRADES[kind][step](contents)
    return contents.record, contents.files


def _checked_bytes(folder: Path, name: str, digest: str, kind: str) -> bytes:
    path = folder / Path(name).name
    try:
        if Path(name).name != name or not path.is_file() or path.stat().st_size > LARGEST_BYTES:
            raise ModelFormatError(f"The model in {folder} lacks its file {name[:80]!r}.", hint=_again(kind))
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        raise ModelFormatError(
            f"A file of the model in {folder} cannot be read: {type(error).__name__}.", hint=_again(kind)
        ) from None
    if hashlib.sha256(content).hexdigest() != digest:
        raise ModelFormatError(f"{path} is not the file that was saved.", hint=_again(kind))
    return content


def _digest(record: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def _record(folder: Path, kind: str) -> dict[str, Any]:
    try:
        record = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelFormatError(f"{folder} holds no model.", hint=f"Train one: {_command(kind)}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFormatError(f"{folder / METADATA} cannot be read: {error}", hint=_again(kind)) from None
    if not isinstance(record, dict):
        raise ModelFormatError(f"{folder / METADATA} is not a model's record.", hint=_again(kind))
    return record


def _command(kind: str) -> str:
    """The command that makes a model of a kind: the kinds of a family begin with its name, those of jobs with `job-`."""
    family = family_of(kind)
    return train_command(family if family in set(ModelFamily) else ModelFamily.JOBS)


def _trained_again(kind: str) -> str:
    return f"`stormpetrel watch` and `stormpetrel nightly` do so by themselves; at once: {_command(kind)}"


def _again(kind: str) -> str:
    return f"Train it again: {_command(kind)}"
