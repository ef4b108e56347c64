"""Connections before anybody knows who they are from: how large and how slow a request's head may be, and how many may be open.

ConnectionLimits -> bounded_protocol -> what uvicorn makes one of for each connection. h11 reads the requests: it bounds what it
keeps of an unfinished one by itself, trailers and chunks included; httptools keeps whatever comes.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from stormpetrel.faces.web.incoming import UID, counted_as, parse_address
from stormpetrel.faces.web.listening import peer_uid

_log = logging.getLogger("stormpetrel.serve")
_PIECE: Final = 8192  # bytes that are examined together: by so much a head can be larger than it may
_BUSY: Final = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What one connection, one address and all of them together may take."""

    head_bytes: int = 32_768
    # From the opening to the first byte. Browsers open connections ahead of their requests, and a machine that is busy lets them
    # wait for their turn: one that was closed meanwhile is a script that does not arrive, which no browser asks for twice.
    first_byte_s: float = 60.0
    head_s: float = 10.0  # from the first byte, or the last answer, to the end of the next head
    idle_s: float = 5.0  # without a byte, after an answer
    stalled_s: float = 60.0  # while an answer waits for somebody to read it
    most: int = 512  # well below the 1,024 files that a process may have open
    most_of_address: int = 256


class OpenConnections:
    """The open connections by address, those that have kept us waiting for longest first."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._of: dict[str, dict[BoundedProtocol, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def admit(self, connection: BoundedProtocol) -> bool:
        """Take in a connection, at the cost of one that waits if need be: of the same address, or of the one with the most."""
        own = self._of.get(connection.address, {})
        if len(own) >= self._limits.most_of_address and not _close_idlest(own):
            return False
        if self._count >= self._limits.most and not _close_idlest(max(self._of.values(), key=len)):
            return False
        self._of.setdefault(connection.address, {})[connection] = None
        self._count += 1
        return True

    def begins_to_wait(self, connection: BoundedProtocol) -> None:
        """An answer is out: the next request of this connection is waited for from now on."""
        own = self._of.get(connection.address, {})
        if connection in own:
            del own[connection]
            own[connection] = None

    def forget(self, connection: BoundedProtocol) -> None:
        """A connection is closed."""
        own = self._of.get(connection.address, {})
        if connection in own:
            del own[connection]
            self._count -= 1
        if not own:
            self._of.pop(connection.address, None)


def _close_idlest(connections: dict[BoundedProtocol, None]) -> bool:
    """Close the connection that has waited for longest; False where each has a request that we work on."""
    oldest = next((connection for connection in connections if connection.waits_for_peer), None)
    if oldest is None:
        return False
    _log.warning("too many connections: closed one that waited")
    oldest.cut()
    return True


class BoundedProtocol(H11Protocol):
    """One connection. What the peer does slowly, or not at all, ends it; what we do slowly does not."""

    limits: ConnectionLimits
    open: OpenConnections
    address = ""
    _admitted = False
    _begun = False  # whether the peer has sent anything
    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    @property
    def waits_for_peer(self) -> bool:
        """Whether the next step is not ours: a head or a body is to come, or an answer to be read."""
        if self.cycle is None or self.cycle.response_complete or self.flow.write_paused:
            return True
        return self.conn.their_state is h11.SEND_BODY and not self.cycle.response_started

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take it in, or say that there are too many."""
        super().connection_made(transport)
        uid = peer_uid(transport.get_extra_info("socket"))
        if uid is not None:
            self.client = (f"{UID}{uid}", 0)
        self.address = counted_as(parse_address(self.client[0]) if self.client else None) if uid is None else f"{UID}{uid}"
        self._admitted = self.open.admit(self)
        if self._admitted:
            self._wait_at_most(self.limits.first_byte_s)
        else:
            _log.warning("too many connections: turned one away")
            transport.write(_BUSY)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        _stop(self._deadline)
        _stop(self._stalled)
        self.open.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, in pieces: h11 looks at the size of what is not complete, and a whole block may be."""
        before = self.cycle
        if not self._begun:
            self._begun = True
            self._wait_at_most(self.limits.head_s)
        for start in range(0, len(data), _PIECE):
            if not self._admitted or self.transport.is_closing():
                return
            super().data_received(data[start : start + _PIECE])
        if self.cycle is not before:  # a head was complete
            _stop(self._deadline)

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is here already."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is before and not self.transport.is_closing():
            self.open.begins_to_wait(self)
            self._wait_at_most(self.limits.head_s)

    def pause_writing(self) -> None:
        """The peer does not read."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.stalled_s, self.cut)

    def resume_writing(self) -> None:
        """It reads again."""
        super().resume_writing()
        _stop(self._stalled)

    def cut(self) -> None:
        """End the connection at once; what was not sent is dropped."""
        self.open.forget(self)
        self.transport.abort()

    def _wait_at_most(self, limit_s: float) -> None:
        _stop(self._deadline)
        self._deadline = self.loop.call_later(limit_s, self._too_slow, limit_s)

    def _too_slow(self, limit_s: float) -> None:
        _log.warning("closed a connection that had sent no request for %g s", limit_s)
        self.cut()


def _stop(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def bounded_protocol(allowed: ConnectionLimits) -> type[BoundedProtocol]:
    """The protocol of one server; its connections are counted together."""

    class ServedProtocol(BoundedProtocol):
        limits = allowed
        open = OpenConnections(allowed)

    return ServedProtocol
