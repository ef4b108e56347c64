"""Deliveries for tests of receivers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from stormpetrel.alarms.notices import Delivery, Notice, make_delivery
from stormpetrel.records.incidents import MessageKind

NOW = datetime.now(UTC).replace(microsecond=0)


def notice(number: int = 53, kind: MessageKind = MessageKind.FIRING, **more: object) -> Notice:
    """A sick node, as it is told."""
    values = {
        "key": f"incident-{number}-0-{kind}-ops", "kind": kind, "incident": number, "severity": "page",
        "title": "n017 fails every job since 14:00: 46 of 46, others 2 %; suspected: node", "cluster": "c1",
        "finding": "node_eats_jobs", "blame": "node", "node": "n017", "starts_at": NOW - timedelta(hours=2),
        "ends_at": NOW if kind == MessageKind.RESOLVED else None, "evidence": ("node_eats_jobs: node n017; lost 46",),
        "link": f"https://petrel.example/alarms?incident={number}",
    } | more  # fmt: skip
    return Notice(**values)  # type: ignore[arg-type]


def delivery(*notices: Notice, is_repeat: bool = False, site: str = "my cluster") -> Delivery:
    """What is sent at once."""
    return make_delivery(notices or (notice(),), is_repeat=is_repeat, site_id="0a1b2c3d", site=site, now=NOW)
