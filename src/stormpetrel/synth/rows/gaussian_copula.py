"""A Gaussian copula: every column as it is, every pair of columns by one correlation, no more.

Workload -> fit -> GaussianCopula -> batches -> frames. Ties and categories are stretches of ranks (Sklar 1959; Nelsen 2006, 2.9).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.synth.rows.marginals import Marginal
from stormpetrel.synth.rows.row_generator import RowGenerator
from stormpetrel.synth.rows.row_table import Floats, Table


class GaussianCopula(RowGenerator):
    """Correlated normal scores, each given back as a value of its column. Trained in a second; knows no cases."""

    name = "gaussian-copula"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from scipy.special import ndtri

        columns = {**table.numbers, **{name: codes.astype(np.float64) for name, codes in table.codes.items()}}
        self.marginals_ = {name: Marginal.learn(values) for name, values in columns.items()}
        self.sizes_ = dict(table.sizes)
        # Ties at the middle of their stretch: spread over it at random, they would hide how columns hang together.
        ranks = [self.marginals_[name].middle(values) for name, values in columns.items()]
        scores = ndtri(np.stack(ranks))  # (columns, rows)
        self.root_ = _root(np.atleast_2d(np.corrcoef(scores)))
        progress(1.0, "correlations learnt")

    def _draw(self, rows: int, rng: np.random.Generator) -> Table:
        from scipy.special import ndtr

        ranks = ndtr(rng.standard_normal((rows, len(self.root_))) @ self.root_.T)  # (rows, columns)
        made = {name: marginal.from_uniform(ranks[:, place]) for place, (name, marginal) in enumerate(self.marginals_.items())}
        codes = {name: made[name].astype(np.int64) for name in self.sizes_}
        return Table({name: values for name, values in made.items() if name not in codes}, codes, self.sizes_)

    def _record(self) -> dict[str, Any]:
        marginals = {name: marginal.record() for name, marginal in self.marginals_.items()}
        return {"marginals": marginals, "sizes": self.sizes_, "root": self.root_.tolist()}

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        self.marginals_ = {str(name): Marginal.of_record(one) for name, one in record["marginals"].items()}
        self.sizes_ = {str(name): int(size) for name, size in record["sizes"].items()}
        self.root_ = np.asarray(record["root"], dtype=np.float64)
        if self.root_.shape != (len(self.marginals_),) * 2 or not np.isfinite(self.root_).all():
            raise ValueError("its correlations do not fit its columns")


def _root(correlation: Floats) -> Floats:
    """A square root of a correlation matrix, also of one that rounding has made slightly indefinite."""
    values, vectors = np.linalg.eigh(correlation)
    root: Floats = vectors * np.sqrt(np.maximum(values, 0.0))  # (columns, columns)
    return root
