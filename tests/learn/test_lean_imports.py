"""Lean imports: what a program loads, and what it can still do. Processes, since a module is imported once."""

import json
import subprocess
import sys

_ALONE = """
import json, sys
from stormpetrel.learn.lean_imports import classifier_class, import_lean
import_lean()
import_lean()
import numpy as np
import xgboost
told = {"left_out": not {"sklearn", "pandas", "scipy.stats"} & set(sys.modules)}
rows, label = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
trees = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(rows, label), 2)
model = classifier_class()(n_estimators=2).fit(rows, label)
told["the_same"] = bool(np.allclose(model.predict_proba(rows)[:, 1], trees.predict(xgboost.DMatrix(rows))))
from sklearn.base import is_classifier
told["a_classifier"] = bool(is_classifier(model)) and classifier_class() is type(model)
print(json.dumps(told))
"""


def test_trees_are_asked_without_scikit_learn_and_its_classes_are_there_for_who_wants_them():
    done = subprocess.run([sys.executable, "-c", _ALONE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"left_out": True, "the_same": True, "a_classifier": True}


def test_the_command_line_leaves_it_out(tmp_path):
    words = "import sys; sys.argv = ['stormpetrel', '--version']\nfrom stormpetrel.faces.cli.main import main\n"
    ask = f"{words}try: main()\nexcept SystemExit: pass\nimport xgboost; print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


_NUMBA = """
import json, sys
from stormpetrel.learn.lean_imports import import_lean
import_lean()
import numpy as np
from stormpetrel.jobs.history.kernel import empty_rows
told = {"rows": empty_rows(3).shape[0], "left_out": not {"scipy.linalg", "cffi"} & set(sys.modules)}
import scipy.linalg
told["for_others"] = float(scipy.linalg.det(np.eye(2)))
print(json.dumps(told))
"""


def test_compiled_functions_are_loaded_without_scipy_and_cffi_and_they_are_there_for_who_wants_them():
    done = subprocess.run([sys.executable, "-c", _NUMBA], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"rows": 3, "left_out": True, "for_others": 1.0}
