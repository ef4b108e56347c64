"""The small web server of the watcher: /metrics, /healthz, /readyz, on loopback by default.

It answers from threads of its own, so that it tells when the loop hangs. It is the exporter's server, which
bounds what strangers can do.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime

from stormpetrel.errors import SettingsError, UsageError
from stormpetrel.exporter.proc_stat import ExporterError
from stormpetrel.exporter.server import AnswerError, Routes
from stormpetrel.exporter.server import serving as small_server
from stormpetrel.store.source_health import SourceBook, leading, troubles
from stormpetrel.store.watch_status import stuck_after_s
from stormpetrel.watch.host_names import HostNames


class Health:
    """What the loop last said, and how its sources are at this moment; read by other threads."""

    def __init__(self, poll_s: float, book: SourceBook) -> None:
        self._allowed_s = stuck_after_s(poll_s)
        self._book = book
        self._beat = time.monotonic()
        self._hindrance = "The first look is under way."

    def beat(self, hindrance: str = "") -> None:
        """The loop has made a turn; `hindrance` says what, besides its sources, keeps it from judging."""
        self._beat = time.monotonic()
        self._hindrance = hindrance

    @property
    def not_ready(self) -> str:
        """Why the watch does not do its work; empty while it does. Asks the sources now: a look may hang."""
        current = [trouble for trouble in troubles(leading(self._book.sources()), datetime.now(UTC)) if trouble.kind != "behind"]
        return current[0].what if current else self._hindrance

    @property
    def notes(self) -> list[str]:
        """What is done in part only, while the watch does its work."""
        return [trouble.what for trouble in troubles(self._book.sources(), datetime.now(UTC)) if trouble.kind == "behind"]

    def alive(self) -> str:
        """Empty while the loop turns; otherwise what is wrong."""
        silent = time.monotonic() - self._beat
        return "" if silent < self._allowed_s else f"The loop has not made a turn for {silent:.0f} s."


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9642`, `[::1]:9642` or `:9642`."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise SettingsError(f"'{text}' is not an address.", hint="Write it as 127.0.0.1:9642.")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serving(address: str, health: Health, metrics: Callable[[], bytes], *, hosts: Sequence[str] = ()) -> Iterator[int | None]:
    """Answer on an address while the block runs; the port. An empty address: nobody answers.

    `hosts` are names of ours besides loopback, the address and this machine's own: other names may have been rebound to us.
    """
    if not address:
        yield None
        return
    host, _ = parse_address(address)
    own = platform.node()
    names = HostNames(filter(None, [*hosts, own, own.partition(".")[0]]), bound_to=host)
    with ExitStack() as stack:
        try:
            _, port = stack.enter_context(small_server(address, _routes(health, metrics), is_ours=names.include))
        except ExporterError as error:
            raise UsageError(
                f"Nothing can listen on {address}: {_reason(error)}.",
                hint="Choose another address: --address 127.0.0.1:0, or ''.",
            ) from error
        yield port


def _reason(error: ExporterError) -> str:
    return error.__cause__.strerror or str(error) if isinstance(error.__cause__, OSError) else str(error)


def _routes(health: Health, metrics: Callable[[], bytes]) -> Routes:
    def tell(problem: str, notes: Sequence[str] = ()) -> tuple[str, bytes]:
        if problem:
            raise AnswerError(503, problem)
        return "text/plain; charset=utf-8", "".join(f"{line}\n" for line in ("ok", *notes)).encode()

    return {
        "/metrics": lambda _query: ("text/plain; version=0.0.4; charset=utf-8", metrics()),
        "/healthz": lambda _query: tell(health.alive()),
        "/readyz": lambda _query: tell(health.alive() or health.not_ready, health.notes),
    }
