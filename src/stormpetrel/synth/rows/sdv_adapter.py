"""The generators of the Synthetic Data Vault behind our contract, as an outside reference.

Workload -> fit -> SdvCtgan, … -> batches -> frames. SDV keeps its models as pickles, which run code when they are read: they are
never saved here. What SDV reads is the same table that our row-wise generators learn.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from stormpetrel.engine import Progress, no_progress
from stormpetrel.errors import MissingExtraError, ModelError
from stormpetrel.synth.rows.row_generator import NeuralRowGenerator
from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.workload import Workload

_ONE_TABLE = "jobs"


class _SdvGenerator(NeuralRowGenerator):
    """One synthesizer of SDV with its own defaults."""

    synthesizer: ClassVar[str]
    trains: ClassVar[bool] = True  # whether it has epochs

    def fit(self, workload: Workload, *, progress: Progress = no_progress) -> Self:
        """Learn from a workload; MissingExtraError where SDV is not installed."""
        if find_spec("sdv") is None or find_spec("pandas") is None:
            raise MissingExtraError(f"The generator '{self.name}'", "sdv")
        return super().fit(workload, progress=progress)

    def save(self, folder: Path) -> None:
        """Refused: see above."""
        raise ModelError(
            f"The generator '{self.name}' cannot be saved: SDV's files are pickles, which run code when they are read.",
            hint=f"Use it in synth evaluate or synth compare, or save ours: {self.name.removeprefix('sdv-')}.",
        )

    def _fit_table(self, table: Table, progress: Progress) -> None:
        with _quietly(self.seed):
            import pandas as pd
            import sdv.single_table
            from sdv.metadata import Metadata

            self.sizes_ = dict(table.sizes)
            kinds = {**dict.fromkeys(table.numbers, "numerical"), **dict.fromkeys(table.codes, "categorical")}
            columns = {name: {"sdtype": kind} for name, kind in kinds.items()}
            metadata = Metadata.load_from_dict({"tables": {_ONE_TABLE: {"columns": columns}}})
            settings = {"epochs": self.epochs, "batch_size": self.batch_size, "enable_gpu": self.device != "cpu"}
            self.model_ = getattr(sdv.single_table, self.synthesizer)(metadata, **(settings if self.trains else {}))
            progress(0.0, f"SDV trains for {self.epochs} epochs and says nothing until it is done")
            codes = {name: [f"code {code}" for code in values] for name, values in table.codes.items()}
            self.model_.fit({_ONE_TABLE: pd.DataFrame({**table.numbers, **codes})})
        progress(1.0, "trained")

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        seed = int(rng.integers(2**31))
        with _quietly(seed):
            self.model_._set_random_state(seed)  # else SDV draws the same rows after every fit
            table = self.model_.sample(rows)[_ONE_TABLE]
        codes = {name: table[name].str.removeprefix("code ").to_numpy().astype(np.int64) for name in self.sizes_}
        numbers = {name: table[name].to_numpy().astype(np.float64) for name in table.columns if name not in codes}
        return Table(numbers, codes, self.sizes_)

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        raise ValueError("a model of SDV is never saved")


class SdvCtgan(_SdvGenerator):
    """SDV's CTGAN."""

    name = "sdv-ctgan"
    synthesizer = "CTGANSynthesizer"


class SdvTvae(_SdvGenerator):
    """SDV's TVAE."""

    name = "sdv-tvae"
    synthesizer = "TVAESynthesizer"


class SdvCopulaGan(_SdvGenerator):
    """SDV's CopulaGAN."""

    name = "sdv-copulagan"
    synthesizer = "CopulaGANSynthesizer"


class SdvGaussianCopula(_SdvGenerator):
    """SDV's Gaussian copula."""

    name = "sdv-gaussian-copula"
    synthesizer = "GaussianCopulaSynthesizer"
    trains = False


@contextlib.contextmanager
def _quietly(seed: int) -> Iterator[None]:
    """SDV without its warnings and its log, and with its global randomness from a seed and given back afterwards."""
    import torch

    before, level = np.random.get_state(), logging.getLogger("sdv").level
    with warnings.catch_warnings(), torch.random.fork_rng():
        warnings.simplefilter("ignore")
        logging.getLogger("sdv").setLevel(logging.ERROR)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            np.random.set_state(before)
            logging.getLogger("sdv").setLevel(level)
