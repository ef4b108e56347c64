"""Webhook: a delivery is one POST of JSON, by default what Slack and Mattermost understand.

Delivery -> POST, with the stable id as Idempotency-Key, and X-Stormpetrel-Repeat where it may have arrived before.

The body of a webhook: JSON in which `{title}` and the like are filled into texts, and nowhere else.

template file -> load_template -> fill(values) -> JSON. What is filled in stays a text whatever is in it: nothing is evaluated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from stormpetrel.alarms.notices import Delivery
from stormpetrel.errors import SettingsError
from stormpetrel.records.incidents import MessageKind
from stormpetrel.records.routes import Route
from stormpetrel.watch.notify.receivers.receiver import ID_HEADER, REPEAT_HEADER, HttpPost

DEFAULT: Final[dict[str, Any]] = {"text": "{text}"}  # what Slack and Mattermost understand
_PLACE: Final = re.compile(r"\{([a-z_]+)\}")
_LONGEST_FILE: Final = 65_536
_ZERO_WIDTH: Final = "\u200b"
_CHAT: Final = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", f"@{_ZERO_WIDTH}"), ("](", f"]{_ZERO_WIDTH}("))
FIELDS: Final = (
    "text", "title", "kind", "severity", "incident", "count", "cluster", "site", "finding", "blame", "node", "since", "link",
    "lines", "evidence", "id", "repeat",
)  # fmt: skip


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


def load_template(path: str, *, route: str) -> Any:
    """Read and check a template; SettingsError says what is wrong with it. Without a path the default one."""
    if not path:
        return DEFAULT
    try:
        with Path(path).open("rb") as file:
            text = file.read(_LONGEST_FILE + 1)
        if len(text) > _LONGEST_FILE:
            raise ValueError(f"it is longer than {_LONGEST_FILE:,} bytes")
        template = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SettingsError(
            f"The template {path} of route '{route}' cannot be used: {error}.",
            hint='Expected JSON such as {"text": "{title}"}.',
        ) from None
    unknown = next((name for part in _texts(template) for name in _PLACE.findall(part) if name not in FIELDS), None)
    if unknown:
        raise SettingsError(
            f"The template {path} of route '{route}' has '{{{unknown}}}', which is not known.",
            hint=f"Known: {', '.join(FIELDS)}.",
        )
    return template


def fill(template: Any, values: Mapping[str, str]) -> Any:
    """Return a template with its texts filled in; what is filled in is not looked at again."""
    if isinstance(template, str):
        return _PLACE.sub(lambda place: values.get(place.group(1), place.group()), template)
    if isinstance(template, list):
        return [fill(part, values) for part in template]
    if isinstance(template, dict):
        return {key: fill(part, values) for key, part in template.items()}
    return template


def values_of(delivery: Delivery) -> dict[str, str]:
    """Return what can be filled in: of a digest the texts for all of it, and of the rest what its first incident has."""
    first = delivery.latest[0]
    is_digest = len(delivery.notices) > 1
    return {
        "text": chat_text(delivery),
        "title": delivery.title,
        "kind": "digest" if is_digest else first.kind.value,
        "severity": first.severity,
        "incident": str(first.incident),
        "count": str(len(delivery.latest)),
        "cluster": first.cluster,
        "site": delivery.site,
        "finding": first.finding,
        "blame": first.blame,
        "node": first.node,
        "since": first.starts_at.isoformat(timespec="seconds"),
        "link": first.link,
        "lines": "\n".join(delivery.lines),
        "evidence": "\n".join(first.evidence),
        "id": delivery.id,
        "repeat": "true" if delivery.is_repeat else "false",
    }


def chat_text(delivery: Delivery) -> str:
    """Return a message for a chat: names in it call nobody, and are no links."""
    repeat = "(repeat) " if delivery.is_repeat else ""
    if len(delivery.notices) == 1:
        notice = delivery.notices[0]
        mark = f"[{notice.severity}] " if notice.kind == MessageKind.FIRING else ""
        return "\n".join(filter(None, [f"{repeat}{mark}{_for_chat(notice.line)}", notice.link]))
    links = [notice.link for notice in delivery.latest]
    lines = [f"• {_for_chat(line)}" + (f" {link}" if link else "") for line, link in zip(delivery.lines, links, strict=False)]
    if len(delivery.lines) > len(delivery.latest):
        lines.append(delivery.lines[-1])
    return "\n".join([f"{repeat}{_for_chat(delivery.title)}", *lines])


def _for_chat(text: str) -> str:
    for before, after in _CHAT:
        text = text.replace(before, after)
    return text


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, list | dict):
        for part in template.values() if isinstance(template, dict) else template:
            yield from _texts(part)
