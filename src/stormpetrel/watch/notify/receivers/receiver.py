"""One contract for all who take messages: a delivery is taken, or DeliveryError says why not and whether to try again."""

from __future__ import annotations

from typing import Final, Protocol

from stormpetrel.alarms.notices import Delivery

REPEAT_HEADER: Final = "X-Stormpetrel-Repeat"
ID_HEADER: Final = "Idempotency-Key"


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
