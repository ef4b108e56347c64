"""What is said before a user is forgotten, and how others hear of it."""

import pytest

from stormpetrel.ingest.jobs import ingest_jobs
from stormpetrel.sources.slurm.sacct_text import SacctText
from stormpetrel.store.upkeep.forgetting import ToBeForgotten, forgettings, to_be_forgotten
from stormpetrel.store.upkeep.upkeep import forget
from tests.builders import make_jobs, make_site, write_sacct


@pytest.fixture
def site(tmp_path):
    with make_site(tmp_path / "site") as opened:
        path = write_sacct(tmp_path / "a", make_jobs(20))
        path.write_text(path.read_text() + "1|user1\n")
        ingest_jobs(opened, SacctText(path))
        opened.tokens.add("grafana", user="user1", scopes=["read"])
        opened.tokens.add("other", user="user2", scopes=["read"])
        opened.views.save("user1", "mine", "/jobs")
        opened.opinions.add("user1", "1", "Ask for less.", useful=True)
        yield opened


def test_what_would_go_is_counted(site):
    found = to_be_forgotten(site, "user1")
    assert found == ToBeForgotten(jobs=4, predictions=0, refused=1, tokens=1, views=1, opinions=1)
    assert str(found) == "4 jobs, 1 refused record, 1 token, 1 saved view and 1 opinion"


def test_a_user_of_whom_there_is_nothing_is_told(site):
    assert not to_be_forgotten(site, "nobody") and str(to_be_forgotten(site, "nobody")) == "nothing"


def test_what_was_counted_is_gone_afterwards_and_others_hear_of_it(site):
    assert forgettings(site.state) == 0
    forget(site, "user1")
    assert not to_be_forgotten(site, "user1")
    forget(site, "user2", past_only=True)
    assert forgettings(site.state) == 2
