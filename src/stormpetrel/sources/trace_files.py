"""Campaign files -> Trace, and back: recorded or simulated CPU modes in one `.npz` per campaign.

`x` (steps, threads, modes) in percent on the times `t`, the threads named `node/cpu`; ours say as well which job ran where. Such
a file may come from anybody: nothing in it is unpickled, and no array is made before its size has been looked at.
"""

from __future__ import annotations

import math
import re
import struct
import tokenize
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import SourceError, SourceFormatError
from stormpetrel.private_files import writing_private
from stormpetrel.records.traces import MODES, NO_JOB, UNKNOWN_JOB, Indices, Rates, Seconds, Split, Trace, TraceJob
from stormpetrel.records.units import format_size

SUFFIX: Final = ".npz"
_MOST_BYTES: Final = 2 * 1024**3  # unpacked: 128 threads at 1 Hz are .27 GB a day
_MOST_TIMES_PACKED: Final = 100  # unpacked, as a multiple of the file: traces pack to a tenth, zeros to a thousandth
_SMALL_BYTES: Final = 128 * 1024**2  # unpacked, that any file may have
# Of the regular grid: a clock that jumps by a year must not fill the memory, a monitor that pauses for days may.
_SMALL_STEPS: Final = 2**21
_SMALL_VALUES: Final = 2**25
_MOST_VALUES: Final = 2**28
_MOST_TIMES_SAMPLES: Final = 8
_MOST_TEXT: Final = 200  # letters of a name
_SHORTEST_STEP_S, _LONGEST_STEP_S = 0.01, 3600.0
_STEP_TOLERANCE: Final = 0.005  # of a step that is measured, from one of two digits
_SUM_TOLERANCE: Final = 5.0  # percent: monitors round each mode to a whole number
_MODE_OF: Final = {  # as node_exporter, sar, top, nmon and PCP call them; whatever else there is belongs to "other"
    "user": "user", "nice": "user", "usr": "user",
    "system": "system", "sys": "system", "irq": "system", "softirq": "system", "soft": "system",
    "iowait": "iowait", "wait": "iowait",
}  # fmt: skip
_IDLE_NAMES: Final = frozenset({"idle", "other"})
_THREAD: Final = re.compile(r"(?P<node>[^/\x00-\x1f\x7f]{1,200})/(?:cpu)?(?P<cpu>\d{1,6})")
# What NumPy raises for the header of an array, which it reads as Python source, and for one that ends too early.
_HEADER_PROBLEMS: Final = (
    ValueError, TypeError, SyntaxError, EOFError, OverflowError, RecursionError, MemoryError, struct.error, tokenize.TokenError,
)  # fmt: skip
_HINT: Final = "A campaign file has t, x, cpu and modes; docs/sources describes it."


def read_campaigns(paths: Sequence[Path]) -> list[Trace]:
    """The traces of some files, and of all `.npz` files in some folders, in the order of their names within each."""
    traces: dict[str, tuple[Path, Trace]] = {}
    for path in dict.fromkeys(file.resolve() for file in campaign_files(paths)):
        trace = read_trace(path)
        if trace.name in traces:
            raise SourceFormatError(
                f"{traces[trace.name][0]} and {path} both call their campaign {trace.name!r}.", hint="Leave one of them out."
            )
        traces[trace.name] = (path, trace)
    return [trace for _, trace in traces.values()]


