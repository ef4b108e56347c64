"""Tables of docs/synth.md and synth-seed.md: benchmarks/results/synth_{quality,speed,seed}.json -> Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from markdown_tables import table
from measured_traces import measured

_LOGS: Final = {
    "theta": "Theta",
    "kth": "KTH",
    "hpc2n": "HPC2N",
    "thetagpu": "ThetaGPU",
    "supercloud": "SuperCloud",
    "curie": "Curie",
    "mira": "Mira",
}
_GENERATORS: Final = {
    "sessions": "**sessions** (default)",
    "copulagan": "CopulaGAN",
    "ctgan": "CTGAN",
    "tvae": "TVAE",
    "gaussian-copula": "Gaussian copula",
    "rows": "rows of the log, in any order",
    "published-copulagan": "CopulaGAN, as published",
    "published-ctgan": "CTGAN, as published",
    "published-tvae": "TVAE, as published",
    "published-gaussian-copula": "Gaussian copula, as published",
    "sdv-copulagan": "CopulaGAN of SDV",
}
_LEAST_SPREAD: Final = 5e-4  # less is not shown
SCORES: Final = {
    "interval KS": ("columns", "interval_s", "ks"),
    "run time KS": ("columns", "runtime_s", "ks"),
    "cores KS": ("columns", "cores", "ks"),
    "lag-1": ("lag1", "synthetic"),
    "ACF error": ("acf_mae",),
    "dispersion": ("dispersion", "synthetic"),
    "hours of the week": ("hour_profile_tv",),
    "same user": ("same_user_share", "synthetic"),
    "C2ST row": ("c2st_row",),
    "C2ST sequence": ("c2st_sequence",),
}
REAL: Final = {"lag-1": ("lag1", "real"), "dispersion": ("dispersion", "real"), "same user": ("same_user_share", "real")}
PRIVACY: Final = {
    "exact copies": ("exact_copies", "synthetic"),
    "among unseen real jobs": ("exact_copies", "natural"),
    "nearest-record ratio": ("nearest_record_ratio",),
    "membership attack": ("membership_auc",),
}
_USE: Final = {
    "PR area, trained on it ÷ on the real log": ("tstr", "ratio"),
    "mean wait ÷ real": ("schedule", "wait_ratio"),
    "utilisation ÷ real": ("schedule", "utilisation_ratio"),
}
_FLOOR_RATIOS: Final = {
    "interval KS ÷ floor": ("floor_ratio", "interval_ks"),
    "ACF error ÷ floor": ("floor_ratio", "acf_mae"),
    "dispersion error ÷ floor": ("floor_ratio", "dispersion"),
}
_ROWS: Final = {
    "interval KS": ("ks interval_s",),
    "run time KS": ("ks runtime_s",),
    "cores KS": ("ks cores",),
    "limit KS": ("ks time_limit_s",),
    "lag-1": ("lag1",),
    "dispersion": ("dispersion",),
    "C2ST row": ("c2st_row",),
    "C2ST sequence": ("c2st_sequence",),
    "CPU s": ("fit_cpu_s",),
}
_TRAINING: Final = {
    "PR area, trained on real jobs": ("pr_auc_real",),
    "trained on synthetic jobs": ("pr_auc_synthetic",),
    "ratio": ("ratio",),
    "ROC area, real": ("roc_auc_real",),
    "synthetic": ("roc_auc_synthetic",),
    "PR area of the user's last outcome": ("baseline", "last_outcome", "pr_auc"),
}
_SCHEDULE: Final = {
    "mean wait, real (s)": ("real", "mean_wait_s"),
    "synthetic (s)": ("synthetic", "mean_wait_s"),
    "ratio": ("wait_ratio",),
    "real odd ÷ even weeks": ("floor", "wait_ratio"),
    "utilisation, real": ("real", "utilisation"),
    "synthetic": ("synthetic", "utilisation"),
}


def published() -> str:
    """Every generator against the Theta file that the published ones learnt from."""
    found = _quality("published")["theta-intervals"]
    head = ("", *SCORES, *_USE)
    first = next(iter(found.values()))
    rows = [("real", *(figure(first, REAL.get(title)) for title in SCORES), *("" for _ in _USE))]
    rows += [(_GENERATORS[name], *(figure(found[name], at) for at in (SCORES | _USE).values())) for name in _known(found)]
    return table(head, rows)


def odd_even() -> str:
    """Learnt from odd weeks, judged on even ones: each log with its floor, real odd against real even weeks."""
    parts = []
    for log, found in _by_log("odd-even"):
        first = next(iter(found.values()))
        rows = [
            ("real even weeks", *(figure(first, REAL.get(title)) for title in SCORES), *("" for _ in _FLOOR_RATIOS)),
            ("floor: real odd weeks", *(figure(first["floor"], at) for at in SCORES.values()), *("1" for _ in _FLOOR_RATIOS)),
        ]
        rows += [
            (_GENERATORS[name], *(figure(found[name], at) for at in (SCORES | _FLOOR_RATIOS).values())) for name in _known(found)
        ]
        seeds = max(len(of_one["seeds"]) for of_one in found.values())
        parts += [f"**{_LOGS[log]}**, {seeds} seeds (a figure without ± has one)", table(("", *SCORES, *_FLOOR_RATIOS), rows)]
    return "\n\n".join(parts)


def privacy() -> str:
    """What is given away: copies, nearness and the membership attack, learnt from odd weeks."""
    return _one_table("odd-even", PRIVACY)


def training() -> str:
    """A failure model trained on synthetic jobs and tested on real ones, beside one trained on real jobs."""
    return _one_table("training", _TRAINING)


def schedule() -> str:
    """Mean wait and utilisation of one machine and scheduler, fed with real and with synthetic jobs."""
    return _one_table("schedule", _SCHEDULE)


def speed() -> str:
    """What was asked and what was measured."""
    found = measured("synth_speed")
    fit = found["fit"]
    rows = [
        (
            f"learn Theta and make {fit['jobs']:,} jobs, {_GENERATORS.get(name, name)}",
            "at least 20× less than CopulaGAN" if name == found["fit"]["generator"] else "",
            f"{figures['cpu_s']:,.1f} s CPU{', ' + figures['how'] if figures['how'] else ''}",
            f"{figures['times_ours']:,.1f}×",
        )
        for name, figures in fit["generators"].items()
    ]
    for log, figures in found["sampling"]["logs"].items():
        what = f"jobs a second and core, from a model of {_LOGS.get(log, 'Theta')}"
        rows.append((what, "at least 50,000", f"{figures['jobs_per_cpu_s']:,.0f}", ""))
    million = found["million"]
    told = f"{million['fit_wall_s']:,.0f} s, peak {million['peak_bytes'] / 1e6:,.0f} MB"
    rows.append((f"learn {million['learnt']:,} jobs on two cores", "under 180 s", told, ""))
    rows += [
        (f"peak of memory while {case['jobs']:,} jobs are made", "flat", f"{case['peak_bytes'] / 1e6:,.0f} MB", "")
        for case in found["streaming"]["cases"]
    ]
    return table(("what", "asked", "measured", "against ours"), rows)


def _quality(kind: str) -> dict[str, Any]:
    return dict(measured("synth_quality")[kind])


def _by_log(kind: str) -> list[tuple[str, dict[str, Any]]]:
    return sorted(_quality(kind).items(), key=lambda item: list(_LOGS).index(item[0]))


def _known(found: Mapping[str, Any]) -> list[str]:
    return [name for name in _GENERATORS if name in found]


def _one_table(kind: str, places: Mapping[str, tuple[str, ...]]) -> str:
    rows = [
        (_LOGS[log], _GENERATORS[name], *(figure(found[name], at) for at in places.values()))
        for log, found in _by_log(kind)
        for name in _known(found)
    ]
    return table(("log", "generator", *places), rows)


def rows_and_sdv() -> str:
    """Generators of rows, ours and SDV's, at equal epochs: each against the Theta file that it learnt from."""
    found = measured("synth_seed")
    names = {name: name for name in found["generators"]}
    rows = [(name, *(figure(found["generators"][name], at) for at in _ROWS.values())) for name in names]
    return f"{found['epochs']} epochs; the real log has a lag-1 of .443 and a dispersion of 5.78.\n\n" + table(("", *_ROWS), rows)


def figure(found: Any, at: tuple[str, ...] | None) -> str:
    """One cell: the figure that stands there, with its spread over seeds."""
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


PARTS: Final[dict[str, Callable[[], str]]] = {
    "synth-published": published,
    "synth-odd-even": odd_even,
    "synth-privacy": privacy,
    "synth-training": training,
    "synth-schedule": schedule,
    "synth-speed": speed,
    "synth-rows": rows_and_sdv,
}
