"""What a fault is: a function that changes the CPU modes of one node over one window; and how others' faults are taken in.

(windows (T, threads, 4), severity, seed) -> array of the same shape. The modes are user, system, iowait, other, and sum to one.
`inject` calls a fault and refuses what does not keep this; `load_fault` imports the one that an operator names as MODULE:NAME.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from stormpetrel.errors import UsageError
from stormpetrel.records.arrays import Floats
from stormpetrel.records.traces import MODES

Severity = Literal["mild", "moderate", "severe"]
SEVERITIES: Final[tuple[Severity, ...]] = ("mild", "moderate", "severe")

FaultFunction = Callable[[Floats, Severity, int], Floats]

_SUM_TOLERANCE: Final = 1e-3
_MOST_NAMED: Final = 12  # functions of a module that has not the one that was named


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault with the name under which its figures stand."""

    name: str
    function: FaultFunction


def inject(fault: Fault, windows: npt.NDArray[np.floating[Any]], severity: Severity, seed: int) -> Floats:
    """The windows (T, threads, 4) of one node with the fault in them; UsageError where it raises or returns anything else.

    The fault works on a copy; shares that are a rounding error below zero are set to zero and the four sum to one again.
    """
    before = np.array(windows, dtype=np.float64)
    try:
        returned = fault.function(before, severity, seed)
        after = np.asarray(returned)
    except (Exception, SystemExit) as error:  # whatever the function of others raises
        raise _wrong(fault, f"raised {type(error).__name__}: {_first_line(error)}") from error
    if returned is None:
        raise _wrong(fault, "returned nothing: changing its array is not enough, it must return one")
    if after.shape != windows.shape:
        raise _wrong(fault, f"returned shape {after.shape} for {windows.shape}")
    if after.dtype.kind not in "fiu":
        raise _wrong(fault, f"returned {after.dtype}, not numbers")
    after = after.astype(np.float64)
    if not np.isfinite(after).all():
        raise _wrong(fault, "returned values that are not finite")
    sums = after.sum(axis=2)
    if after.min(initial=0.0) < -_SUM_TOLERANCE or (np.abs(sums - 1) > _SUM_TOLERANCE).any():
        worst = float(sums.ravel()[np.abs(sums - 1).argmax()]) if sums.size else 1.0
        raise _wrong(fault, f"returned modes that do not sum to one (smallest {after.min():.4g}, a sum of {worst:.4g})")
    kept: Floats = np.maximum(after, 0.0)
    kept /= kept.sum(axis=2, keepdims=True)
    return kept


def load_fault(reference: str) -> Fault:
    """The fault that `MODULE:NAME` names: a module that can be imported from here, or the path of a Python file.

    Importing a module runs it. It is imported because the operator named it, and never from what a file or a page says.
    """
    module_name, _, name = reference.rpartition(":")
    if not module_name or not name.isidentifier():
        raise UsageError(f"{reference[:200]!r} names no fault.", hint="Name it as MODULE:NAME, such as my_faults:fan_failure.")
    module = _imported(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        listed = ", ".join(known[:_MOST_NAMED]) + (", …" if len(known) > _MOST_NAMED else "")
        raise UsageError(f"{module_name} has no function {name!r}.", hint=f"It has: {listed or 'none'}.")
    return Fault(name, function)


def load_faults(references: Sequence[str], known: Sequence[Fault]) -> list[Fault]:
    """The known faults, and those named here in place of known ones of the same name; UsageError for two of one name."""
    named: dict[str, Fault] = {}
    for fault in map(load_fault, references):
        if fault.name in named:
            raise UsageError(f"There are two faults named {fault.name!r}.", hint="Give one of the functions another name.")
        named[fault.name] = fault
    return list(({fault.name: fault for fault in known} | named).values())


def _imported(name: str) -> ModuleType:
    try:
        if name.endswith(".py"):
            return _of_file(Path(name))
        with _importing_from(Path.cwd()):  # a console script does not look where it is started
            return importlib.import_module(name)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:  # whatever the module of others raises while it is imported
        hint = "Name a module that Python finds from here, or the path of a Python file."
        raise UsageError(f"{name[:200]} cannot be imported: {type(error).__name__}: {_first_line(error)}.", hint=hint) from None


def _of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise UsageError(f"There is no file {path}.", hint="Name a module, or the path of a Python file.")
    name = f"faults_of_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is no Python file.")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up while it is executed
    with _importing_from(path.resolve().parent):  # what lies beside it, as if the file had been started
        spec.loader.exec_module(module)
    return module


@contextmanager
def _importing_from(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["no reason given"])[0][:200].rstrip(".")


def _wrong(fault: Fault, what: str) -> UsageError:
    return UsageError(
        f"The fault {fault.name!r} {what}.", hint=f"A fault returns (T, threads, 4) in the order {', '.join(MODES)}."
    )
