"""A copy of a site, in a folder of its own, into which faults are put: the site itself is only read.

Site + folder -> create_copy -> Site: the settings without routes to people or sources to read, a state of its own, empty tables.
The copy has the site's clock. `jobs_between` reads the records that a walk through a span of time needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import polars as pl

from stormpetrel.config import ElasticSection, GrafanaSection, GraphiteSection, NotifySection, Settings
from stormpetrel.records.jobs import STORED_SCHEMA
from stormpetrel.records.outages import Outage
from stormpetrel.store.site import Site, create_site


@dataclass(frozen=True, slots=True)
class CopyPlan:
    """All that an empty copy is made of: plain values, so that a copy can be made where the site itself is not."""

    settings: Settings
    outages: tuple[Outage, ...]

    def create(self, folder: Path) -> Site:
        """Make an empty site with these settings, and the outages and maintenance that the other knows; nobody hears of it."""
        copy = create_site(folder, self.settings)
        for outage in self.outages:
            copy.outages.add(outage)
        return copy


def copy_plan(site: Site) -> CopyPlan:
    """Return what copies of a site are made of."""
    return CopyPlan(copied_settings(site), tuple(site.outages.list()))


def create_copy(site: Site, folder: Path) -> Site:
    """Make an empty copy of a site in a folder."""
    return copy_plan(site).create(folder)


def copied_settings(site: Site) -> Settings:
    """Return the settings of a copy: no route to people, no source, the state beside the tables, the clock of the original."""
    known = site.settings
    feed = str((site.folder / known.site.feed).resolve()) if known.site.feed else ""
    return known.model_copy(
        update={
            "site": known.site.model_copy(update={"feed": feed}),
            "store": known.store.model_copy(update={"state_url": "", "state_dir": ""}),
            "elastic": ElasticSection(),
            "graphite": GraphiteSection(),
            "grafana": GrafanaSection(),
            "notify": NotifySection(),
        }
    )


def jobs_between(site: Site, since: datetime, until: datetime) -> pl.DataFrame:
    """Return the stored records of jobs that ended after `since`, or had not ended, and were submitted by `until`."""
    rows = site.jobs.table.scan().filter((pl.coalesce("end_time", pl.lit(until)) > since), (pl.col("submit_time") <= until))
    return rows.select(*STORED_SCHEMA).collect()
