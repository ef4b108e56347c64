"""`stormpetrel report`: every table and figure about a site's jobs, traces and events, as one HTML file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stormpetrel import __version__
from stormpetrel.answers.studies.job_input import JobInput
from stormpetrel.errors import NotEnoughJobsError, UsageError
from stormpetrel.faces.cli.context import Context, Json, console, print_json
from stormpetrel.faces.cli.job_input import Drop, Failed, Fields, Files, Format, Since, read_input, steps_shown

if TYPE_CHECKING:
    from stormpetrel.faces.report.blocks import Section

Progress = Callable[[str], None]


def report(
    context: typer.Context,
    files: Files = None,
    target: Annotated[Path, typer.Option("-o", "--output", help="The HTML file to write.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option("--title", help="Title of the page.", show_default=False)] = None,
    quick: Annotated[bool, typer.Option("--quick", help="The latest 20,000 jobs, fewer models, no ablation, no policy.")] = False,
    campaigns: Annotated[
        list[Path] | None,
        typer.Option(
            "--campaigns", help="Also the study of these trace campaigns (repeatable); with --trace-models.", show_default=False
        ),
    ] = None,
    trace_models: Annotated[
        Path | None,
        typer.Option("--trace-models", help="Folder of the models that `traces evaluate --keep` made.", show_default=False),
    ] = None,
    format_name: Format = None,
    fields: Fields = None,
    failed: Failed = None,
    drop: Drop = None,
    since: Since = None,
    as_json: Json = False,
) -> None:
    """Write every table and figure about the jobs, and about traces and events where there are any, into one HTML file."""
    chosen: Context = context.obj
    if bool(campaigns) != bool(trace_models):
        raise UsageError(
            "--campaigns and --trace-models go together.",
            hint="Make the models first: stormpetrel traces evaluate PATH --keep DIR",
        )
    with_site = not files and (_names_a_site(chosen) or not campaigns)
    data, no_jobs = None, None
    if files or with_site:
        try:
            data = read_input(
                chosen, files, format_name=format_name, fields=fields, failed=failed, drop=drop, since=since, quiet=as_json
            )
        except NotEnoughJobsError as error:
            no_jobs = error  # no reason to stop where there is something to say about traces or events
    with steps_shown(quiet=as_json) as step:
        sections = _job_sections(data, quick=quick, step=step) if data else []
        sections += _site_sections(chosen, step) if with_site else []
        sections += _campaign_study(campaigns, trace_models, step) if campaigns and trace_models else []
        if no_jobs and not sections:
            raise no_jobs
        step("writing")
        from stormpetrel.faces.report.page import write_page
        from stormpetrel.records.sizes import size_words

        size = write_page(
            target,
            title or _title(files, data, with_site=with_site),
            sections,
            subtitle=_subtitle(data, sections, quick=quick),
            footer=f"Stormpetrel {__version__}, {datetime.now(UTC):%Y-%m-%d %H:%M} UTC. It names {'users' if data else 'jobs'}.",
        )
    jobs = data.jobs.height if data else 0
    if as_json:
        print_json({"file": str(target), "bytes": size, "jobs": jobs, "sections": [part.title for part in sections]})
        return
    parts = "1 section" if len(sections) == 1 else f"{len(sections)} sections"
    console().print(f"{target}: {parts}{f' on {jobs:,} jobs' if data else ''}, {size_words(size)}")
    console().print("Next, open it in a browser; it needs no network.")


def _names_a_site(chosen: Context) -> bool:
    from stormpetrel.config import SITE_FILE

    return chosen.site_folder is not None or Path(SITE_FILE).is_file()


def _job_sections(data: JobInput, *, quick: bool, step: Progress) -> list[Section]:
    from stormpetrel.answers.studies.job_studies import refuse_empty
    from stormpetrel.faces.report.jobs_section import jobs_sections

    refuse_empty(data)
    return jobs_sections(data, quick=quick, progress=step)


def _site_sections(chosen: Context, step: Progress) -> list[Section]:
    """What a site knows besides jobs: its traces, its events, its capacity, and its workload."""
    from stormpetrel.faces.report.capacity_section import site_capacity_sections
    from stormpetrel.faces.report.events_section import site_event_sections
    from stormpetrel.faces.report.traces_section import site_trace_sections
    from stormpetrel.faces.report.workload_section import site_workload_sections

    with chosen.open_site() as site:
        parts = (site_trace_sections, site_event_sections, site_capacity_sections, site_workload_sections)
        return [section for part in parts for section in part(site, progress=step)]


def _campaign_study(campaigns: Sequence[Path], models: Path, step: Progress) -> list[Section]:
    from stormpetrel.faces.cli.trace_input import read_traces
    from stormpetrel.faces.report.traces_section import study_sections
    from stormpetrel.traces.campaign_splits import split_traces
    from stormpetrel.traces.study import kept_cut, kept_plan, run_study

    step("reading campaigns")
    traces = read_traces(campaigns, simulated=False)
    study = run_study(
        split_traces(traces, kept_cut(models)),
        kept_plan(models),
        models,
        progress=lambda share, words: step(f"{share:.0%} {words}"),
    )
    return study_sections(study, traces, progress=step)


def _title(files: list[str] | None, data: JobInput | None, *, with_site: bool) -> str:
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
