"""`stormpetrel tokens` and `stormpetrel serve`, as commands."""

import json

import pytest
from typer.testing import CliRunner

from stormpetrel.errors import NotThereError, SettingsError, UsageError
from stormpetrel.faces.cli.main import app
from stormpetrel.store.site import open_site
from tests.builders import make_site


@pytest.fixture
def folder(tmp_path):
    with make_site(tmp_path / "site", serve={"admins": ["root"]}):
        return tmp_path / "site"


@pytest.fixture
def run(folder):
    def invoke(*words):
        answer = CliRunner().invoke(app, ["--site", str(folder), *words])
        if answer.exception and not isinstance(answer.exception, SystemExit):
            raise answer.exception
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    return invoke


def test_a_token_is_printed_once_and_works(run, folder):
    token = run("tokens", "add", "grafana", "--user", "kim", "--scope", "read", "--scope", "predict", "--days", "7").strip()
    with open_site(folder) as site:
        found = site.tokens.find(token)
        assert (found.user, found.scopes) == ("kim", {"read", "predict"})
        assert (found.expires - found.created).days == 7
        assert [(entry.action, entry.about["token"]) for entry in site.audit.recent()] == [("token added", "grafana")]
    shown = run("tokens", "list")
    assert "grafana" in shown and "kim" in shown and token not in shown
    assert token not in run("tokens", "list", "--json")


def test_a_token_reads_for_ninety_days_unless_told_otherwise(run):
    made = json.loads(run("tokens", "add", "grafana", "--user", "kim", "--json"))
    assert (made["scopes"], made["days"]) == (["read"], 90) and made["token"].startswith("sp_")
    (listed,) = json.loads(run("tokens", "list", "--json"))
    assert (listed["name"], listed["user"], listed["expired"]) == ("grafana", "kim", False)


def test_a_revoked_token_is_gone(run, folder):
    token = run("tokens", "add", "grafana", "--user", "kim").strip()
    assert "is revoked" in run("tokens", "revoke", "grafana")
    with open_site(folder) as site:
        assert site.tokens.find(token) is None
    assert "There are no tokens" in run("tokens", "list")
    with pytest.raises(NotThereError):
        run("tokens", "revoke", "grafana")


def test_only_an_administrators_token_can_manage(run):
    with pytest.raises(UsageError, match="'kim' is no administrator"):
        run("tokens", "add", "a", "--user", "kim", "--scope", "manage")
    run("tokens", "add", "b", "--user", "root", "--scope", "manage")


def test_an_unknown_scope_is_told_with_the_known_ones(run):
    with pytest.raises(UsageError, match=r"Unknown scope 'all'\. Known: read, predict, write, ingest, act, manage"):
        run("tokens", "add", "a", "--user", "kim", "--scope", "all")


def test_on_a_site_without_names_the_token_is_kept_under_the_pseudonym(tmp_path):
    with make_site(tmp_path / "hidden", store={"pseudonymise_users": True}):
        pass
    CliRunner().invoke(app, ["--site", str(tmp_path / "hidden"), "tokens", "add", "a", "--user", "mallory"])
    with open_site(tmp_path / "hidden") as site:
        assert [token.user for token in site.tokens.all()] == [site.privacy.pseudonym("mallory")]
        assert "mallory" not in str(site.state.dump())


def test_names_from_elsewhere_are_printed_as_text(run, folder):
    with open_site(folder) as site:
        site.tokens.add("a", user="kim\x1b[31m", scopes=["read"])
    assert "\x1b" not in run("tokens", "list")


def test_serve_refuses_an_open_door(run):
    with pytest.raises(SettingsError, match="Without a login"):
        run("serve", "--address", "0.0.0.0:8050")
