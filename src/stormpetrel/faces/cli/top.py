"""`stormpetrel top`: incidents, jobs at risk, jobs and sources of a site on a terminal; without a site the client's."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from typing import Annotated, ParamSpec, TypeVar

import typer
from rich.console import Console
from stormpetrel_client.page import Question, once_lines
from stormpetrel_client.screen import show
from stormpetrel_client.where import ClientError

from stormpetrel.answers.alarms.incidents import show_incident
from stormpetrel.answers.jobs.why import explain_job
from stormpetrel.answers.overview.now import top_page
from stormpetrel.answers.overview.overview import Overview
from stormpetrel.answers.schemas.health import TopAnswer
from stormpetrel.answers.schemas.jobs import JobsQuestion
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import StormpetrelError, UsageError
from stormpetrel.faces.cli.alarms.text import print_incident
from stormpetrel.faces.cli.jobs.check import print_why
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit
from stormpetrel.faces.cli.site import open_site
from stormpetrel.records.jobs import JobRef
from stormpetrel.store.site import Site

Arguments = ParamSpec("Arguments")
T = TypeVar("T")
_DEFAULT_WIDTH = 100


def top(
    context: typer.Context,
    every: Annotated[float, typer.Option("--every", min=1, max=3600, help="Seconds between two looks.")] = 10.0,
    once: Annotated[bool, typer.Option("--once", help="Print the page once, for scripts.")] = False,
    as_json: Json = False,
) -> None:
    """Watch incidents, jobs at risk, jobs and sources on this terminal, until q."""
    with open_site(context) as site:
        look = _look(site, Overview())
        if not once and not as_json:
            try:
                show(_for_screen(lambda question: look(question).model_dump(mode="json")), _more_about(site), every_s=every)
            except ClientError as error:
                raise UsageError(error.what, hint=error.hint) from error
            return
        answer = look(Question())
    width = shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
    emit(answer, "\n".join(once_lines(answer.model_dump(mode="json"), Question(), width)), as_json=as_json)


def _look(site: Site, overview: Overview) -> Callable[[Question], TopAnswer]:
    def look(question: Question) -> TopAnswer:
        overview.refresh(site)
        chosen = {name: value for name, value in question.query().items() if value is not None}
        return top_page(site, overview, LOCAL, JobsQuestion.model_validate(chosen))

    return look


def _more_about(site: Site) -> Callable[[str, str], list[str]]:
    def more(kind: str, key: str) -> list[str]:
        text = io.StringIO()
        out = Console(file=text, markup=False, highlight=False, emoji=False, soft_wrap=True, width=_DEFAULT_WIDTH)
        if kind == "incident":
            print_incident(out, show_incident(site, LOCAL, int(key)), site.settings.site.time_zone)
        else:
            print_why(out, explain_job(site, LOCAL, JobRef.parse(key).job, now=site.now()))
        return text.getvalue().splitlines()

    return _for_screen(more)


def _for_screen(ask: Callable[Arguments, T]) -> Callable[Arguments, T]:
    """The same, with our errors as the screen shows them: it asks again, and says since when there was no answer."""

    def question(*values: Arguments.args, **named: Arguments.kwargs) -> T:
        try:
            return ask(*values, **named)
        except StormpetrelError as error:
            raise ClientError(str(error)) from error

    return question
