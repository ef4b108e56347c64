"""Step 3: the models in use at a site, and the past that they judge with.

site -> latest_model -> LatestModel.
"""

from __future__ import annotations

import polars as pl

from stormpetrel.answers.jobs.models_in_use import ModelsInUse, models_in_use
from stormpetrel.answers.jobs.selection import SiteLike
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.notebook import markup


class LatestModel(ModelsInUse):
    """The models in use (one per moment), their versions, and the site whose past they read."""

    __slots__ = ()

    @property
    def version(self) -> str:
        """The version in words: `3`, or one per moment where they differ."""
        numbers = set(self.versions.values())
        if len(numbers) == 1:
            return str(numbers.pop())
        return ", ".join(f"{number} at {moment}" for moment, number in self.versions.items())

    def summary(self) -> str:
        """What was loaded, in a sentence."""
        until = f", trained until {self.trained_until:%d %B %Y, %H:%M} UTC" if self.trained_until else ""
        return f"Model loaded: version {self.version}{until} on {self.trained_on:,} jobs of {self.site_name}."

    def __repr__(self) -> str:
        return self.summary()

    def _repr_html_(self) -> str:
        rows = pl.DataFrame(
            {
                "Moment": [str(moment) for moment in self.versions],
                "Version": list(self.versions.values()),
                "Flagged from (risk)": [round(self.predictor.threshold_at(moment), 3) for moment in self.versions],
            }
        )
        parts = [markup.sentence(self.summary()), markup.table(rows)]
        if self.quality.height:
            parts += [markup.heading("How good it has been on jobs that have ended since"), markup.table(self.quality)]
        return markup.page(*parts)


def latest_model(site: SiteLike) -> LatestModel:
    """The models that the site uses now; a ModelError says how to train one where there is none.

    Two seconds and 200 MB the first time, for XGBoost; 0.2 s and 10 MB afterwards. Where the watch has run, its predictions of
    the last month are read as well, to say how good they were.
    """
    models = models_in_use(site, LOCAL)
    return LatestModel(
        models.folder, models.site_name, models.predictor, models.trained_until, models.trained_on, _named(models.quality)
    )


def _named(quality: pl.DataFrame) -> pl.DataFrame:
    """The figures under the names that people read."""
    return quality.select(
        pl.col("moment").alias("Moment"),
        pl.col("n").alias("Jobs"),
        (100 * pl.col("failed_share")).alias("Failed (%)"),
        pl.col("pr_auc").alias("PR area"),
        pl.col("roc_auc").alias("ROC area"),
        pl.col("ece").alias("Calibration error"),
    )
