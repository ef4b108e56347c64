"""Checks of the addresses to listen at: whether each is this machine's, and free or held by the site's own service."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from stormpetrel.config import SITE_FILE
from stormpetrel.records.checks import Finding
from stormpetrel.store.site import Site

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"  # the state in /proc/net/tcp


@dataclass(frozen=True, slots=True)
class _Holder:
    """The process that listens at a port: its command line, and the site it is for if it is a Stormpetrel."""

    pid: int
    words: tuple[str, ...]
    site: Path | None

    @property
    def name(self) -> str:
        return Path(self.words[0]).name[:40] if self.words else "unknown"

    def runs(self, role: str) -> bool:
        """Whether it is `stormpetrel serve` or `stormpetrel watch`, started in whatever way."""
        return any("stormpetrel" in argument for argument in self.words) and role in self.words


def check_addresses(site: Site) -> Iterator[Finding]:
    """Each address that is configured; one that the site's own service holds is fine."""
    settings = site.settings
    wanted = {"serve": settings.serve.address, "watch": settings.watch.address}
    for role, address in wanted.items():
        if address:
            yield _address(site, role, address)
    if wanted["serve"] == wanted["watch"]:
        what = f"serve.address and watch.address are the same ({wanted['serve']})."
        yield Finding("problem", "ports", what, "Give one of them another port in site.toml.")


def _address(site: Site, role: str, address: str) -> Finding:
    host, colon, port = address.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not colon or not port.isdecimal() or int(port) > 65535:
        return Finding("problem", "ports", f"{role}.address {address!r} is not an address.", "Write it as 127.0.0.1:8050.")
    if int(port) == 0:
        return Finding("ok", "ports", f"{role}.address takes any port that is free")
    refused = _refused(host, int(port))
    if refused is None:
        return Finding("ok", "ports", f"{address} is free ({role}.address)")
    if refused == errno.EADDRINUSE:
        return _taken(site, role, address, _holder(int(port)))
    if refused == errno.EACCES:
        what = f"{role}.address {address}: a port below 1024 may be used by root only."
        return Finding("problem", "ports", what, f"Set {role}.address in site.toml to a port from 1024 on.")
    what = f"{role}.address {address}: this machine does not have that address."
    return Finding("problem", "ports", what, f"Set {role}.address in site.toml to one of its own: ip address")


def _taken(site: Site, role: str, address: str, holder: _Holder | None) -> Finding:
    port = address.rpartition(":")[2]
    if holder is None:
        what = f"{address} ({role}.address) is taken by a process of another user."
        return Finding("warning", "ports", what, f"Find out by which: ss -ltnp 'sport = :{port}'")
    is_this_site = holder.site is not None and holder.site == site.folder.resolve()
    if holder.pid == os.getpid() or (holder.runs(role) and is_this_site):
        return Finding("ok", "ports", f"{address} ({role}.address) is held by this site's own {role} (process {holder.pid})")
    elsewhere = f" of the site {holder.site}" if holder.site else ""
    name = f"`stormpetrel {role}`{elsewhere}" if holder.runs(role) else holder.name
    what = f"{address} ({role}.address) is taken by {name} (process {holder.pid})."
    return Finding("warning", "ports", what, f"Stop that one, or set {role}.address in site.toml to another port.")


def _refused(host: str, port: int) -> int | None:
    """Why nobody can listen there; None if one can."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror:
        return errno.EADDRNOTAVAIL
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
        except OSError as error:
            return error.errno
    return None


def _holder(port: int) -> _Holder | None:
    """The process that listens at a port; None where the system does not tell us."""
    inodes = {f"socket:[{inode}]" for name in ("tcp", "tcp6") for inode in _listening(_PROC / "net" / name, port)}
    for process in _PROC.iterdir():
        if process.name.isdecimal() and inodes & _links(process / "fd"):
            return _described(process)
    return None


def _listening(table: Path, port: int) -> Iterator[str]:
    """The inodes of the sockets that listen at a port, out of /proc/net/tcp."""
    try:
        lines = table.read_text().splitlines()[1:]
    except OSError:
        return
    for fields in map(str.split, lines):
        if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
            yield fields[9]


def _links(folder: Path) -> set[str]:
    links = set()
    try:
        for entry in folder.iterdir():
            links.add(str(entry.readlink()))
    except OSError:  # somebody else's process, or one that has just ended
        return links
    return links


def _described(process: Path) -> _Holder:
    arguments = tuple(argument.decode("utf-8", "replace") for argument in _parts(process / "cmdline"))
    return _Holder(int(process.name), arguments, _site_of(process, arguments))


def _site_of(process: Path, arguments: tuple[str, ...]) -> Path | None:
    """The site of a Stormpetrel: its --site, its environment, or the folder it stands in."""
    named = [argument.removeprefix("--site=") for argument in arguments if argument.startswith("--site=")]
    named += [following for argument, following in pairwise(arguments) if argument == "--site"]
    environment = {argument.partition(b"=")[0]: argument.partition(b"=")[2] for argument in _parts(process / "environ")}
    named += [environment[b"STORMPETREL_SITE"].decode("utf-8", "replace")] if b"STORMPETREL_SITE" in environment else []
    try:
        stands_in = (process / "cwd").resolve()
        if named:
            return (stands_in / named[0]).resolve()
        return stands_in if (stands_in / SITE_FILE).is_file() else None
    except OSError:
        return None


def _parts(file: Path) -> list[bytes]:
    try:
        return [part for part in file.read_bytes().split(b"\0") if part]
    except OSError:
        return []