def campaign_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files themselves, and those that lie in the folders."""
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        inside = sorted(path.glob(f"*{SUFFIX}"))
        if not inside:
            raise SourceFormatError(f"There is no {SUFFIX} file in {path}.", hint="Name the folder that the campaigns are in.")
        yield from inside


def read_trace(path: Path) -> Trace:
    """The trace in a campaign file; SourceFormatError says in one sentence what is wrong with the file."""
    try:
        with zipfile.ZipFile(path) as archive:
            arrays = _Arrays(path, archive)
            time_s, slot, step_s = _grid(arrays)
            nodes, cpus = _threads(arrays)
            seen = _rates(arrays, slot.size, len(cpus))
            job, jobs = _jobs(arrays, slot.size, len(cpus))
            name, split = _campaign(arrays)
    except FileNotFoundError:
        raise SourceError(f"There is no file {path}.", hint="Check the path.") from None
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror or error}.", hint="Check its permissions.") from None
    except SourceFormatError:
        raise
    except Exception as error:  # what a damaged archive makes zipfile, zlib, lzma and NumPy raise is a long list
        raise SourceFormatError(f"{path} is no whole {SUFFIX} file: {_printable(str(error))[:200]}.", hint=_HINT) from None
    if time_s.size * len(cpus) * len(MODES) > min(_MOST_VALUES, max(_SMALL_VALUES, _MOST_TIMES_SAMPLES * seen.size)):
        span_days = time_s.size * step_s / 86400
        raise SourceFormatError(f"{path} spans {span_days:,.0f} days for {slot.size:,} samples: its clock jumped.", hint=_HINT)
    rates = np.full((time_s.size, len(cpus), len(MODES)), np.nan, dtype=np.float32)
    rates[slot] = seen  # of two samples in one step the later counts
    last_seen = np.maximum.accumulate(_placed(slot, time_s.size))
    trace = Trace(name, step_s, time_s, nodes, cpus, rates, np.ascontiguousarray(job[last_seen]), jobs, split)
    return trace.checked()


def write_trace(trace: Trace, path: Path) -> None:
    """Write a campaign file: the whole file, or none."""
    columns: dict[str, npt.NDArray[Any]] = {
        "t": trace.time_s,
        "x": trace.rates * np.float32(100),
        "cpu": np.array([f"{node}/{cpu}" for node, cpu in zip(trace.nodes, trace.cpus, strict=True)], dtype=np.str_),
        "modes": np.array(MODES),
        "job": trace.job.astype(np.int32),
        "job_ids": np.array([job.job_id for job in trace.jobs], dtype=np.str_),
        "job_types": np.array([job.job_type for job in trace.jobs], dtype=np.str_),
        "campaign": np.array(trace.name),
        "split": np.array("" if trace.split is None else trace.split.value),
        "step_s": np.array(float(trace.step_s)),
    }
    if trouble := sorted({job.job_type for job in trace.jobs if job.labelled_anomalous}):
        columns["anomalous_types"] = np.array(trouble, dtype=np.str_)
    with writing_private(path) as file:
        np.savez_compressed(file, allow_pickle=False, **columns)


class _Arrays:
    """The arrays of an archive, each looked at before it is read."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive = path, archive
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if not info.is_dir()}
        unpacked = sum(info.file_size for info in self._members.values())
        most = min(_MOST_BYTES, max(_SMALL_BYTES, _MOST_TIMES_PACKED * path.stat().st_size))
        if unpacked > most:
            raise self.wrong(f"would unpack to {format_size(unpacked)}, more than {format_size(most)}")

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str) -> npt.NDArray[Any]:
        """One array; one that claims to be larger than it is, or holds objects, is refused."""
        if name not in self._members:
            members = _printable(", ".join(sorted(self._members)[:12]))[:_MOST_TEXT] or "nothing"
            raise self.wrong(f"has no array {name!r} (found: {members})")
        member = self._members[name]
        with self._archive.open(member) as file:
            try:
                version = np.lib.format.read_magic(file)
                header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                shape, _, dtype = header(file)
            except _HEADER_PROBLEMS as error:
                raise self.wrong(f"has an array {name!r} that cannot be read: {_printable(str(error))[:100]}") from None
        if dtype.hasobject or dtype.names:
            raise self.wrong(f"holds objects in {name!r}, which are never unpickled")
        if math.prod(shape) * max(1, dtype.itemsize) > member.file_size:  # a billion texts of no letters take no bytes
            raise self.wrong(f"has an array {name!r} that is cut off")
        with self._archive.open(member) as file:
            try:
                return np.lib.format.read_array(file, allow_pickle=False)
            except _HEADER_PROBLEMS as error:
                raise self.wrong(f"has an array {name!r} that cannot be read: {_printable(str(error))[:100]}") from None

    def numbers(self, name: str) -> npt.NDArray[Any]:
        """An array of numbers."""
        values = self.read(name)
        if values.dtype.kind not in "fiu":
            raise self.wrong(f"has {values.dtype} in {name!r}, not numbers")
        return values

    def texts(self, name: str) -> list[str]:
        """An array of names, or one name."""
        values = self.read(name)
        if values.dtype.kind != "U" or values.ndim > 1:
            raise self.wrong(f"has {values.dtype} of shape {values.shape} in {name!r}, not a list of names")
        names = [str(value) for value in np.atleast_1d(values)]
        odd = next((text for text in names if len(text) > _MOST_TEXT or not text.isprintable()), None)
        if odd is not None:
            raise self.wrong(f"has a name in {name!r} that is too long or not text: {odd[:40]!r}")
        return names

    def wrong(self, what: str, hint: str = _HINT) -> SourceFormatError:
        """The one sentence about this file."""
        return SourceFormatError(f"{self.path} {what}.", hint=hint)


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _grid(arrays: _Arrays) -> tuple[Seconds, Indices, float]:
    """The times of a regular grid, the place on it of each sample, and the step."""
    times = arrays.numbers("t")
    t = times.astype(np.float64)
    if t.ndim != 1 or t.size < 2:
        raise arrays.wrong(f"has {t.size} times: at least two are needed")
    if not np.isfinite(t).all() or t.min() < 0 or t.max() > 1e11:
        raise arrays.wrong("has times that are no Unix seconds")
    between = np.diff(t)
    if (between < 0).any():
        at = int(np.argmax(between < 0))
        raise arrays.wrong(f"has a clock that goes back by {-between[at]:,.1f} s after sample {at + 1:,}")
    if not (between > 0).any():
        raise arrays.wrong("has the same time for every sample")
    says_step = "step_s" in arrays
    steps_s = arrays.numbers("step_s") if says_step else _round_step(float(np.median(between[between > 0])))
    step_s = float(np.ravel(steps_s)[0]) if np.size(steps_s) else 0.0
    if not _SHORTEST_STEP_S <= step_s <= _LONGEST_STEP_S:
        raise arrays.wrong(f"has steps of {step_s:g} s, expected {_SHORTEST_STEP_S:g} to {_LONGEST_STEP_S:g}")
    slot = np.round((t - t[0]) / step_s)
    if not slot[-1] < max(_SMALL_STEPS, _MOST_TIMES_SAMPLES * t.size):
        raise arrays.wrong(f"spans {slot[-1] * step_s / 86400:,.0f} days for {t.size:,} samples: its clock jumped")
    slot = slot.astype(np.int32)
    if not says_step and (kept := np.unique(slot).size) < t.size / 2:
        coarse = f"has {kept:,} different times for {t.size:,} samples"
        raise arrays.wrong(coarse, "Write t as float64: at Unix times float32 can only tell apart every 128 s.")
    return t[0] + np.arange(slot[-1] + 1) * step_s, slot, step_s


