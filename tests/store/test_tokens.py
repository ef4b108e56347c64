import hashlib
from datetime import UTC, datetime, timedelta

import pytest

from stormpetrel.errors import NotThereError, UsageError
from stormpetrel.store.state import open_state
from stormpetrel.store.tokens import TokenStore, digest_of

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def state(tmp_path):
    opened = open_state(tmp_path, lock_folder=tmp_path)
    yield opened
    opened.close()


class Clock:
    now = T0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def tokens(state, clock):
    return TokenStore(state, clock=clock)


def test_a_token_is_found_with_its_user_and_scopes(tokens):
    text = tokens.add("grafana", user="kim", scopes=["read", "predict", "read"], days=30)
    found = tokens.find(text)
    assert (found.name, found.user, found.scopes) == ("grafana", "kim", {"read", "predict"})
    assert (found.created, found.expires) == (T0, T0 + timedelta(days=30))


def test_only_the_digest_of_a_token_is_kept(tokens, state, tmp_path):
    text = tokens.add("grafana", user="kim", scopes=["read"])
    assert text.startswith("sp_") and len(text) > 40
    state.empty_log()
    stored = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert text.encode() not in stored and text[3:].encode() not in stored
    assert hashlib.sha256(text.encode()).hexdigest().encode() in stored
    assert tokens.all()[0].digest == digest_of(text)


def test_two_tokens_are_never_alike(tokens):
    assert len({tokens.add(f"t{number}", user="kim", scopes=["read"]) for number in range(20)}) == 20


@pytest.mark.parametrize("wrong", ["", "sp_", "sp_x", "x" * 10_000, "sp_" + "ü" * 40, "sp_\x00"])
def test_what_is_no_token_is_nobodys(tokens, wrong):
    tokens.add("grafana", user="kim", scopes=["read"])
    assert tokens.find(wrong) is None


def test_a_digest_is_not_a_token(tokens):
    assert tokens.find(digest_of(tokens.add("grafana", user="kim", scopes=["read"]))) is None


def test_a_token_ends_with_its_time(tokens, clock):
    text = tokens.add("grafana", user="kim", scopes=["read"], days=1)
    clock.now += timedelta(days=1, seconds=-1)
    assert tokens.find(text)
    clock.now += timedelta(seconds=1)
    assert tokens.find(text) is None
    assert tokens.is_over(tokens.all()[0])


def test_a_revoked_token_is_nobodys_and_its_name_is_free(tokens):
    text = tokens.add("grafana", user="kim", scopes=["read"])
    tokens.revoke("grafana")
    assert tokens.find(text) is None and tokens.all() == []
    assert tokens.add("grafana", user="lee", scopes=["read"]) != text
    with pytest.raises(NotThereError, match="no token 'other'"):
        tokens.revoke("other")


def test_a_user_uses_a_name_once_and_another_may_use_it_too(tokens):
    tokens.add("grafana", user="kim", scopes=["read"])
    with pytest.raises(UsageError, match="already"):
        tokens.add("grafana", user="kim", scopes=["read"])
    lees = tokens.add("grafana", user="lee", scopes=["read"])
    with pytest.raises(UsageError, match="2 users have a token 'grafana'"):
        tokens.revoke("grafana")
    tokens.revoke("grafana", user="kim")
    assert [token.user for token in tokens.all()] == ["lee"] and tokens.find(lees)


@pytest.mark.parametrize(
    ("name", "user", "scopes", "days"),
    [
        ("", "kim", ["read"], 1), ("a\nb", "kim", ["read"], 1), ("x" * 129, "kim", ["read"], 1),
        ("a", "", ["read"], 1), ("a", "kim", [], 1), ("a", "kim", ["read"], 0),
    ],
)  # fmt: skip
def test_a_token_that_makes_no_sense_is_not_made(tokens, name, user, scopes, days):
    with pytest.raises(UsageError):
        tokens.add(name, user=user, scopes=scopes, days=days)
    assert tokens.all() == []
