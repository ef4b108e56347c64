"""What an error says to the person who reads it."""

import pytest

from stormpetrel.errors import MissingExtraError

CPU_BUILD = "pip install torch --index-url https://download.pytorch.org/whl/cpu"


@pytest.mark.parametrize("extra", ["traces", "sdv"])
def test_an_extra_that_brings_torch_says_how_large_it_is_and_how_to_get_a_cpu_build_first(extra):
    hint = MissingExtraError("Training", extra).hint
    assert CPU_BUILD in hint and "0.9 GB" in hint and "5 GB" in hint
    assert hint.index(CPU_BUILD) < hint.index(f"pip install 'stormpetrel[{extra}]'")


def test_a_small_extra_is_one_line_to_install():
    assert MissingExtraError("The dashboard", "dashboard").hint == "Run: pip install 'stormpetrel[dashboard]'"


def test_scoring_asks_for_no_torch():
    assert "torch" not in str(MissingExtraError("Scoring CPU traces", "scoring"))
