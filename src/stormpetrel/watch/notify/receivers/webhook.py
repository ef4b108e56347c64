"""Webhook: a delivery is one POST of JSON, by default what Slack and Mattermost understand.

Delivery -> POST, with the stable id as Idempotency-Key, and X-Stormpetrel-Repeat where it may have arrived before.
"""

from __future__ import annotations

from stormpetrel.alarms.notices import Delivery
from stormpetrel.records.routes import Route
from stormpetrel.watch.notify.receivers.http_post import HttpPost
from stormpetrel.watch.notify.receivers.receiver import ID_HEADER, REPEAT_HEADER
from stormpetrel.watch.notify.receivers.template import fill, load_template, values_of


class WebhookReceiver:
    """Posts to one address."""

    refresh_every_s = 0.0

    def __init__(self, route: Route) -> None:
        self._template = load_template(route.template, route=route.name)
        self._http = HttpPost(route)

    def send(self, delivery: Delivery) -> str:
        """Post one body."""
        headers = {ID_HEADER: delivery.id, **({REPEAT_HEADER: "true"} if delivery.is_repeat else {})}
        self._http.post(fill(self._template, values_of(delivery)), headers)
        return ""

    def refresh(self, delivery: Delivery) -> None:
        """Nothing: who was told once knows."""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
