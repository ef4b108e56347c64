"""The table of docs/synth-private.md, from what the benchmark measured: benchmarks/results/synth_private.json -> Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from markdown_tables import table
from measured_traces import measured

_LOGS: Final = {"kth": "KTH", "theta": "Theta", "hpc2n": "HPC2N"}
_EPSILONS: Final = {"0.1": "ε = 0.1", "1": "**ε = 1**", "10": "ε = 10", "inf": "no noise (ε = ∞)"}
_SCORES: Final = {
    "interval KS": ("columns", "interval_s", "ks"),
    "run time KS": ("columns", "runtime_s", "ks"),
    "cores KS": ("columns", "cores", "ks"),
    "lag-1": ("lag1", "synthetic"),
    "ACF error": ("acf_mae",),
    "dispersion": ("dispersion", "synthetic"),
    "hours of the week": ("hour_profile_tv",),
    "same user": ("same_user_share", "synthetic"),
    "C2ST sequence": ("c2st_sequence",),
    "membership attack": ("membership_auc",),
}
_LEAST_SPREAD: Final = 5e-4  # less is not shown
_REAL: Final = {"lag-1": ("lag1", "real"), "dispersion": ("dispersion", "real"), "same user": ("same_user_share", "real")}


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
            ("real even weeks", *(_figure(first, _REAL.get(name)) for name in _SCORES)),
            ("floor: real odd weeks", *(_figure(first["floor"], at) for at in _SCORES.values())),
        ]
        rows += [(words, *(_figure(runs[key], at) for at in _SCORES.values())) for key, words in _EPSILONS.items() if key in runs]
        learnt = f"learnt from {about['jobs']:,} jobs of {about['users']:,} users{nameless}"
        parts += [f"**{title}**: {learnt}; {len(first['seeds'])} fits each", table(("", *_SCORES), rows)]
    return "\n\n".join(parts)


def _figure(found: Any, at: tuple[str, ...] | None) -> str:
    if at is None:
        return ""
    for name in at:
        found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, Mapping):
        if not found.get("n"):
            return "–"
        return _number(found["mean"]) + (f" ± {_number(found['std'])}" if found["std"] >= _LEAST_SPREAD else "")
    return "–" if found is None else _number(found)


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    text = f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 1 else text


PARTS: Final[dict[str, Callable[[], str]]] = {"synth-private": cost}
