"""`stormpetrel tokens`: who may look in with a token."""

from __future__ import annotations

from typing import Annotated

import typer

from stormpetrel.faces.cli.context import Context, Json, console, plain, print_json

app = typer.Typer(help="Make and revoke tokens for users and programs.", no_args_is_help=True, rich_markup_mode=None)


@app.command("add")
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
    """Make a token and print it, once: only its digest is kept."""
    from stormpetrel.answers.schemas.tokens import NewToken
    from stormpetrel.answers.site.tokens import make_token
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        receipt = make_token(site, LOCAL, NewToken(name=name, user=user, scopes=scopes or ["read"], days=days))
    if as_json:
        print_json(receipt)
        return
    typer.echo(receipt.token)
    typer.echo(
        "This is the only time it is shown. Programs send it as: Authorization: Bearer …; people log in with it.", err=True
    )


@app.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the tokens: whose they are, what they may do, until when."""
    from stormpetrel.answers.site.tokens import tokens
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site() as site:
        lines = tokens(site, LOCAL).tokens
    if as_json:
        print_json([line.model_dump(mode="json") for line in lines])
        return
    if not lines:
        typer.echo("There are no tokens. Make one: stormpetrel tokens add NAME --user USER")
        return
    from rich.table import Table

    table = Table("token", "user", "may", "until", box=None, pad_edge=False)
    for line in lines:
        until = f"{line.expires:%Y-%m-%d}" if line.expires else "for ever"
        table.add_row(plain(line.name), plain(line.user), ", ".join(line.scopes), f"{until} (over)" if line.expired else until)
    console().print(table)


@app.command("revoke")
def revoke(context: typer.Context, name: Annotated[str, typer.Argument(help="The token's name.")], as_json: Json = False) -> None:
    """Make a token worthless; a server that runs refuses it, and those logged in with it, within a second."""
    from stormpetrel.answers.site.tokens import revoke_token
    from stormpetrel.answers.viewer import LOCAL

    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        receipt = revoke_token(site, LOCAL, name)
    if as_json:
        print_json(receipt)
    else:
        typer.echo(f"The token '{plain(receipt.revoked)}' is worthless now.")
