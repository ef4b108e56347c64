"""The generator on disk: a record, the requests as JSON, the rest as plain arrays. Nothing in it is ever run.

Learnt -> save_learnt -> folder -> load_learnt -> Learnt, checked: whatever a file says, no index leads out of an array.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from stormpetrel.errors import ModelFormatError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.synth.sessions.columns import INNER, PREFIXES, RUNTIME, Coding
from stormpetrel.synth.sessions.features import LONGEST_PAUSE_S, MOST_SHIFT_S
from stormpetrel.synth.sessions.kernel import FEATURES, THEMES
from stormpetrel.synth.sessions.leaf_forest import LeafForest
from stormpetrel.synth.sessions.learning import Learnt
from stormpetrel.synth.sessions.plan import DAY_S, MOST_GROWTH, WEEK_S, SessionBook
from stormpetrel.synth.workload import ARRAY, KNOWN, STATE, SUBMIT, WHO

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


_MOST_BLOCKS: Final = 600_000  # weeks: more than a calendar has
_MOST_JOBS: Final = 1_000_000_000
_MOST_WORK: Final = 1e40  # core-seconds of a session
_MOST_NUMBER: Final = 1_000_000_000  # of a group or an account
_CALENDAR_S: Final = (-62_135_596_800.0, 253_402_300_799.0)  # the years 1 to 9999


def check_learnt(learnt: Learnt) -> None:
    """ModelFormatError where an index leads out of an array, or a number would never end."""
    for part, good in (
        ("columns", _columns_fit(learnt.coding)),
        ("sessions", _book_fits(learnt.book, learnt)),
        ("users", _users_fit(learnt)),
        ("values", _values_fit(learnt)),
        ("times", _times_fit(learnt)),
    ):
        if not good:
            raise ModelFormatError(f"The {part} of the generator do not fit together.", hint=_AGAIN)
    _check_forests(learnt)


def _columns_fit(coding: Coding) -> bool:
    requests, numbers = coding.requests, coding.numbers
    types = {**KNOWN, ARRAY: pl.Boolean}
    drawn = {STATE, RUNTIME, SUBMIT, *WHO, *INNER}
    written = {SUBMIT, *WHO, *requests.columns, *numbers}
    written |= ({STATE} if coding.states else set()) | ({RUNTIME} if coding.has_runtime else set())
    return (
        requests.height > 0
        and not drawn & {*requests.columns, *numbers}
        and all(types.get(name, dtype) == dtype for name, dtype in requests.schema.items())
        and not {*numbers} & {*requests.columns, *KNOWN}
        and all(coding.dtypes.get(name) in ("Int64", "Float64") for name in numbers)
        and len({*coding.columns}) == len(coding.columns)
        and SUBMIT in coding.columns
        and {*coding.columns} <= written
        and all(re.fullmatch(f"(new){{0,20}}{usual}", coding.prefixes[name]) for name, usual in PREFIXES.items())
    )


def _book_fits(book: SessionBook, learnt: Learnt) -> bool:
    sessions = len(book.user)
    columns = (book.block, book.start_s, book.jobs, book.length_s, book.mean_gap, book.theme, book.shift_s, book.work)
    return (
        all(len(column) == sessions > 0 for column in columns)
        and book.block_s in (DAY_S, WEEK_S)
        and 0 < book.blocks <= _MOST_BLOCKS
        and 0.99 / MOST_GROWTH <= book.growth <= 1.01 * MOST_GROWTH
        and book.theme.shape[1] == THEMES
        and _between(book.theme[:, 0], 0, 1 + 1e-9)
        and _inside(book.user, learnt.users)
        and _inside(book.block, book.blocks)
        and _between(book.jobs, 1, _MOST_JOBS)
        and int(book.jobs.sum(dtype=np.float64)) == learnt.jobs
        and _between(book.start_s, 0, book.block_s)
        and _between(book.shift_s, 0, MOST_SHIFT_S)
        and _between(book.length_s, 0, book.block_s)
        and _between(book.work, 0, _MOST_WORK)
        and bool(np.isfinite(book.mean_gap).all() and np.isfinite(book.theme).all())
    )


def _users_fit(learnt: Learnt) -> bool:
    pairs, owners = learnt.pairs, learnt.pairs[:, 0]
    return (
        len(learnt.habit_of) == len(learnt.jobs_of) == learnt.users
        and _inside(learnt.habit_of, len(learnt.habits))
        and bool(np.isfinite(learnt.habits).all())
        and _between(learnt.jobs_of, 0, _MOST_JOBS)
        and pairs.shape[1] == 3
        and len(pairs) == len(learnt.pair_weight) > 0
        and bool(np.all(np.diff(owners) >= 0))
        and _between(owners, -1, learnt.users - 1)
        and _between(pairs[:, 1:], -1, _MOST_NUMBER)
        and _between(learnt.pair_weight, 0, 1 + 1e-9)
        and (owners[0] == -1 or len(np.unique(owners)) == learnt.users)  # every user has a row, or that of all small ones
    )


def _values_fit(learnt: Learnt) -> bool:
    gap, _same, request, state, runtime, limit = learnt.values
    return (
        _between(gap, 0, LONGEST_PAUSE_S)
        and _inside(request, learnt.coding.requests.height)
        and _inside(state, max(len(learnt.coding.states), 1))
        and _between(runtime[~np.isnan(runtime)], 0, np.finfo(np.float64).max)
        and _between(limit[~np.isnan(limit)], 0, np.finfo(np.float64).max)
        and learnt.numbers.shape[1] == len(learnt.coding.numbers)
        and not bool(np.isinf(learnt.numbers).any())
    )


def _times_fit(learnt: Learnt) -> bool:
    return (
        _CALENDAR_S[0] <= learnt.begin_s <= _CALENDAR_S[1]
        and 0 <= learnt.origin_s < DAY_S
        and 0 <= learnt.span_s <= _CALENDAR_S[1] - _CALENDAR_S[0]
    )


def _check_forests(learnt: Learnt) -> None:
    requested = learnt.features.shape[1]
    known = learnt.habits.shape[1] + FEATURES + requested
    gap, same, request, *ended = (len(values) for values in learnt.values)
    places = (gap, same, request, min(*ended, len(learnt.numbers)))
    for forest, values, columns in zip(learnt.forests, places, (known, known, known, known + 1 + requested), strict=True):
        forest.check(columns, values)


def _inside(numbers: Any, count: int) -> bool:
    return _between(numbers, 0, count - 1)


def _between(numbers: Any, least: float, most: float) -> bool:
    """Whether all are, and none is NaN."""
    return bool(np.all((numbers >= least) & (numbers <= most)))
