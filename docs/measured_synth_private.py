"""The table of docs/synth-private.md, from what the benchmark measured: benchmarks/results/synth_private.json -> Markdown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from markdown_tables import table
from measured_synth import PRIVACY, REAL, SCORES, figure
from measured_traces import measured

_LOGS: Final = {"kth": "KTH", "theta": "Theta", "hpc2n": "HPC2N"}
_EPSILONS: Final = {"0.1": "ε = 0.1", "1": "**ε = 1**", "10": "ε = 10", "inf": "no noise (ε = ∞)"}
_LEFT_OUT: Final = ("C2ST row",)
_SCORES: Final = {name: at for name, at in SCORES.items() if name not in _LEFT_OUT} | {
    "membership attack": PRIVACY["membership attack"]
}


def cost() -> str:
    """Every log: its floor, and the private generator at each epsilon."""
    found = measured("synth_private")
    parts = []
    for log, title in _LOGS.items():
        runs, about = found["epsilon"].get(log), found["logs"].get(log)
        if not runs:
            continue
        first = next(iter(runs.values()))
        nameless = f", {about['without_user']:,} of them without a user" if about["without_user"] else ""
        rows = [
            ("real even weeks", *(figure(first, REAL.get(name)) for name in _SCORES)),
            ("floor: real odd weeks", *(figure(first["floor"], at) for at in _SCORES.values())),
        ]
        rows += [(words, *(figure(runs[key], at) for at in _SCORES.values())) for key, words in _EPSILONS.items() if key in runs]
        learnt = f"learnt from {about['jobs']:,} jobs of {about['users']:,} users{nameless}"
        parts += [f"**{title}**: {learnt}; {len(first['seeds'])} fits each", table(("", *_SCORES), rows)]
    return "\n\n".join(parts)


PARTS: Final[dict[str, Callable[[], str]]] = {"synth-private": cost}
