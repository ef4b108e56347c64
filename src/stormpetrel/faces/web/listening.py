"""Where the server listens: text -> ListenAddress -> a bound socket, or one sentence that says why not."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from ipaddress import ip_address

from stormpetrel.errors import StormpetrelError, UsageError


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> ListenAddress:
        """Read `127.0.0.1:8050`, `[::1]:8050` or `name:8050`."""
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not colon or not host or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"{text!r} is not an address to listen at.", hint="Expected such as 127.0.0.1:8050 or [::1]:8050.")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def bind(self) -> socket.socket:
        """A socket that listens there."""
        try:
            family, kind, protocol, _, where = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
        except socket.gaierror as error:
            raise UsageError(f"The host {self.host!r} of the address is not known.", hint="Use a number: 127.0.0.1.") from error
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(where)
            listener.listen(socket.SOMAXCONN)
        except OSError as error:
            listener.close()
            raise self._refusal(error) from error
        return listener

    def _refusal(self, error: OSError) -> StormpetrelError:
        if error.errno == errno.EADDRINUSE:
            other = ListenAddress(self.host, self.port + 1 if self.port < 65535 else self.port - 1)
            return UsageError(
                f"Port {self.port} of {self.host} is taken: another program, or another `stormpetrel serve`, listens there.",
                hint=f"Stop that one, or use another port: --address {other}",
            )
        if error.errno == errno.EACCES:
            return UsageError(f"Port {self.port} may be used by root only.", hint="Use one from 1024 on, such as 8050.")
        if error.errno == errno.EADDRNOTAVAIL:
            return UsageError(f"This machine does not have the address {self.host}.", hint="Use one of its own: ip address")
        return UsageError(f"Cannot listen at {self}: {error.strerror}.", hint="Choose another: --address 127.0.0.1:8050")
