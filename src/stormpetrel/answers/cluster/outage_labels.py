"""Labels: what was an outage, what maintenance, and what was none of it after all; by hand, from a file, or from Grafana.

Site + Viewer + NewLabel -> label_outage -> OutageLabel; outage_labels lists, remove_label removes, label_from_file and
label_from_grafana read what others have written down -> EventIngest.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from stormpetrel.answers.schemas.events import LabelQuestion, NewLabel, OutageLabel, OutageLabels
from stormpetrel.answers.site.ingest import event_receipt
from stormpetrel.answers.viewer import MANAGE, READ
from stormpetrel.errors import NotThereError, SettingsError, UsageError
from stormpetrel.ingest.events import ingest_outages
from stormpetrel.records.outages import BY_HAND, Outage, OutageKind
from stormpetrel.sources.outages.entries import check_span, end_of, moment_of
from stormpetrel.sources.outages.files import incident_file
from stormpetrel.sources.outages.grafana import GrafanaOutages

if TYPE_CHECKING:
    from stormpetrel.answers.schemas.ingest import EventIngest
    from stormpetrel.answers.viewer import Viewer
    from stormpetrel.store.site import Site


def outage_labels(site: Site, viewer: Viewer, question: LabelQuestion) -> OutageLabels:
    """All labels, the oldest first."""
    viewer.require(READ)
    return OutageLabels(outages=[_label(outage) for outage in site.outages.list(since=_since(site, question.since))])


def label_outage(site: Site, viewer: Viewer, label: NewLabel) -> OutageLabel:
    """Keep what somebody says about a time; said again with an end, it ends there."""
    viewer.require(MANAGE)
    zone, now, kind = site.settings.site.time_zone, site.now(), OutageKind(label.kind)
    # To the minute, so that it can be said again with an end.
    start = now.replace(second=0, microsecond=0) if label.start == "now" else moment_of(label.start, zone, what="START")
    if label.end is None and kind is OutageKind.NORMAL:
        raise UsageError("Normal until when?", hint="Give END: a span is normal once somebody has checked it.")
    try:
        end = now if label.end == "now" else end_of(label.end, start, zone, what="END") if label.end is not None else None
    except UsageError as error:
        raise UsageError(error.what, hint="A date and its time are one word: put them in quotes. Or say 3h, 90m, 2d.") from None
    check_span(start, end, kind, now=now)
    return _label(site.outages.add(Outage(start, end, kind, label.title, BY_HAND)))


def remove_label(site: Site, viewer: Viewer, uid: str) -> OutageLabel:
    """Remove the label of a uid; where two sources have the same, `SOURCE/UID` tells them apart."""
    viewer.require(MANAGE)
    matches = [outage for outage in site.outages.list() if uid in (outage.uid, f"{outage.source}/{outage.uid}")]
    if not matches:
        raise NotThereError(f"There is no label {uid[:200]!r}.", hint="List them: stormpetrel events label --list")
    if len(matches) > 1:
        names = [f"{outage.source}/{outage.uid}" for outage in matches[:5]]
        shown = ", ".join(name if name.isprintable() else repr(name) for name in names)
        raise UsageError(f"{len(matches)} labels have the UID {uid!r}.", hint=f"Say which: {shown}")
    return _label(site.outages.remove(matches[0].source, matches[0].uid))


def label_from_file(site: Site, viewer: Viewer, file: Path, *, kind: OutageKind | None, since: str | None) -> EventIngest:
    """Read a CSV, iCalendar or downtime file of incidents; `kind` is that of entries that do not say."""
    viewer.require(MANAGE)
    source = incident_file(file, zone=site.settings.site.time_zone, now=site.now(), kind=kind)
    first, last = source.span
    return event_receipt(ingest_outages(site, source, start=_since(site, since) or first, end=last))


def label_from_grafana(site: Site, viewer: Viewer, *, since: str | None) -> EventIngest:
    """Read the annotations of the Grafana that site.toml names."""
    viewer.require(MANAGE)
    if not site.settings.grafana.url:
        raise SettingsError("grafana.url is not set.", hint="Set grafana.url to https://host:3000 in site.toml.")
    source = GrafanaOutages(site.settings.grafana, now=site.now())
    return event_receipt(ingest_outages(site, source, start=_since(site, since)))


def _since(site: Site, text: str | None) -> datetime | None:
    return None if text is None else moment_of(text, site.settings.site.time_zone, what="--since")


def _label(outage: Outage) -> OutageLabel:
    return OutageLabel(
        source=outage.source, uid=outage.uid, kind=outage.kind.value, start=outage.start, end=outage.end, title=outage.title
    )
