"""What all row-wise generators share: the workload as a table, the table as jobs, streaming, saving.

Workload -> fit -> RowGenerator -> batches -> frames. A subclass learns a table (`_fit_table`) and draws rows of it (`_draw`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

import numpy as np
import polars as pl

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import MissingExtraError, ModelError, ModelFormatError, NotEnoughJobsError, UsageError
from stormpetrel.learn.saving import load_model_bytes, save_model
from stormpetrel.synth.contract import Wanted, refuse_conditions
from stormpetrel.synth.rows.row_table import Clock, RowLayout, Table, learn_rows
from stormpetrel.synth.workload import SUBMIT, Workload

if TYPE_CHECKING:
    from stormpetrel.synth.rows.networks import RowShape, Training
    from stormpetrel.synth.rows.table_encoding import TableEncoding

FORMAT_VERSION: Final = 1
WEIGHTS: Final = "weights.safetensors"
BATCH_ROWS: Final = 10_000
LEAST_JOBS: Final = 10

_DAY_S: Final = 86_400.0
_MOST_TIMES_THE_JOBS: Final = 50.0  # of what the days of the log had: more than that is a generator whose time stands still


class RowGenerator(ABC):
    """A generator that draws each job on its own, from the distribution of the log's rows."""

    name: ClassVar[str]

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, workload: Workload, *, progress: Progress = no_progress) -> Self:
        """Learn from a workload; NotEnoughJobsError where it is too small."""
        if workload.height < LEAST_JOBS:
            raise NotEnoughJobsError(
                f"There are {workload.height} jobs to learn from; the generator '{self.name}' needs at least {LEAST_JOBS}.",
                hint="Give it a longer log.",
            )
        layout, table = learn_rows(workload, np.random.default_rng(self.seed))
        self._fit_table(table, progress)
        self.layout_ = layout
        return self

    def batches(self, wanted: Wanted) -> Iterator[pl.DataFrame]:
        """New jobs in the order of submission, some ten thousand at a time."""
        refuse_conditions(wanted, self.name)
        layout = self._fitted()
        return self._batches(layout, wanted)

    def _batches(self, layout: RowLayout, wanted: Wanted) -> Iterator[pl.DataFrame]:
        rng = np.random.default_rng(wanted.seed)
        clock = Clock(wanted.start.timestamp() if wanted.start else layout.start_s)
        most, end_s = _how_many(wanted, layout, clock.time_s)
        count = 0
        for table in self._stream(most, rng):
            rows = min(table.height, most - count)
            jobs = layout.jobs(table.take(np.arange(max(1, rows))), rng, clock).head(rows)
            over = end_s is not None and clock.time_s >= end_s
            yield jobs.filter(pl.col(SUBMIT).dt.epoch("us") < end_s * 1e6) if over and end_s is not None else jobs
            count += rows
            if over or (count >= most and end_s is None):
                return
            if count >= most:
                raise ModelError(
                    f"{count:,} jobs do not fill the days that were requested: almost all intervals are 0.", hint="Ask for jobs."
                )

    def groups(self) -> dict[str, str]:
        """None: rows know nothing of groups of users."""
        return {}

    def save(self, folder: Path) -> None:
        """Write it to a folder that is not there yet."""
        metadata = {"layout": self._fitted().record(), "settings": self._settings(), "model": self._record()}
        save_model(folder, kind=f"synth-{self.name}", format_version=FORMAT_VERSION, metadata=metadata, files=self._files())

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read it; ModelFormatError says what is wrong with it."""
        record, files = load_model_bytes(folder, kind=f"synth-{cls.name}", format_version=FORMAT_VERSION)
        try:
            generator = cls(**record["settings"])
            generator.layout_ = RowLayout.of_record(record["layout"])
            generator._restore(record["model"], files)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError, UsageError) as error:
            raise ModelFormatError(
                f"The generator in {folder} is damaged: {str(error)[:200]}", hint="Fit it again: stormpetrel synth fit"
            ) from None
        return generator

    @abstractmethod
    def _fit_table(self, table: Table, progress: Progress) -> None:
        """Learn the distribution of rows."""

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        """New rows."""
        raise NotImplementedError

    def _stream(self, most: int, rng: np.random.Generator) -> Iterator[Table]:
        """Rows without end; those of one stream belong together."""
        while True:
            yield self._draw(max(1, min(BATCH_ROWS, most)), rng)

    def _settings(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def _record(self) -> dict[str, Any]:
        """What was learnt, as JSON."""
        return {}

    def _files(self) -> dict[str, bytes]:
        """What was learnt, as files."""
        return {}

    @abstractmethod
    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        """What `_record` and `_files` gave."""

    def _fitted(self) -> RowLayout:
        if not hasattr(self, "layout_"):
            raise ModelError(f"The generator '{self.name}' has not learnt anything yet.", hint="Call fit(workload) first.")
        return self.layout_


class NeuralRowGenerator(RowGenerator):
    """A row generator that is a network: epochs, rows of a step, where it computes (`auto`, `cpu`, `cuda`)."""

    encoding_: TableEncoding

    def __init__(self, *, epochs: int = 300, batch_size: int = 500, seed: int = 0, device: str = "auto") -> None:
        super().__init__(seed=seed)
        if not 1 <= epochs <= 100_000:
            raise UsageError(f"{epochs} epochs make no sense.", hint="Ask for 1 to 100,000.")
        if not 10 <= batch_size <= 1_000_000 or batch_size % 10:
            raise UsageError(f"A batch of {batch_size} rows makes no sense.", hint="It is a multiple of 10, such as 500.")
        self.epochs = epochs
        self.batch_size = batch_size
        self.device = device

    def fit(self, workload: Workload, *, progress: Progress = no_progress) -> Self:
        """Learn from a workload; MissingExtraError where torch is not installed."""
        need_torch(self.name)
        return super().fit(workload, progress=progress)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read it; MissingExtraError where torch is not installed."""
        need_torch(cls.name)
        return super().load(folder)

    def _row_shape(self) -> RowShape:
        """What an encoded row looks like to a network."""
        from stormpetrel.synth.rows.networks import RowShape

        return RowShape(len(self.encoding_.numbers), self.encoding_.sizes)

    def _training(self, progress: Progress) -> Training:
        """How its network is trained; `progress` hears of each epoch."""
        from stormpetrel.synth.rows.networks import Training

        def report(epoch: int) -> None:
            progress(epoch / self.epochs, f"epoch {epoch} of {self.epochs}")

        return Training(self.epochs, self.batch_size, self.seed, self.device, report)

    def _settings(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "batch_size": self.batch_size, "seed": self.seed}


