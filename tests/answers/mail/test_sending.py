"""Mail about ended jobs: what it says, one per array, as many as an hour bears, once however often the sender is killed."""

import json
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from stormpetrel.answers.mail.sending import user_mail
from stormpetrel.config import settings_from
from stormpetrel.errors import SettingsError
from stormpetrel.records.incidents import MessageState
from stormpetrel.records.jobs import job_frame
from stormpetrel.store.mails import MailStore
from stormpetrel.store.upkeep.upkeep import forget
from tests.answers.live_sites import put_jobs
from tests.builders import T0, make_site
from tests.parts.inbox import Inbox
from tests.parts.mail_site import call, ended, mail_settings, mail_site, mailer

NOW = T0 + timedelta(days=1)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def inbox():
    with Inbox() as inbox:
        yield inbox


def row(job_id, *, state="COMPLETED", user="ada", task=None, **values):
    end = None if state == "RUNNING" else NOW - MINUTE
    return {
        "cluster": "cluster", "job_id": job_id, "array_task": task, "restart": 0, "submit_time": NOW - timedelta(hours=2),
        "job_id_raw": job_id + (task or 0), "job_name": "fit", "user": user, "start_time": NOW - timedelta(minutes=11),
        "end_time": end, "state": state, "elapsed_s": 600.0, "time_limit_s": 3600.0, "req_cpus": 4, "cpus": 4, "nodes": 1,
        "req_mem_bytes": 4 << 30, "max_rss_bytes": 1 << 29, "cpu_time_s": 1200.0, "exit_code": int(state == "FAILED"),
        "source": "sacct",
    } | values  # fmt: skip


def put(site, *rows, days=1):
    put_jobs(site, job_frame(list(rows)), as_of=NOW + timedelta(days=days))


def states(site):
    return [mail.state for mail in site.mails.list()]


