"""The thread of the watch that sends mail to users: spool -> waiting mail -> one mail per job, array or flood -> SMTP.

Site -> UserMail.step -> seconds until the next. Killed anywhere it goes on: what waits is in the state store, an attempt is noted
before it is made, and what may have arrived is sent again under the same Message-ID, marked as a repeat.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from itertools import groupby
from typing import Final

import polars as pl

from stormpetrel.answers.mail.job_mail import array_values, job_values, rows_of, unknown_values
from stormpetrel.answers.mail.spool import take_spool
from stormpetrel.answers.mail.templates import MailTemplates, load_templates
from stormpetrel.answers.personal.choice import is_possible
from stormpetrel.answers.personal.digest import digest_values, queue_digests
from stormpetrel.errors import StormpetrelError
from stormpetrel.records.states import FINISHED
from stormpetrel.store.mails import MailKind, QueuedMail
from stormpetrel.store.site import Site
from stormpetrel.watch.logs import Log
from stormpetrel.watch.notify.receivers.email import EmailReceiver
from stormpetrel.watch.notify.receivers.receiver import REPEAT_HEADER, DeliveryError
from stormpetrel.watch.notify.route_sender import retry_pause_s

_HOUR: Final = timedelta(hours=1)
_MOST_AT_ONCE: Final = 50  # topics of a collecting mail that are told in full
_LONGEST_HEADER: Final = 998  # of a line, by RFC 5322
_ENDED: Final = sorted(state.value for state in FINISHED)


@dataclass(frozen=True, slots=True)
class Topic:
    """What is told together to one recipient, with the rows of its job or array; no rows where accounting has none yet."""

    mails: tuple[QueuedMail, ...]
    rows: pl.DataFrame | None = None

    @property
    def keys(self) -> list[str]:
        """The keys of the calls that it answers."""
        return [mail.key for mail in self.mails]


class UserMail:
    """Sends the mail of one site to its users; SettingsError at once where a template or the route cannot work."""

    name = "user-mail"

    def __init__(self, site: Site, log: Log, *, every_s: float) -> None:
        self._site, self._log, self._every_s = site, log, every_s
        self._settings = site.settings.mail
        self._templates: MailTemplates = load_templates(self._settings.templates)
        self._route = next(route for route in site.settings.notify.routes if route.name == self._settings.route)
        self._receiver = EmailReceiver(self._route)
        self._failures = 0
        self._pause_until: datetime | None = None  # the server is away
        self._reported = ""
        self._singly: set[str] = set()  # of a collecting mail that was refused

    def step(self) -> float:
        """Take in what is new, and send what is due; return the seconds until the next step."""
        now = self._site.now()
        try:
            if self._settings.spool:
                self._take(now)
            queue_digests(self._site, now)
            if self._pause_until is None or now >= self._pause_until:
                self._send(now)
        except (StormpetrelError, OSError) as error:
            self._tell(str(error))
        return self._every_s

    def _take(self, now: datetime) -> None:
        _, refused = take_spool(self._site, now)
        for problem in refused:
            self._log.warning("mail refused", what=problem)

    def _send(self, now: datetime) -> None:
        waiting = sorted(self._site.mails.waiting(), key=lambda mail: mail.recipient)
        for _, mails in groupby(waiting, key=lambda mail: mail.recipient):
            for topics in self._due(list(mails), now):
                if not self._deliver(topics, now):
                    return

    def _due(self, mails: Sequence[QueuedMail], now: datetime) -> list[list[Topic]]:
        """What one recipient is sent now, a list per mail: what may have arrived first, as it was; then as the rate allows."""
        begun = [mail for mail in mails if mail.message]
        if begun:
            groups: dict[str, list[QueuedMail]] = {}
            for mail in begun:
                groups.setdefault(mail.message, []).append(mail)
            return [self._topics(group, now) for group in groups.values() if not _must_wait(group, now)]
        ready = [topic for topic in self._topics(mails, now) if not _must_wait(topic.mails, now) and self._is_ready(topic, now)]
        due = [[topic] for topic in ready if topic.mails[0].kind != MailKind.END or topic.keys[0] in self._singly]
        ends = [topic for topic in ready if topic.mails[0].kind == MailKind.END and topic.keys[0] not in self._singly]
        left = self._settings.per_hour - self._site.mails.sent_since(mails[0].recipient, now - _HOUR) - len(due)
        fits, rest = ends[: max(0, left)], ends[max(0, left) :]
        due += [[topic] for topic in fits]
        oldest = min((topic.mails[0].created for topic in rest), default=now)
        if rest and now - oldest >= timedelta(minutes=self._settings.collect_minutes):
            due.append(rest)
        return due

    def _topics(self, mails: Sequence[QueuedMail], now: datetime) -> list[Topic]:
        groups: dict[str, list[QueuedMail]] = {}
        for mail in mails:
            groups.setdefault(mail.topic, []).append(mail)
        return [self._topic(tuple(group), now) for group in groups.values()]

    def _topic(self, mails: tuple[QueuedMail, ...], now: datetime) -> Topic:
        if mails[0].kind != MailKind.END:
            return Topic(mails)
        user = next((mail.user for mail in mails if mail.user), "")
        rows = rows_of(self._site, [mail.facts for mail in mails], user, now)
        return Topic(mails, None if rows.is_empty() else rows)

    def _is_ready(self, topic: Topic, now: datetime) -> bool:
        """Whether accounting has told all, or nobody waits for it any longer."""
        first, last = topic.mails[0], topic.mails[-1]
        if first.kind != MailKind.END:
            return True
        is_array = any(mail.facts.get("array") for mail in topic.mails)
        patience = timedelta(minutes=self._settings.array_minutes if is_array else self._settings.wait_minutes)
        if now - last.created >= patience:
            return True
        if topic.rows is None or not topic.rows["state"].is_in(_ENDED).all() or topic.rows["end_time"].is_null().any():
            return False
        # slurmdbd may show an end before the name and the limit: such a job is called "allocation"
        return now - last.created >= timedelta(seconds=self._settings.settle_s)

    def _deliver(self, topics: Sequence[Topic], now: datetime) -> bool:
        """Send one mail; whether others may be tried at once."""
        mails = [mail for topic in topics for mail in topic.mails]
        keys = [mail.key for mail in mails]
        message = mails[0].message or hashlib.sha256("|".join(sorted(keys)).encode()).hexdigest()[:40]
        is_repeat = any(mail.sending_since for mail in mails)
        mail = self._mail(self._text(topics, now), mails[0].recipient, message, now, is_repeat=is_repeat)
        self._site.mails.begin(keys, message, now)
        try:
            self._receiver.post(mail, [mails[0].recipient])
        except DeliveryError as error:
            return self._note_failure(mails, error, now, may_have_arrived=error.may_have_arrived or is_repeat)
        self._site.mails.delivered(keys, now)
        self._failures, self._pause_until = 0, None
        self._tell("")
        return True

    def _note_failure(self, mails: Sequence[QueuedMail], error: DeliveryError, now: datetime, *, may_have_arrived: bool) -> bool:
        keys = [mail.key for mail in mails]
        if error.is_final and len({mail.topic for mail in mails}) > 1:  # perhaps one of them is the reason
            self._singly.update(keys)
            self._site.mails.failed(keys, str(error), now, may_have_arrived=False)
            return True
        if error.is_final:
            self._site.mails.give_up(keys, str(error))
            self._log.warning("mail given up", what=str(error))
            return True
        self._failures += 1
        self._pause_until = now + timedelta(seconds=max(error.pause_s, retry_pause_s(self._failures)))
        not_before = now + timedelta(seconds=max(error.pause_s, retry_pause_s(mails[0].tries + 1)))
        self._site.mails.failed(keys, str(error), not_before, may_have_arrived=may_have_arrived)
        self._tell(str(error))
        return False

    def _text(self, topics: Sequence[Topic], now: datetime) -> tuple[str, str]:
        """Subject and text of a mail."""
        if len(topics) > 1:
            return self._several(topics, now)
        topic = topics[0]
        first = topic.mails[0]
        if first.kind == MailKind.DIGEST:
            return self._templates.fill("digest", digest_values(self._site, first.user, now))
        if first.kind == MailKind.PLAIN:
            return self._templates.fill("plain", {**first.facts, "site": self._site.settings.site.name})
        name, values = self._end_values(topic, now)
        return self._templates.fill(name, values)

    def _end_values(self, topic: Topic, now: datetime) -> tuple[str, dict[str, str]]:
        facts = topic.mails[-1].facts
        if topic.rows is None:
            return "job", unknown_values(self._site, facts)
        is_array = topic.rows["array_task"].is_not_null().any() or any(mail.facts.get("array") for mail in topic.mails)
        try:
            values = (array_values if is_array else job_values)(self._site, topic.rows, now)
        except Exception as error:  # whatever a hostile job does to the answer, its owner hears that it has ended
            self._log.warning("mail without an answer", job=facts.get("job", ""), what=type(error).__name__)
            return "job", unknown_values(self._site, facts)
        return "array" if is_array else "job", {**values, "subject": facts.get("subject", "")}

    def _several(self, topics: Sequence[Topic], now: datetime) -> tuple[str, str]:
        """All that has waited, a paragraph each; of very many the last are counted."""
        parts, states = [], []
        for topic in topics[:_MOST_AT_ONCE]:
            _, values = self._end_values(topic, now)
            states.append(values["state"])
            parts.append("\n".join(filter(None, [values["happened"], values.get("why", ""), values.get("next", "")])))
        if len(topics) > _MOST_AT_ONCE:
            parts.append(f"{len(topics) - _MOST_AT_ONCE} more: stormpetrel jobs list")
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        values = {"count": str(len(topics)), "state": counts, "jobs": "\n\n".join(parts), "site": self._site.settings.site.name}
        return self._templates.fill("several", values)

    def _mail(self, text: tuple[str, str], recipient: str, message: str, now: datetime, *, is_repeat: bool) -> EmailMessage:
        mail = EmailMessage()
        mail["Subject"] = f"{'(repeat) ' if is_repeat else ''}{text[0]}"
        mail["From"] = self._route.sender
        mail["To"] = recipient
        mail["Date"] = format_datetime(now)
        mail["Message-ID"] = f"<job-{message}@{self._route.sender.rpartition('@')[2]}>"
        mail["Auto-Submitted"] = "auto-generated"
        if is_repeat:
            mail[REPEAT_HEADER] = "true"
        mail.set_content(text[1], charset="utf-8", cte="quoted-printable")
        if text[0].isascii():  # other subjects are folded between encoded words; a plain one would begin with a blank
            mail.policy = SMTP.clone(max_line_length=_LONGEST_HEADER)
        return mail

    def _tell(self, problem: str) -> None:
        before, self._reported = self._reported, problem
        if problem and problem != before:
            self._log.warning("mail problem", what=problem)
        elif before and not problem:
            self._log.info("mail problem over", what=before)


def user_mail(site: Site, log: Log, *, every_s: float) -> list[UserMail]:
    """Return what sends mail to users beside a watch; nothing where the site does not want it."""
    settings = site.settings.mail
    return [UserMail(site, log, every_s=every_s)] if settings.spool or is_possible(site) else []


def _must_wait(mails: Sequence[QueuedMail], now: datetime) -> bool:
    return any(mail.not_before is not None and now < mail.not_before <= now + 2 * _HOUR for mail in mails)