def _round_step(step_s: float) -> float:
    """The step that was meant where times tremble: runs of 1.0003 s and of .9998 s are both of one second."""
    meant_s = float(f"{step_s:.1e}")
    return meant_s if abs(step_s - meant_s) <= _STEP_TOLERANCE * meant_s else step_s


def _threads(arrays: _Arrays) -> tuple[tuple[str, ...], tuple[int, ...]]:
    names = arrays.texts("cpu")
    parts = [_THREAD.fullmatch(name) for name in names]
    odd = next((name for name, part in zip(names, parts, strict=True) if part is None), None)
    if odd is not None or not names:
        raise arrays.wrong(f"names a thread {odd!r}, expected node/cpu such as n01/17" if names else "names no threads")
    nodes, cpus = tuple(part["node"] for part in parts if part), tuple(int(part["cpu"]) for part in parts if part)
    counts = Counter(zip(nodes, cpus, strict=True))
    if len(counts) < len(names):
        node, cpu = counts.most_common(1)[0][0]
        raise arrays.wrong(f"names the thread {node}/{cpu} more than once")
    return nodes, cpus


def _rates(arrays: _Arrays, samples: int, threads: int) -> Rates:
    """Shares of the four modes of each sample; NaN where a value is missing: NaN, a code below zero, or nothing but zeros."""
    modes = [mode.strip().lower() for mode in arrays.texts("modes")]
    ours = [_MODE_OF.get(mode, "other") for mode in modes]
    missing = [mode for mode in MODES[:3] if mode not in ours] + ([] if _IDLE_NAMES & set(modes) else ["idle"])
    if missing:
        raise arrays.wrong(f"has no mode {' and no '.join(missing)} (found: {', '.join(modes)[:_MOST_TEXT]})")
    percent = arrays.numbers("x")
    if percent.shape != (samples, threads, len(modes)):
        raise arrays.wrong(f"has x of shape {percent.shape} for {samples} times, {threads} threads and {len(modes)} modes")
    percent = percent.astype(np.float32, copy=False)  # (samples, threads, modes found)
    with np.errstate(invalid="ignore", over="ignore"):
        sums = percent.sum(axis=2)
        whole = (percent >= 0).all(axis=2) & (sums > 0) & np.isfinite(sums)  # NaN is not >= 0
        odd = whole & (np.abs(sums - 100) > _SUM_TOLERANCE)
    if odd.sum() > 0.5 * max(1, whole.sum()):
        median = float(np.median(sums[odd]))
        hint = "Multiply shares by 100." if abs(median - 1) < _SUM_TOLERANCE / 100 else "Turn counters into percent of each step."
        raise arrays.wrong(f"has modes that sum to {median:.4g} where 100 percent are expected", hint)
    grouped: Rates = np.stack(
        [_sum_of(percent, [place for place, name in enumerate(ours) if name == mode]) for mode in MODES], axis=2
    )
    with np.errstate(invalid="ignore", divide="ignore"):
        shares: Rates = grouped / sums[:, :, None]
    shares[~whole | odd] = np.nan
    return shares


