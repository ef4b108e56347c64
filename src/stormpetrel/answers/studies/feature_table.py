"""The features of all jobs of a site, written as a table of Parquet files.

Site + Viewer + folder -> write_features -> WrittenFeatures. For administrators: the rows name jobs of everybody.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.job_studies import WrittenFeatures
from stormpetrel.answers.viewer import MANAGE
from stormpetrel.engine import ONE_PROCESS, Engine, Progress, no_progress
from stormpetrel.jobs.moments import MOMENTS, Moment
from stormpetrel.lifecycle.feature_table import PARTS, write_feature_table
from stormpetrel.lifecycle.job_models import training_settings

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def write_features(
    site: Site,
    viewer: Viewer,
    folder: Path,
    *,
    moments: Collection[Moment] = MOMENTS,
    parts: int = PARTS,
    engine: Engine = ONE_PROCESS,
    progress: Progress = no_progress,
) -> WrittenFeatures:
    """Write what a training of this site would see of each job at these moments, and what became of the job."""
    viewer.require(MANAGE)
    began = time.perf_counter()
    settings, answers = training_settings(site.settings), site.settings.jobs.answers
    table = write_feature_table(site, folder, settings, moments, answers=answers, parts=parts, engine=engine, progress=progress)
    return WrittenFeatures(
        output=str(folder),
        jobs=table.jobs,
        rows=table.rows,
        features=table.features,
        pieces=table.pieces,
        shards=table.shards,
        peak_bytes=table.peak_bytes,
        seconds=round(time.perf_counter() - began, 1),
    )
