import pytest

from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import make_site


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        yield opened


def state_files(site):
    site.state.empty_log()
    return b"".join(path.read_bytes() for path in site.folder.glob("state.db*"))


@pytest.mark.parametrize("name", ["mallory", "DOM\\mallory", "mällory", "mallory@lab.example"])
def test_a_forgotten_users_tokens_opinions_views_and_names_are_gone(site, name):
    hidden = site.privacy.pseudonym(name)
    for number, user in enumerate((name, hidden, "kim")):
        site.tokens.add(f"token {number}", user=user, scopes=["read"])
        site.opinions.add(user, "7-1-0-main", "ask for 8 GB", useful=True)
        site.views.save(user, "mine", "/jobs")
        site.audit.record(user, "logged in", {"token": f"of {user}"})
    kims = site.tokens.add(f"for {name}", user="kim", scopes=["read"])
    site.opinions.add("root", "7-1-0-main", f"tell {name} to ask for 8 GB", useful=True)
    site.audit.record("root", f"looked at {name}", {"list": [name], "path": f"/home/{name}/x"})
    site.views.save("root", "theirs", f"/jobs?user={name.replace(chr(92), '%5C').replace('@', '%40')}")
    assert name.encode() in state_files(site)
    forget(site, name)
    assert {token.user for token in site.tokens.all()} == {"kim"}
    assert site.tokens.find(kims), "somebody else's token goes on working"
    assert {opinion.user for opinion in site.opinions.recent()} == {"kim", "root"}
    assert site.views.list(name) == site.views.list(hidden) == site.views.list("root") == ()
    assert [view.name for view in site.views.list("kim")] == ["mine"]
    assert {entry.user for entry in site.audit.recent()} == {"kim", "root", "[forgotten]"}
    left = state_files(site)
    for trace in (name, hidden, name.replace("\\", "\\\\")):
        assert trace.encode() not in left


def test_a_name_that_is_part_of_another_is_left_alone(site):
    site.audit.record("kimberly", "logged in")
    site.tokens.add("kimberly", user="kimberly", scopes=["read"])
    forget(site, "kim")
    assert [entry.user for entry in site.audit.recent()] == ["kimberly"]
    assert [token.name for token in site.tokens.all()] == ["kimberly"]
