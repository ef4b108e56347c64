"""How good and how useful synthetic workloads are, on public logs; writes benchmarks/results/synth_quality.json.

STORMPETREL_DATA=… python -m benchmarks.synth_quality [--kinds published,odd-even,training,schedule] [--generators sessions,rows]
        [--logs …] [--seeds 0-4] [--epochs N] [--workers N] [--again] [--out FILE]

It can be run in pieces: a part (kind, log, generator) that the file has already is left out, unless `--again`. `--epochs` is for
the generators that are networks. `--show` prints the tables of what is there.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.options import add_workers
from benchmarks.synth_study import Kind, Part, StudyPlan, run_part, study_parts
from stormpetrel.synth.choose import DEFAULT, new_generator

RESULT: Final = Path(__file__).parent / "results" / "synth_quality.json"
# title -> where the figure stands in what a part found
SCORES: Final = {
    "interval KS": ("columns", "interval_s", "ks"),
    "run time KS": ("columns", "runtime_s", "ks"),
    "cores KS": ("columns", "cores", "ks"),
    "lag-1": ("lag1", "synthetic"),
    "ACF error": ("acf_mae",),
    "dispersion": ("dispersion", "synthetic"),
    "hours TV": ("hour_profile_tv",),
    "same user": ("same_user_share", "synthetic"),
    "C2ST row": ("c2st_row",),
    "C2ST seq.": ("c2st_sequence",),
    "copies": ("exact_copies", "synthetic"),
    "nearest": ("nearest_record_ratio",),
    "member": ("membership_auc",),
}
REAL: Final = {"lag-1": ("lag1", "real"), "dispersion": ("dispersion", "real"), "same user": ("same_user_share", "real")}
SHOWN: Final = {
    Kind.PUBLISHED: SCORES,
    Kind.ODD_EVEN: SCORES,
    Kind.TRAINING: {
        "PR real": ("pr_auc_real",),
        "PR synthetic": ("pr_auc_synthetic",),
        "ratio": ("ratio",),
        "ROC real": ("roc_auc_real",),
        "ROC synthetic": ("roc_auc_synthetic",),
        "PR last outcome": ("baseline", "last_outcome", "pr_auc"),
    },
    Kind.SCHEDULE: {
        "wait real (s)": ("real", "mean_wait_s"),
        "wait synthetic": ("synthetic", "mean_wait_s"),
        "ratio": ("wait_ratio",),
        "odd ÷ even weeks": ("floor", "wait_ratio"),
        "use real": ("real", "utilisation"),
        "use synthetic": ("synthetic", "utilisation"),
        "use ratio": ("utilisation_ratio",),
    },
}


def main() -> None:
    options = _options()
    results: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {}
    names = [name for name in options.generators.split(",") if name]
    logs = [name for name in options.logs.split(",") if name]
    parts = [] if options.show else study_parts(options.kinds.split(","), names, logs)
    wanted = [part for part in parts if options.again or not _there(results, part)]
    if wanted:
        folder, settings = Path(os.environ["STORMPETREL_DATA"]), _settings(names, options.epochs)
        plan = StudyPlan(folder, _seeds(options.seeds), settings, options.workers)
        for part in wanted:
            began = time.monotonic()
            found = {**run_part(part, plan), "settings": dict(plan.settings.get(part.generator, {}))}
            results.setdefault(str(part.kind), {}).setdefault(part.log, {})[part.generator] = found
            _write(options.out, results)
            print(f"{part}: {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    show(results)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", default=",".join(Kind), help="what is asked, separated by commas")
    parser.add_argument("--generators", default=f"{DEFAULT},rows", help="separated by commas; published files are always there")
    parser.add_argument("--logs", default="", help="separated by commas; all of each kind if left out")
    parser.add_argument("--seeds", default="0-4", help="one, several separated by commas, or from-to")
    parser.add_argument("--epochs", type=int, help="of generators that are networks")
    add_workers(parser)
    parser.add_argument("--again", action="store_true", help="run parts that the file has already")
    parser.add_argument("--show", action="store_true", help="only print the tables of what is there")
    parser.add_argument("--out", type=Path, default=RESULT, help="file of the results")
    return parser.parse_args()


def _seeds(text: str) -> tuple[int, ...]:
    """The seeds of `3`, `1,4` or `0-4`."""
    first, _, last = text.partition("-")
    return tuple(range(int(first), int(last) + 1)) if last else tuple(int(word) for word in text.split(","))


def _settings(names: list[str], epochs: int | None) -> dict[str, dict[str, Any]]:
    if epochs is None:
        return {}
    networks = [name for name in names if "epochs" in inspect.signature(type(new_generator(name))).parameters]
    return {name: {"epochs": epochs} for name in networks}


def _there(results: Mapping[str, Any], part: Part) -> bool:
    return part.generator in results.get(str(part.kind), {}).get(part.log, {})


def _write(path: Path, results: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    fresh.replace(path)


def show(results: Mapping[str, Any]) -> None:
    for kind, titles in SHOWN.items():
        for log, generators in results.get(str(kind), {}).items():
            print(f"\n{kind}, {log}\n{'':<26}" + "".join(f"{title:>17}" for title in titles))
            first = next(iter(generators.values()))
            if titles is SCORES:
                print(_line("real", first, REAL))
            if titles is SCORES and first.get("floor"):
                print(_line("real odd against even", first["floor"], SCORES))
            for name, found in generators.items():
                print(_line(name, found, titles))


def _line(name: str, found: Mapping[str, Any], places: Mapping[str, tuple[str, ...]]) -> str:
    titles = SCORES if places is REAL else places
    return f"{name:<26}" + "".join(f"{_figure(figure_at(found, places.get(title, ()))):>17}" for title in titles)


def figure_at(found: Any, path: tuple[str, ...]) -> Any:
    """What stands at a place of nested dictionaries; None where the place or the figure is not there."""
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if path else None


def _figure(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{_number(value['mean'])} ± {_number(value['std'])}" if value.get("n") else "-"
    return "-" if value is None else _number(value)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3f}"


if __name__ == "__main__":
    main()
