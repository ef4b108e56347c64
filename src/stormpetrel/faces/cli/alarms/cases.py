"""`stormpetrel alarms ask | answer`: the cases whose answer teaches most, and what administrators say of them."""

from __future__ import annotations

from typing import Annotated, Literal

import typer
from rich.console import Console

from stormpetrel.answers.alarms.cases import answer_case, ask_cases
from stormpetrel.answers.schemas.verdicts import LONGEST_CASE, MOST_CASES, CaseList, CaseQuestion, NewCaseAnswer
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.alarms.acts import Note
from stormpetrel.faces.cli.alarms.text import wrapped
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, format_time, plain
from stormpetrel.faces.cli.site import open_site


def ask(
    context: typer.Context,
    limit: Annotated[int, typer.Option("--limit", min=1, max=MOST_CASES, help="So many cases.")] = 10,
    as_json: Json = False,
) -> None:
    """Show the cases whose answer helps the models most, also below the threshold."""
    with open_site(context) as site:
        zone = site.settings.site.time_zone
        answer = ask_cases(site, LOCAL, CaseQuestion(limit=limit))
    emit(answer, lambda out: _print_cases(out, answer, zone), as_json=as_json)


def answer(
    context: typer.Context,
    case: Annotated[str, typer.Argument(help="The case, as shown by alarms ask.", show_default=False)],
    verdict: Annotated[
        Literal["confirm", "dismiss", "withdraw"],
        typer.Argument(help="It is a real problem, it is a false alarm, or the answer is withdrawn.", show_default=False),
    ],
    note: Note = "",
    as_json: Json = False,
) -> None:
    """Answer a case: models learn from it at their next training, alarms at once."""
    if len(case) > LONGEST_CASE:
        raise UsageError("This is not a known case.", hint="See what is asked: stormpetrel alarms ask")
    with open_site(context, to_write=True) as site:
        receipt = answer_case(site, LOCAL, NewCaseAnswer(case=case, answer=verdict, note=note))
    emit(receipt, plain(receipt.words), as_json=as_json)


def _print_cases(out: Console, answer: CaseList, zone: str) -> None:
    if not answer.cases:
        out.print("There is nothing to ask: no incident, forecast, unusual window or bucket of the last weeks is undecided.")
    for line in answer.cases:
        figures = f"chance {line.chance:.0%}, worth {line.worth:.2f}"
        out.print(f"{plain(line.case)}  {format_time(line.at, zone)}  {figures}")
        wrapped(out, line.words)
    if answer.cases:
        first = plain(answer.cases[0].case)
        out.print(f"{len(answer.cases)} of {answer.candidates:,} candidates; {answer.answered:,} answered so far.")
        out.print(f"It is trouble: stormpetrel alarms answer '{first}' confirm; it is none: … dismiss")
