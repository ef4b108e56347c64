"""Tokens that users make for themselves: proved by the kernel, no stronger than their maker, for a time, each person's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stormpetrel.answers.schemas.own import OwnToken
from stormpetrel.answers.site.own import create_token, own_tokens, revoke_own_token
from stormpetrel.answers.viewer import INGEST, LOCAL, MANAGE, PREDICT, READ, WRITE, Viewer
from stormpetrel.errors import AccessError, NotThereError, UsageError
from tests.builders import make_site

KIM = Viewer("kim", is_admin=False, is_proved=True)
ROOT = Viewer("root", is_admin=True, is_proved=True)


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site", serve={"admins": ["root"], "own_tokens": 3, "own_token_days": 60}) as site:
        yield site


def test_a_user_makes_a_token_that_reads_and_predicts_for_a_month(site):
    receipt = create_token(site, KIM, OwnToken(name="notebook"))
    found = site.tokens.find(receipt.token)
    assert (found.user, found.scopes, (found.expires - found.created).days) == ("kim", {READ, PREDICT}, 30)
    assert receipt.token not in repr(receipt) and receipt.token not in own_tokens(site, KIM).model_dump_json()
    assert [(entry.user, entry.action, entry.about["token"]) for entry in site.audit.recent()] == [
        ("kim", "own token created", "notebook")
    ]


@pytest.mark.parametrize("viewer", [replace(KIM, is_proved=False), replace(ROOT, is_proved=False), LOCAL])
def test_who_was_not_named_by_the_kernel_makes_none(site, viewer):
    with pytest.raises(AccessError, match="a token cannot make tokens"):
        create_token(site, viewer, OwnToken(name="a"))
    assert site.tokens.all() == []


@pytest.mark.parametrize("scope", [INGEST, MANAGE])
def test_a_token_can_do_no_more_than_its_maker(site, scope):
    with pytest.raises(AccessError):
        create_token(site, KIM, OwnToken(name="a", scopes=[READ, scope]))
    narrow = replace(KIM, scopes=frozenset({WRITE, READ}))
    with pytest.raises(AccessError, match="do not have the scope 'predict'"):
        create_token(site, narrow, OwnToken(name="a"))
    assert site.tokens.all() == []


def test_who_owns_the_sites_folder_without_being_its_administrator_makes_no_token_that_manages(site):
    create_token(site, ROOT, OwnToken(name="a", scopes=[MANAGE]))
    with pytest.raises(AccessError, match="no administrator"):
        create_token(site, Viewer("petrel", is_admin=True, is_proved=True), OwnToken(name="a", scopes=[MANAGE]))


def test_a_token_ends_within_the_days_of_the_site(site):
    with pytest.raises(UsageError, match="60 days at most"):
        create_token(site, KIM, OwnToken(name="a", days=61))


def test_a_user_has_so_many_tokens_and_those_past_their_time_make_room(site, monkeypatch):
    for name in "abc":
        create_token(site, KIM, OwnToken(name=name, days=1))
    with pytest.raises(UsageError, match="3 tokens already"):
        create_token(site, KIM, OwnToken(name="d"))
    create_token(site, Viewer("lee", is_admin=False, is_proved=True), OwnToken(name="d"))
    later = site.tokens._clock().replace(year=2100)
    monkeypatch.setattr(site.tokens, "_clock", lambda: later)
    create_token(site, KIM, OwnToken(name="d"))
    assert [token.name for token in site.tokens.all(user="kim")] == ["d"]


def test_a_loop_of_making_and_revoking_is_stopped(site):
    def loop():
        for _ in range(100):
            create_token(site, KIM, OwnToken(name="a"))
            revoke_own_token(site, KIM, "a")

    with pytest.raises(UsageError, match="within an hour"):
        loop()
    assert len(site.audit.recent(1000)) <= 40


def test_two_users_may_call_theirs_the_same_and_each_lists_and_revokes_the_own(site):
    lee = Viewer("lee", is_admin=False, is_proved=True)
    kims = create_token(site, KIM, OwnToken(name="notebook")).token
    lees = create_token(site, lee, OwnToken(name="notebook")).token
    assert [line.name for line in own_tokens(site, KIM).tokens] == ["notebook"]
    assert revoke_own_token(site, KIM, "notebook").revoked == "notebook"
    assert site.tokens.find(kims) is None and site.tokens.find(lees).user == "lee"
    with pytest.raises(NotThereError):
        revoke_own_token(site, KIM, "notebook")
    assert own_tokens(site, KIM).tokens == []


def test_a_site_can_do_without(tmp_path):
    with make_site(tmp_path / "none", serve={"own_tokens": 0}) as site, pytest.raises(AccessError, match="Ask an administrator"):
        create_token(site, KIM, OwnToken(name="a"))


def test_on_a_site_without_names_an_own_token_is_kept_under_the_pseudonym(tmp_path):
    with make_site(tmp_path / "hidden", serve={"admins": ["root"]}, store={"pseudonymise_users": True}) as site:
        user = site.user_in_tables("root")
        create_token(site, Viewer(user, is_admin=True, is_proved=True), OwnToken(name="a", scopes=[MANAGE]))
        assert [token.user for token in site.tokens.all()] == [user] != ["root"]
