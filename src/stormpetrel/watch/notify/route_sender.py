"""Sending what waits on one route: in order, one attempt at a time, in a thread of its own.

waiting messages -> next_group -> Delivery -> Receiver -> delivered, to be tried again, or given up. An attempt is committed as
begun before it is made: what may have arrived is sent again as the same delivery, marked as a repeat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from stormpetrel.alarms.acts import with_acts
from stormpetrel.alarms.notices import Delivery, Notice, make_delivery, make_notice
from stormpetrel.errors import NotThereError, StormpetrelError
from stormpetrel.lifecycle.changes import explanation
from stormpetrel.records.incidents import Incident, Message, MessageKind, Severity, message_key
from stormpetrel.records.routes import Route
from stormpetrel.store.site import Site
from stormpetrel.watch.notify.receivers.receiver import DeliveryError, Receiver

_FIRST_PAUSE_S: Final = 5.0
_LONGEST_PAUSE_S: Final = 600.0
_LONGEST_WAIT: Final = timedelta(hours=2)  # a moment further ahead was noted by a clock that has been set back since
_HOUR: Final = timedelta(hours=1)
_MOST_AT_ONCE: Final = 200  # messages of one digest


def retry_pause_s(tries: int) -> float:
    """Return how long to wait after so many failed attempts: 5 s, doubled each time, at most ten minutes."""
    return float(min(_FIRST_PAUSE_S * 2 ** min(max(tries, 1) - 1, 20), _LONGEST_PAUSE_S))


class RouteSender:
    """Sends the messages of one route. `problem` is why nothing can be sent at the moment; empty where that is not so."""

    def __init__(self, site: Site, route: Route, receiver: Receiver, site_id: str) -> None:
        self._site, self.route, self._receiver, self._site_id = site, route, receiver, site_id
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._refreshed = float("-inf")
        self._singly: set[str] = set()  # of a digest that was refused
        self.problem = ""

    @property
    def is_sending(self) -> bool:
        """Whether an attempt is under way."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, now: datetime, *, has_messages: bool, is_open: Sequence[Incident]) -> None:
        """Begin to send what waits, unless that is under way."""
        refreshes = bool(is_open) and self._is_time_to_refresh()
        if self.is_sending or not (has_messages or refreshes):
            return
        self._thread = threading.Thread(target=self._run, args=(now, is_open), name=f"notify-{self.route.name}", daemon=True)
        self._thread.start()

    def wait(self, limit_s: float) -> None:
        """Wait until the attempts under way have ended, not for longer than this."""
        if self._thread is not None:
            self._thread.join(max(0.0, limit_s))

    def close(self, limit_s: float) -> None:
        """Send nothing more; an attempt that outlasts the limit is left to its fate, and repeated by the next watch."""
        self._stop.set()
        self.wait(limit_s)
        if not self.is_sending:
            self._receiver.close()

    def _run(self, now: datetime, is_open: Sequence[Incident]) -> None:
        begun = time.monotonic()

        def clock() -> datetime:
            return now + timedelta(seconds=time.monotonic() - begun)

        try:
            self.problem = ""
            while not self._stop.is_set() and self._send_next(clock):
                pass
            if not self.problem and self._is_time_to_refresh():
                self._refresh(is_open, now)
        except StormpetrelError as error:  # the store does not answer: the next turn tries again
            self.problem = str(error)

    def _send_next(self, clock: Callable[[], datetime]) -> bool:
        """Make the next attempt that is due; whether another one may be made at once."""
        group = self._next_group(clock())
        if not group:
            return False
        delivery = self._delivery(group, clock())
        if delivery is None:
            return True
        keys = [message.key for message in group]
        self._site.messages.begin(keys, clock())
        try:
            note = self._receiver.send(delivery)
        except DeliveryError as error:
            return self._note_failure(group, error, clock())
        except Exception as error:  # what nobody foresaw in one receiver must not end its thread without a word
            return self._note_failure(group, DeliveryError(f"unexpected {type(error).__name__}", may_have_arrived=True), clock())
        self._site.messages.delivered(keys, clock(), note)
        return True

    def _note_failure(self, group: Sequence[Message], error: DeliveryError, now: datetime) -> bool:
        keys = [message.key for message in group]
        if error.is_final and len(group) > 1:  # perhaps one of them is the reason
            self._singly.update(keys)
            self._site.messages.failed(keys, str(error), now, may_have_arrived=False)
            return True
        if error.is_final:
            self._site.messages.give_up(keys, str(error))
            return True
        self.problem = str(error)
        pause_s = max(error.pause_s, retry_pause_s(group[0].tries + 1))
        not_before = now + timedelta(seconds=pause_s)
        may_have_arrived = error.may_have_arrived or any(message.sending_since for message in group)
        self._site.messages.failed(keys, str(error), not_before, may_have_arrived=may_have_arrived)
        return False

    def _next_group(self, now: datetime) -> list[Message]:
        """The messages that are sent together next; none where all must wait.

        What may have arrived comes first, as it was. What has waited for `digest_minutes` takes all with it that waits; anything
        else goes by itself while the rate allows it.
        """
        waiting = self._site.messages.waiting(self.route.name)
        unfinished = [message for message in waiting if message.sending_since is not None]
        ready = unfinished or self._awake(waiting, now)
        if not ready or any(_must_wait(message, now) for message in ready):
            return []
        if unfinished:
            return ready
        if ready[0].key in self._singly:
            return ready[:1]
        if now - ready[0].created >= timedelta(minutes=self.route.digest_minutes):
            return [message for message in ready if message.key not in self._singly][:_MOST_AT_ONCE]
        sent = self._site.messages.deliveries(self.route.name, now - _HOUR)
        return [] if self.route.per_hour and sent >= self.route.per_hour else ready[:1]

    def _awake(self, waiting: Sequence[Message], now: datetime) -> list[Message]:
        """Those that need not wait for the end of the quiet hours."""
        local = now.astimezone(ZoneInfo(self._site.settings.site.time_zone))
        if not self.route.is_quiet(local):
            return list(waiting)
        if not self.route.quiet_pages:
            return []
        return [message for message in waiting if self._severity(message) == Severity.PAGE]

    def _severity(self, message: Message) -> Severity | None:
        incident = self._incident(message.incident)
        return incident.severity if incident else None

    def _incident(self, number: int) -> Incident | None:
        try:
            return with_acts(self._site.incidents.get(number), self._site.incidents.acts([number])[number])
        except NotThereError:
            return None

    def _delivery(self, group: Sequence[Message], now: datetime) -> Delivery | None:
        """What is sent; None where an incident is gone, whose messages are given up."""
        notices = []
        for message in group:
            incident = self._incident(message.incident)
            if incident is None:
                self._site.messages.give_up([message.key], f"There is no incident {message.incident} any more")
                return None
            notices.append(self._notice(message, incident))
        is_repeat = any(message.sending_since is not None for message in group)
        return self._built(notices, now, is_repeat=is_repeat)

    def _notice(self, message: Message, incident: Incident) -> Notice:
        settings = self._site.settings
        zone, url = settings.site.time_zone, settings.notify.public_url
        names = self.route.names
        change = explanation(self._site, incident) if names and message.kind == MessageKind.FIRING else ""
        return make_notice(message, incident, zone=zone, public_url=url, with_names=names, change=change)

    def _built(self, notices: Sequence[Notice], now: datetime, *, is_repeat: bool) -> Delivery:
        site = self._site.settings.site.name
        return make_delivery(notices, is_repeat=is_repeat, site_id=self._site_id, site=site, now=now)

    def _is_time_to_refresh(self) -> bool:
        every_s = self._receiver.refresh_every_s
        return every_s > 0 and time.monotonic() - self._refreshed >= every_s

    def _refresh(self, is_open: Sequence[Incident], now: datetime) -> None:
        """Say again what was told as firing and is still open."""
        self._refreshed = time.monotonic()
        opened = {_firing_key(incident, self.route): incident for incident in is_open}
        delivered = self._site.messages.delivered_among(list(opened))
        notices = [
            self._notice(Message(key, self.route.name, MessageKind.FIRING, incident.id, len(incident.reopened_at), now), incident)
            for key, incident in opened.items()
            if key in delivered
        ]
        try:
            if notices:
                self._receiver.refresh(self._built(notices, now, is_repeat=False))
        except DeliveryError as error:
            self.problem = str(error)


def _firing_key(incident: Incident, route: Route) -> str:
    return message_key(incident.id, len(incident.reopened_at), MessageKind.FIRING, route.name)


def _must_wait(message: Message, now: datetime) -> bool:
    return message.not_before is not None and now < message.not_before <= now + _LONGEST_WAIT
