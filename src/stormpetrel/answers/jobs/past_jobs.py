"""The past that advice on one request needs: jobs of its application, its user's of its size, and nobody else's.

request + rows of the overview -> past_of -> rows from which `jobs.advice` returns the same as from all.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import polars as pl

from stormpetrel.jobs.advice import kinds
from stormpetrel.jobs.history.keys import family
from stormpetrel.records.jobs import KEY
from stormpetrel.records.times import EARLIEST, UTC_TIME

_OWN: Final = (kinds.SAME_NAME, kinds.SAME_SIZE, kinds.SAME_APPLICATION)  # looked for before anybody else's jobs are
_APPLICATION_COLUMNS: Final = ("job_name", "script_path", "work_dir")  # and `executable`


def past_of(request: pl.DataFrame, own: pl.DataFrame, jobs: pl.DataFrame, *, now: datetime) -> pl.DataFrame:
    """Return the jobs that a request (one row) is compared with; `own` are those of its user among all.

    Of a kind only its last jobs count, and others' jobs only where the user's own are not enough: the rest is left out. The
    expressions that recognise an application cost more than all else, so they see each name only once.
    """
    row = kinds.prepared_request(request)
    own = _latest(own, pl.lit(True), now, kinds.OWN_CONSIDERED)
    same_family = _same_family(own, row)
    relatives = own.filter(same_family)
    kind = kinds.find_kind(request, relatives, now=now)
    if kind.known and kind.name in _OWN:
        similar = pl.concat([kind.jobs.select(KEY), kind.relatives.select(KEY)])
        return relatives.join(similar, on=list(KEY), how="semi", nulls_equal=True)
    user = pl.lit(row["user"], dtype=pl.String)
    theirs = _latest(jobs, pl.col("user").is_null() | (pl.col("user") != user).fill_null(True), now, kinds.OTHERS_CONSIDERED)
    return pl.concat([own.filter(same_family | _same_size(own, row)), theirs.filter(_same_family(theirs, row))])


def longest_limits(jobs: pl.DataFrame) -> pl.DataFrame:
    """Return the job with the longest time limit of each partition: advice keeps to what a partition allows.

    A job that never started may have requested more than that. User and application are null and the end is long ago: such a
    row is compared with no request.
    """
    ended = jobs.with_row_index("row").filter(
        pl.col("end_time").is_not_null() & pl.col("time_limit_s").is_not_null() & ~pl.col("never_started")
    )
    longest = ended.group_by("partition").agg(pl.col("row").get(pl.col("time_limit_s").arg_max()))
    nobody = [pl.lit(None, dtype=jobs.schema[name]).alias(name) for name in ("user", *_APPLICATION_COLUMNS, "extra")]
    return jobs[longest["row"]].with_columns(*nobody, end_time=pl.lit(EARLIEST.astimezone(UTC), dtype=UTC_TIME))


def _latest(jobs: pl.DataFrame, which: pl.Expr, now: datetime, count: int) -> pl.DataFrame:
    """The last jobs to end, as many as are examined for a kind."""
    ended = jobs.lazy().filter(which & (pl.col("end_time") < now) & ~pl.col("never_started"))
    since = ended.select(pl.col("end_time").top_k(count).min()).collect().item()
    return ended.filter(pl.col("end_time") >= pl.lit(since, dtype=UTC_TIME)).collect()


def _same_family(jobs: pl.DataFrame, row: dict[str, Any]) -> pl.Series:
    """Which jobs are of the application of a request; none where it is not known."""
    names = jobs.select(*_APPLICATION_COLUMNS, executable=pl.col("extra").map.get("executable"))
    group = names.select(pl.struct(pl.all()).rank("dense")).to_series()
    first = group.is_first_distinct()
    families = jobs.filter(first).select(group=group.filter(first), same=family() == pl.lit(row["family"], dtype=pl.String))
    rows = group.to_frame("group").join(families, on="group", how="left", maintain_order="left")
    return rows["same"].fill_null(False)


def _same_size(jobs: pl.DataFrame, row: dict[str, Any]) -> pl.Series:
    cpus, nodes = pl.coalesce("req_cpus", "cpus"), pl.coalesce("req_nodes", "nodes")
    return jobs.select(cpus.eq_missing(row["size_cpus"]) & nodes.eq_missing(row["size_nodes"])).to_series()
