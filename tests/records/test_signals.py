"""Signals in words: those that Linux has, and nothing made up for the others."""

import signal

import pytest

from stormpetrel.records.states import format_signal


@pytest.mark.parametrize("number", range(1, 32))
def test_a_signal_has_the_name_that_linux_gives_it(number):
    names = {name.removesuffix("_") for name in dir(signal) if name.startswith("SIG") and getattr(signal, name) == number}
    assert format_signal(number).startswith(f"signal {number} (SIG") and any(name in format_signal(number) for name in names)


def test_what_slurm_writes_for_a_job_out_of_memory_is_told_as_that():
    assert format_signal(125) == "killed for memory (Slurm's 0:125)"


@pytest.mark.parametrize("number", [-1, 65, 99, 126, 253])
def test_a_number_that_is_no_signal_is_not_called_one(number):
    assert not format_signal(number).startswith("signal")
