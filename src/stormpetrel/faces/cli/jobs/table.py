"""`stormpetrel jobs list` on a site: its jobs, the newest first, with the latest risk of each."""

from __future__ import annotations

from typing import Annotated

import typer
from stormpetrel_client.render import job_ids, jobs_lines

from stormpetrel.answers.overview.job_table import job_rows, table_query
from stormpetrel.answers.overview.overview import Overview
from stormpetrel.answers.schemas.jobs import MOST_ROWS, JobPage, JobsQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit
from stormpetrel.faces.cli.site import open_site


def list_jobs(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST_ROWS, help="At most so many.")] = 20,
    search: Annotated[str, typer.Option("--search", help="In ids, users, accounts, names, partitions.", show_default=False)] = "",
    at_risk: Annotated[bool, typer.Option("--at-risk", help="Only those whose risk reaches the threshold.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Only their ids, a line each: for completion in a shell.")] = False,
    as_json: Json = False,
) -> None:
    """List the jobs of the site, the newest first, with the latest risk of each."""
    with open_site(context) as site:
        overview = Overview()
        overview.refresh(site, most=None if search or at_risk else limit)
        question = JobsQuestion.model_validate({"limit": limit, "search": search, "flagged": True if at_risk else None})
        page = overview.page(LOCAL, table_query(question))
    answer = JobPage.model_construct(items=job_rows(page.rows), total=page.total, page=1, next=None)
    rows = answer.model_dump(mode="json")["items"]
    emit(answer, "\n".join(job_ids(rows) if ids else jobs_lines(rows)), as_json=as_json)
