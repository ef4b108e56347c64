"""Messages about incidents: what became of each, and test messages along the routes.

Site + Viewer + DeliveryQuestion -> deliveries -> DeliveryList; Site + Viewer + RouteTrial -> try_routes -> TrialReceipt. Both are
for administrators: a problem names receivers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.incident import DeliveryLine, DeliveryList, DeliveryQuestion, RouteTrial, TrialLine, TrialReceipt
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import SettingsError, UsageError
from stormpetrel.lifecycle.family import operator
from stormpetrel.records.incidents import MessageState
from stormpetrel.watch.notify.outbox import send_trial

if TYPE_CHECKING:
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.records.incidents import Message
    from stormpetrel.records.routes import Route
    from stormpetrel.store.site import Site


def deliveries(site: Site, viewer: Viewer, question: DeliveryQuestion | None = None) -> DeliveryList:
    """Return the messages of a site with their fate, the newest first; administrators only."""
    viewer.require(READ)
    viewer.require_admin()
    wanted = question or DeliveryQuestion()
    counts = site.messages.counts()
    return DeliveryList(
        deliveries=[delivery_line(message) for message in site.messages.list(incident=wanted.incident, limit=wanted.limit)],
        waiting=counts.waiting,
        given_up=counts.given_up,
        routes=[route.name for route in site.settings.notify.routes],
    )


def try_routes(site: Site, viewer: Viewer, act: RouteTrial | None = None) -> TrialReceipt:
    """Send a test message along one route, or along all, and return what became of each; it stands in the audit trail."""
    viewer.require(MANAGE)
    site.require_writable()
    routes = _routes(site, act.route if act else None)
    trials = [_trial(site, route) for route in routes]
    failed = sum(not trial.delivered for trial in trials)
    user = viewer.user or site.user_in_tables(operator())
    site.audit.record(user, "routes tried", {"routes": [route.name for route in routes], "failed": failed})
    return TrialReceipt(trials=trials, failed=failed)


def delivery_line(message: Message) -> DeliveryLine:
    """Return a message as programs get it."""
    return DeliveryLine(
        key=message.key,
        incident=message.incident,
        route=message.route,
        kind=message.kind.value,
        state=message.state.value,
        created=message.created,
        delivered=message.delivered,
        tries=message.tries,
        next_try=message.not_before,
        problem=message.problem,
    )


def _routes(site: Site, name: str | None) -> list[Route]:
    routes = site.settings.notify.routes
    chosen = [route for route in routes if name in (None, route.name)]
    if chosen:
        return chosen
    known = ", ".join(route.name for route in routes)
    if name is None or not known:
        raise UsageError("The site has no notification route.", hint="Write a [[notify.routes]] into site.toml.")
    raise UsageError(f"There is no route '{name}'.", hint=f"Known: {known}.")


def _trial(site: Site, route: Route) -> TrialLine:

    try:
        message = send_trial(site, route, datetime.now(UTC))
    except SettingsError as error:  # of one route: the others are tried
        return TrialLine(route=route.name, kind=route.kind, delivered=False, problem=str(error))
    is_delivered = message.state == MessageState.DELIVERED
    return TrialLine(route=route.name, kind=route.kind, delivered=is_delivered, problem=message.problem)
