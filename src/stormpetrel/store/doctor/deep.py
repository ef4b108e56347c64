"""The deep check: every data file and log entry of every table, and every file of every model, against its digest.

Site -> check_table_files, check_model_files -> findings: what is damaged, which rows that concerns, and what to restore.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import polars as pl

from stormpetrel.records.checks import Finding
from stormpetrel.records.units import format_size
from stormpetrel.store.site import Site
from stormpetrel.store.tables import Table
from stormpetrel.store.upkeep.digests import FileDigest, digest_of_file

_MOST: Final = 20  # files that are named per table or model; the rest is counted
_RECORD: Final = "model.json"
_BLOCK_ROWS: Final = 100_000


@dataclass(frozen=True, slots=True)
class _Damage:
    """A file that is not what it was, or is gone."""

    path: str
    about: str
    what: str


def check_table_files(site: Site) -> Iterator[Finding]:
    """Read every file that the tables are made of."""
    whole = True
    files = size = 0
    for table in site.all_tables:
        if table.exists():
            live, digests = _live_files(table), table.digests.read()
            files += len(live)
            size += sum((table.path / path).stat().st_size for path in live if (table.path / path).exists())
            for finding in _check_table(site, table, live, digests):
                whole = whole and finding.level != "problem"
                yield finding
    if whole:
        yield Finding("ok", "files", f"tables: every file was read ({files:,} files, {format_size(size)})")


def _check_table(site: Site, table: Table, live: dict[str, int | None], digests: dict[str, FileDigest]) -> Iterator[Finding]:
    name = table.spec.name
    damages = [damage for path, rows in live.items() if (damage := _data_damage(table, path, rows, digests.get(path)))]
    damages += _log_damages(table, digests)
    for damage in damages[:_MOST]:
        what = f"{name}: {damage.path} ({damage.about}) {damage.what}."
        yield Finding("problem", "files", what, _restore(site, f"tables/{name}/{damage.path}"))
    if len(damages) > _MOST:
        yield Finding("problem", "files", f"{name}: {len(damages) - _MOST} more files are damaged.", "Restore the whole site.")
    without = [path for path in live if path not in digests]
    if without:
        count = "1 file has" if len(without) == 1 else f"{len(without):,} files have"
        hint = (
            "From before digests were kept, or from a commit that was cut off. Run: stormpetrel store compact, which adds them."
        )
        yield Finding("warning", "files", f"{name}: {count} no digest yet; that it can be read is all that is known.", hint)


def _log_damages(table: Table, digests: dict[str, FileDigest]) -> Iterator[_Damage]:
    for path, digest in digests.items():
        file = table.path / path
        if path.startswith("_delta_log/") and file.exists() and digest_of_file(file)[0] != digest.sha256:
            yield _Damage(path, "of its log", "is not what was written")


def _live_files(table: Table) -> dict[str, int | None]:
    """The data files of a table, from its folder, and how many rows each has."""
    actions = pl.DataFrame(table.open().get_add_actions(flatten=True))
    if not actions.height:
        return {}
    rows = actions["num_records"].to_list() if "num_records" in actions.columns else [None] * actions.height
    return {unquote(path): count for path, count in zip(actions["path"], rows, strict=True)}


def _data_damage(table: Table, path: str, rows: int | None, digest: FileDigest | None) -> _Damage | None:
    file = table.path / path
    month = Path(path).parent.name.replace("=", " ") if "=" in path else "of any month"
    count = rows if rows is not None else digest.rows if digest else None
    about = f"{month}, {'unknown rows' if count is None else f'{count:,} rows'}"
    try:
        if digest is None:
            return None if _can_be_read(file) else _Damage(path, about, "cannot be read")
        return None if digest_of_file(file)[0] == digest.sha256 else _Damage(path, about, "is not what was committed")
    except FileNotFoundError:
        return _Damage(path, about, "is missing")
    except OSError as error:
        return _Damage(path, about, f"cannot be read: {error.strerror}")


def _can_be_read(file: Path) -> bool:
    """Whether a file without a digest is Parquet from end to end."""
    if not file.exists():
        raise FileNotFoundError(file)
    try:
        for _ in pl.scan_parquet(file, hive_partitioning=False).collect_batches(chunk_size=_BLOCK_ROWS):
            pass
    except (pl.exceptions.PolarsError, OSError):
        return False
    return True


def check_model_files(site: Site) -> Iterator[Finding]:
    """Read every file of every model that has a folder."""
    damaged, read = 0, 0
    for name, version in sorted(site.models.folders()):
        folder = site.models.folder_of(name, version)
        read += 1
        for path, what in _model_damages(folder):
            damaged += 1
            inside = str((folder / path).relative_to(site.folder))
            sentence = f"{name} version {version}: {inside} {what}."
            yield Finding("problem", "files", sentence, _restore(site, inside, otherwise="or train again"))
    if not damaged:
        yield Finding("ok", "files", f"models: every file of {read} versions was read" if read else "models: there are none")


def _model_damages(folder: Path) -> Iterator[tuple[str, str]]:
    """The files of a model that are not what its record says; the record has a digest of its own."""
    try:
        record: Any = json.loads((folder / _RECORD).read_bytes())
        digests = dict(record["files"])
        of_record = {name: value for name, value in record.items() if name != "digest"}
        whole = hashlib.sha256(json.dumps(of_record, sort_keys=True).encode()).hexdigest() == record["digest"]
    except FileNotFoundError:
        yield _RECORD, "is missing"
        return
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        yield _RECORD, "cannot be read"
        return
    if not whole:
        yield _RECORD, "is not what was saved"
        return
    for name, digest in digests.items():
        try:
            if digest_of_file(folder / Path(name).name)[0] != digest:
                yield name, "is not what was saved"
        except FileNotFoundError:
            yield name, "is missing"
        except OSError as error:
            yield name, f"cannot be read: {error.strerror}"


def _restore(
    site: Site, path: str, *, otherwise: str = "or restore a whole one: stormpetrel --site NEWDIR store restore BACKUP"
) -> str:
    return f"Stop watch and serve, and take it from a backup that has it: tar -xf BACKUP -C {site.folder} {path}; {otherwise}"
