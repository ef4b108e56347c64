"""TVAE: a variational autoencoder of rows (Xu et al. 2019, section 4.5).

Workload -> fit -> Tvae -> batches -> frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.synth.rows.row_generator import NeuralRowGenerator, weights_file, with_weights
from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.rows.table_encoding import TableEncoding


class Tvae(NeuralRowGenerator):
    """Rows decoded from noise: smoother than a GAN, trained faster, and weaker on rare categories."""

    name = "tvae"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from stormpetrel.synth.rows.vae_training import train_vae

        rng = np.random.default_rng(self.seed)
        self.encoding_ = TableEncoding.learn(table, rng)
        self.decoder_ = train_vae(self.encoding_.encode(table, rng), self._look(), self._training(progress))

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        from stormpetrel.synth.rows.vae_training import draw_decoded

        return self.encoding_.decode(draw_decoded(self.decoder_, self._look(), rows, rng))

    def _record(self) -> dict[str, Any]:
        return {"encoding": self.encoding_.record()}

    def _files(self) -> dict[str, bytes]:
        return weights_file(self.decoder_.state_dict())

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        from stormpetrel.synth.rows.vae_training import Decoder

        self.encoding_ = TableEncoding.of_record(record["encoding"])
        self.decoder_ = with_weights(Decoder(self._look()), files)
