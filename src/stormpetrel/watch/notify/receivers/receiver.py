"""One contract for all who take messages: a delivery is taken, or DeliveryError says why not and whether to try again.

Posting JSON to an address of a route: once per call, through the same HTTP as the sources.

Route -> HttpPost -> post(body), or DeliveryError. An address may itself be a secret: messages show its host only.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final, Protocol

from stormpetrel.alarms.notices import Delivery
from stormpetrel.errors import SettingsError
from stormpetrel.records.routes import Route, check_address, shown_address
from stormpetrel.sources.http import (
    BusyError,
    HttpClient,
    Reply,
    TooLongError,
    UntrustedError,
    error_text,
    read_secret,
    read_token,
)

REPEAT_HEADER: Final = "X-Stormpetrel-Repeat"
ID_HEADER: Final = "Idempotency-Key"
_MOST_READ: Final = 16_384  # bytes of an answer
_AGAIN: Final = frozenset({401, 407, 408, 425, 429})  # a wrong secret is no fault of the message: it is sent when that is mended
_LONGEST_PAUSE_S: Final = 3600.0


class DeliveryError(Exception):
    """Nothing was taken, as far as is known; the text says why, for people.

    `is_final`: the receiver refuses it, and will again. `may_have_arrived`: the connection broke after it was sent. `pause_s` is
    how long the receiver asks us to wait.
    """

    def __init__(self, problem: str, *, is_final: bool = False, may_have_arrived: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(problem)
        self.is_final, self.may_have_arrived, self.pause_s = is_final, may_have_arrived, pause_s


class Receiver(Protocol):
    """Takes deliveries of one route, one at a time. `refresh_every_s` is 0 where what is open need not be told again."""

    refresh_every_s: float

    def send(self, delivery: Delivery) -> str:
        """Deliver; return a note for people where only a part was taken. DeliveryError where nothing was."""
        ...

    def refresh(self, delivery: Delivery) -> None:
        """Say again what is still open, which is no new message; DeliveryError where that fails."""
        ...

    def close(self) -> None:
        """Give back what is held open."""
        ...


class HttpPost:
    """Posts to one route's address; SettingsError at once where its settings cannot work."""

    def __init__(self, route: Route, path: str = "") -> None:
        address = address_of(route)
        self._path = path
        self.name = shown_address(address)
        headers, basic = _credentials(route)
        self._client = HttpClient(
            address,
            timeout_s=route.timeout_s,
            headers={"Content-Type": "application/json", **headers},
            basic=basic,
            ca_file=route.ca_file,
            ca_setting=f"The ca_file of route '{route.name}',",
        )

    def post(self, body: Any, headers: dict[str, str]) -> None:
        """Post a body; DeliveryError unless the answer is one of success."""
        content = json.dumps(body, ensure_ascii=False).encode()
        try:
            reply = self._client.exchange("POST", self._path, content=content, headers=headers, most_bytes=_MOST_READ)
        except TooLongError as error:
            reply = error.reply
        except UntrustedError:
            raise DeliveryError(f"{self.name} cannot be reached (its certificate is not trusted)") from None
        except BusyError as busy:
            raise DeliveryError(f"{self.name} {busy}", may_have_arrived=busy.may_have_arrived) from None
        if not 200 <= reply.status < 300:
            raise self._refusal(reply)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _refusal(self, reply: Reply) -> DeliveryError:
        if 300 <= reply.status < 400:
            return DeliveryError(f"{self.name} points to another address ({reply.status}), which is not followed")
        message = error_text(reply.body)
        return DeliveryError(
            f"{self.name} answered {reply.status}" + (f": {message}" if message else ""),
            is_final=400 <= reply.status < 500 and reply.status not in _AGAIN,
            pause_s=min(reply.retry_after_s, _LONGEST_PAUSE_S),
        )


def address_of(route: Route) -> str:
    """Return where a route posts to, out of its file where it is a secret; SettingsError where that is no address."""
    if not route.url_file:
        return route.url
    url = read_secret(Path(route.url_file), hint=f"Set url_file of route '{route.name}'.")
    try:
        check_address(url)
    except ValueError as error:
        raise SettingsError(f"The file {route.url_file} of route '{route.name}' holds no address: {error}.") from None
    return url


def _credentials(route: Route) -> tuple[dict[str, str], tuple[str, str] | None]:
    if not route.secret_file:
        return {}, None
    hint = f"Set secret_file of route '{route.name}'."
    if route.user:
        return {}, (route.user, read_secret(Path(route.secret_file), hint=hint))
    return {"Authorization": f"Bearer {read_token(Path(route.secret_file), hint=hint)}"}, None
