"""Grafana's annotations -> outages and maintenance.

GrafanaSection -> GrafanaOutages -> outages(start, end). A region has two times; a point has one, and is an outage that lasts only
while it is the newest. What was changed or deleted in Grafana is changed or deleted here when it is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any, Final

from stormpetrel.config import GrafanaSection
from stormpetrel.errors import SettingsError, SourceFormatError
from stormpetrel.records.outages import Outage, OutageKind
from stormpetrel.records.times import EARLIEST, LATEST
from stormpetrel.sources.http import Address, JsonServer
from stormpetrel.sources.outages.entries import FARTHEST, LONGEST

_LIMIT: Final = 1000  # annotations per request; Grafana's own limit would be 100
_SHORTEST_MS: Final = 1000  # a span that is not halved any more
_MOST: Final = 50_000
_OPEN_FOR: Final = timedelta(days=7)  # a point that nobody has closed in a week was a remark
_LONGEST_TEXT: Final = 500
_MOST_NOTED: Final = 5


@dataclass(frozen=True, slots=True)
class _Annotation:
    """What we need of an annotation: two times in milliseconds (the same for a point), what it is, and its words."""

    uid: str
    start_ms: int
    end_ms: int
    kind: OutageKind
    text: str


class GrafanaOutages:
    """The annotations of a Grafana that have one of the tags of site.toml; `notes` say what was left out, and why."""

    source = "grafana"

    def __init__(
        self,
        settings: GrafanaSection,
        *,
        now: datetime | None = None,
        pause: Callable[[float], None] = time.sleep,
        limit: int = _LIMIT,
    ) -> None:
        self._maintenance = {tag.casefold() for tag in settings.maintenance_tags}
        self._tags = list(dict.fromkeys([*settings.tags, *settings.maintenance_tags]))
        if not self._tags:
            hint = 'Set grafana.tags in site.toml, such as tags = ["outage"].'
            raise SettingsError("No tag says which of Grafana's annotations are outages.", hint=hint)
        self._address = Address("grafana", settings.url, settings.token_file, settings.ca_file, settings.timeout_s)
        self._now, self._pause, self._limit = now, pause, limit
        self.notes: list[str] = []

    def outages(self, start: datetime, end: datetime) -> list[Outage]:
        """The annotations that overlap a span, oldest first."""
        now = self._now or datetime.now(UTC)
        with JsonServer(self._address, pause=self._pause) as server:
            entries = self._entries(server, _millis(start), _millis(end))
        annotations = self._sensible(self._understood(entries), now)
        newest_ms = max((annotation.start_ms for annotation in annotations if annotation.start_ms <= _millis(now)), default=0)
        outages = [_outage(annotation, newest_ms, now) for annotation in annotations]
        return [
            annotation
            for annotation in outages
            if annotation.start <= end and (annotation.end is None or annotation.end >= start)
        ]

    def _entries(self, server: JsonServer, first_ms: int, last_ms: int) -> list[dict[str, Any]]:
        """All annotations of a span, each once: where the answer is as long as its limit, its two halves are asked for."""
        by_id: dict[str, dict[str, Any]] = {}
        spans = [(first_ms, last_ms)]
        while spans:
            first, last = spans.pop()
            entries = self._request(server, first, last)
            by_id |= {str(entry.get("id")): entry for entry in entries}
            if len(by_id) > _MOST or (len(entries) >= self._limit and last - first < _SHORTEST_MS):
                what = f"has more than {min(len(by_id), _MOST):,} annotations with these tags"
                raise server.failure(SourceFormatError, what, "Use a tag of its own for outages, or --since.")
            if len(entries) >= self._limit:
                middle = (first + last) // 2
                spans += [(first, middle), (middle, last)]
        return list(by_id.values())

    def _request(self, server: JsonServer, first_ms: int, last_ms: int) -> list[dict[str, Any]]:
        span = [("from", str(first_ms)), ("to", str(last_ms)), *(("tags", tag) for tag in self._tags)]
        more = [("matchAny", "true"), ("type", "annotation"), ("limit", str(self._limit))]
        answer = server.get("api/annotations", [*span, *more], not_found="has no annotations API")
        if not isinstance(answer, list) or not all(isinstance(entry, dict) and "id" in entry for entry in answer):
            raise server.failure(SourceFormatError, "answered in a form that no Grafana has", "Check grafana.url.")
        return answer

    def _understood(self, entries: Iterable[dict[str, Any]]) -> list[_Annotation]:
        """The annotations of ours that can be read; the two halves that Grafana 5 kept of a region as one."""
        wanted, bad = {tag.casefold() for tag in self._tags}, 0
        by_uid: dict[str, _Annotation] = {}
        for entry in entries:
            tags = entry.get("tags")
            tags = {tag.casefold() for tag in tags if isinstance(tag, str)} if isinstance(tags, list) else set()
            if not tags & wanted:
                continue
            try:
                annotation = _annotation(entry, OutageKind.MAINTENANCE if tags & self._maintenance else OutageKind.OUTAGE)
            except (KeyError, TypeError, ValueError, OverflowError):
                bad += 1
                continue
            other = by_uid.get(annotation.uid, annotation)
            first, last = min(annotation.start_ms, other.start_ms), max(annotation.end_ms, other.end_ms)
            by_uid[annotation.uid] = _Annotation(annotation.uid, first, last, annotation.kind, annotation.text or other.text)
        if bad:
            self.notes.append(f"{bad:,} annotations have no time that can be read, and were left out.")
        return sorted(by_uid.values(), key=lambda annotation: (annotation.start_ms, annotation.uid))

    def _sensible(self, annotations: list[_Annotation], now: datetime) -> list[_Annotation]:
        """The annotations that can be meant: not of months, not of next decade."""
        long_ms, latest = LONGEST // timedelta(milliseconds=1), _millis(now + FARTHEST)
        odd = [
            annotation
            for annotation in annotations
            if annotation.end_ms - annotation.start_ms > long_ms or annotation.start_ms > latest
        ]
        for annotation in odd[:_MOST_NOTED]:
            name = f"annotation {annotation.uid} ({_moment(annotation.start_ms):%Y-%m-%d %H:%M} UTC)"
            self.notes.append(f"{name} is longer than {LONGEST.days} days or more than a year away, and was left out.")
        if len(odd) > _MOST_NOTED:
            self.notes.append(f"{len(odd) - _MOST_NOTED:,} more annotations are as long or as far away.")
        left_out = set(odd)
        return [annotation for annotation in annotations if annotation not in left_out]


def _annotation(entry: dict[str, Any], kind: OutageKind) -> _Annotation:
    start_ms = _time_ms(entry["time"])
    end_ms = _time_ms(entry["timeEnd"]) if entry.get("timeEnd") else start_ms  # 0 or absent: a point
    region = entry.get("regionId")
    uid = f"region-{region}" if isinstance(region, int) and region > 0 else str(entry["id"])
    if len(uid) > 100 or not uid.isprintable():
        raise ValueError("an id is a number")
    return _Annotation(uid, min(start_ms, end_ms), max(start_ms, end_ms), kind, plain_text(entry.get("text")))


def _outage(annotation: _Annotation, newest_ms: int, now: datetime) -> Outage:
    """The annotation as an outage.

    A point says when something began and not when it ended. It lasts still if it is an outage, the newest annotation, and not a
    week old; else it has no length, and labels the one bucket that it lies in. A maintenance never lasts by itself: it would
    keep the alarm silent.
    """
    start, end = _moment(annotation.start_ms), _moment(annotation.end_ms)
    lasts = start == end and annotation.kind is OutageKind.OUTAGE and annotation.start_ms == newest_ms and now - start < _OPEN_FOR
    return Outage(start, None if lasts else end, annotation.kind, annotation.text, GrafanaOutages.source, annotation.uid)


class _Text(HTMLParser):
    """The text between the tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, _attrs: object) -> None:
        self._hidden += tag in ("script", "style")
        self.words.append(" ")

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in ("script", "style") and self._hidden > 0
        self.words.append(" ")

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.words.append(data)


def plain_text(text: object) -> str:
    """Words of an annotation without their HTML, on one line, at most 500 letters."""
    if not isinstance(text, str):
        return ""
    parser = _Text()
    parser.feed(text[: 20 * _LONGEST_TEXT])
    parser.close()
    plain = "".join(letter if letter.isprintable() else " " for letter in "".join(parser.words))
    return " ".join(plain.split())[:_LONGEST_TEXT]


def _time_ms(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or not _millis(EARLIEST) <= value <= _millis(LATEST):
        raise ValueError("no time")
    return int(value)


def _millis(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _moment(millis: int) -> datetime:
    return datetime.fromtimestamp(millis // 1000, UTC) + timedelta(milliseconds=millis % 1000)
