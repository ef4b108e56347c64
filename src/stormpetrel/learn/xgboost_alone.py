"""XGBoost without scikit-learn: a program that only asks trees starts without what it does not use.

`import xgboost` imports scikit-learn, scipy.stats and pandas for its classes in scikit-learn's shape: 2.5 s of processor time
instead of 0.6 s. `leave_sklearn_out` is for programs of our own, where `classifier_class` is how such a class is had; in a
notebook, where others import what they like, it is never called, and `serve` imports scikit-learn before it has threads.
"""

from __future__ import annotations

import importlib
import sys
from importlib.abc import MetaPathFinder
from types import FrameType
from typing import Any, Final

_ASKS: Final = "xgboost.compat"  # the module that looks whether scikit-learn is there, and does without where it is not


def leave_sklearn_out() -> None:
    """From now on in this process, `import xgboost` does not import scikit-learn; anybody else still can."""
    if not any(isinstance(finder, _NotForXgboost) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NotForXgboost())


def classifier_class() -> Any:
    """Return `xgboost.XGBClassifier`, which needs scikit-learn, also after an import without it."""
    import xgboost.compat
    import xgboost.sklearn

    if not xgboost.compat.SKLEARN_INSTALLED:
        import sklearn  # noqa: F401  what is there already is not looked for

        importlib.reload(xgboost.compat)
        importlib.reload(xgboost.sklearn)
    return xgboost.sklearn.XGBClassifier


class _NotForXgboost(MetaPathFinder):
    """Says to one module that there is no scikit-learn, as on a machine without it."""

    def find_spec(self, name: str, *_: object) -> None:
        """Find nothing: whatever this one does not refuse is left to the others."""
        if name == "sklearn" and _who_imports() == _ASKS:
            raise ModuleNotFoundError("scikit-learn is left out of this import.", name=name)


def _who_imports() -> str:
    """The name of the module whose import statement is being carried out."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "") if frame else ""
