"""What a request says of itself, and how much of that can be believed.

ASGI scope -> Incoming. The peer's address is a fact; forwarded headers count only when a trusted proxy sent them.
"""

from __future__ import annotations

import hmac
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers

from stormpetrel.errors import SettingsError
from stormpetrel.faces.web.refusals import RefusedError

if TYPE_CHECKING:
    from starlette.types import Scope

    from stormpetrel.config import ServeSection

Address = IPv4Address | IPv6Address
SECRET_HEADER: Final = "x-stormpetrel-proxy"  # noqa: S105 - a header's name
_OF_PROXIES: Final = frozenset(["via", "forwarded", "x-real-ip", "x-client-ip", "true-client-ip", SECRET_HEADER])
_OF_PROXIES_BEGIN: Final = ("x-forwarded", "x-original-", "x-proxy")  # For, Host, Proto, User, …: each proxy has more of them
UID: Final = "uid:"  # how the connections of a Unix socket name their client; no address of a network begins so
_SHORTEST_SECRET: Final = 20
_COUNTED_TOGETHER: Final = 64  # bits of an IPv6 address: a household or a host has as many below that as it likes


@dataclass(frozen=True, slots=True)
class Incoming:
    """One request, before anybody asked what it wants."""

    method: str
    path: str
    headers: Headers
    peer: Address | None  # who is at the other end of the connection
    from_proxy: bool  # the peer is a proxy that we believe
    client: str  # the address by which requests are counted
    is_https: bool
    uid: int | None = None  # of the user of this machine who came through the Unix socket

    def came_through_proxy(self, user_header: str) -> bool:
        """Whether any header is one that only proxies write; a browser on this machine sends none of them."""
        names = {name.lower() for name in self.headers}
        return bool(names & {*_OF_PROXIES, user_header.lower()}) or any(name.startswith(_OF_PROXIES_BEGIN) for name in names)

    def single(self, name: str) -> str | None:
        """The value of a header; one that is there twice is refused, since each reader may believe another one."""
        values = self.headers.getlist(name)
        if len(values) > 1:
            raise RefusedError(400, f"The header {name} is there {len(values)} times.", hint="Send it once.")
        return values[0] if values else None


class TrustedProxies:
    """The proxies whose word is taken: by address, and by a shared secret where the site has one.

    An address of this machine says nothing of who is there. It is enough where a proxy logs people in (`by_loopback`), since
    nothing works there without one; elsewhere whoever comes from loopback is a proxy only next to the secret.
    """

    def __init__(self, networks: Sequence[IPv4Network | IPv6Network], secret: str, *, by_loopback: bool) -> None:
        self._networks = networks
        self._secret = secret.encode()
        self._by_loopback = by_loopback

    @classmethod
    def of(cls, serve: ServeSection, site_folder: Path) -> TrustedProxies:
        """Those of the settings; a network or a secret that cannot be used is one sentence."""
        networks = [_network(text) for text in serve.proxies]
        return cls(networks, _secret(serve.proxy_secret_file, site_folder), by_loopback=serve.login == "proxy")

    def include(self, address: Address | None) -> bool:
        """Whether an address is that of a proxy."""
        return address is not None and any(address in network for network in self._networks)

    @property
    def any_local_user_is_one(self) -> bool:
        """Whether everybody with an account on this machine could pose as the proxy."""
        here = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
        return any(self._believes(address, b"") for address in here)

    def _believes(self, peer: Address | None, shown: bytes) -> bool:
        if peer is None or not self.include(peer):
            return False
        return hmac.compare_digest(shown, self._secret) if self._secret else self._by_loopback or not peer.is_loopback

    def incoming(self, scope: Scope) -> Incoming:
        """What an HTTP request says of itself."""
        headers = Headers(scope=scope)
        if scope.get("client") and scope["client"][0].startswith(UID):
            name = scope["client"][0]
            uid = int(name.removeprefix(UID))
            return Incoming(scope["method"], scope["path"], headers, None, False, name, is_https=False, uid=uid)
        peer = parse_address(scope["client"][0]) if scope.get("client") else None
        believed = self._believes(peer, headers.get(SECRET_HEADER, "").encode())
        forwarded = _forwarded_for(headers, self) if believed else None
        is_https = scope["scheme"] == "https" or (believed and headers.get("x-forwarded-proto", "").lower() == "https")
        return Incoming(scope["method"], scope["path"], headers, peer, believed, counted_as(forwarded or peer), is_https)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise SettingsError(
            f"serve.proxies: {text!r} is not an address or a network.", hint="Expected such as 127.0.0.1 or 10.1.0.0/16."
        ) from None


def _secret(file: str, site_folder: Path) -> str:
    if not file:
        return ""
    path = site_folder / Path(file).expanduser()
    try:
        secret = path.read_text(encoding="ascii").strip()
        readable_by_others = path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"serve.proxy_secret_file {path} cannot be read: {error}.", hint="Check the path and its permissions."
        ) from None
    if readable_by_others:
        raise SettingsError(f"serve.proxy_secret_file {path} can be read by others.", hint=f"Run: chmod 600 {path}")
    if len(secret) < _SHORTEST_SECRET:
        raise SettingsError(
            f"serve.proxy_secret_file {path} holds fewer than {_SHORTEST_SECRET} characters.",
            hint=f"Run: openssl rand -hex 32 > {path}",
        )
    return secret


def parse_address(text: str) -> Address | None:
    """The address in a text, an IPv4 one also where it is written as IPv6; None where there is none."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address


def _forwarded_for(headers: Headers, proxies: TrustedProxies) -> Address | None:
    """The last address in X-Forwarded-For that is no proxy of ours: what stands before it, anybody may have written."""
    named = [entry.strip() for line in headers.getlist("x-forwarded-for") for entry in line.split(",")]
    for entry in reversed(named):
        address = parse_address(entry)
        if address is None or not proxies.include(address):
            return address
    return None


def counted_as(address: Address | None) -> str:
    """What an address is counted under: whoever has one of loopback, or of an IPv6 network, has as many of them as they like."""
    if address is not None and address.is_loopback:
        return "loopback"
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _COUNTED_TOGETHER), strict=False))
    return str(address) if address else "unknown"
