"""The outbox: what must be said becomes messages, and messages reach their receivers, at least once.

Site + now -> Outbox.step -> OutboxStep. Killed anywhere and started again it goes on: messages are rows of the state store, made
with the same keys however often. Each route has a thread while it sends, so that a slow receiver holds up nobody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from stormpetrel.alarms.acts import Silences, with_acts
from stormpetrel.alarms.notices import concerns, due_messages, is_over, make_delivery, trial_notice
from stormpetrel.records.incidents import Incident, Message, MessageKind, MessageState
from stormpetrel.records.routes import ALERTMANAGER, WEBHOOK, Route
from stormpetrel.store.site import Site
from stormpetrel.watch.incident_keeper import silences_of
from stormpetrel.watch.notify.receivers.alertmanager import AlertmanagerReceiver
from stormpetrel.watch.notify.receivers.email import EmailReceiver
from stormpetrel.watch.notify.receivers.heartbeat import Heartbeat
from stormpetrel.watch.notify.receivers.receiver import DeliveryError, Receiver
from stormpetrel.watch.notify.receivers.webhook import WebhookReceiver
from stormpetrel.watch.notify.route_sender import RouteSender

_RECENT: Final = timedelta(days=14)  # what is over for longer needs no word any more
_CLOSING_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class OutboxStep:
    """What one turn came to; `problems` says of each route that cannot send, why."""

    created: int = 0
    waiting: int = 0
    given_up: int = 0  # of all that is kept
    oldest_waiting: datetime | None = None
    problems: Mapping[str, str] = field(default_factory=dict)


class Outbox:
    """Sends the messages of one site; SettingsError at once where a route's settings cannot work.

    Parameters
    ----------
    silences
        What is muted or under maintenance at a moment; by default what the site's state says.
    patience_s
        How long a turn waits for receivers; one that takes longer goes on beside the loop.
    """

    def __init__(
        self,
        site: Site,
        *,
        silences: Callable[[datetime], Silences] | None = None,
        patience_s: float = 1.0,
        receivers: Mapping[str, Receiver] | None = None,
    ) -> None:
        self._site, self._patience_s = site, patience_s
        self._silences = silences or (lambda now: silences_of(site, now))
        self._routes = list(site.settings.notify.routes)
        site_id, prepared = short_site_id(site), receivers or {}
        self._senders = {
            route.name: RouteSender(site, route, prepared.get(route.name) or make_receiver(route), site_id)
            for route in self._routes
        }
        self._heartbeat = Heartbeat(site.settings.notify.heartbeat_url)

    def step(self, now: datetime) -> OutboxStep:
        """Make the messages that must exist, send what waits, and give a sign of life."""
        incidents = self._recent(now) if self._routes else []
        new = self._site.messages.insert(self._due(incidents, now))
        waiting = self._waiting_routes()
        for name, sender in self._senders.items():
            is_open = [incident for incident in incidents if not is_over(incident) and concerns(incident, sender.route)]
            sender.start(now, has_messages=name in waiting, is_open=is_open)
        give_up = time.monotonic() + self._patience_s
        for sender in self._senders.values():
            sender.wait(give_up - time.monotonic())
        self._heartbeat.beat()
        return self._step(len(new))

    def close(self) -> None:
        """Send nothing more; what is under way has some seconds to end."""
        give_up = time.monotonic() + _CLOSING_S
        for sender in self._senders.values():
            sender.close(give_up - time.monotonic())
        self._heartbeat.close(give_up - time.monotonic())

    def _recent(self, now: datetime) -> list[Incident]:
        incidents = self._site.incidents.list(resolved_after=now - _RECENT)
        acts = self._site.incidents.acts([incident.id for incident in incidents])
        return [with_acts(incident, acts[incident.id]) for incident in incidents]

    def _due(self, incidents: list[Incident], now: datetime) -> list[Message]:
        if not self._routes:
            return []
        known = self._site.messages.known([incident.id for incident in incidents])
        since = self._site.messages.routes_since([route.name for route in self._routes], now)
        due = due_messages(incidents, self._routes, self._silences(now), now, known=known, routes_since=since)
        return [message for message in due if message.key not in known]

    def _waiting_routes(self) -> set[str]:
        """The routes on which something waits; what waits on one that is gone is given up."""
        waiting = self._site.messages.waiting()
        for message in waiting:
            if message.route not in self._senders:
                self._site.messages.give_up([message.key], f"There is no route '{message.route}' in site.toml any more")
        return {message.route for message in waiting}

    def _step(self, created: int) -> OutboxStep:
        counts = self._site.messages.counts()
        problems = {name: sender.problem for name, sender in self._senders.items() if sender.problem}
        if self._heartbeat.problem:
            problems["heartbeat"] = self._heartbeat.problem
        return OutboxStep(created, counts.waiting, counts.given_up, counts.oldest_waiting, problems)


def make_receiver(route: Route) -> Receiver:
    """Return what takes the messages of a route; SettingsError where its settings cannot work."""
    if route.kind == ALERTMANAGER:
        return AlertmanagerReceiver(route)
    return WebhookReceiver(route) if route.kind == WEBHOOK else EmailReceiver(route)


def send_trial(site: Site, route: Route, now: datetime) -> Message:
    """Send a test message along a route, at once and once; return it with its fate, as it is kept."""
    key = f"test-{now:%Y%m%dT%H%M%S%f}-{route.name}"
    notice = trial_notice(key, now, public_url=site.settings.notify.public_url)
    name = site.settings.site.name
    delivery = make_delivery([notice], is_repeat=False, site_id=short_site_id(site), site=name, now=now)
    receiver = make_receiver(route)
    state, problem = MessageState.DELIVERED, ""
    try:
        problem = receiver.send(delivery)
    except DeliveryError as error:
        state, problem = MessageState.GIVEN_UP, str(error)
    finally:
        receiver.close()
    delivered = now if state == MessageState.DELIVERED else None
    message = Message(
        key, route.name, MessageKind.TEST, 0, 0, now, state=state, tries=1, delivered=delivered, problem=problem
    )  # fmt: skip
    site.messages.keep_trial(message)
    return message


def short_site_id(site: Site) -> str:
    """Return what tells the messages of this site from those of another one."""
    identity = site.state.identity()
    return identity.site_id[:8] if identity else "site"
