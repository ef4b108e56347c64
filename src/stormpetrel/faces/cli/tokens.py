"""`stormpetrel tokens`: who may look in with a token."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from stormpetrel.errors import UsageError
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
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        wanted = _known_scopes(scopes or ["read"])
        if "manage" in wanted and user not in site.settings.serve.admins:
            raise UsageError(
                f"'{plain(user)}' is no administrator, so the scope 'manage' would do nothing.",
                hint="Name the user in serve.admins in site.toml first.",
            )
        token = site.tokens.add(name, user=site.user_in_tables(user), scopes=wanted, days=days)
        site.audit.record(site.user_in_tables(getpass.getuser()), "token added", {"token": name, "scopes": wanted, "days": days})
    if as_json:
        print_json({"name": name, "user": user, "scopes": wanted, "days": days, "token": token})
        return
    typer.echo(token)
    typer.echo(
        "This is the only time it is shown. Programs send it as: Authorization: Bearer …; people log in with it.", err=True
    )


@app.command("list")
def list_tokens(context: typer.Context, as_json: Json = False) -> None:
    """List the tokens: whose they are, what they may do, until when."""
    chosen: Context = context.obj
    with chosen.open_site() as site:
        found = [(token, site.tokens.is_over(token)) for token in site.tokens.all()]
    if as_json:
        print_json(
            [
                {
                    "name": token.name,
                    "user": token.user,
                    "scopes": sorted(token.scopes),
                    "created": token.created.isoformat(),
                    "expires": token.expires.isoformat() if token.expires else None,
                    "expired": is_over,
                }
                for token, is_over in found
            ]
        )
        return
    if not found:
        typer.echo("There are no tokens. Make one: stormpetrel tokens add NAME --user USER")
        return
    from rich.table import Table

    table = Table("token", "user", "may", "until", box=None, pad_edge=False)
    for token, is_over in found:
        until = f"{token.expires:%Y-%m-%d}" if token.expires else "for ever"
        table.add_row(
            plain(token.name), plain(token.user), ", ".join(sorted(token.scopes)), f"{until} (over)" if is_over else until
        )
    console().print(table)


@app.command("revoke")
def revoke(context: typer.Context, name: Annotated[str, typer.Argument(help="The token's name.")], as_json: Json = False) -> None:
    """Make a token worthless; a server that runs refuses it, and those logged in with it, within a second."""
    chosen: Context = context.obj
    with chosen.open_site(to_write=True) as site:
        site.tokens.revoke(name)
        site.audit.record(site.user_in_tables(getpass.getuser()), "token revoked", {"token": name})
    if as_json:
        print_json({"revoked": name})
    else:
        typer.echo(f"The token '{plain(name)}' is worthless now.")


def _known_scopes(scopes: list[str]) -> list[str]:
    from stormpetrel.answers.viewer import SCOPES

    for scope in scopes:
        if scope not in SCOPES:
            raise UsageError(f"Unknown scope '{plain(scope)}'.", hint=f"Known: {', '.join(SCOPES)}.")
    return sorted(set(scopes))
