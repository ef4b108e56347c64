"""A policy that notifies by mail: the owner gets one, through the site's mail route, behind the same catch."""

from dataclasses import replace
from datetime import timedelta

import pytest

from stormpetrel.answers.actions.questions import actions_status, plan_policy
from stormpetrel.answers.viewer import LOCAL
from stormpetrel.config import settings_from
from stormpetrel.errors import SettingsError
from stormpetrel.records.actions.acts import ActState
from stormpetrel.records.actions.policies import Policy
from stormpetrel.store.site import Site
from tests.parts.acting_site import acting_site, flag, turn
from tests.parts.inbox import Inbox

NOTIFY = {"name": "tell", "action": "notify", "through": "mail", "moment": "2min", "tau": 0.9, "users": ["*"], "per_hour": 1}


@pytest.fixture
def inbox():
    with Inbox() as inbox:
        yield inbox


def mailing_site(folder, inbox, **sections):
    route = {
        "name": "post", "kind": "email", "host": "127.0.0.1", "port": inbox.port, "tls": "none", "sender": "petrel@example.org",
        "recipients": ["admins@example.org"], "timeout_s": 5.0,
    }  # fmt: skip
    actions = {"policies": [NOTIFY], "mail_route": "post", "mail_address": "{user}@users.example.org"}
    notify = {"routes": [route], "public_url": "https://petrel.example.org"}
    return acting_site(folder, **{"actions": actions, "notify": notify} | sections)


def arm(site: Site) -> None:
    policy = site.settings.actions.policies[0]
    arming = site.actions.list_policies([policy], site.now())[policy.name]
    site.actions.arm(replace(arming, armed=site.now(), by="root", without_dry_run=True))


def live_acts(site):
    return [act for act in site.actions.list(limit=10) if act.mode == "live"]


def test_the_owner_gets_one_mail_that_names_the_job_the_risk_and_where_it_says_why(tmp_path, inbox):
    with mailing_site(tmp_path, inbox) as (site, slurm):
        arm(site)
        flag(site)
        for _ in range(3):
            turn(site)
        (act,) = live_acts(site)
        link = f"https://petrel.example.org/jobs?view=all&job={act.subject}"
        assert (act.state, act.steps[0].words) == (ActState.DONE, ("mail", "ada@users.example.org"))
        assert inbox.recipients == [["ada@users.example.org"]]  # the administrators of the route get none
        assert slurm.calls() == []  # the scheduler is asked about the job, and not acted on
        assert site.audit.recent()[0].action == "action notify"
    (mail,) = inbox.mails
    text = mail.get_content()
    assert mail["Subject"] == "Your job 7 is likely to fail (risk 95 %)" and mail["To"] == "ada@users.example.org"
    assert "stormpetrel why 7" in text and link in text


def test_dry_it_sends_nothing_and_its_test_shows_the_address(tmp_path, inbox):
    with mailing_site(tmp_path, inbox) as (site, _):
        flag(site)
        turn(site)
        (case,) = plan_policy(site, LOCAL, "tell").cases
        assert case.commands == [["mail", "ada@users.example.org"]] and not inbox.mails
        (policy,) = actions_status(site, LOCAL, rights=True).policies
        assert policy.needs == "the mail server of route 'post'" and policy.missing_right == ""
        assert [act.state for act in site.actions.list(limit=10)] == [ActState.DRY]


def test_a_job_that_has_ended_meanwhile_is_not_written_about(tmp_path, inbox):
    with mailing_site(tmp_path, inbox) as (site, slurm):
        arm(site)
        flag(site)
        slurm.lists("COMPLETED", site.now() - timedelta(minutes=3))
        turn(site)
        assert [act.state for act in live_acts(site)] == [ActState.REFUSED] and not inbox.mails


def test_the_switch_stops_mail_as_well(tmp_path, inbox):
    with mailing_site(tmp_path, inbox) as (site, _):
        arm(site)
        flag(site)
        site.actions.turn(on=False, by="root", why="test", now=site.now())
        turn(site)
        assert not live_acts(site) and not inbox.mails


def test_a_mail_that_the_server_refuses_is_kept_as_failed_with_its_words(tmp_path, inbox):
    inbox.refusal = "550 no such user here"
    with mailing_site(tmp_path, inbox) as (site, _):
        arm(site)
        flag(site)
        turn(site)
        (act,) = live_acts(site)
        assert act.state == ActState.FAILED and "550 no such user here" in act.why


def test_a_site_that_keeps_pseudonyms_knows_no_address_and_says_so(tmp_path, inbox):
    with mailing_site(tmp_path, inbox, store={"pseudonymise_users": True}) as (site, _):
        (policy,) = actions_status(site, LOCAL, rights=True).policies
        assert "keeps pseudonyms" in policy.missing_right
        arm(site)
        flag(site)
        turn(site)
        assert not inbox.mails and [act.state for act in live_acts(site)] == [ActState.REFUSED]


@pytest.mark.parametrize(
    ("actions", "problem"),
    [
        ({"policies": [NOTIFY]}, "expected actions.mail_route and actions.mail_address"),
        ({"policies": [NOTIFY], "mail_route": "post", "mail_address": "{user}@example.org"}, "no route 'post' of kind email"),
        ({"mail_address": "someone@example.org"}, "{user} stands for the name"),
        ({"mail_address": "{user}@example.org\nBcc: all@example.org"}, "{user} stands for the name"),
        ({"policies": [NOTIFY | {"action": "cancel"}]}, "expected no through = mail"),
    ],
)
def test_settings_that_cannot_work_are_refused(actions, problem):
    with pytest.raises(SettingsError) as refused:
        settings_from({"actions": actions})
    assert problem in str(refused.value)


def test_a_policy_of_before_keeps_its_digest_and_so_stays_armed():
    plain = Policy(name="tell", action="notify", users=["*"])
    assert plain.digest == "4391072456a704eb"  # as the release before worked it out
    assert plain.digest != Policy(name="tell", action="notify", users=["*"], through="mail").digest
