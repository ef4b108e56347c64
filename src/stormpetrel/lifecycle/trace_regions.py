"""Known regions of a site: name a trouble by its windows, take it back, and fit the regions to the model in use.

Site + name + RegionScope -> add_region -> KnownRegion; Incident + note -> name_incident; + scorer -> known_regions -> Regions.
What is in the scope of a region is trouble under whatever name: `labelled_trouble` keeps it out of what models learn as normal.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from stormpetrel.errors import NotThereError
from stormpetrel.lifecycle.frozen_spans import known_calm, never_normal
from stormpetrel.records.incidents import Incident
from stormpetrel.records.model_families import ModelFamily
from stormpetrel.records.regions import KnownRegion, RegionScope, region_name
from stormpetrel.records.traces import ANOMALOUS_TYPES, MIXED
from stormpetrel.records.window_frames import WINDOW_KEY, windows_of
from stormpetrel.store.site import Site
from stormpetrel.traces.architecture import Scorer
from stormpetrel.traces.regions import Regions, fit_region

Embeddings = npt.NDArray[np.float32]

TRACES: Final = ModelFamily.TRACES.value  # the family of findings whose windows are kept
MOST_EXAMPLES: Final = 128  # windows of one region that are kept: a window every second of a job tells little more
CALM_WINDOWS: Final = 4000  # that say where calm begins: four of them may lie in a region
_FEW_CALM: Final = 500  # stored embeddings of calm windows; with fewer, windows are embedded anew
_SEED: Final = 23
_TICK: Final = timedelta(microseconds=1)


def add_region(site: Site, name: str, scope: RegionScope, *, user: str, incident: int | None = None) -> KnownRegion:
    """Name the windows of a scope; NotThereError where none of them is kept.

    Of a node's windows in a span of time those that were flagged are the examples, where there are any: not every thread of a
    node in trouble takes part in it.
    """
    name = region_name(name)
    rows = site.cpu_windows.read(since=scope.since, until=scope.until, nodes=None if scope.node is None else [scope.node])
    windows = rows.filter(scope.holds(), pl.col("job_type") != MIXED).collect()
    if scope.job_id is None and scope.job_type is None and windows.height:
        scores = site.trace_scores.read(since=scope.since, until=scope.until).filter(scope.holds(), pl.col("flagged"))
        flagged = windows.join(scores.select(WINDOW_KEY).unique().collect(), on=list(WINDOW_KEY), how="semi", nulls_equal=True)
        windows = flagged if flagged.height else windows
    if not windows.height:
        raise NotThereError(
            f"No window of {_words(scope)} is kept, so that nothing can be compared with {name!r}.",
            hint='Name windows that the site has: stormpetrel sql "select distinct node, job_id from cpu_windows"',
        )
    examples = windows.sort(pl.struct(*WINDOW_KEY).hash(_SEED), *WINDOW_KEY).head(MOST_EXAMPLES)
    return site.trace_regions.add(name, scope, examples, user=user, now=site.now(), incident=incident)


def remove_region(site: Site, name: str) -> list[KnownRegion]:
    """Take back all regions of a name; NotThereError where there is none."""
    regions = [region for region in site.trace_regions.list() if region.name == name]
    if not regions:
        known = ", ".join(sorted({region.name for region in site.trace_regions.list()})[:8]) or "none"
        raise NotThereError(f"There is no region {name[:80]!r}.", hint=f"Known: {known}.")
    return _removed(site, regions)


def name_incident(site: Site, incident: Incident, note: str, *, user: str) -> list[KnownRegion]:
    """The regions of a confirmed incident of traces, in place of those that it had: named by the note's first line.

    Without a note they are called after the incident. Empty where it is not about traces, or none of its windows is kept.
    """
    spans = [finding for finding in incident.findings if finding.family == TRACES]
    if not spans:
        return []
    name = region_name(note) if note.strip() else f"incident {incident.id}"
    unname_incident(site, incident.id)
    regions = []
    for finding in spans:
        scope = RegionScope(node=finding.subject.name, since=finding.since, until=finding.until)
        try:
            regions.append(add_region(site, name, scope, user=user, incident=incident.id))
        except NotThereError:
            continue  # confirmed all the same; whoever confirms is shown what came of it
    return regions


def unname_incident(site: Site, number: int) -> list[KnownRegion]:
    """Take back the regions that came from an incident's confirmation."""
    return _removed(site, [region for region in site.trace_regions.list() if region.incident == number])


def labelled_trouble(site: Site) -> pl.Expr:
    """Which rows (of windows or of their scores) are trouble: by their type's name, a region's scope, a confirmed incident."""
    trouble = pl.col("job_type").is_in(sorted(ANOMALOUS_TYPES)).fill_null(False) | never_normal(site)
    for scope in {region.scope for region in site.trace_regions.list()}:
        trouble = trouble | scope.holds()
    return trouble


