import pytest

from stormpetrel.answers.alarms.replay import replay_alarms
from stormpetrel.answers.schemas.alarms import ReplayQuestion
from stormpetrel.answers.viewer import LOCAL, PREDICT, Viewer
from stormpetrel.errors import AccessError, UsageError
from tests.parts.replayed_site import SICK_FROM, SICK_NODE, START, replayed_site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    with replayed_site(tmp_path_factory.mktemp("answers") / "site") as opened:
        yield opened


@pytest.fixture(scope="module")
def everything(site):
    return replay_alarms(site, LOCAL)


def users_in(answer):
    return {subject.name for line in answer.incidents for subject in line.subjects if subject.kind == "user"}


def test_an_administrator_sees_every_incident(everything):
    (page,) = (line for line in everything.incidents if line.page and "node_eats_jobs" in line.kinds)
    assert page.subjects[0].model_dump() == {"kind": "node", "name": SICK_NODE} and page.title.startswith(f"{SICK_NODE} fails ")
    assert everything.pages_per_week > 0 and len(users_in(everything)) > 3


def test_a_user_sees_incidents_of_own_jobs_and_no_other_name(site, everything):
    others = users_in(everything)
    user = next(subject.name for line in everything.incidents if line.page for subject in line.subjects if subject.kind == "user")
    own = replay_alarms(site, Viewer(user, is_admin=False))
    assert 0 < len(own.incidents) < len(everything.incidents) and users_in(own) <= {user}
    text = own.model_dump_json()
    assert [name for name in others - {user} if name in text] == []
    assert any(line.page for line in own.incidents)


def test_who_has_no_jobs_sees_nothing(site):
    stranger = replay_alarms(site, Viewer("nobody", is_admin=False))
    assert stranger.incidents == [] and stranger.pages_per_week == 0.0


def test_who_may_not_read_is_refused(site):
    with pytest.raises(AccessError, match="needs the scope 'read'"):
        replay_alarms(site, Viewer("root", is_admin=True, scopes=frozenset([PREDICT])))


def test_an_end_before_the_beginning_is_refused(site):
    with pytest.raises(UsageError, match="not after its beginning"):
        replay_alarms(site, LOCAL, ReplayQuestion(since=SICK_FROM, until=START))
