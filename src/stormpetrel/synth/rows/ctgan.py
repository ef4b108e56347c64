"""CTGAN: a conditional GAN of rows (Xu et al. 2019).

Workload -> fit -> Ctgan -> batches -> frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.synth.rows.row_generator import NeuralRowGenerator, weights_file, with_weights
from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.rows.table_encoding import TableEncoding


class Ctgan(NeuralRowGenerator):
    """Rows of a generator that a critic cannot tell from the log's; rare categories are asked for as often as it takes."""

    name = "ctgan"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from stormpetrel.synth.rows.gan_training import train_gan

        rng = np.random.default_rng(self.seed)
        self.encoding_ = self._encoding(table, rng)
        self.generator_, self.conditions_ = train_gan(self.encoding_.encode(table, rng), self._look(), self._training(progress))

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        from stormpetrel.synth.rows.gan_training import draw_rows

        return self.encoding_.decode(draw_rows(self.generator_, self._look(), self.conditions_, rows, rng))

    def _encoding(self, table: Table, rng: np.random.Generator) -> TableEncoding:
        return TableEncoding.learn(table, rng)

    def _record(self) -> dict[str, Any]:
        return {"encoding": self.encoding_.record(), "shares": [share.tolist() for share in self.conditions_.shares]}

    def _files(self) -> dict[str, bytes]:
        return weights_file(self.generator_.state_dict())

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        from stormpetrel.synth.rows.gan_training import NOISE, Conditions
        from stormpetrel.synth.rows.networks import ResidualGenerator

        self.encoding_ = TableEncoding.of_record(record["encoding"])
        self.conditions_ = Conditions([np.asarray(share, dtype=np.float64) for share in record["shares"]])
        if self.conditions_.sizes != tuple(self.encoding_.categories.values()):
            raise ValueError("its conditions do not fit its columns")
        network = ResidualGenerator(NOISE + self.conditions_.width, self._look().width)
        self.generator_ = with_weights(network, files)