def test_a_mail_says_what_happened_and_how_well_the_request_was_used(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        put(site, row(7, state="FAILED"))
        ended(tmp_path, 7)
        mailer(site).at(NOW)
        assert states(site) == [MessageState.DELIVERED]
    (mail,), text = inbox.mails, inbox.mails[0].get_content()
    assert (mail["Subject"], mail["To"], mail["From"]) == ("7 fit: FAILED", "ada@example.org", "petrel@example.org")
    assert inbox.recipients == [["ada@example.org"]]  # the administrators of the route get none
    assert "Job 7 (fit): FAILED; exit code 1" in text
    assert "CPU       50 %" in text and "Memory    12 %" in text and "Time      17 %" in text
    assert "https://petrel.example.org/jobs?view=all&job=7-" in text
    assert list((tmp_path / "spool").iterdir()) == []


def test_a_job_out_of_memory_is_told_what_to_ask_for_in_a_line_of_its_script(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        past = [row(100 + k, job_name="fit", max_rss_bytes=6 << 30, req_mem_bytes=8 << 30) for k in range(30)]
        put(site, *past, row(7, state="OUT_OF_MEMORY", max_rss_bytes=4 << 30))
        ended(tmp_path, 7, state="OUT_OF_MEMORY")
        mailer(site).at(NOW)
    text = inbox.mails[0].get_content()
    assert "Next time:" in text and "#SBATCH --mem=" in text
    assert "memory" in text.partition("Next time:")[0]  # why


def test_an_array_of_twenty_is_one_mail_after_its_last_task(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        post = mailer(site)
        put(
            site,
            *(row(50, task=k, state="FAILED" if k in (3, 4) else "COMPLETED") for k in range(19)),
            row(50, task=19, state="RUNNING"),
        )
        for task in range(20):
            ended(tmp_path, 50 + task, ARRAY_JOB_ID="50", ARRAY_TASK_ID=str(task))
        post.at(NOW)
        assert inbox.mails == []  # one task runs
        put(site, row(50, task=19))
        post.at(NOW + MINUTE)
        post.at(NOW + 2 * MINUTE)
        assert states(site) == [MessageState.DELIVERED] * 20
    (mail,) = inbox.mails
    assert mail["Subject"] == "Array 50 fit: 18 COMPLETED, 2 FAILED"
    assert "Failed tasks: 3, 4." in mail.get_content()


def test_an_array_that_goes_on_is_summed_up_after_the_pause(tmp_path, inbox):
    with mail_site(tmp_path, inbox, array_minutes=30) as site:
        post = mailer(site)
        put(site, row(50, task=0), row(50, task=1, state="RUNNING"))
        ended(tmp_path, 50, ARRAY_JOB_ID="50")
        post.at(NOW)
        post.at(NOW + 29 * MINUTE)
        assert inbox.mails == []
        post.at(NOW + 30 * MINUTE)
    assert "1 of them had not ended" in inbox.mails[0].get_content()


def test_what_is_more_than_an_hour_bears_comes_in_one_collecting_mail(tmp_path, inbox):
    with mail_site(tmp_path, inbox, per_hour=3, collect_minutes=30) as site:
        post = mailer(site)
        put(site, *(row(k, state="FAILED") for k in range(1, 11)))
        for job in range(1, 11):
            ended(tmp_path, job)
        post.at(NOW)
        assert len(inbox.mails) == 3
        post.at(NOW + 29 * MINUTE)
        assert len(inbox.mails) == 3
        post.at(NOW + 30 * MINUTE)
        assert states(site) == [MessageState.DELIVERED] * 10
    assert len(inbox.mails) == 4
    assert inbox.mails[3]["Subject"] == "7 jobs have ended: 7 FAILED"
    assert inbox.mails[3].get_content().count("FAILED; exit code 1") == 7


def test_without_accounting_a_mail_waits_and_then_says_what_is_known(tmp_path, inbox):
    with mail_site(tmp_path, inbox, wait_minutes=5) as site:
        post = mailer(site)
        ended(tmp_path, 7)
        post.at(NOW)
        post.at(NOW + 4 * MINUTE)
        assert inbox.mails == []
        post.at(NOW + 5 * MINUTE)
    text = inbox.mails[0].get_content()
    assert "Slurm Job_id=7 Name=fit Failed, Run time 00:10:00" in text and "no record of it yet" in text


def test_a_job_of_the_same_id_of_somebody_else_is_never_told(tmp_path, inbox):
    with mail_site(tmp_path, inbox, wait_minutes=0) as site:
        put(site, row(7, state="FAILED", user="eve", job_name="secret"))
        ended(tmp_path, 7)
        mailer(site).at(NOW)
    assert "secret" not in inbox.mails[0].as_string()


def test_a_begin_is_passed_on_as_slurm_says_it(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        call(tmp_path, "Slurm Job_id=7 Name=fit Began, Queued time 00:01:00", JOB_ID="7", JOB_MAIL_TYPE="Began")
        mailer(site).at(NOW)
    assert inbox.mails[0]["Subject"] == "Slurm Job_id=7 Name=fit Began, Queued time 00:01:00"


def test_an_older_slurm_without_variables_is_understood_by_its_subject(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        put(site, row(7, state="FAILED"), *(row(50, task=k) for k in range(3)))
        call(tmp_path, "Slurm Job_id=7 Name=a Ended b Failed, Run time 00:10:00, FAILED, ExitCode 1")
        call(tmp_path, "Slurm Array Summary Job_id=50_* (52) Name=fit Ended, COMPLETED, ExitCode [0-0]")
        mailer(site).at(NOW)
    assert [mail["Subject"] for mail in inbox.mails] == ["7 fit: FAILED", "Array 50 fit: 3 COMPLETED"]


@pytest.mark.parametrize("name", ["x\nBcc: eve@example.org", "$why ${next} {0} %s", "a" * 5000, "\x1b[2J\u202e", "\udcff"])
def test_a_hostile_name_adds_no_header_and_fills_no_template(tmp_path, inbox, name):
    with mail_site(tmp_path, inbox, wait_minutes=0) as site:
        clean = name.encode("utf-8", "replace").decode()
        put(site, row(7, state="FAILED", job_name=clean))
        ended(tmp_path, 7, name=name)
        mailer(site).at(NOW)
        assert states(site) == [MessageState.DELIVERED]
    (mail,) = inbox.mails
    assert mail["Bcc"] is None and inbox.recipients == [["ada@example.org"]]
    assert "\x1b" not in mail.get_content() and len(mail["Subject"]) <= 210
    assert "Next time" not in mail["Subject"]


@pytest.mark.parametrize(
    "recipient", ["ada@evil.org", "a b", "ada\nBcc: x@example.org", "-oQ/tmp", "|sh", "", "a@b@c", "ada@example.org>"]
)
def test_an_address_that_is_none_or_elsewhere_gets_nothing(tmp_path, inbox, recipient):
    with mail_site(tmp_path, inbox, domains=["example.org"], wait_minutes=0) as site:
        ended(tmp_path, 7, recipient=recipient)
        mailer(site).at(NOW)
        assert MessageState.WAITING not in states(site)
    assert inbox.recipients == []


def test_a_server_that_is_away_is_tried_again_with_longer_pauses(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        post = mailer(site)
        put(site, row(7, state="FAILED"))
        ended(tmp_path, 7)
        inbox.refusal = "451 later"
        for second in range(0, 40, 5):
            post.at(NOW + timedelta(seconds=second))
        (mail,) = site.mails.waiting()
        assert mail.tries == 4 and "451" in mail.problem  # at 0, 5, 15 and 35 s
        inbox.refusal = ""
        post.at(NOW + 10 * MINUTE)
    assert len(inbox.mails) == 1 and inbox.mails[0]["X-Stormpetrel-Repeat"] is None


def test_what_is_refused_for_good_is_given_up_and_of_several_only_the_one(tmp_path, inbox):
    with mail_site(tmp_path, inbox, per_hour=1, collect_minutes=1) as site:
        post = mailer(site)
        put(site, *(row(k, state="FAILED") for k in range(1, 4)))
        for job in range(1, 4):
            ended(tmp_path, job)
        post.at(NOW)
        inbox.refusal = "554 no"
        post.at(NOW + 2 * MINUTE)  # the collecting mail
        assert [mail.state for mail in site.mails.waiting()] == [MessageState.WAITING] * 2
        inbox.refusal = ""
        post.at(NOW + 3 * MINUTE)
        assert states(site) == [MessageState.DELIVERED] * 3
        ended(tmp_path, 1)
        inbox.refusal = "554 no"
        post.at(NOW + 80 * MINUTE)
        assert states(site).count(MessageState.GIVEN_UP) == 1


def test_killed_after_the_server_took_it_the_same_mail_is_sent_again_as_a_repeat(tmp_path, inbox, monkeypatch):
    with mail_site(tmp_path, inbox) as site:
        put(site, row(7, state="FAILED"))
        ended(tmp_path, 7)
        with monkeypatch.context() as killed:
            killed.setattr(MailStore, "delivered", lambda *_: sys.exit(9))
            with pytest.raises(SystemExit):
                mailer(site).at(NOW)
        mailer(site).at(NOW + MINUTE)
        mailer(site).at(NOW + 2 * MINUTE)
    first, second = inbox.mails
    assert first["Message-ID"] == second["Message-ID"]
    assert (first["X-Stormpetrel-Repeat"], second["X-Stormpetrel-Repeat"]) == (None, "true")


def test_killed_between_keeping_a_call_and_deleting_its_file_it_is_told_once(tmp_path, inbox, monkeypatch):
    with mail_site(tmp_path, inbox) as site:
        put(site, row(7, state="FAILED"))
        ended(tmp_path, 7)
        with monkeypatch.context() as killed:
            killed.setattr(Path, "unlink", lambda *_, **__: sys.exit(9))
            with pytest.raises(SystemExit):
                mailer(site).at(NOW)
        assert len(list((tmp_path / "spool").iterdir())) == 1
        mailer(site).at(NOW)
        assert len(site.mails.list()) == 1
    assert len(inbox.mails) == 1


def test_files_of_a_spool_that_say_nothing_sensible_are_refused_and_gone(tmp_path, inbox):
    spool = tmp_path / "spool"
    with mail_site(tmp_path, inbox) as site:
        (spool / "1-1-aa.json").write_text("{")
        (spool / "1-1-ab.json").write_text("[" * 60_000)
        (spool / "1-1-ac.json").write_text(json.dumps({"facts": {}, "recipients": []}))
        (spool / "1-1-ad.json").write_text("x" * 70_000)
        (spool / "1-1-ae.json").symlink_to("/etc/passwd")
        (spool / ".1-1-af.json").write_text("half")
        mailer(site).at(NOW)
        assert site.mails.list() == []
    assert [path.name for path in spool.iterdir()] == [".1-1-af.json"]


def test_a_site_can_write_its_own_templates_with_known_names_only(tmp_path, inbox):
    folder = tmp_path / "templates"
    folder.mkdir()
    (folder / "job.txt").write_text("Subject: [hpc] $job\n\n$happened\nYours, $$HOME\n")
    with mail_site(tmp_path, inbox, templates=str(folder)) as site:
        put(site, row(7, state="FAILED"))
        ended(tmp_path, 7)
        mailer(site).at(NOW)
        assert inbox.mails[0]["Subject"] == "[hpc] 7"
        assert inbox.mails[0].get_content().splitlines()[-1] == "Yours, $HOME"
        for text, problem in (
            ("Subject: $os\n", r"\$os, which is not known"),
            ("Subject: 5 $\n", "begins no name"),
            ("Hello", "begin"),
        ):
            (folder / "job.txt").write_text(text)
            with pytest.raises(SettingsError, match=problem):
                mailer(site)


def test_mail_without_a_route_is_refused_and_without_a_spool_nothing_runs(tmp_path):
    with pytest.raises(SettingsError, match=r"mail\.route is empty"):
        settings_from({"mail": {"spool": "/var/spool/x"}})
    with pytest.raises(SettingsError, match="no route 'post'"):
        settings_from({"mail": {"route": "post"}})
    with make_site(tmp_path / "site") as site:
        assert user_mail(site, None, every_s=1.0) == []


def test_mail_of_a_forgotten_user_is_gone(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        ended(tmp_path, 7)
        mailer(site).at(NOW)
        assert len(site.mails.list()) == 1
        forget(site, "ada")
        assert site.mails.list() == []


def test_the_program_hands_on_to_plain_mail_where_it_cannot_write(tmp_path, inbox):
    mail_settings(tmp_path, inbox)
    done = call(tmp_path, "Slurm Job_id=1 Name=x Ended")
    assert (done.returncode, done.stderr) == (0, "")
    plain = tmp_path / "mail"
    plain.write_text(f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/sent\n')
    plain.chmod(0o755)
    (tmp_path / "stormpetrel-mail.conf").write_text(f"spool = {tmp_path}/nowhere\nfallback = {plain}\n")
    assert call(tmp_path, "Slurm Job_id=1; rm -rf / Name=x Ended").returncode == 0
    assert (tmp_path / "sent").read_text() == "-s|Slurm Job_id=1; rm -rf / Name=x Ended|ada|"


def test_each_call_is_a_file_of_its_own_that_others_cannot_read(tmp_path, inbox):
    mail_settings(tmp_path, inbox)
    for number in range(20):
        ended(tmp_path, number + 1)
    files = list((tmp_path / "spool").iterdir())
    assert len(files) == 20 and all(path.stat().st_mode & 0o007 == 0 for path in files)


def test_a_mail_waits_until_the_record_of_a_job_is_whole(tmp_path, inbox):
    with mail_site(tmp_path, inbox, settle_s=20) as site:
        post = mailer(site)
        put(site, row(7, state="FAILED", job_name="allocation", time_limit_s=None))  # as slurmdbd shows it for a moment
        ended(tmp_path, 7)
        post.at(NOW)
        assert inbox.mails == []
        put(site, row(7, state="FAILED"), days=2)
        post.at(NOW + timedelta(seconds=20))
    assert inbox.mails[0]["Subject"] == "7 fit: FAILED"


def test_that_too_little_is_known_is_no_advice_and_a_short_job_is_not_blamed_for_low_use(tmp_path, inbox):
    with mail_site(tmp_path, inbox) as site:
        put(site, row(7, elapsed_s=4.0, start_time=NOW - MINUTE - timedelta(seconds=4)))
        ended(tmp_path, 7, state="COMPLETED")
        mailer(site).at(NOW)
    text = inbox.mails[0].get_content()
    assert "Next time" not in text and "(low)" not in text and "Time" in text
