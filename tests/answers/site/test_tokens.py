"""Tokens: who may make, see and revoke them, and what is said of each."""

from __future__ import annotations

import pytest

from stormpetrel.answers.schemas.administration import NewToken
from stormpetrel.answers.site.administration import make_token, revoke_token, tokens
from stormpetrel.answers.viewer import LOCAL, READ, WRITE, Viewer
from stormpetrel.errors import AccessError, NotThereError, UsageError
from tests.builders import make_site


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", serve={"admins": ["root"]}) as site:
        yield site


def test_a_token_is_told_once_and_listed_without_itself(site):
    receipt = make_token(site, LOCAL, NewToken(name="grafana", user="kim", scopes=["read", "predict", "read"], days=7))
    assert site.tokens.find(receipt.token).user == "kim" and receipt.scopes == ["predict", "read"]
    (line,) = tokens(site, LOCAL).tokens
    assert (line.name, line.user, line.scopes, line.expired) == ("grafana", "kim", ["predict", "read"], False)
    assert receipt.token not in tokens(site, LOCAL).model_dump_json() and receipt.token not in repr(receipt)
    assert line.model_dump(mode="json")["created"].endswith("+00:00")


def test_a_revoked_token_is_worthless(site):
    receipt = make_token(site, LOCAL, NewToken(name="a", user="kim"))
    assert revoke_token(site, LOCAL, "a").revoked == "a"
    assert site.tokens.find(receipt.token) is None and tokens(site, LOCAL).tokens == []
    with pytest.raises(NotThereError):
        revoke_token(site, LOCAL, "a")


def test_the_audit_trail_says_who_made_it(site):
    make_token(site, Viewer("root", is_admin=True), NewToken(name="a", user="kim"))
    (entry,) = site.audit.recent()
    assert (entry.user, entry.action, entry.about["token"]) == ("root", "token added", "a")


@pytest.mark.parametrize("viewer", [Viewer("kim", is_admin=False), Viewer("root", True, frozenset({READ, WRITE}))])
def test_only_who_manages_the_site_has_to_do_with_tokens(site, viewer):
    for act in (
        lambda: make_token(site, viewer, NewToken(name="a", user="kim")),
        lambda: tokens(site, viewer),
        lambda: revoke_token(site, viewer, "a"),
    ):
        with pytest.raises(AccessError):
            act()
    assert site.tokens.all() == []


def test_a_scope_that_would_do_nothing_is_refused(site):
    with pytest.raises(UsageError, match="'kim' is no administrator"):
        make_token(site, LOCAL, NewToken(name="a", user="kim", scopes=["manage"]))
    with pytest.raises(UsageError, match=r"Unknown scope 'all'\. Known: read"):
        make_token(site, LOCAL, NewToken(name="a", user="kim", scopes=["all"]))
