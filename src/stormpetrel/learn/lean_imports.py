"""Lean imports: XGBoost without scikit-learn, and numba without scipy and cffi, for programs that use none of them through it.

`import xgboost` imports scikit-learn, scipy.stats and pandas for its classes in scikit-learn's shape: 2.5 s of processor time
instead of 0.6 s. The first function that numba loads imports scipy.linalg to see whether there is a BLAS for `np.dot`, which none
of our compiled functions calls: a third of what numba costs a short command. It imports cffi, and with it a parser of C, in case
somebody calls a C function from a compiled one: 20 ms. `import_lean` is for programs of our own, where
`classifier_class` is how XGBoost's class is had; in a notebook, where others import what they like, it is never called, and
`serve` imports scikit-learn before it has threads.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Any, Final

# What is left out, and the module that looks whether it is there and does without where it is not.
_LEFT_OUT: Final = {"sklearn": "xgboost.compat", "scipy.linalg": "numba.np.linalg", "cffi": "numba.core.typing.cffi_utils"}


def import_lean() -> None:
    """From now on in this process, xgboost does not import scikit-learn, nor numba scipy or cffi; anybody else still can."""
    if not any(isinstance(finder, _LeavesOut) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LeavesOut())


def classifier_class() -> Any:
    """Return `xgboost.XGBClassifier`, which needs scikit-learn, also after an import without it."""
    import xgboost.compat
    import xgboost.sklearn

    if not xgboost.compat.SKLEARN_INSTALLED:
        import sklearn  # noqa: F401  what is there already is not looked for

        importlib.reload(xgboost.compat)
        importlib.reload(xgboost.sklearn)
    return xgboost.sklearn.XGBClassifier


class _LeavesOut(MetaPathFinder):
    """Says to one module that there is no such other module, as on a machine without it."""

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing: whatever this one does not refuse is left to the others."""
        if name in _LEFT_OUT and _who_imports() == _LEFT_OUT[name]:
            raise ModuleNotFoundError(f"{name} is left out of this import.", name=name)


def _who_imports() -> str:
    """The name of the module whose import statement is being carried out."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame else ""
