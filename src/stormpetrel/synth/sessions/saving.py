"""The generator on disk: a record, the requests as JSON, the rest as plain arrays. Nothing in it is ever run.

Learnt -> save_learnt -> folder -> load_learnt -> Learnt, checked: whatever a file says, no index leads out of an array.
"""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import ModelFormatError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.synth.sessions.checks import check_learnt
from stormpetrel.synth.sessions.columns import PREFIXES, Coding
from stormpetrel.synth.sessions.leaf_forest import LeafForest
from stormpetrel.synth.sessions.learning import Learnt
from stormpetrel.synth.sessions.plan import SessionBook

FORMAT_VERSION: Final = 1
_AGAIN: Final = "Fit it again: stormpetrel synth fit"
_FORESTS: Final = ("gap", "same", "request", "outcome")
_VALUES: Final = {"gap": np.float64, "same": np.uint8, "request": np.int32, "state": np.int32, "runtime": np.float64,
                  "limit": np.float64}  # fmt: skip
_BOOK: Final = {"user": np.int64, "block": np.int64, "start_s": np.float64, "jobs": np.int64, "length_s": np.float64,
                "mean_gap": np.float64, "theme": np.float64, "shift_s": np.float64, "work": np.float64}  # fmt: skip
_ARRAYS: Final = {"jobs_of": np.int64, "habits": np.float32, "habit_of": np.int64, "pairs": np.int64, "pair_weight": np.float64,
                  "numbers": np.float64}  # fmt: skip
_SETTINGS: Final = {"fewest_jobs": 1, "trees": 1, "leaf": 1, "seed": 0}  # name -> the least that makes sense
_NUMBERS: Final = ("users", "nameless", "begin_s", "origin_s", "span_s", "fractional", "jobs")
_TABLES: Final = ("habits", "pairs", "numbers", "book.theme")  # arrays with columns; the others are plain rows
_TYPES: Final = {"Int64": pl.Int64, "Float64": pl.Float64, "String": pl.String, "Boolean": pl.Boolean}
_MOST_BYTES: Final = 2 << 30


def save_learnt(learnt: Learnt, settings: Any, folder: Path, *, kind: str) -> None:
    """Write what was learnt to a new folder."""
    arrays: dict[str, Any] = {name: getattr(learnt, name) for name in _ARRAYS}
    arrays |= {f"book.{name}": getattr(learnt.book, name) for name in _BOOK}
    arrays |= {f"value.{name}": array for name, array in zip(_VALUES, learnt.values, strict=True)}
    for name, forest in zip(_FORESTS, learnt.forests, strict=True):
        arrays |= forest.to_arrays(name)
    packed = io.BytesIO()
    np.savez_compressed(packed, **arrays)
    coding = learnt.coding
    text = {
        "requests": {name: coding.requests[name].to_list() for name in coding.requests.columns},
        "request_types": {name: str(dtype) for name, dtype in coding.requests.schema.items()},
        "states": list(coding.states),
        "numbers": list(coding.numbers),
        "dtypes": coding.dtypes,
        "has_runtime": coding.has_runtime,
        "whole_runtime": coding.whole_runtime,
        "columns": list(coding.columns),
        "prefixes": coding.prefixes,
        "block_s": learnt.book.block_s,
        "blocks": learnt.book.blocks,
        "growth": learnt.book.growth,
        "notes": list(learnt.notes),
        **{name: getattr(learnt, name) for name in _NUMBERS},
    }
    metadata = {"settings": asdict(settings), "jobs": learnt.jobs, "users": learnt.users}
    files: dict[str, str | bytes] = {"columns.json": json.dumps(text), "arrays.npz": packed.getvalue()}
    save_model(folder, kind=kind, format_version=FORMAT_VERSION, metadata=metadata, files=files)


def load_learnt(folder: Path, *, kind: str) -> tuple[Learnt, dict[str, int]]:
    """What was learnt, and with which settings; ModelFormatError where the files do not fit together."""
    record, files = load_model_bytes(folder, kind=kind, format_version=FORMAT_VERSION)
    try:
        text = json.loads(files["columns.json"])
        settings = {name: _above(record["settings"][name], least) for name, least in _SETTINGS.items()}
        learnt = _learnt(text, _arrays(files["arrays.npz"]))
    except ModelFormatError:
        raise
    except Exception as error:  # what a damaged file makes zipfile, numpy, json or Polars raise is a long list
        why = "".join(letter for letter in str(error)[:120] if letter.isprintable())
        raise ModelFormatError(f"The generator in {folder} cannot be read: {why}.", hint=_AGAIN) from None
    check_learnt(learnt)
    return learnt, settings


def _above(number: Any, least: int) -> int:
    if int(number) < least:
        raise ValueError("a setting is too small")
    return int(number)


def _arrays(packed: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _MOST_BYTES:
            raise ValueError("its arrays are larger than any that were saved")
    with np.load(io.BytesIO(packed), allow_pickle=False) as stored:
        return {name: np.ascontiguousarray(stored[name]) for name in stored.files}


def _learnt(text: dict[str, Any], arrays: dict[str, Any]) -> Learnt:
    dtypes = _ARRAYS | {f"book.{name}": dtype for name, dtype in _BOOK.items()}
    dtypes |= {f"value.{name}": dtype for name, dtype in _VALUES.items()}
    for name, dtype in dtypes.items():
        if arrays[name].dtype != dtype or arrays[name].ndim != 1 + (name in _TABLES):
            raise ValueError(f"{name} is an array of another kind")
    types = {name: _TYPES[dtype] for name, dtype in text["request_types"].items()}
    coding = Coding(
        requests=pl.DataFrame({name: pl.Series(text["requests"][name], dtype=dtype) for name, dtype in types.items()}),
        states=tuple(None if state is None else str(state) for state in text["states"]),
        numbers=tuple(map(str, text["numbers"])),
        dtypes={str(name): str(_TYPES[dtype]) for name, dtype in text["dtypes"].items()},
        has_runtime=bool(text["has_runtime"]),
        whole_runtime=bool(text["whole_runtime"]),
        columns=tuple(map(str, text["columns"])),
        prefixes={name: str(text["prefixes"][name]) for name in PREFIXES},
    )
    book = SessionBook(
        **{name: arrays[f"book.{name}"] for name in _BOOK},
        block_s=float(text["block_s"]),
        blocks=int(text["blocks"]),
        growth=float(text["growth"]),
    )
    forests = [LeafForest.from_arrays(arrays, name) for name in _FORESTS]
    kinds = {"users": int, "nameless": int, "jobs": int, "fractional": bool}
    return Learnt(
        coding=coding,
        book=book,
        forests=(forests[0], forests[1], forests[2], forests[3]),
        values=tuple(arrays[f"value.{name}"] for name in _VALUES),
        features=coding.features(),
        limits=coding.limits(),
        notes=tuple(map(str, text["notes"])),
        **{name: arrays[name] for name in _ARRAYS},
        **{name: kinds.get(name, float)(text[name]) for name in _NUMBERS},
    )
