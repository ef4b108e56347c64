"""`stormpetrel tokens`: create, list and revoke the tokens of users and programs."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from stormpetrel.answers.schemas.administration import NewToken, TokenLine
from stormpetrel.answers.site.administration import make_token, revoke_token, tokens
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.faces.cli.options import Json
from stormpetrel.faces.cli.output import emit, plain
from stormpetrel.faces.cli.site import open_site


def add(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What to call it, such as 'grafana' or 'kim-laptop'.")],
    user: Annotated[str, typer.Option("--user", help="Whose jobs it shows; all, if an administrator's.")],
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, predict, write or manage; may be repeated; read if left out.", show_default=False),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="Days for which it is valid.")] = 90,
    as_json: Json = False,
) -> None:
    """Create a token and print it, once: only its digest is stored."""
    with open_site(context, to_write=True) as site:
        receipt = make_token(site, LOCAL, NewToken(name=name, user=user, scopes=scopes or ["read"], days=days))
    emit(receipt, receipt.token, as_json=as_json)
    if not as_json:
        typer.echo(
            "This is the only time it is shown. Programs send it as: Authorization: Bearer …; people log in with it.", err=True
        )


def create(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="What to call it, such as 'notebook'.")],
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", help="read, predict, write, act or manage; may be repeated; read and predict if left out."),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="Days for which it is valid.")] = 30,
    as_json: Json = False,
) -> None:
    """Create a token of your own and print it, once; without a site, the service makes it for whom the kernel says you are."""
    add(context, name, user=getpass.getuser(), scopes=scopes or ["predict", "read"], days=days, as_json=as_json)


def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the tokens: whose they are, what they may do, until when."""
    with open_site(context) as site:
        lines = tokens(site, LOCAL).tokens
    emit([line.model_dump(mode="json") for line in lines], lambda out: _print_tokens(out, lines), as_json=as_json)


def _print_tokens(out: Console, lines: Sequence[TokenLine]) -> None:
    if not lines:
        out.print("There are no tokens. Create one: stormpetrel tokens add NAME --user USER")
        return
    table = Table("token", "user", "may", "until", box=None, pad_edge=False)
    for line in lines:
        until = f"{line.expires:%Y-%m-%d}" if line.expires else "for ever"
        table.add_row(plain(line.name), plain(line.user), ", ".join(line.scopes), f"{until} (over)" if line.expired else until)
    out.print(table)


def revoke(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The token's name.")],
    user: Annotated[
        str | None, typer.Option("--user", help="Whose it is, where several users have one of that name.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Revoke a token; a running server refuses it, and those logged in with it, within a second."""
    with open_site(context, to_write=True) as site:
        receipt = revoke_token(site, LOCAL, name, user=user)
    emit(receipt, f"The token '{plain(receipt.revoked)}' is revoked.", as_json=as_json)
