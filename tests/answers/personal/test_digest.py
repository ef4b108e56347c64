"""The weekly digest: for who wants it, to a real SMTP server, once a week however often the sender is killed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from stormpetrel.answers.personal.choice import appointed_time, choose_digest, digest_choice, next_time
from stormpetrel.answers.personal.digest import queue_digests
from stormpetrel.answers.schemas.personal import DigestAct
from stormpetrel.answers.viewer import LOCAL, PREDICT, READ, Viewer
from stormpetrel.errors import AccessError, UsageError
from stormpetrel.records.jobs import job_frame
from stormpetrel.store.upkeep.upkeep import forget
from tests.answers.live_sites import put_jobs
from tests.answers.personal.sites import NOW, ended, people_site
from tests.parts.inbox import Inbox
from tests.parts.mail_site import mail_settings, mailer

ADA = Viewer("ada", is_admin=False)
WEEK = timedelta(weeks=1)
ON, OFF = DigestAct(wanted=True), DigestAct(wanted=False)


@pytest.fixture
def inbox():
    with Inbox() as inbox:
        yield inbox


@pytest.fixture
def site(tmp_path, inbox):
    with people_site(tmp_path / "site", **mail_settings(tmp_path, inbox)) as site:
        yield site


def due(site):
    return next_time(site, NOW)


def test_nobody_gets_what_nobody_has_asked_for(site, inbox):
    mailer(site).at(due(site))
    assert inbox.mails == [] and digest_choice(site, ADA).wanted is False


def test_who_wants_it_gets_a_week_in_one_mail(site, inbox):
    choice = choose_digest(site, ADA, ON)
    assert (choice.wanted, choice.address, choice.next) == (True, "ada@example.org", due(site))
    mailer(site).at(NOW)
    assert inbox.mails == []  # not before its time
    mailer(site).at(due(site))
    (mail,), text = inbox.mails, inbox.mails[0].get_content()
    assert inbox.recipients == [["ada@example.org"]] and mail["Subject"].startswith("Your week on ")
    assert "Hello ada" in text and "To stop it: stormpetrel digest off, or https://petrel.example.org/me" in text
    assert "bo" not in text.replace("about", "")


def test_the_mail_says_failures_people_alike_waste_and_what_to_change(site, inbox):
    choose_digest(site, ADA, ON)
    mailer(site).at(due(site))
    text = inbox.mails[0].get_content()
    assert "10 of your jobs ended, 4 of them failed (40 %)" in text and "10 % failed" in text
    assert "kWh (estimated)" in text
    assert "core hours" in text and "#SBATCH --mem=" in text


def test_it_comes_once_a_week_however_often_the_sender_is_killed_and_started(site, inbox):
    choose_digest(site, ADA, ON)
    for hours in range(0, 48, 6):
        mailer(site).at(due(site) + timedelta(hours=hours))
    assert len(inbox.mails) == 1
    put_jobs(site, job_frame([ended(9000, days_ago=-35.0)]), as_of=NOW + 6 * WEEK)
    for minutes in range(3):
        mailer(site).at(due(site) + 5 * WEEK + timedelta(minutes=minutes))  # four weeks were missed
    assert len(inbox.mails) == 2 and "1 of your jobs ended" in inbox.mails[1].get_content()


def test_after_a_week_without_jobs_none_comes(site, inbox):
    choose_digest(site, ADA, ON)
    mailer(site).at(due(site) + 3 * WEEK)
    assert inbox.mails == [] and site.mails.list() == []


def test_one_that_was_killed_while_it_queued_queues_it_once(site, monkeypatch):
    choose_digest(site, ADA, ON)
    with monkeypatch.context() as patched:
        patched.setattr("stormpetrel.store.digests.row_of", lambda _mail: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            queue_digests(site, due(site))
    assert [queue_digests(site, due(site)) for _ in range(3)] == [1, 0, 0]


def test_a_clock_that_goes_back_brings_no_second_one(site, inbox):
    choose_digest(site, ADA, ON)
    put_jobs(site, job_frame([ended(9000, days_ago=-7.0)]), as_of=NOW + 6 * WEEK)
    mailer(site).at(due(site) + WEEK)
    mailer(site).at(due(site))
    assert len(inbox.mails) == 1


def test_who_gives_it_up_gets_none_also_of_what_was_queued(site, inbox):
    choose_digest(site, ADA, ON)
    queue_digests(site, due(site))
    assert choose_digest(site, ADA, OFF).wanted is False
    mailer(site).at(due(site))
    assert inbox.mails == [] and site.mails.list() == []
    assert [entry.action for entry in site.audit.recent()] == ["digest ended", "digest wanted"]


def test_a_new_address_is_used_and_brings_no_second_mail(site, inbox):
    choose_digest(site, ADA, ON)
    mailer(site).at(due(site))
    choose_digest(site, ADA, DigestAct(wanted=True, address="ada.l@example.org"))
    mailer(site).at(due(site) + timedelta(hours=1))
    assert len(inbox.mails) == 1
    put_jobs(site, job_frame([ended(9000, days_ago=-7.0)]), as_of=NOW + 6 * WEEK)
    mailer(site).at(due(site) + WEEK)
    assert inbox.recipients[-1] == ["ada.l@example.org"]


@pytest.mark.parametrize(
    "address", ["ada@evil.example", "a@example.org\nBcc: x@example.org", "a@example.org,b@example.org", "|id", ""]
)
def test_it_goes_to_one_plain_address_of_the_sites_domains(tmp_path, inbox, address):
    with people_site(tmp_path / "site", **mail_settings(tmp_path, inbox, domains=["example.org"])) as site:
        if address:
            with pytest.raises(UsageError, match="does not go to such an address"):
                choose_digest(site, ADA, DigestAct(wanted=True, address=address))
        else:
            assert choose_digest(site, ADA, DigestAct(wanted=True, address="")).address == "ada@example.org"


def test_a_site_that_sends_no_mail_says_so(tmp_path):
    with people_site(tmp_path / "site") as site:
        assert digest_choice(site, ADA).possible is False and queue_digests(site, NOW) == 0
        with pytest.raises(UsageError, match="sends no digests"):
            choose_digest(site, ADA, ON)


def test_it_is_asked_for_with_the_scope_to_write_by_somebody(site):
    with pytest.raises(AccessError):
        choose_digest(site, Viewer("ada", False, frozenset({READ, PREDICT})), ON)
    with pytest.raises(UsageError, match="Nobody is logged in"):
        choose_digest(site, LOCAL, ON)


def test_the_site_may_change_its_words(tmp_path, inbox):
    (tmp_path / "t").mkdir()
    (tmp_path / "t/digest.txt").write_text("Subject: $user: $failed/$jobs\n\n$failures\n")
    with people_site(tmp_path / "site", **mail_settings(tmp_path, inbox, templates=str(tmp_path / "t"))) as site:
        choose_digest(site, ADA, ON)
        mailer(site).at(due(site))
    assert inbox.mails[0]["Subject"].startswith("ada: ")


def test_a_forgotten_user_gets_none(site, inbox):
    choose_digest(site, ADA, ON)
    forget(site, "ada")
    mailer(site).at(due(site))
    assert inbox.mails == [] and site.digests.of_user("ada") is None


def test_the_appointed_time_is_the_sites_own(tmp_path, inbox):
    with people_site(tmp_path / "site", site={"time_zone": "Europe/Berlin"}, **mail_settings(tmp_path, inbox)) as site:
        moment = appointed_time(site, NOW)
        assert (moment.weekday(), moment.hour, str(moment.tzinfo)) == (0, 7, "Europe/Berlin")
        assert moment <= NOW < next_time(site, NOW) and appointed_time(site, moment) == moment
        assert appointed_time(site, moment - timedelta(seconds=1)) == moment - WEEK
