"""Where the server listens: text -> ListenAddress, path -> UserSocket -> a bound socket, or one sentence that says why not."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from stormpetrel.errors import SettingsError, StormpetrelError, UsageError

_EVERYBODY: Final = 0o666  # whoever connects is known by his uid; what he may see is decided then
_LONGEST_PATH: Final = 100  # bytes; the kernel takes 107
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


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


@dataclass(frozen=True, slots=True)
class UserSocket:
    """A Unix socket for the users of this machine."""

    path: Path

    @contextmanager
    def listening(self) -> Iterator[socket.socket]:
        """A socket that listens there, and is gone afterwards; SettingsError where others could put theirs in its place."""
        self._check()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(str(self.path))
            self.path.chmod(_EVERYBODY)
            listener.listen(socket.SOMAXCONN)
            ours = self.path.lstat().st_ino
            yield listener
            if self.path.lstat().st_ino == ours:
                self.path.unlink()
        except OSError as error:
            raise SettingsError(
                f"Cannot listen at {self.path}: {error.strerror}.", hint="Check serve.socket in site.toml."
            ) from error
        finally:
            listener.close()

    def _check(self) -> None:
        if not self.path.is_absolute() or len(os.fsencode(self.path)) > _LONGEST_PATH:
            raise SettingsError(
                f"serve.socket: {self.path} is not a full path of at most {_LONGEST_PATH} bytes.",
                hint="Expected such as /run/stormpetrel/api.sock.",
            )
        try:
            folder = self.path.parent.stat()
        except OSError as error:
            raise SettingsError(
                f"serve.socket: the folder {self.path.parent} cannot be used: {error.strerror}.",
                hint="Create it for the user that runs serve, with mode 0755; systemd: RuntimeDirectory=stormpetrel.",
            ) from error
        if folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SettingsError(
                f"serve.socket: others can write to {self.path.parent}, and could put a socket of theirs there.",
                hint="Use a folder of its own with mode 0755.",
            )
        with suppress(FileNotFoundError):
            if not stat.S_ISSOCK(self.path.lstat().st_mode):
                raise SettingsError(f"serve.socket: {self.path} is there and is no socket.", hint="Name another path.")
            if _somebody_listens(self.path):
                raise UsageError(f"Another `stormpetrel serve` listens at {self.path}.", hint="Stop that one first.")
            self.path.unlink()


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(str(path)) == 0


def peer_uid(connection: socket.socket) -> int | None:
    """The user at the other end of a Unix socket, as the kernel knows it; None of other sockets."""
    if connection.family != socket.AF_UNIX:
        return None
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(uid)
