"""Words of a ticket, a calendar or a table -> outage, maintenance, or neither is said."""

from __future__ import annotations

import re
from typing import Final

from stormpetrel.records.outages import OutageKind

_NOT_PLANNED: Final = re.compile(r"\b(?:un(?:planned|scheduled)|ungeplant)", re.IGNORECASE)  # before `planned` is looked for
_WORDS: Final = (
    (OutageKind.NORMAL, r"\b(?:normal|false[ _-]alarm|no[ _-]problem|fehlalarm)\b"),
    (OutageKind.MAINTENANCE, r"\b(?:maint|downtime|planned|scheduled|upgrad|patch|reboot|intervention|wartung|geplant)"),
    (OutageKind.OUTAGE, r"\b(?:outage|incident|fail|fault|crash|down\b|anomaly|degraded|disruption|ausfall|störung)"),
)
_PATTERNS: Final = tuple((kind, re.compile(pattern, re.IGNORECASE)) for kind, pattern in _WORDS)


def kind_in(text: str) -> OutageKind | None:
    """What a few words say a span of time is; None where they do not say.

    >>> kind_in("Scheduled maintenance of the storage"), kind_in("unplanned outage"), kind_in("team meeting")
    (<OutageKind.MAINTENANCE: 'maintenance'>, <OutageKind.OUTAGE: 'outage'>, None)
    """
    if _NOT_PLANNED.search(text):
        return OutageKind.OUTAGE
    return next((kind for kind, pattern in _PATTERNS if pattern.search(text)), None)
