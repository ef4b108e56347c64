"""The bench: twelve faults, each mild, moderate and severe, and which of them a detector may be tuned on.

TUNED were looked at while the detector was made; ASIDE were kept for its final figures and for nothing else. The list stood here
before the first detector was tried.
"""

from __future__ import annotations

from typing import Final

from stormpetrel.traces.faults.contract import Fault
from stormpetrel.traces.faults.node_faults import (
    bad_io,
    frozen_counter,
    half_node_gone,
    hung_allreduce,
    noisy_neighbour,
    runaway_system,
    silent_idle,
    slow_storage,
    straggler,
    stuck_thread,
    thrashing,
    throttled_cpu,
)

TUNED: Final = tuple(
    Fault(function.__name__, function)
    for function in (bad_io, hung_allreduce, runaway_system, throttled_cpu, silent_idle, frozen_counter)
)
ASIDE: Final = tuple(
    Fault(function.__name__, function)
    for function in (slow_storage, straggler, stuck_thread, thrashing, noisy_neighbour, half_node_gone)
)
BENCH: Final = (*TUNED, *ASIDE)
