"""The energy of a job in Slurm's accounting, no joule counted twice.

Text of sacct -> job_energy -> joules by the job's own line; + its step records -> with_step_energy -> joules of the job;
the same of JSON: energy_of.

Slurm's plug-ins measure whole nodes, so every step on a node is given all that the node drew. With `PrologFlags=Contain` Slurm
takes that of the step `extern`, which is on all nodes all the time, for the job's; without it Slurm adds up all steps, and
counts the first node of a script that calls srun twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import polars as pl

from stormpetrel.records import units

EXTERN: Final = "extern"
SCRIPTS: Final = ("batch", "interactive")  # steps that last as long as the job, on its first node
FIELDS: Final = ("consumedenergyraw", "consumedenergy")
_IN_TRES: Final = r"(?:^|,)(?:energy|3)=([^,]+)"


def job_energy(tres: pl.Series) -> pl.Series:
    """`…,energy=3600,…` of AllocTRES as joules; 0 is not measured."""
    return _measured(units.joules(tres.str.extract(_IN_TRES)))


def with_step_energy(jobs: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """The jobs (with `record`), each with the joules that its steps tell, where they tell fewer than its own line or it none."""
    columns = [units.joules(steps[name]) for name in FIELDS if name in steps.columns]
    if "tresusageintot" in steps.columns:
        columns.append(units.joules(steps["tresusageintot"].str.extract(_IN_TRES)))
    known = [column for column in map(_measured, columns) if column.null_count() < len(column)]
    if not known:
        return jobs
    name = pl.col("jobid" if "jobid" in steps.columns else "jobidraw").str.extract(r"\.(.+)$")
    by_step = steps.select("record", _step=name, _joules=pl.coalesce(*known))
    parts = {
        "_extern": pl.col("_step") == EXTERN,
        "_script": pl.col("_step").is_in(SCRIPTS),
        "_other": ~pl.col("_step").is_in([EXTERN, *SCRIPTS]),
    }
    sums = by_step.group_by("record").agg(**{part: pl.col("_joules").filter(which).sum() for part, which in parts.items()})
    joined = jobs.join(sums, on="record", how="left", maintain_order="left")
    one_node = pl.col("nodes") == 1 if "nodes" in jobs.columns else pl.lit(False)
    of_steps = (
        pl.when(pl.col("_extern") > 0)
        .then("_extern")
        .when(one_node & (pl.col("_script") > 0))
        .then("_script")
        .otherwise(pl.max_horizontal("_script", "_other"))
    )
    own = pl.col("energy_j") if "energy_j" in jobs.columns else pl.lit(None, pl.Int64)
    fewer = pl.min_horizontal(own, pl.when(of_steps > 0).then(of_steps))
    return joined.with_columns(energy_j=fewer).drop(*parts)


def energy_of(own: int | None, steps: Iterable[tuple[str, int | None]], *, nodes: int | None) -> int | None:
    """The joules of a job by its own record and those of its steps (name, joules); None where nobody measured them."""
    sums = {"extern": 0, "script": 0, "other": 0}
    for name, joules in steps:
        part = EXTERN if name == EXTERN else "script" if name in SCRIPTS else "other"
        sums[part] += max(0, joules or 0)
    one_node = nodes == 1 and sums["script"]
    of_steps = sums["extern"] or (sums["script"] if one_node else max(sums["script"], sums["other"]))
    return min((joules for joules in (own, of_steps) if joules and joules > 0), default=None)


def _measured(joules: pl.Series) -> pl.Series:
    return joules.set(joules <= 0, None)