def need_torch(name: str) -> None:
    """MissingExtraError where torch is not installed."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        raise MissingExtraError(f"The generator '{name}'", "traces")


def weights_file(state: Mapping[str, Any]) -> dict[str, bytes]:
    """A network's weights as the file of a model."""
    from safetensors.torch import save

    return {WEIGHTS: save({name: tensor.cpu().contiguous() for name, tensor in state.items()})}


def _read_weights(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The weights in the file of a model; ValueError where they are damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        weights: dict[str, Any] = load(files[WEIGHTS])
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return weights


def with_weights(network: Any, files: Mapping[str, bytes]) -> Any:
    """The network with the weights in the file of a model, ready to draw rows; ValueError where they do not fit."""
    network.load_state_dict(_read_weights(files))
    network.eval()
    return network


def _how_many(wanted: Wanted, layout: RowLayout, start_s: float) -> tuple[int, float | None]:
    """The most jobs to make, and when to stop; as many days as the log had where nothing is asked for."""
    if wanted.jobs is not None:
        return wanted.jobs, None
    if not layout.span_s:  # all at one moment: days mean nothing
        return layout.jobs_seen, None
    days = wanted.days if wanted.days is not None else layout.span_s / _DAY_S
    expected = layout.jobs_seen * days * _DAY_S / layout.span_s
    return int(_MOST_TIMES_THE_JOBS * expected) + 100 * BATCH_ROWS, start_s + days * _DAY_S


class RowBootstrap(RowGenerator):
    """Real rows in random order: every column and every dependence within a row is right, and nothing between rows."""

    name = "rows"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        self.table_ = table
        progress(1.0, "rows read")

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        return self.table_.take(rng.integers(self.table_.height, size=rows))

    def _files(self) -> dict[str, bytes]:
        raise ModelError(
            "The generator 'rows' holds the log's own rows and is never saved.",
            hint="Use it in synth evaluate and synth compare; save the default generator instead.",
        )

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        raise ValueError("rows are never saved")
