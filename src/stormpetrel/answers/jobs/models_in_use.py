"""The models of jobs that a site uses now, to judge jobs of one's own choice with.

site + Viewer -> models_in_use -> ModelsInUse: fitted models and the way to the site's past, and so no answer for another program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from stormpetrel.answers.jobs.selection import SiteLike, opened
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import ModelError
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.jobs.predictor import JobPredictor, known_by

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


@dataclass(frozen=True, slots=True, repr=False)
class ModelsInUse:
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

    def past(self, until: datetime) -> pl.DataFrame:
        """Return the jobs of the site as they were known then."""
        with opened(self.folder) as site:
            jobs = site.jobs.read_jobs(until=until).collect()
        return known_by(jobs, until)


def models_in_use(source: SiteLike, viewer: Viewer) -> ModelsInUse:
    """Return the models that a site uses now; a ModelError says how to train one where there is none.

    They read the past of everybody, so they are for administrators. Where the watch has run, its predictions of the last weeks
    are read as well, to say how good they were: columns of `running_quality_of`, one row per moment.
    """
    from stormpetrel.lifecycle.job_models import load_models, model_name
    from stormpetrel.lifecycle.live import current_versions

    viewer.require(READ)
    viewer.require_admin()
    with opened(source) as site:
        current = current_versions(site)
        moments = [moment for moment in MOMENTS if current.get(model_name(moment), 0) > 0]
        if not moments:
            raise ModelError("The site has no job model yet.", hint="Train one: stormpetrel jobs train")
        predictor = load_models(site, moments=moments)
        about = site.models.current(model_name(moments[0])).about
        trained = about.get("trained_until")
        return ModelsInUse(
            folder=site.folder,
            site_name=site.settings.site.name,
            predictor=predictor,
            trained_until=datetime.fromisoformat(str(trained)) if trained else None,
            trained_on=int(about.get("n_train", 0)),
            quality=_quality(site, predictor.versions),
        )


def _quality(site: Site, versions: Mapping[Moment, int]) -> pl.DataFrame:
    """How good the versions in use have been in the running watch, on jobs that have ended; empty where it has not run."""
    from stormpetrel.lifecycle.running_quality import running_quality_of

    figures = running_quality_of(site, since=site.now() - timedelta(days=site.settings.watch.quality_days))
    in_use = pl.DataFrame(
        {"moment": [str(moment) for moment in versions], "model_version": list(versions.values())},
        schema={"moment": pl.String, "model_version": pl.Int32},
    )
    return figures.join(in_use, on=["moment", "model_version"], how="semi")
