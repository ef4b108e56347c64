"""Several generators fitted at a time: each kind and seed is an item of the engine, whose model comes back as files.

WorkloadInput + kinds + seeds + folder -> fit_generators -> LearntWorkload of each; folder/KIND-SEED holds the model.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from stormpetrel import __version__
from stormpetrel.answers.workload.input import learnt_workload, make_generator, synthetic_workload
from stormpetrel.engine import ONE_PROCESS, Engine, KeptResults
from stormpetrel.engine.codecs import FilesCodec
from stormpetrel.errors import UsageError
from stormpetrel.private_files import create_private
from stormpetrel.synth.choose import GENERATORS, load_generator

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.workload import LearntWorkload
    from stormpetrel.answers.workload.input import WorkloadInput
    from stormpetrel.engine import Progress
    from stormpetrel.synth.workload import Workload

ModelFiles = dict[str, bytes]  # of a model folder, by name
_UNFINISHED: Final = ".unfinished"  # the models of a run that has not ended
_SEED: Final = 41


@dataclass(frozen=True, slots=True)
class PlannedFit:
    """A generator that is to be fitted."""

    kind: str
    seed: int

    @property
    def name(self) -> str:
        """What its folder is called: `sessions-0`."""
        return f"{self.kind}-{self.seed}"


def fit_generators(
    source: WorkloadInput,
    kinds: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    settings: Mapping[str, Any],
    *,
    engine: Engine = ONE_PROCESS,
    progress: Progress,
) -> list[LearntWorkload]:
    """Fit each kind with each seed and save them side by side in a new folder; what each has seen, in the order of the fits.

    A model is kept as soon as it is there. Where the folder holds what is left of the same fits, killed before their end, only
    those that are missing are fitted.
    """
    plans = [PlannedFit(kind, seed) for kind, seed in product(dict.fromkeys(kinds), seeds)]
    for plan in plans:
        make_generator(plan.kind, seed=plan.seed, **settings)  # wrong settings are refused before anything else
    refuse_finished(folder)
    unfinished = folder / _UNFINISHED
    unfinished.mkdir(mode=0o700, parents=True, exist_ok=True)
    learnt = []
    kept = KeptResults(unfinished, _identity(source.workload, settings), FilesCodec())
    fitted = engine.map(_Fit(source.workload, settings), plans, name=lambda plan: plan.name, progress=progress, kept=kept)
    for plan, files in zip(plans, fitted, strict=True):
        target = folder / plan.name
        if target.exists():  # of the run that was killed, perhaps of other jobs
            shutil.rmtree(target)
        _write(target, files)
        learnt.append(learnt_workload(source.workload, load_generator(target), name=plan.kind, model=target, seed=plan.seed))
    shutil.rmtree(unfinished)
    return learnt


def refuse_finished(folder: Path) -> None:
    """UsageError where something lies in a folder already, other than what a killed run has left there."""
    if folder.exists() and not (folder / _UNFINISHED).exists():
        raise UsageError(f"{folder} is there already.", hint="Models are never overwritten: choose another folder.")


def _identity(workload: Workload, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a fit depends on besides kind and seed."""
    jobs = hashlib.sha256()
    for column in workload.jobs.columns:
        jobs.update(column.encode() + workload.jobs[column].hash(_SEED).to_numpy().tobytes())
    chosen = json.dumps(dict(settings), sort_keys=True, default=str)
    return {"jobs": jobs.hexdigest(), "has_clock": workload.has_clock, "settings": chosen, "code": __version__}


def fit_and_sample(
    real: Workload,
    kinds: Mapping[str, str],
    *,
    seed: int,
    settings: Mapping[str, Mapping[str, Any]],
    engine: Engine = ONE_PROCESS,
    progress: Progress,
) -> dict[str, Workload]:
    """As many jobs as the real workload has of each generator, by its label; `kinds` and `settings` by label, too."""
    labels = list(kinds)
    work = _FitAndSample(real, dict(kinds), seed, {label: dict(chosen) for label, chosen in settings.items()})
    return dict(zip(labels, engine.map(work, labels, progress=progress), strict=True))


def is_generator(source: str) -> bool:
    """Whether a source is the name of a generator, which has to be fitted, and no file or folder."""
    return source in GENERATORS and not Path(source).exists()


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    """Fits one generator; the files of its model."""

    workload: Workload
    settings: Mapping[str, Any]

    def __call__(self, plan: PlannedFit, progress: Progress) -> ModelFiles:
        generator = make_generator(plan.kind, seed=plan.seed, **self.settings)
        generator.fit(self.workload, progress=progress)
        with TemporaryDirectory(prefix="stormpetrel-fit-") as folder:
            target = Path(folder) / "model"
            generator.save(target)
            return {path.name: path.read_bytes() for path in sorted(target.iterdir())}


@dataclass(frozen=True, slots=True, eq=False)
class _FitAndSample:
    """Fits the generator of a label to the real jobs and samples from it."""

    real: Workload
    kinds: Mapping[str, str]
    seed: int
    settings: Mapping[str, Mapping[str, Any]]

    def __call__(self, label: str, progress: Progress) -> Workload:
        return synthetic_workload(
            self.kinds[label], self.real, seed=self.seed, settings=self.settings.get(label), progress=progress
        )


def _write(target: Path, files: ModelFiles) -> None:
    """Write the files of a model to a folder of its own, which appears whole or not at all."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=".making-") as making:
        whole = Path(making) / "whole"
        whole.mkdir(mode=0o700)
        for name, content in files.items():
            create_private(whole / name, content)
        whole.rename(target)
