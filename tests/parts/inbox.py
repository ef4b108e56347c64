"""A real SMTP server on loopback that keeps the mail it takes: `with Inbox() as inbox: inbox.port, inbox.mails`."""

from __future__ import annotations

import email
import email.policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.controller import Controller

from tests.parts import free_ports


class Inbox:
    """The server, as a context manager; `refusal` is what it answers to a mail in place of taking it."""

    def __init__(self, **options: Any) -> None:
        self.mails: list[EmailMessage] = []
        self.recipients: list[list[str]] = []
        self.refusal = ""
        (self.port,) = free_ports(1)
        self._controller = Controller(self, hostname="127.0.0.1", port=self.port, **options)

    def __enter__(self) -> Inbox:
        self._controller.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._controller.stop()

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
        if self.refusal:
            return self.refusal
        self.recipients.append(list(envelope.rcpt_tos))
        self.mails.append(email.message_from_bytes(envelope.content, policy=email.policy.default))
        return "250 kept"
