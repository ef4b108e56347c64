"""The published study on campaigns of one's own: train ensembles of each architecture, judge them, measure their speed.

SplitWindows -> run_study -> TraceStudy -> JSON. Models that a folder holds already are used again; killed anywhere, it goes on.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.errors import UsageError
from stormpetrel.private_files import write_private
from stormpetrel.traces.campaign_splits import Cut, SplitWindows
from stormpetrel.traces.evaluation import TraceEvaluation, evaluate, why_not, windows_per_second
from stormpetrel.traces.networks.architecture import Architecture, AutoencoderSettings, Scorer

MODELS: Final = 10  # of each architecture, as in the published table
SPEED_S: Final = 1.0  # CPU seconds for which the speed of each kind is measured
_CUT: Final = "windows.json"
_KEPT: Final = re.compile(rf"({'|'.join(Architecture)})-(\d{{1,9}})")


@dataclass(frozen=True, slots=True)
class StudyPlan:
    """What to train, how often, on what device and where; `settings` are those of the first model of each kind."""

    architectures: tuple[Architecture, ...] = tuple(Architecture)
    models: int = MODELS
    device: str = "auto"
    settings: AutoencoderSettings = field(default_factory=AutoencoderSettings)
    engine: Engine = ONE_PROCESS


@dataclass(frozen=True, slots=True, eq=False)
class TraceStudy:
    """What was trained on which windows, and how good it is."""

    split: SplitWindows
    scorers: Mapping[Architecture, Sequence[Scorer]]
    evaluation: TraceEvaluation
    windows_per_second_per_core: Mapping[Architecture, float | None]
    seconds: Mapping[str, Any]


def run_study(split: SplitWindows, plan: StudyPlan, folder: Path, *, progress: Progress = no_progress) -> TraceStudy:
    """Train what the folder does not hold yet, judge everything on the test windows, and measure the speed of each kind."""
    from stormpetrel.traces.networks.ensemble import train_ensemble

    why = {kind: words for kind in plan.architectures if (words := why_not(kind, split.train, split.test))}
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / _CUT).exists():
        write_private(folder / _CUT, json.dumps(asdict(split.cut)))
    folders, training_s = {}, {}
    for kind in (kind for kind in plan.architectures if kind not in why):
        began = time.monotonic()
        settings = replace(plan.settings, architecture=kind, steps=split.train.steps)
        folders[kind] = train_ensemble(
            settings,
            split.train,
            split.validation,
            models=plan.models,
            folder=folder,
            device=plan.device,
            progress=progress,
            engine=replace(plan.engine, shared=folder),
        )
        training_s[str(kind)] = round(time.monotonic() - began, 3)
    began = time.monotonic()
    scorers = {kind: [load_scorer(path, device=plan.device) for path in paths] for kind, paths in folders.items()}
    evaluation = evaluate(scorers, split.train, split.test, seed=plan.settings.seed, why=why, progress=progress)
    judging_s = round(time.monotonic() - began, 3)
    progress(1.0, "measuring the speed")
    speed = {kind: _speed(paths[0], split) for kind, paths in folders.items()}
    return TraceStudy(split, scorers, evaluation, speed, {"training": training_s, "judging": judging_s})


def kept_plan(folder: Path) -> StudyPlan:
    """The plan by which the models in a folder were made, so that they can be judged again; UsageError where there are none."""
    from stormpetrel.traces.networks.autoencoder import TraceAutoencoder

    seeds_by_kind: dict[Architecture, list[int]] = {}
    for path in sorted(folder.glob("*-*")) if folder.is_dir() else []:
        name = _KEPT.fullmatch(path.name)
        if name and path.is_dir():
            seeds_by_kind.setdefault(Architecture(name[1]), []).append(int(name[2]))
    if not seeds_by_kind:
        raise UsageError(f"There is no trace model in {folder}.", hint="Make some: stormpetrel traces evaluate PATH --keep DIR")
    first = min(min(seeds) for seeds in seeds_by_kind.values())
    whole = {kind: [seed for seed in range(first, first + len(seeds)) if seed in seeds] for kind, seeds in seeds_by_kind.items()}
    kinds = tuple(kind for kind in Architecture if first in whole.get(kind, ()))
    settings = TraceAutoencoder.load(folder / f"{kinds[0]}-{first}").settings
    return StudyPlan(kinds, min(len(whole[kind]) for kind in kinds), "cpu", settings)


def kept_cut(folder: Path) -> Cut:
    """How the windows were cut from which the models in a folder learnt."""
    try:
        seeds_by_kind = json.loads((folder / _CUT).read_text(encoding="utf-8"))
        stride = seeds_by_kind["stride_s"]
        return Cut(float(seeds_by_kind["window_s"]), None if stride is None else float(stride))
    except FileNotFoundError:
        return Cut()
    except (OSError, ValueError, TypeError, KeyError):
        raise UsageError(f"{folder / _CUT} cannot be read.", hint="Make the models again: traces evaluate --keep DIR") from None


def load_scorer(folder: Path, *, threads: int | None = None, device: str = "cpu") -> Scorer:
    """A saved model as what scores: the runtime of the device, or torch itself on a machine without ONNX."""
    if _has_onnx():
        from stormpetrel.traces.networks import scorers

        return scorers.load_scorer(folder, threads=threads, device=device)
    from stormpetrel.traces.networks.autoencoder import TraceAutoencoder

    return TraceAutoencoder.load(folder)


def _speed(folder: Path, split: SplitWindows) -> float | None:
    """Windows per second of one core; None where only torch can score, which does not keep to one thread."""
    return windows_per_second(load_scorer(folder, threads=1), split.test, at_least_s=SPEED_S) if _has_onnx() else None


def _has_onnx() -> bool:
    return all(find_spec(name) is not None for name in ("onnx", "onnxruntime"))
