"""E-mail: a delivery is one plain text to all recipients of a route.

Delivery -> EmailMessage (the stable id as its Message-ID, the one line as its subject) -> SMTP, encrypted unless told otherwise.
"""

from __future__ import annotations

import smtplib
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from pathlib import Path
from typing import Final

from stormpetrel.alarms.notices import Delivery, Notice
from stormpetrel.errors import SettingsError
from stormpetrel.records.incidents import MessageKind
from stormpetrel.records.routes import Route
from stormpetrel.sources.http import read_secret, shown
from stormpetrel.watch.notify.receivers.receiver import REPEAT_HEADER, DeliveryError

_LONGEST_SUBJECT: Final = 250
_LONGEST_HEADER: Final = 998  # of a line, by RFC 5322
_REFUSES_LOGIN: Final = frozenset({530, 534, 535, 538})  # no fault of the message: it is sent when the password is mended


class EmailReceiver:
    """Sends mail through one server."""

    refresh_every_s = 0.0

    def __init__(self, route: Route) -> None:
        self._route = route
        self._password = ""
        if route.secret_file:
            self._password = read_secret(Path(route.secret_file), hint=f"Set secret_file of route '{route.name}'.")
        try:
            self._tls = ssl.create_default_context(cafile=route.ca_file or None)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(
                f"The ca_file {route.ca_file} of route '{route.name}' cannot be read: {error}.",
                hint="It must be a PEM file of certificates.",
            ) from None
        self._name = f"The mail server {route.host}:{route.port}"

    def send(self, delivery: Delivery) -> str:
        """Send one mail; the note says how many recipients the server refused."""
        refused = self.post(mail_of(delivery, self._route), self._route.recipients)
        return f"{self._name} refused {len(refused)} of {len(self._route.recipients)} recipients" if refused else ""

    def post(self, mail: EmailMessage, recipients: Sequence[str]) -> list[str]:
        """Send a mail to these; return who of them was refused, DeliveryError where all were."""
        with self._errors():
            server = self._connected()
            try:
                refused = server.send_message(mail, self._route.sender, list(recipients))
            finally:
                with suppress(smtplib.SMTPException, OSError):
                    server.quit()
        return [*refused]

    def refresh(self, delivery: Delivery) -> None:
        """Nothing: who was told once knows."""

    def close(self) -> None:
        """Nothing is held open between two mails."""

    def _connected(self) -> smtplib.SMTP:
        route = self._route
        try:
            server: smtplib.SMTP
            if route.tls == "tls":
                server = smtplib.SMTP_SSL(route.host, route.port, timeout=route.timeout_s, context=self._tls)
            else:
                server = smtplib.SMTP(route.host, route.port, timeout=route.timeout_s)
        except ssl.SSLError as error:
            raise DeliveryError(f"{self._name} has a certificate that is not trusted ({error.reason})") from None
        except (OSError, smtplib.SMTPException) as error:
            raise DeliveryError(f"{self._name} cannot be reached ({_words(error)})") from None
        try:
            if route.tls == "starttls":
                server.starttls(context=self._tls)
            if route.user:
                server.login(route.user, self._password)
        except (OSError, smtplib.SMTPException) as error:
            server.close()
            raise DeliveryError(f"{self._name} did not let us in ({_words(error)})") from None
        return server

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What the server says, as a reason to give up or to try again."""
        try:
            yield
        except smtplib.SMTPRecipientsRefused as error:
            codes = [code for code, _ in error.recipients.values()]
            is_final = all(code >= 500 for code in codes)
            raise DeliveryError(f"{self._name} refused all recipients ({min(codes, default=0)})", is_final=is_final) from None
        except smtplib.SMTPResponseException as error:
            is_final = 500 <= error.smtp_code < 600 and error.smtp_code not in _REFUSES_LOGIN
            raise DeliveryError(f"{self._name} answered {_words(error)}", is_final=is_final) from None
        except (OSError, smtplib.SMTPServerDisconnected) as error:
            raise DeliveryError(f"{self._name} broke off ({_words(error)})", may_have_arrived=True) from None
        except smtplib.SMTPException as error:
            raise DeliveryError(f"{self._name} cannot take it ({_words(error)})", is_final=True) from None


def mail_of(delivery: Delivery, route: Route) -> EmailMessage:
    """Return a delivery as a mail."""
    mail = EmailMessage()
    domain = route.sender.rpartition("@")[2]
    repeat = "(repeat) " if delivery.is_repeat else ""
    mail["Subject"] = f"{repeat}{delivery.title}"[:_LONGEST_SUBJECT]
    mail["From"] = route.sender
    mail["To"] = ", ".join(route.recipients)
    mail["Date"] = format_datetime(delivery.made_at)
    mail["Message-ID"] = f"<{delivery.id}@{domain}>"
    if len(delivery.notices) == 1 and delivery.notices[0].kind == MessageKind.RESOLVED:
        mail["References"] = f"<{delivery.id.replace('-resolved-', '-firing-', 1)}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    if delivery.is_repeat:
        mail[REPEAT_HEADER] = "true"
    mail.set_content(_text(delivery), charset="utf-8", cte="quoted-printable")
    if str(mail["Subject"]).isascii():  # other subjects are folded between encoded words; a plain one would begin with a blank
        mail.policy = SMTP.clone(max_line_length=_LONGEST_HEADER)
    return mail


def _text(delivery: Delivery) -> str:
    parts = [_paragraph(notice) for notice in delivery.latest]
    head = [delivery.title, ""] if len(delivery.latest) > 1 else []
    repeat = ["This may have reached you before: it was being sent when the watch was stopped.", ""] if delivery.is_repeat else []
    return "\n".join([*repeat, *head, "\n\n".join(parts), "", f"Sent by Stormpetrel at {delivery.site}."]) + "\n"


def _paragraph(notice: Notice) -> str:
    about = f"incident {notice.incident}, {notice.severity}, cluster {notice.cluster}" if notice.incident else ""
    return "\n".join(filter(None, [notice.line, about, *(f"  {line}" for line in notice.evidence), notice.link]))


def _words(error: Exception) -> str:
    if isinstance(error, smtplib.SMTPResponseException):
        answer = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return shown(f"{error.smtp_code} {answer}")
    return shown(str(error)) or type(error).__name__
