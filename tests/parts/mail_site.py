"""A site that sends mail about jobs to a real SMTP server, and calls of Slurm's MailProg, made by the real program."""

from __future__ import annotations

import io
import os
import subprocess
from datetime import datetime
from pathlib import Path

from stormpetrel.answers.mail.sending import UserMail
from stormpetrel.store.site import Site
from stormpetrel.watch.logs import Log
from tests.builders import make_site
from tests.parts.inbox import Inbox

PROGRAM = Path(__file__).parents[2] / "integrations/slurm/stormpetrel-mail"


def mail_settings(folder: Path, inbox: Inbox, **mail: object) -> dict[str, dict[str, object]]:
    """The sections of site.toml; the spool lies beside the site."""
    route = {
        "name": "post", "kind": "email", "host": "127.0.0.1", "port": inbox.port, "tls": "none", "sender": "petrel@example.org",
        "recipients": ["admins@example.org"], "timeout_s": 5.0,
    }  # fmt: skip
    spool = folder / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    return {
        "notify": {"routes": [route], "public_url": "https://petrel.example.org"},
        "mail": {"spool": str(spool), "route": "post", "domain": "example.org", "settle_s": 0.0, **mail},
    }


def mail_site(folder: Path, inbox: Inbox, **mail: object) -> Site:
    """A new site below a folder."""
    return make_site(folder / "site", **mail_settings(folder, inbox, **mail))


def call(folder: Path, subject: str, recipient: str = "ada", **facts: str) -> subprocess.CompletedProcess[str]:
    """Call MailProg as slurmctld does; `facts` are variables without `SLURM_`."""
    program = install(folder)
    environment = {"PATH": os.environ["PATH"], **{f"SLURM_{name}": value for name, value in facts.items()}}
    return subprocess.run([program, "-s", subject, recipient], env=environment, capture_output=True, text=True, timeout=30)


def install(folder: Path) -> Path:
    """Put the program where its settings lie beside it; its path."""
    program = folder / "stormpetrel-mail"
    if not program.exists():
        program.write_bytes(PROGRAM.read_bytes())
        program.chmod(0o755)
        Path(f"{program}.conf").write_text(f"spool = {folder / 'spool'}\nfallback =\n")
    return program


def ended(folder: Path, job: int, *, recipient: str = "ada", state: str = "FAILED", name: str = "fit", **facts: str) -> None:
    """Slurm says that a job of ada has ended."""
    word = "Ended" if state == "COMPLETED" else "Failed"
    subject = f"Slurm Job_id={job} Name={name} {word}, Run time 00:10:00, {state}, ExitCode 1"
    known = {"JOB_ID": str(job), "JOB_USER": "ada", "JOB_NAME": name, "JOB_STATE": state, "JOB_MAIL_TYPE": word}
    assert call(folder, subject, recipient, **{**known, **facts}).returncode == 0


class AtTime(UserMail):
    """Mail of a site at times that a test says."""

    def at(self, moment: datetime) -> None:
        """Make one step at this time."""
        self._site.now = lambda: moment  # type: ignore[method-assign]
        self.step()


def mailer(site: Site) -> AtTime:
    """What sends the mail of a site."""
    return AtTime(site, Log(io.StringIO(), as_json=True), every_s=1.0)
