"""Step 3: the models in use at a site, and the past that they judge with.

site -> latest_model -> LatestModel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.errors import ModelError
from stormpetrel.faces.notebook import markup
from stormpetrel.faces.notebook.loading import SiteLike, opened
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, known_by
from stormpetrel.records.jobs import JOB_SCHEMA

if TYPE_CHECKING:
    from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True, repr=False)
class LatestModel:
    """The models in use (one per moment), their versions, and the site whose past they read."""

    folder: Path
    site_name: str
    predictor: JobPredictor  # without a history: each use reads the past as of its own time
    trained_until: datetime | None
    trained_on: int
    quality: pl.DataFrame  # as the watch measured it on jobs that have ended; no row where it has not run

    @property
    def versions(self) -> Mapping[Moment, int]:
        """The version in use at each moment."""
        return self.predictor.versions

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

    def past(self, until: datetime) -> pl.DataFrame:
        """The jobs of the site as they were known then."""
        with opened(self.folder) as site:
            jobs = site.jobs.read_jobs(until=until).collect()
        return known_by(jobs, until)

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
    from stormpetrel.lifecycle.job_models import load_predictor, model_name
    from stormpetrel.lifecycle.live import current_versions

    with opened(site) as open_one:
        inside = current_versions(open_one)
        moments = [moment for moment in MOMENTS if model_name(moment) in inside]
        if not moments:
            raise ModelError("The site has no job model yet.", hint="Train one: stormpetrel jobs train")
        nothing = pl.DataFrame(schema=JOB_SCHEMA)
        predictor = load_predictor(open_one, now=open_one.now(), past=nothing, moments=moments)
        about = open_one.models.current(model_name(moments[0])).about
        quality = _measured(open_one, predictor.versions)
        folder, name = open_one.folder, open_one.settings.site.name
    trained = about.get("trained_until")
    return LatestModel(
        folder=folder,
        site_name=name,
        predictor=predictor,
        trained_until=datetime.fromisoformat(str(trained)) if trained else None,
        trained_on=int(about.get("n_train", 0)),
        quality=quality,
    )


def _measured(site: Site, versions: Mapping[Moment, int]) -> pl.DataFrame:
    """How good the versions in use have been in the running watch, on jobs that have ended; empty where it has not run."""
    from stormpetrel.lifecycle.running_quality import running_quality_of

    figures = running_quality_of(site, since=site.now() - timedelta(days=site.settings.watch.quality_days))
    in_use = pl.DataFrame(
        {"moment": [str(moment) for moment in versions], "model_version": list(versions.values())},
        schema={"moment": pl.String, "model_version": pl.Int32},
    )
    return figures.join(in_use, on=["moment", "model_version"], how="semi").select(
        pl.col("moment").alias("Moment"),
        pl.col("n").alias("Jobs"),
        (100 * pl.col("failed_share")).alias("Failed (%)"),
        pl.col("pr_auc").alias("PR area"),
        pl.col("roc_auc").alias("ROC area"),
        pl.col("ece").alias("Calibration error"),
    )
