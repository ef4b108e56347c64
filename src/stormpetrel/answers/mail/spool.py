"""The spool of Slurm's MailProg: each call is one file, taken into the state store and then deleted.

folder -> take_spool -> QueuedMails in the store. Killed anywhere, a file is taken once: its name is the key. Whatever a file says
is hostile: the recipient is a text that a user wrote, as is the name of the job.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from stormpetrel.alarms.notices import clean_line
from stormpetrel.config import MailSection
from stormpetrel.records.incidents import MessageState
from stormpetrel.records.routes import is_mailbox
from stormpetrel.store.mails import MailKind, QueuedMail
from stormpetrel.store.site import Site

_NAME: Final = re.compile(r"[0-9]{1,20}-[0-9]{1,10}-[0-9a-f]{1,32}\.json")
_SUBJECT: Final = re.compile(
    r"Slurm (?P<array>Array (?:Summary|Task) )?Job_id=(?P<id>\d{1,18})(?:_(?P<task>\d{1,10}|\*))?(?: \((?P<raw>\d{1,18})\))?"
    r" Name=(?P<name>.*) (?P<type>Began|Ended|Failed|Requeued|Staged Out|Invalid dependency|Reached (?:[0-9]+% of )?time limit)"
    r"(?P<rest>,.*)?",
    re.DOTALL,
)  # fmt: skip
_LOCAL_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+=-]{0,63}")  # no |, / or leading -: some servers run or write to such
_NUMBER: Final = re.compile(r"\d{1,18}")
_MOST_BYTES: Final = 64_000
_MOST_FILES: Final = 2_000  # of one turn
_MOST_RECIPIENTS: Final = 5
_ENDS: Final = frozenset({"ended", "failed"})


def take_spool(site: Site, now: datetime) -> tuple[int, list[str]]:
    """Take in what lies in the spool; how many calls were new, and of each file that was refused why."""
    folder, new, refused = Path(site.settings.mail.spool), 0, []
    for path in _files(folder):
        try:
            mails = list(queued_mails(_read(path), path.name, site, now))
        except ValueError as error:
            refused.append(f"{path.name}: {error}")
            mails = []
        new += site.mails.insert(mails)
        path.unlink(missing_ok=True)
    return new, refused


def queued_mails(record: Any, key: str, site: Site, now: datetime) -> Iterator[QueuedMail]:
    """Return what a call of MailProg asks for, one per recipient; ValueError where it cannot be read."""
    if not isinstance(record, dict) or not isinstance(record.get("facts"), dict):
        raise ValueError("it is not a record of stormpetrel-mail")
    subject, recipients = clean_line(str(record.get("subject", ""))), record.get("recipients")
    if not isinstance(recipients, list) or not recipients:
        raise ValueError("it names no recipient")
    facts = {str(name): clean_line(str(value)) for name, value in record["facts"].items()}
    known = {**_from_subject(subject), **_from_environment(facts), "subject": subject}
    kind = MailKind.END if known.get("type", "").lower() in _ENDS and known.get("job") else MailKind.PLAIN
    user = site.user_in_tables(known["user"]) if known.get("user") else ""
    topic = f"{known.get('cluster', '')}/{known.get('array') or known.get('job') or key}"[:200]
    wanted = [name for text in recipients for name in str(text).split(",") if name.strip()][:_MOST_RECIPIENTS]
    for number, text in enumerate(wanted):
        address = address_of(text, site.settings.mail)
        problem = "" if address else f"{clean_line(text)!r} is no address that mail may be sent to"
        yield QueuedMail(
            f"{key}-{number}", kind, address, user, topic if kind == MailKind.END else key, now, facts=known,
            state=MessageState.GIVEN_UP if problem else MessageState.WAITING, problem=problem,
        )  # fmt: skip


def address_of(text: str, settings: MailSection) -> str:
    """Return the address that a recipient stands for; empty where it is none, or not in a domain of `mail.domains`."""
    name = text.strip()
    address = name if "@" in name else f"{name}@{settings.domain}"
    if not is_mailbox(address) or not _LOCAL_PART.fullmatch(address.rpartition("@")[0]):
        return ""
    domain = address.rpartition("@")[2].lower()
    return address if not settings.domains or domain in settings.domains else ""


def _from_environment(facts: Mapping[str, str]) -> dict[str, str]:
    """What Slurm says in the environment (21.08 and newer)."""
    names = {
        "SLURM_CLUSTER_NAME": "cluster", "SLURM_JOB_USER": "user", "SLURM_JOB_NAME": "name", "SLURM_JOB_STATE": "state",
        "SLURM_JOB_MAIL_TYPE": "type",
    }  # fmt: skip
    known = {ours: facts[theirs] for theirs, ours in names.items() if facts.get(theirs)}
    for theirs, ours in (("SLURM_ARRAY_JOB_ID", "array"), ("SLURM_JOB_ID", "job"), ("SLURM_JOBID", "job")):
        if ours not in known and _NUMBER.fullmatch(facts.get(theirs, "")):
            known[ours] = facts[theirs]
    if known.get("array") == "0":  # a job that is no array
        del known["array"]
    return known


def _from_subject(subject: str) -> dict[str, str]:
    """What the subject says, which every version of Slurm writes."""
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        return {}
    known = {"job": match["raw"] or match["id"], "name": match["name"], "type": match["type"]}
    if match["array"] or match["task"]:
        known["array"] = match["id"]
    if match["task"] == "*":
        known["whole"] = "yes"
    return known


def _files(folder: Path) -> list[Path]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if _NAME.fullmatch(entry.name))
    except FileNotFoundError:
        return []
    return [folder / name for name in names[:_MOST_FILES]]


def _read(path: Path) -> Any:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("it is no plain file")
        data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError("it is too long")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
