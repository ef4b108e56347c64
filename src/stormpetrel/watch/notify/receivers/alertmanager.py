"""Alertmanager: an incident is one alert, which fires while it is open and is resolved when it is over.

Delivery -> POST /api/v2/alerts. Alerts are grouped by the label `incident`. An alert that is open is told again every minute:
Alertmanager keeps none over its own restart.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from stormpetrel.alarms.notices import Delivery, Notice
from stormpetrel.records.incidents import MessageKind
from stormpetrel.records.routes import Route
from stormpetrel.watch.notify.receivers.receiver import ID_HEADER, REPEAT_HEADER, HttpPost

ALERT_NAME: Final = "StormpetrelIncident"
TRIAL_NAME: Final = "StormpetrelTest"
HOLDS: Final = timedelta(hours=1)  # how long an alert fires without being told again: a watch may be restarted meanwhile
_TRIAL_HOLDS: Final = timedelta(minutes=1)
_LONGEST_LABEL: Final = 200

Labels = dict[str, str]


class AlertmanagerReceiver:
    """Tells incidents to one Alertmanager. Its times are the machine's, whatever clock the site lives by."""

    refresh_every_s = 60.0

    def __init__(self, route: Route, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._http = HttpPost(route, "/api/v2/alerts")
        self._clock = clock
        self._sent: dict[int, Labels] = {}  # of each incident that fires

    def send(self, delivery: Delivery) -> str:
        """Tell alerts; the last word on each incident."""
        headers = {ID_HEADER: delivery.id, **({REPEAT_HEADER: "true"} if delivery.is_repeat else {})}
        self._post(delivery, headers)
        return ""

    def refresh(self, delivery: Delivery) -> None:
        """Tell again what fires."""
        self._post(delivery, {})

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _post(self, delivery: Delivery, headers: dict[str, str]) -> None:
        now, alerts = self._clock(), []
        for notice in delivery.latest:
            labels = labels_of(notice, delivery.site)
            before = self._sent.get(notice.incident, labels)
            if before != labels:  # another severity or suspect makes it another alert: the old one is over
                alerts.append(_alert(notice, before, now, is_over=True))
            alerts.append(_alert(notice, labels, now, is_over=notice.kind == MessageKind.RESOLVED))
        self._http.post(alerts, headers)
        for notice in delivery.latest:
            if notice.kind == MessageKind.RESOLVED:
                self._sent.pop(notice.incident, None)
            elif notice.kind == MessageKind.FIRING:
                self._sent[notice.incident] = labels_of(notice, delivery.site)


def labels_of(notice: Notice, site: str) -> Labels:
    """Return the labels of an incident; empty ones are left out, as Alertmanager would."""
    labels = {
        "alertname": TRIAL_NAME if notice.kind == MessageKind.TEST else ALERT_NAME,
        "incident": str(notice.incident) if notice.incident else "",
        "site": site,
        "cluster": notice.cluster,
        "severity": notice.severity,
        "kind": notice.finding,
        "blame": notice.blame if notice.incident else "",
        "node": notice.node,
    }
    return {name: value[:_LONGEST_LABEL] for name, value in labels.items() if value}


def _alert(notice: Notice, labels: Labels, now: datetime, *, is_over: bool) -> dict[str, Any]:
    starts = min(notice.starts_at, now)
    if is_over:
        ends = max(starts, min(notice.ends_at or now, now))
    else:
        ends = now + (_TRIAL_HOLDS if notice.kind == MessageKind.TEST else HOLDS)
    annotations = {"summary": notice.title, **({"evidence": "\n".join(notice.evidence)} if notice.evidence else {})}
    times = {"startsAt": starts.isoformat(), "endsAt": ends.isoformat()}
    link = {"generatorURL": notice.link} if notice.link else {}
    return {"labels": labels, "annotations": annotations, **times, **link}