def labelled_types(site: Site) -> frozenset[str]:
    """The job types that regions declare to be trouble, wherever such a window comes from."""
    return frozenset(region.scope.job_type for region in site.trace_regions.list() if region.scope.job_type is not None)


def known_regions(site: Site, scorer: Scorer, *, model: str, version: int) -> Regions:
    """The site's regions as a model sees them, one for each name; examples of one name add up."""
    by_name: dict[str, list[KnownRegion]] = {}
    for region in site.trace_regions.list():
        by_name.setdefault(region.name, []).append(region)
    if not by_name:
        return Regions()
    stored = _Stored(site, scorer, model, version)
    calm = stored.calm()
    fitted = []
    for name, regions in by_name.items():
        rows = pl.concat([site.trace_regions.examples(region.id) for region in regions])
        moments = rows.select("trace", "window_start").rows()
        fitted.append(fit_region(name, stored.embeddings(rows), moments, calm))
    return Regions(tuple(fitted))


def embeddings_of(scorer: Scorer, rows: pl.DataFrame, size: int) -> Embeddings:
    """The embedding of each window of a frame of CPU_WINDOW_SCHEMA, in the order of its rows: (windows, size)."""
    answer = np.empty((rows.height, size), dtype=np.float32)
    numbered = rows.with_row_index("_row").with_columns(_steps=pl.col("user").list.len())
    for part in numbered.partition_by("_steps", "step_s", maintain_order=True):
        answer[part["_row"].to_numpy()] = scorer.embed(windows_of(part))
    return answer


class _Stored:
    """Embeddings by one version of a model: out of the table of scores where they are there, computed where they are not."""

    def __init__(self, site: Site, scorer: Scorer, model: str, version: int) -> None:
        self._site, self._scorer, self._model, self._version = site, scorer, model, version

    def embeddings(self, rows: pl.DataFrame) -> Embeddings:
        """Of these windows. A network that looks at neighbours saw them beside all of their node, so what it said then counts."""
        size = self._scorer.settings.embedding
        first, last = rows["window_start"].min(), rows["window_start"].max()
        known = (
            self._scores(since=first, until=last + _TICK)  # type: ignore[operator]
            .join(rows.lazy().select(WINDOW_KEY), on=list(WINDOW_KEY), how="semi", nulls_equal=True)
            .select(*WINDOW_KEY, "embedding")
            .unique(list(WINDOW_KEY))
            .collect()
        )
        joined = rows.select(WINDOW_KEY).join(known, on=list(WINDOW_KEY), how="left", nulls_equal=True, maintain_order="left")
        missing = (joined["embedding"].list.len() != size).fill_null(True)
        answer = np.empty((rows.height, size), dtype=np.float32)
        if missing.any():
            answer[missing.to_numpy()] = embeddings_of(self._scorer, rows.filter(missing), size)
        if not missing.all():
            answer[~missing.to_numpy()] = _matrix(joined.filter(~missing)["embedding"], size)
        return answer

    def calm(self) -> Embeddings:
        """Of the newest windows that nobody labelled as trouble and that were not flagged, or dismissed, drawn by lot."""
        calm = ~labelled_trouble(self._site) & (pl.col("job_type") != MIXED)
        size = self._scorer.settings.embedding
        rows = self._scores().filter(calm, ~pl.col("flagged") | known_calm(self._site)).select(*WINDOW_KEY, "embedding")
        newest = rows.sort("window_start", descending=True).head(10 * CALM_WINDOWS).collect()
        newest = newest.filter(pl.col("embedding").list.len() == size)
        if newest.height >= _FEW_CALM:
            return _matrix(_drawn(newest)["embedding"], size)
        windows = self._site.cpu_windows.read().filter(calm)
        return embeddings_of(
            self._scorer, _drawn(windows.sort("window_start", descending=True).head(10 * CALM_WINDOWS).collect()), size
        )

    def _scores(self, **span: object) -> pl.LazyFrame:
        rows = self._site.trace_scores.read(model=self._model, version=self._version, **span)  # type: ignore[arg-type]
        return rows.filter(pl.col("embedding").is_not_null())


def _matrix(vectors: pl.Series, size: int) -> Embeddings:
    return vectors.explode().to_numpy().reshape(-1, size).astype(np.float32)


def _drawn(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.sort(pl.struct(*WINDOW_KEY).hash(_SEED), *WINDOW_KEY).head(CALM_WINDOWS)


def _removed(site: Site, regions: Sequence[KnownRegion]) -> list[KnownRegion]:
    for region in regions:
        site.trace_regions.remove(region.id)
    return list(regions)


def _words(scope: RegionScope) -> str:
    parts = {"job type": scope.job_type, "job": scope.job_id, "node": scope.node}
    return " and ".join(f"{kind} {name!r}" for kind, name in parts.items() if name is not None)
