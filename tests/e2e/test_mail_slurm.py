"""The real slurmctld calls our MailProg, a real `stormpetrel watch` reads accounting, and a real SMTP server gets the mail."""

from __future__ import annotations

import getpass
import signal
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.builders import make_site
from tests.parts import wait_until
from tests.parts.command_line import start
from tests.parts.inbox import Inbox
from tests.parts.mail_site import install, mail_settings
from tests.parts.slurm import RealSlurm

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mail")


@pytest.fixture(scope="module")
def slurm(folder: Path) -> Iterator[RealSlurm]:
    (folder / "spool").mkdir()
    with RealSlurm(nodes=2, settings={"MailProg": str(install(folder))}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def inbox(folder: Path, slurm: RealSlurm) -> Iterator[Inbox]:
    """Where the mail of a watched site arrives."""
    since = f"{datetime.now() - timedelta(hours=1):%Y-%m-%dT%H:%M:%S}"
    with Inbox() as inbox:
        section = {"since": since, "pause_s": 0.0, "timeout_s": 60.0}
        watch = {"poll_s": 0.5, "address": "", "retrain_hours": 0.0}
        make_site(folder / "site", slurm=section, watch=watch, **mail_settings(folder, inbox, settle_s=20.0)).close()
        process = start(folder / "site", "watch", "--json", env=slurm.env)
        try:
            yield inbox
        finally:
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
        assert "Traceback" not in log
        assert '"warning"' not in log, log  # no step failed, nothing was refused


def arrived(inbox: Inbox, words: str) -> list[str]:
    return [str(mail["Subject"]) for mail in inbox.mails if words in str(mail["Subject"])]


def test_the_end_of_a_failed_job_is_explained(slurm: RealSlurm, inbox: Inbox) -> None:
    job = slurm.submit(
        "--job-name=breaks", "--time=10", "--mail-type=END,FAIL", "--mail-user=ada@example.org", "--wrap=sleep 2; exit 3"
    )
    wait_until(lambda: arrived(inbox, f"{job} breaks"), f"the mail arrives; there are {inbox.mails}", limit_s=120)
    assert arrived(inbox, f"{job} ") == [f"{job} breaks: FAILED"]
    text = inbox.mails[-1].get_content()
    assert f"Job {job} (breaks): FAILED; exit code 3" in text
    assert "Time" in text and "of the limit" in text


def test_an_array_of_twenty_with_a_mail_per_task_is_one_mail(slurm: RealSlurm, inbox: Inbox, folder: Path) -> None:
    before = len(inbox.mails)
    options = ("--job-name=many", "--time=10", "--array=1-20", "--mail-type=END,FAIL,ARRAY_TASKS")
    wrap = "--wrap=[ $SLURM_ARRAY_TASK_ID -gt 2 ]"
    job = slurm.submit(*options, wrap)  # without --mail-user: to who submits it
    wait_until(lambda: len(inbox.mails) > before, "the mail arrives", limit_s=180)
    wait_until(lambda: not list((folder / "spool").iterdir()), "all calls are taken in", limit_s=30)
    assert arrived(inbox, str(job)) == [f"Array {job} many: 18 COMPLETED, 2 FAILED"]
    assert inbox.recipients[-1] == [f"{getpass.getuser()}@example.org"]
    assert "Failed tasks: 1, 2." in inbox.mails[-1].get_content()


def test_a_begin_is_passed_on_and_a_hostile_name_does_nothing(slurm: RealSlurm, inbox: Inbox) -> None:
    name = "x\nBcc: eve@example.org $(id) Ended"
    job = slurm.submit(f"--job-name={name}", "--time=10", "--mail-type=BEGIN", "--mail-user=ada", "--wrap=true")
    wait_until(lambda: arrived(inbox, f"Job_id={job} "), "the mail arrives", limit_s=120)
    (mail,) = [mail for mail in inbox.mails if f"Job_id={job} " in str(mail["Subject"])]
    assert "Began" in mail["Subject"] and mail["Bcc"] is None
    assert ["eve@example.org"] not in inbox.recipients
