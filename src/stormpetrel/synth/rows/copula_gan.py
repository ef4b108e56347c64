"""CopulaGAN: CTGAN of normal scores, given back through the log's own marginals.

Workload -> fit -> CopulaGan -> batches -> frames. The network learns how columns hang together; how each is distributed is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.synth.rows.ctgan import Ctgan
from stormpetrel.synth.rows.marginals import Marginal, from_normal, learn_marginals, to_normal
from stormpetrel.synth.rows.row_table import Table
from stormpetrel.synth.rows.table_encoding import TableEncoding

_TRIAL_ROWS: Final = 20_000


class CopulaGan(Ctgan):
    """A CTGAN whose numbers have the distribution of the log's: minima, ties and rare values are kept."""

    name = "copulagan"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        rng = np.random.default_rng(self.seed)
        self.marginals_ = learn_marginals(table)
        super()._fit_table(to_normal(table, self.marginals_, rng), progress)
        self.made_ = learn_marginals(super()._draw(min(_TRIAL_ROWS, 10 * table.height), rng))

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        return as_the_log(super()._draw(rows, rng), self.made_, self.marginals_, rng)

    def _encoding(self, table: Table, rng: np.random.Generator) -> TableEncoding:
        return TableEncoding.of_normal_scores(table)

    def _record(self) -> dict[str, Any]:
        return {**super()._record(), **marginals_record(self.marginals_, self.made_)}

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        super()._restore(record, files)
        self.marginals_, self.made_ = marginals_of_record(record, set(self.encoding_.numbers))


def as_the_log(scores: Table, made: dict[str, Marginal], log: dict[str, Marginal], rng: np.random.Generator) -> Table:
    """Scores that a network made, with the marginals of the log.

    What a network makes is never quite normal. A copula does not depend on the marginals: the rank of a score among those that
    the network makes is looked up in the log.
    """
    return from_normal(to_normal(scores, made, rng), log)


def marginals_record(log: dict[str, Marginal], made: dict[str, Marginal]) -> dict[str, Any]:
    """Both kinds of marginals as JSON."""
    return {
        "marginals": {name: marginal.record() for name, marginal in log.items()},
        "made": {name: marginal.record() for name, marginal in made.items()},
    }


def marginals_of_record(record: dict[str, Any], names: set[str]) -> tuple[dict[str, Marginal], dict[str, Marginal]]:
    """Both kinds of marginals from JSON; ValueError where they are not those of the columns."""
    log, made = ({str(name): Marginal.of_record(one) for name, one in record[kind].items()} for kind in ("marginals", "made"))
    if set(log) != names or set(made) != names:
        raise ValueError("its marginals do not fit its columns")
    return log, made
