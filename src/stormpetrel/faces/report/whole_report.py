"""The whole report: every table and figure about jobs, traces and events, as one HTML file.

Viewer + ReportOrder + JobInput, Site -> write_report -> ReportReceipt. It names users and jobs: only administrators have it made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel import __version__
from stormpetrel.answers.schemas.administration import ReportOrder, ReportReceipt
from stormpetrel.answers.studies.job_studies import refuse_empty
from stormpetrel.answers.studies.trace_study import study_of_kept_models
from stormpetrel.answers.viewer import READ
from stormpetrel.errors import NotEnoughJobsError
from stormpetrel.faces.report.capacity_section import site_capacity_sections
from stormpetrel.faces.report.events_section import site_event_sections
from stormpetrel.faces.report.inventory import inventory_section
from stormpetrel.faces.report.jobs_section import jobs_sections
from stormpetrel.faces.report.page import write_page
from stormpetrel.faces.report.traces_section import site_trace_sections, study_sections
from stormpetrel.faces.report.workload_section import site_workload_sections

if TYPE_CHECKING:
    from stormpetrel.answers.studies.job_evaluation import JobInput
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.faces.report.blocks import Section
    from stormpetrel.store.site import Site

Progress = Callable[[str], None]


def write_report(
    site: Site | None,
    viewer: Viewer,
    order: ReportOrder,
    *,
    data: JobInput | None,
    no_jobs: NotEnoughJobsError | None = None,
    progress: Progress = lambda _: None,
) -> ReportReceipt:
    """Write what there is to say about some jobs, about a site's traces and events, and about campaigns.

    `no_jobs` says why there are none; it is raised where there is nothing else to say either.
    """
    viewer.require(READ)
    viewer.require_admin()
    began = time.monotonic()
    sections = _job_sections(data, quick=order.quick, complete=order.complete, progress=progress) if data else []
    sections += _site_sections(site, with_study=not order.campaigns, progress=progress) if site else []
    if order.campaigns and order.trace_models:
        sections += _campaign_sections(order.campaigns, order.trace_models, progress)
    if no_jobs and not sections:
        raise no_jobs
    progress("writing")
    size = write_page(
        order.target,
        order.title or _title(order.files, data, with_site=site is not None),
        [inventory_section(sections), *sections],
        subtitle=_subtitle(data, sections, quick=order.quick),
        footer=f"Stormpetrel {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. It names {'users' if data else 'jobs'}.",
    )
    jobs, titles = data.jobs.height if data else 0, [section.title for section in sections]
    took_s = round(time.monotonic() - began, 1)
    return ReportReceipt(file=str(order.target), bytes=size, jobs=jobs, sections=titles, seconds=took_s)


def _job_sections(data: JobInput, *, quick: bool, complete: bool, progress: Progress) -> list[Section]:
    refuse_empty(data)
    return jobs_sections(data, quick=quick, complete=complete, progress=progress)


def _site_sections(site: Site, *, with_study: bool, progress: Progress) -> list[Section]:
    """What a site knows besides jobs: its traces, its events, its capacity, and its workload."""
    parts = (site_event_sections, site_capacity_sections, site_workload_sections)
    traces = site_trace_sections(site, with_study=with_study, progress=progress)
    return [*traces, *(section for part in parts for section in part(site, progress=progress))]


def _campaign_sections(campaigns: Sequence[Path], models: Path, progress: Progress) -> list[Section]:
    study, traces = study_of_kept_models(campaigns, models, progress=progress)
    return study_sections(study, traces, progress=progress)


def _title(files: Sequence[str], data: JobInput | None, *, with_site: bool) -> str:
    if files:
        return f"Jobs of {', '.join(Path(file).name for file in files)}"
    if data:
        return "Jobs of this site"
    return "Traces and events of this site" if with_site else "Traces"


def _subtitle(data: JobInput | None, sections: Sequence[Section], *, quick: bool) -> str:
    if data is None:
        return ", ".join(part.title for part in sections)
    first, last = (str(moment)[:10] for moment in (data.jobs["submit_time"].min(), data.jobs["submit_time"].max()))
    return f"{data.jobs.height:,} jobs, submitted {first} to {last}" + (", a quick report" if quick else "")
