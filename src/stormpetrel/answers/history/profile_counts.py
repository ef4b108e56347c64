"""What the jobs of each profile are like, counted so that counts of pieces add up: for more jobs than fit in memory.

prepared jobs with their `profile` -> ProfileCounts.of -> ProfileCounts.together -> tables, users: those of all jobs at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

import polars as pl

from stormpetrel.jobs.groups import ACTIVITIES, GroupLimits, activity_by_count
from stormpetrel.jobs.preparation import UNKNOWN
from stormpetrel.jobs.profiles import END, ProfileTables, counted_by_profile, duration_table, status_table, type_table

_COUNTED: Final = ("duration", "status", "types")
_FIGURES: Final = ("known", "mean", "std")


@dataclass(frozen=True, slots=True)
class ProfileCounts:
    """Sums over some jobs.

    `amounts` has profile, jobs, and of each of `END` how many are known, their mean and standard deviation. `duration`, `status`
    and `types` are the tables of these jobs. `users` has profile (null: none), user, jobs, failed, and judged, those that failed
    or did not.
    """

    amounts: pl.DataFrame
    duration: pl.DataFrame
    status: pl.DataFrame
    types: pl.DataFrame
    users: pl.DataFrame

    @classmethod
    def of(cls, profiled: pl.DataFrame, limits: GroupLimits) -> Self:
        """The counts of prepared jobs; `limits` names the site's memory per CPU, which no piece can tell."""
        known = profiled.filter(pl.col("profile").is_not_null())
        figures = {
            f"{name}_{figure}": value
            for name in END
            for figure, value in zip(
                _FIGURES, (pl.col(name).count().cast(pl.Int64), pl.col(name).mean(), pl.col(name).std()), strict=True
            )
        }
        named = profiled.filter(pl.col("user").is_not_null() & (pl.col("user") != UNKNOWN))
        return cls(
            amounts=known.group_by("profile").agg(pl.len().cast(pl.Int64).alias("jobs"), **figures),
            duration=duration_table(profiled, limits),
            status=status_table(profiled),
            types=type_table(profiled, limits),
            users=named.group_by("profile", "user").agg(
                jobs=pl.len().cast(pl.Int64),
                failed=pl.col("failed").sum().cast(pl.Int64),
                judged=pl.col("failed").count().cast(pl.Int64),
            ),
        )

    @classmethod
    def together(cls, parts: Sequence[Self]) -> Self:
        """The counts of all jobs out of those of pieces of them."""
        frames = {name: pl.concat([getattr(part, name) for part in parts]) for name in cls.__slots__}
        counted = {name: frames[name].group_by("profile").agg(pl.exclude("profile").sum()) for name in _COUNTED}
        users = frames["users"].group_by("profile", "user").agg(pl.col("jobs", "failed", "judged").sum())
        return cls(amounts=_amounts(frames["amounts"]), **counted, users=users)

    def frames(self) -> Mapping[str, pl.DataFrame]:
        """The counts as frames by name, of which `ProfileCounts(**frames)` is the same again."""
        return {name: getattr(self, name) for name in self.__slots__}

    def tables(self, limits: GroupLimits) -> ProfileTables:
        """The tables of all jobs that are counted."""
        counted = {name: getattr(self, name).sort("profile") for name in _COUNTED}
        resources = self.amounts.drop(f"{name}_known" for name in END).sort("profile")
        return ProfileTables(resources=resources, activity=self._activity(limits), **counted)

    def users_by_profile(self) -> pl.DataFrame:
        """Who runs jobs of each profile, most jobs first: profile, user, jobs, failed and failed_share."""
        known = self.users.filter(pl.col("profile").is_not_null())
        share = known.with_columns(failed_share=pl.when(pl.col("judged") > 0).then(pl.col("failed") / pl.col("judged")))
        return share.drop("judged").sort("profile", "jobs", "user", descending=[False, True, False])

    def _activity(self, limits: GroupLimits) -> pl.DataFrame:
        everywhere = self.users.group_by("user").agg(pl.col("jobs").sum())
        active = everywhere.select("user", activity_by_count(pl.col("jobs"), limits).alias("activity"))
        return counted_by_profile(self.users.join(active, on="user"), "activity", ACTIVITIES)


def _amounts(parts: pl.DataFrame) -> pl.DataFrame:
    """Means and standard deviations over several pieces, by Chan's formula: no sums of squares, which would cancel."""
    figures = {}
    for name in END:
        known, mean, std = (pl.col(f"{name}_{figure}") for figure in _FIGURES)
        count = known.sum()
        centre = (known * mean).sum() / count
        squares = (known * (mean - centre) ** 2 + (known - 1) * std.fill_null(0.0) ** 2).sum()
        figures[f"{name}_known"] = count
        figures[f"{name}_mean"] = pl.when(count > 0).then(centre)
        figures[f"{name}_std"] = pl.when(count > 1).then((squares / (count - 1)).sqrt())
    return parts.group_by("profile").agg(pl.col("jobs").sum(), **figures)
