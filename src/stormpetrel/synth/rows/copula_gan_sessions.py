"""CopulaGAN in order: normal scores of each job made after those of the eight jobs before it.

Workload -> fit -> CopulaGanSessions -> batches -> frames. That a job is of the same user as the one
before is a category of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from stormpetrel.engine import Progress
from stormpetrel.synth.rows.copula_gan import as_the_log, marginals_of_record, marginals_record
from stormpetrel.synth.rows.marginals import learn_marginals, to_normal
from stormpetrel.synth.rows.row_generator import BATCH_ROWS, NeuralRowGenerator, weights_file, with_weights
from stormpetrel.synth.rows.row_table import Codes, Table
from stormpetrel.synth.rows.table_encoding import TableEncoding

USER: Final = "user"
# Sequences are made side by side and joined end to end: at most sixteen, and none shorter than this many rows.
_STRANDS, _SHORTEST = 16, 500
_TRIAL_STRANDS, _TRIAL_ROWS = 100, 20_000  # by which the marginals of what it makes are known


class CopulaGanSessions(NeuralRowGenerator):
    """A CopulaGAN of sequences: intervals, users and sizes follow those of the jobs just before."""

    name = "copulagan-sessions"

    def _fit_table(self, table: Table, progress: Progress) -> None:
        from stormpetrel.synth.rows.window_gan import train_windows

        rng = np.random.default_rng(self.seed)
        self.marginals_ = learn_marginals(table)
        scores = to_normal(mark_same_user(table), self.marginals_, rng)
        self.encoding_ = TableEncoding.of_normal_scores(scores)
        self.generator_ = train_windows(self.encoding_.encode(scores, rng), self._look(), self._training(progress))
        self.made_ = learn_marginals(next(self._scores(_TRIAL_STRANDS, min(_TRIAL_ROWS, 10 * table.height), rng)))

    def _stream(self, most: int, rng: np.random.Generator) -> Iterator[Table]:
        last_user, rows = 0, max(1, min(BATCH_ROWS, most))
        for scores in self._scores(max(1, min(_STRANDS, rows // _SHORTEST)), rows, rng):
            table = name_users(as_the_log(scores, self.made_, self.marginals_, rng), last_user)
            if USER in table.codes:
                last_user = int(table.codes[USER][-1])
            yield table

    def _scores(self, strands: int, rows: int, rng: np.random.Generator) -> Iterator[Table]:
        """Normal scores of consecutive rows, at least so many at a time."""
        from stormpetrel.synth.rows.window_gan import run_of_rows

        length = -(-rows // strands)
        return (self.encoding_.decode(made) for made in run_of_rows(self.generator_, strands, length, rng))

    def _record(self) -> dict[str, Any]:
        return {"encoding": self.encoding_.record(), **marginals_record(self.marginals_, self.made_)}

    def _files(self) -> dict[str, bytes]:
        return weights_file(self.generator_.state_dict())

    def _restore(self, record: dict[str, Any], files: Mapping[str, bytes]) -> None:
        from stormpetrel.synth.rows.window_gan import NextRow

        self.encoding_ = TableEncoding.of_record(record["encoding"])
        self.marginals_, self.made_ = marginals_of_record(record, set(self.encoding_.numbers))
        self.generator_ = with_weights(NextRow(self._look()), files)


def mark_same_user(table: Table) -> Table:
    """The table with one more code of users: 0 says "the same as before", the others move up by one."""
    if USER not in table.codes:
        return table
    users = table.codes[USER]
    same = np.concatenate([[False], users[1:] == users[:-1]])
    marked = np.where(same, 0, users + 1)
    return Table(table.numbers, {**table.codes, USER: marked}, {**table.sizes, USER: table.sizes[USER] + 1})


def name_users(table: Table, last_user: int) -> Table:
    """The inverse; `last_user` is the code of the job before the first."""
    if USER not in table.codes:
        return table
    marked: Codes = np.concatenate([[last_user + 1], table.codes[USER]])
    told_at = np.maximum.accumulate(np.where(marked > 0, np.arange(len(marked)), 0))  # where the user was last told
    users = marked[told_at][1:] - 1
    return Table(table.numbers, {**table.codes, USER: users}, {**table.sizes, USER: table.sizes[USER] - 1})