def _sum_of(percent: Rates, places: list[int]) -> Rates:
    total: Rates = percent[:, :, places].sum(axis=2)
    return total


def _jobs(arrays: _Arrays, samples: int, threads: int) -> tuple[Indices, tuple[TraceJob, ...]]:
    """Which job ran on each thread; a file that does not say knows of none."""
    if "job" not in arrays:
        return np.full((samples, threads), UNKNOWN_JOB, dtype=np.int32), ()
    job, ids, types = arrays.numbers("job"), arrays.texts("job_ids"), arrays.texts("job_types")
    if job.shape != (samples, threads) or len(ids) != len(types) or job.dtype.kind == "f":
        raise arrays.wrong(f"has jobs of shape {job.shape} with {len(ids)} ids and {len(types)} types")
    if job.size and (int(job.min()) < UNKNOWN_JOB or int(job.max()) >= len(ids)):
        raise arrays.wrong(f"points to job {int(job.max())} of {len(ids)}; {NO_JOB} is no job, {UNKNOWN_JOB} unknown")
    trouble = frozenset(arrays.texts("anomalous_types")) if "anomalous_types" in arrays else frozenset()
    return job.astype(np.int32), tuple(TraceJob(*both, both[1] in trouble) for both in zip(ids, types, strict=True))


def _campaign(arrays: _Arrays) -> tuple[str, Split | None]:
    name = (arrays.texts("campaign") if "campaign" in arrays else [""])[0]
    split = (arrays.texts("split") if "split" in arrays else [""])[0]
    if split and split not in set(Split):
        raise arrays.wrong(f"is for {split[:40]!r}, expected {', '.join(Split)}")
    return name or arrays.path.stem[:_MOST_TEXT], Split(split) if split else None


def _placed(slot: Indices, size: int) -> npt.NDArray[np.intp]:
    """For each step of the grid the sample that stands there, or zero: its job holds until the next one is seen."""
    place = np.zeros(size, dtype=np.intp)
    place[slot] = np.arange(slot.size)
    return place
