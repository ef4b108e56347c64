"""The faults of examples/trace_faults.py: they keep the contract of a fault, and each of them changes something."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from benchmarks.traces_faults import EXAMPLE_FAULTS, EXAMPLES

from stormpetrel.traces.faults.contract import SEVERITIES, inject, load_fault
from tests.traces.faults.test_bench import node


@pytest.mark.parametrize("name", EXAMPLE_FAULTS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_an_example_is_a_fault_and_the_same_seed_gives_the_same_windows(name, severity):
    fault = load_fault(f"{EXAMPLES}:{name}")
    for windows in (node(), node()[:7, :1], np.repeat(node(), 8, axis=1)[:, :256]):
        after = inject(fault, windows, severity, 3)
        np.testing.assert_array_equal(after, inject(fault, windows, severity, 3))
    assert (inject(fault, node(), severity, 3) != node()).any()


def test_every_function_of_the_example_is_judged():
    lines = Path(EXAMPLES).read_text(encoding="utf-8").splitlines()
    functions = [line[4:].partition("(")[0] for line in lines if line.startswith("def ") and not line.startswith("def _")]
    assert tuple(functions) == EXAMPLE_FAULTS
