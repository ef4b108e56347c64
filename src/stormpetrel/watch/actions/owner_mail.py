"""Mail to the owner of a job, for policies that notify by mail.

Site + Act -> mail_plan -> Plan of one step (`mail`, the address), or why not; + address -> send_to_owner -> CommandAnswer.
The scheduler has been asked before whether it is still the same job; caps, switch and audit trail are those of every other act.
"""

from __future__ import annotations

import hashlib
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from stormpetrel.alarms.notices import clean_line
from stormpetrel.errors import SettingsError
from stormpetrel.records.actions.acts import Act, is_user_name
from stormpetrel.records.jobs import JobRef
from stormpetrel.records.routes import Route, is_mailbox
from stormpetrel.sources.acting import Command, CommandAnswer, Plan
from stormpetrel.store.site import Site
from stormpetrel.watch.notify.receivers.email import EmailReceiver
from stormpetrel.watch.notify.receivers.receiver import DeliveryError

MAIL: Final = "mail"  # in place of a command's name
_PSEUDONYMS: Final = "The site keeps pseudonyms of users (store.pseudonymise_users): no address is known."


def is_by_mail(site: Site, act: Act) -> bool:
    """Whether the policy of an act notifies by mail."""
    policy = site.settings.actions.policy(act.policy)
    return policy is not None and policy.through == MAIL


def mail_plan(site: Site, act: Act) -> Plan:
    """Return the one step of a mail, or in a sentence why there is none."""
    problem = mail_problem(site)
    if problem:
        return Plan(refusal=problem)
    address = site.settings.actions.mail_address.replace("{user}", act.user)
    if not is_user_name(act.user) or not is_mailbox(address):
        return Plan(refusal=f"{clean_line(address)!r} is no address that mail can be sent to.")
    return Plan((Command((MAIL, address)),))


def mail_problem(site: Site) -> str:
    """Why no mail can be sent to owners at all; empty where it can."""
    return _PSEUDONYMS if site.settings.store.pseudonymise_users else ""


def needed_for_mail(site: Site) -> str:
    """What a policy that notifies by mail needs: no right at the scheduler."""
    return f"the mail server of route '{site.settings.actions.mail_route}'"


def send_to_owner(site: Site, act: Act, address: str) -> CommandAnswer:
    """Send the mail of an act; the code is None where it is not known whether it arrived."""
    route = _route(site)
    try:
        refused = EmailReceiver(route).post(owner_mail(site, act, route, address), [address])
    except DeliveryError as error:
        return CommandAnswer(None if error.may_have_arrived else 1, str(error))
    except SettingsError as error:
        return CommandAnswer(1, error.what)
    return CommandAnswer(1, "The mail server refused the address.") if refused else CommandAnswer(0, f"sent to {address}")


def owner_mail(site: Site, act: Act, route: Route, address: str) -> EmailMessage:
    """Return what the owner of a job is told: which job, how likely it fails, where it says why; no name of anybody else."""
    ref, settings = JobRef.parse(act.subject), site.settings
    risk = f"{100 * float(act.evidence.get('risk', 0.0)):.0f} %"
    when = act.decided.astimezone(ZoneInfo(settings.site.time_zone))
    mail = EmailMessage()
    mail["Subject"] = f"Your job {ref.job} is likely to fail (risk {risk})"
    mail["From"] = route.sender
    mail["To"] = address
    mail["Date"] = format_datetime(act.decided)
    name = hashlib.sha256(f"{site.folder.name}|{act.key}".encode()).hexdigest()[:32]
    mail["Message-ID"] = f"<act-{name}@{route.sender.rpartition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    url = settings.notify.public_url.rstrip("/")
    link = f"{url}/jobs?{urlencode({'view': 'all', 'job': act.subject})}" if url else ""
    lines = [
        f"Your job {ref.job} on {clean_line(ref.cluster)} is likely to fail: the risk was {risk} at {when:%Y-%m-%d %H:%M %Z}.",
        "Nothing was done to it. It may do well all the same.",
        "",
        f"Why, and what to change: stormpetrel why {ref.job}",
        *filter(None, [link]),
        "",
        f"Sent by Stormpetrel at {clean_line(settings.site.name)}, policy {act.policy}. Questions: your administrators.",
    ]
    mail.set_content("\n".join(lines) + "\n", charset="utf-8", cte="quoted-printable")
    return mail


def _route(site: Site) -> Route:
    name = site.settings.actions.mail_route
    return next(route for route in site.settings.notify.routes if route.name == name)  # settings are checked when they are read
