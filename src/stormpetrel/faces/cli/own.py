"""`stormpetrel me` and `digest`: a person's own page, and whether it comes by mail."""

from __future__ import annotations

import getpass
from enum import StrEnum
from typing import Annotated

import typer
from stormpetrel_client.render import digest_lines, me_lines

from stormpetrel.answers.personal.choice import choose_digest, digest_choice
from stormpetrel.answers.personal.summary import summary_of_site
from stormpetrel.answers.schemas.personal import DigestAct
from stormpetrel.answers.viewer import READ, WRITE, Viewer
from stormpetrel.errors import UsageError
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit
from stormpetrel.faces.cli.site import open_site
from stormpetrel.store.site import Site

User = Annotated[str | None, typer.Option("--user", help="Whose; you, if left out.", show_default=False)]


class Choice(StrEnum):
    """Whether the digest is wanted."""

    ON = "on"
    OFF = "off"


def me(
    context: typer.Context,
    user: User = None,
    weeks: Annotated[int, typer.Option("--weeks", help="Of jobs that ended in the last 1, 4, 12 or 52 weeks.")] = 4,
    as_json: Json = False,
) -> None:
    """Show one person's page: failures beside those of people alike, waste, what to change, incidents."""
    if weeks not in (1, 4, 12, 52):
        raise UsageError(f"--weeks {weeks} is not there.", hint="Use 1, 4, 12 or 52.")
    with open_site(context) as site:
        answer = summary_of_site(site, _viewer(site, user).user, weeks=weeks, now=site.now()).model_dump(mode="json")
    emit(answer, "\n".join(me_lines(answer)), as_json=as_json)


def digest(
    context: typer.Context,
    choice: Annotated[Choice | None, typer.Argument(help="on or off; whether it is on, if left out.", show_default=False)] = None,
    address: Annotated[
        str | None, typer.Option("--to", help="With on: where to, instead of the user's address at the site.", show_default=False)
    ] = None,
    user: User = None,
    as_json: Json = False,
) -> None:
    """Ask for the weekly digest by mail, or give it up."""
    with open_site(context, to_write=choice is not None) as site:
        viewer = _viewer(site, user)
        if choice is None:
            answer = digest_choice(site, viewer)
        else:
            answer = choose_digest(site, viewer, DigestAct(wanted=choice is Choice.ON, address=address))
    content = answer.model_dump(mode="json")
    emit(content, "\n".join(digest_lines(content)), as_json=as_json)


def _viewer(site: Site, user: str | None) -> Viewer:
    """The person, without an administrator's eyes."""
    return Viewer(site.user_in_tables(user or getpass.getuser()), is_admin=False, scopes=frozenset({READ, WRITE}))
