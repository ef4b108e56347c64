"""Faults of others: named on the command line, checked at every call."""

from __future__ import annotations

import numpy as np
import pytest

from stormpetrel.errors import UsageError
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import Fault, inject, load_fault, load_faults
from tests.traces.faults.test_bench import node

MODULE = """
def fan_failure(windows, severity, seed):
    windows[:, :, 0] *= {"mild": 0.9, "moderate": 0.7, "severe": 0.5}[severity]
    windows[:, :, 3] = 1 - windows[:, :, :3].sum(axis=2)
    return windows

LEVEL = 3
"""


def returning(change):
    return Fault("odd", lambda windows, severity, seed: change(windows))


def test_a_fault_of_others_is_named_by_module_or_by_file(tmp_path, monkeypatch):
    (tmp_path / "our_faults_of_a_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    before = node()
    for reference in ("our_faults_of_a_test:fan_failure", f"{tmp_path}/our_faults_of_a_test.py:fan_failure"):
        fault = load_fault(reference)
        after = inject(fault, before, "severe", 0)
        assert fault.name == "fan_failure"
        np.testing.assert_allclose(after[:, :, 0], before[:, :, 0] / 2)
    np.testing.assert_array_equal(before, node())  # it changes its copy in place, which is its own affair


@pytest.mark.parametrize(
    ("reference", "problem"),
    [
        ("no_such_module:x", "cannot be imported"),
        ("colon_is_missing", "names no fault"),
        ("os:not a name", "names no fault"),
        ("math:no_such_function", "no function 'no_such_function'"),
        ("/no/such/file.py:x", "There is no file"),
    ],
)
def test_what_names_no_fault_is_refused_in_a_sentence(reference, problem):
    with pytest.raises(UsageError, match=problem):
        load_fault(reference)


def test_a_module_that_fails_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "broken.py").write_text("raise RuntimeError('no licence\\nsecond line')")
    with pytest.raises(UsageError, match=r"cannot be imported: RuntimeError: no licence\."):
        load_fault(f"{tmp_path}/broken.py:x")


def test_a_script_that_ends_the_process_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "script.py").write_text("raise SystemExit('usage: script.py FILE')")
    with pytest.raises(UsageError, match=r"cannot be imported: SystemExit: usage: script\.py FILE\."):
        load_fault(f"{tmp_path}/script.py:x")


def test_a_file_may_have_dataclasses_and_import_what_lies_beside_it(tmp_path):
    (tmp_path / "doses_of_a_test.py").write_text("SHARE = 0.5\n")
    (tmp_path / "with_dose.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import ClassVar\n"
        "from doses_of_a_test import SHARE\n\n@dataclass\nclass Dose:\n    share: float = SHARE\n"
        "    kind: ClassVar[str] = 'x'\n\n"
        "def halved(windows, severity, seed):\n    windows[:, :, 0] *= Dose().share\n"
        "    windows[:, :, 3] = 1 - windows[:, :, :3].sum(axis=2)\n    return windows\n"
    )
    after = inject(load_fault(f"{tmp_path}/with_dose.py:halved"), node(), "mild", 0)
    np.testing.assert_allclose(after[:, :, 0], node()[:, :, 0] / 2)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda windows: windows[:, :4], "returned shape"),
        (lambda windows: windows * np.nan, "not finite"),
        (lambda windows: windows * 1.1, "do not sum to one"),
        (lambda windows: windows + np.array([-1.0, 1.0, 0.0, 0.0]), "do not sum to one"),
        (lambda windows: None, "returned nothing"),
        (lambda windows: windows.astype(str), "not numbers"),
    ],
)
def test_what_is_no_window_any_more_is_refused(change, problem):
    with pytest.raises(UsageError, match=problem):
        inject(returning(change), node(), "mild", 0)


def failing(windows, severity, seed):
    raise RuntimeError("no licence\nsecond line")


def test_a_fault_that_raises_is_named_in_a_sentence():
    with pytest.raises(UsageError, match=r"The fault 'odd' raised RuntimeError: no licence\."):
        inject(Fault("odd", failing), node(), "mild", 0)


def leaving(windows, severity, seed):
    raise SystemExit


def test_a_fault_that_ends_the_process_is_named_in_a_sentence():
    with pytest.raises(UsageError, match="The fault 'odd' raised SystemExit: no reason given"):
        inject(Fault("odd", leaving), node(), "mild", 0)


@pytest.mark.parametrize("change", [lambda windows: windows.tolist(), lambda windows: windows.astype(np.float32)])
def test_lists_and_single_precision_are_taken(change):
    np.testing.assert_allclose(inject(returning(change), node(), "mild", 0), node(), atol=1e-6)


def test_two_faults_of_one_name_are_refused_and_ones_own_replaces_a_built_in_one(tmp_path):
    (tmp_path / "copy.py").write_text("def bad_io(windows, severity, seed):\n    return windows\n")
    own = f"{tmp_path}/copy.py:bad_io"
    with pytest.raises(UsageError, match="two faults named 'bad_io'"):
        load_faults([own, own], BENCH)
    faults = load_faults([own], BENCH)
    assert len(faults) == len(BENCH) and faults[0].function is not BENCH[0].function
    assert [fault.name for fault in load_faults([], BENCH)] == [fault.name for fault in BENCH]
