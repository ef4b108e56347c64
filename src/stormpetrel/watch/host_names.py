"""The names under which a server of ours may be addressed: a Host header -> whether it means us.

A page of another site can have its own name resolve to our address (DNS rebinding); the browser then sends that name as the Host.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to


class HostNames:
    """The names under which this server may be addressed; a page of another name that resolves to us gets nothing."""

    def __init__(self, names: Iterable[str], *, bound_to: str) -> None:
        self._any_address = bound_to in _WILDCARDS
        self._names = {_host_only(name) for name in names} | {"localhost", _host_only(bound_to)}

    def include(self, header: str) -> bool:
        """Whether a Host header names us; the port is left out of it."""
        name = _host_only(header)
        if name in self._names:
            return True
        try:
            address = ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or self._any_address  # a bare address cannot have been rebound


def _host_only(text: str) -> str:
    """The name in `name:port`, `[::1]:port` or `name`, in lower case."""
    host = text[1:].partition("]")[0] if text.startswith("[") else text if text.count(":") > 1 else text.partition(":")[0]
    return host.lower().rstrip(".")
