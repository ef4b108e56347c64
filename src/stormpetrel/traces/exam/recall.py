"""How many faults a detector sees: each fault put into the same node windows, at one false alarm per node and day.

detector, Windows -> seen_faults -> Seen: yes or no for each fault and node window, so that two detectors can be compared pair by
pair. Without baselines and ceiling: a night has no time for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stormpetrel.records.windows import Windows
from stormpetrel.traces.detector.detector import TraceDetector
from stormpetrel.traces.exam.study import ObservedNodes, put_fault
from stormpetrel.traces.faults.bench import BENCH
from stormpetrel.traces.faults.contract import SEVERITIES, Fault, Severity

MOST_NODES: Final = 40
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Which faults were seen in which node windows, and the node of each window."""

    seen: npt.NDArray[np.bool_]  # (faults × severities, node windows)
    node: npt.NDArray[np.int64]  # (node windows,)

    @property
    def recall(self) -> float:
        """The share of faults that were seen."""
        return float(self.seen.mean())


def seen_faults(
    detector: TraceDetector,
    windows: Windows,
    *,
    faults: Sequence[Fault] = BENCH,
    severities: Sequence[Severity] = SEVERITIES,
    most_nodes: int = MOST_NODES,
    seed: int = 0,
) -> Seen:
    """Put every fault into the same node windows and ask the detector; the score to pass is that of untouched ones.

    It is passed by untouched node windows once per node and day, or by none of them where they are fewer.
    """
    nodes = ObservedNodes.of(detector, windows)
    chosen = nodes.whole
    if chosen.size > most_nodes:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, most_nodes, replace=False))
    calm, expected, _ = nodes.part(nodes.whole)
    untouched = np.sort(detector.surprise(calm, expected).node)[::-1]
    allowed = int(untouched.size * windows.window_s / _DAY_S)
    threshold = untouched[min(allowed, untouched.size - 1)]
    part, expected, _ = nodes.part(chosen)
    rows = []
    for fault in faults:
        for severity in severities:
            changed = detector.changed(part, put_fault(part, fault, severity, seed))
            rows.append(detector.surprise(changed, expected).node > threshold)
    return Seen(np.array(rows), np.asarray(nodes.seen.layout.node_of[chosen], dtype=np.int64))
