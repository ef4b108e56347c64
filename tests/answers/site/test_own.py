"""What people keep: opinions on advice and saved views, their own and nobody else's."""

import pytest

from stormpetrel.answers.live_site import LiveSite
from stormpetrel.answers.schemas.own import OpinionAct, ViewAct
from stormpetrel.answers.site.own import delete_view, keep_opinion, save_view, views
from stormpetrel.answers.viewer import READ, WRITE, Viewer
from stormpetrel.errors import AccessError, NotThereError, UsageError
from stormpetrel.records.jobs import ref_text
from tests.answers.live_sites import put_jobs
from tests.builders import make_site
from tests.jobs.logs import make_log

LOG = make_log(30, 5)
ADA, BOB = (Viewer(user, is_admin=False) for user in LOG["user"].unique().sort().head(2))


@pytest.fixture
def live(tmp_path):
    with make_site(tmp_path / "site") as site:
        put_jobs(site, LOG)
        live = LiveSite(site)
        live.refresh()
        yield live


def opinion(user):
    ref = LOG.filter(user=user).select(ref_text())["ref"][0]
    return OpinionAct(job=ref, advice="Ask for 4 GB.", useful=True)


def test_an_opinion_is_kept_on_the_own_job_and_on_no_other(live):
    act = opinion(ADA.user)
    assert keep_opinion(live, ADA, act).model_dump() == act.model_dump()
    assert live.site.opinions.of(ADA.user, act.job) == {"Ask for 4 GB.": True}
    with pytest.raises(NotThereError):
        keep_opinion(live, BOB, act)


def test_who_may_write_but_not_read_keeps_an_opinion_on_the_own_job(live):
    assert keep_opinion(live, Viewer(ADA.user, is_admin=False, scopes=frozenset({WRITE})), opinion(ADA.user)).useful


def test_views_are_kept_listed_and_dropped_by_their_owner(live):
    saved = save_view(live, ADA, "failures", ViewAct(link="/jobs?user=ada"))
    assert views(live, ADA).views == [saved] and views(live, BOB).views == []
    with pytest.raises(NotThereError):
        delete_view(live, BOB, "failures")
    delete_view(live, ADA, "failures")
    assert views(live, ADA).views == []


def test_a_link_that_was_not_validated_leads_nowhere_else_either(live):
    with pytest.raises(UsageError):
        save_view(live, ADA, "away", ViewAct.model_construct(link="https://evil.example"))


def test_nothing_is_kept_without_the_scope_to_write(live):
    reader = Viewer(ADA.user, is_admin=False, scopes=frozenset({READ}))
    acts = (
        lambda: keep_opinion(live, reader, opinion(ADA.user)),
        lambda: save_view(live, reader, "x", ViewAct(link="/jobs")),
        lambda: delete_view(live, reader, "x"),
    )
    for act in acts:
        with pytest.raises(AccessError, match="write"):
            act()
