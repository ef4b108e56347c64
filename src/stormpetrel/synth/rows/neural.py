"""The generators of rows that are networks: CTGAN, TVAE and CopulaGAN, as in the published studies.

Workload -> fit -> Ctgan, Tvae, CopulaGan -> batches -> frames. CTGAN is a conditional GAN and TVAE a variational autoencoder
of encoded rows (Xu et al. 2019). CopulaGAN is a CTGAN of normal scores, returned through the marginals of the log: the network
learns how columns depend on each other, the distribution of each is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.synth.rows.gaussian_copula import Marginal, from_normal, learn_marginals, to_normal
from stormpetrel.synth.rows.row_generator import NeuralRowGenerator, weights_file, with_weights
from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.rows.table_encoding import TableEncoding


class Ctgan(NeuralRowGenerator):
    """Rows of a generator that a critic cannot tell from the log's; rare categories are asked for as often as it takes."""

    name = "ctgan"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from stormpetrel.synth.rows.networks import train_gan

        rng = np.random.default_rng(self.seed)
        self.encoding_ = self._encoding(table, rng)
        self.generator_, self.conditions_ = train_gan(
            self.encoding_.encode(table, rng), self._row_shape(), self._training(progress)
        )

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        from stormpetrel.synth.rows.networks import draw_rows

        return self.encoding_.decode(draw_rows(self.generator_, self._row_shape(), self.conditions_, rows, rng))

    def _encoding(self, table: Table, rng: np.random.Generator) -> TableEncoding:
        return TableEncoding.learn(table, rng)

    def _record(self) -> dict[str, Any]:
        return {"encoding": self.encoding_.record(), "shares": [share.tolist() for share in self.conditions_.shares]}

    def _files(self) -> dict[str, bytes]:
        return weights_file(self.generator_.state_dict())

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        from stormpetrel.synth.rows.networks import NOISE, Conditions, ResidualGenerator

        self.encoding_ = TableEncoding.of_record(record["encoding"])
        self.conditions_ = Conditions([np.asarray(share, dtype=np.float64) for share in record["shares"]])
        if self.conditions_.sizes != tuple(self.encoding_.categories.values()):
            raise ValueError("its conditions do not fit its columns")
        network = ResidualGenerator(NOISE + self.conditions_.width, self._row_shape().width)
        self.generator_ = with_weights(network, files)


class Tvae(NeuralRowGenerator):
    """Rows decoded from noise: smoother than a GAN, trained faster, and weaker on rare categories."""

    name = "tvae"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from stormpetrel.synth.rows.networks import train_vae

        rng = np.random.default_rng(self.seed)
        self.encoding_ = TableEncoding.learn(table, rng)
        self.decoder_ = train_vae(self.encoding_.encode(table, rng), self._row_shape(), self._training(progress))

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        from stormpetrel.synth.rows.networks import draw_decoded

        return self.encoding_.decode(draw_decoded(self.decoder_, self._row_shape(), rows, rng))

    def _record(self) -> dict[str, Any]:
        return {"encoding": self.encoding_.record()}

    def _files(self) -> dict[str, bytes]:
        return weights_file(self.decoder_.state_dict())

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        from stormpetrel.synth.rows.networks import Decoder

        self.encoding_ = TableEncoding.of_record(record["encoding"])
        self.decoder_ = with_weights(Decoder(self._row_shape()), files)


_TRIAL_ROWS: Final = 20_000


class CopulaGan(Ctgan):
    """A CTGAN whose numbers have the distribution of the log's: minima, ties and rare values are kept."""

    name = "copulagan"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        self.marginals_ = learn_marginals(table)
        super()._fit_table(to_normal(table, self.marginals_, rng), progress)
        self.drawn_ = learn_marginals(super()._draw(min(_TRIAL_ROWS, 10 * table.height), rng))

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        return as_the_log(super()._draw(rows, rng), self.drawn_, self.marginals_, rng)

    def _encoding(self, table: Table, rng: np.random.Generator) -> TableEncoding:
        return TableEncoding.of_normal_scores(table)

    def _record(self) -> dict[str, Any]:
        return {**super()._record(), **marginals_record(self.marginals_, self.drawn_)}

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        super()._restore(record, files)
        self.marginals_, self.drawn_ = marginals_of_record(record, set(self.encoding_.numbers))


def as_the_log(scores: Table, drawn: dict[str, Marginal], log: dict[str, Marginal], rng: np.random.Generator) -> Table:
    """Scores that a network made, with the marginals of the log.

    What a network makes is never quite normal. A copula does not depend on the marginals: the rank of a score among those that
    the network makes is looked up in the log.
    """
    return from_normal(to_normal(scores, drawn, rng), log)


def marginals_record(log: dict[str, Marginal], drawn: dict[str, Marginal]) -> dict[str, Any]:
    """Both kinds of marginals as JSON."""
    return {
        "marginals": {name: marginal.record() for name, marginal in log.items()},
        "made": {name: marginal.record() for name, marginal in drawn.items()},
    }


def marginals_of_record(record: dict[str, Any], names: set[str]) -> tuple[dict[str, Marginal], dict[str, Marginal]]:
    """Both kinds of marginals from JSON; ValueError where they are not those of the columns."""
    log, drawn = (
        {str(name): Marginal.of_record(saved) for name, saved in record[kind].items()} for kind in ("marginals", "made")
    )
    if set(log) != names or set(drawn) != names:
        raise ValueError("its marginals do not fit its columns")
    return log, drawn
