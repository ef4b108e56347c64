"""A real Graphite on loopback: `with RealGraphite() as server: server.send(...); server.url`.

carbon-cache takes points in, graphite-web's own application answers, both from Debian's packages, in a folder of their own and on
free ports. `stop` and `start` are of what answers: the points stay.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path

import httpx

from tests.parts import Daemon, free_ports, require, wait_until

_PYTHON = "/usr/bin/python3"  # Debian's, which has graphite-web
_CARBON = """[cache]
STORAGE_DIR = {folder}
LOCAL_DATA_DIR = {folder}/whisper
CONF_DIR = {folder}
LOG_DIR = {folder}
PID_DIR = {folder}
USER =
MAX_CREATES_PER_MINUTE = inf
MAX_UPDATES_PER_SECOND = inf
ENABLE_UDP_LISTENER = False
LINE_RECEIVER_INTERFACE = 127.0.0.1
LINE_RECEIVER_PORT = {line}
PICKLE_RECEIVER_INTERFACE = 127.0.0.1
PICKLE_RECEIVER_PORT = {pickled}
CACHE_QUERY_INTERFACE = 127.0.0.1
CACHE_QUERY_PORT = {query}
WHISPER_FALLOCATE_CREATE = False
"""
_SCHEMAS = """[daily]
pattern = ^daily\\.
retentions = 1d:2y

[all]
pattern = .*
retentions = {retentions}
"""
_SETTINGS = """SECRET_KEY = "for a test"
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
TIME_ZONE = "America/Chicago"
STORAGE_DIR = CONF_DIR = LOG_DIR = {folder!r}
WHISPER_DIR = {folder!r} + "/whisper"
STANDARD_DIRS = [WHISPER_DIR]
INDEX_FILE = {folder!r} + "/index"
CARBONLINK_HOSTS = ["127.0.0.1:{query}:None"]
FUNCTION_PLUGINS = []
LOG_ROTATION = False
DATABASES = {{"default": {{"NAME": {folder!r} + "/graphite.db", "ENGINE": "django.db.backends.sqlite3"}}}}
"""
_SERVE = """import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"
os.environ["GRAPHITE_SETTINGS_MODULE"] = "petrel_graphite"
from wsgiref.simple_server import make_server
from django.core.wsgi import get_wsgi_application
make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application()).serve_forever()
"""


class RealGraphite:
    """A Graphite of its own, as a context manager; a point is kept every minute for a year unless `retentions` says otherwise."""

    def __init__(self, *, retentions: str = "1m:1y") -> None:
        self._retentions = retentions
        self._carbon: Daemon | None = None
        self._web: Daemon | None = None

    def __enter__(self) -> RealGraphite:
        require(
            "carbon-cache",
            "/usr/lib/python3/dist-packages/graphite/settings.py",
            "setpriv",
            install="graphite-carbon graphite-web",
        )
        self.folder = Path(tempfile.mkdtemp(prefix="petrel-graphite-"))
        self._line, pickled, query, self.port = free_ports(4)
        self.url = f"http://127.0.0.1:{self.port}"
        (self.folder / "whisper").mkdir()
        ports = {"line": self._line, "pickled": pickled, "query": query}
        (self.folder / "carbon.conf").write_text(_CARBON.format(folder=self.folder, **ports))
        (self.folder / "storage-schemas.conf").write_text(_SCHEMAS.format(retentions=self._retentions))
        (self.folder / "petrel_graphite.py").write_text(_SETTINGS.format(folder=str(self.folder), query=query))
        (self.folder / "serve.py").write_text(_SERVE)
        try:
            self._start_carbon()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        if self._carbon is not None:
            self._carbon.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self) -> None:
        """Start what answers, on the port it had before."""
        env = {"PATH": os.defpath, "PYTHONPATH": str(self.folder), "PYTHONWARNINGS": "ignore"}
        command = [_PYTHON, str(self.folder / "serve.py"), str(self.port)]
        self._web = Daemon("graphite-web", command, log=self.folder / "web.log", env=env)
        wait_until(self._answers, "graphite-web answers", limit_s=30, alive=self._web)

    def stop(self) -> None:
        """Stop what answers."""
        if self._web is not None:
            self._web.stop()

    def send(self, points: Iterable[tuple[str, float, float]]) -> None:
        """Hand in points (path, value, seconds since 1970), and wait until each path can be read."""
        told = list(points)
        with socket.create_connection(("127.0.0.1", self._line), timeout=10) as line:
            line.sendall("".join(f"{path} {value!r} {int(at)}\n" for path, value, at in told).encode())
        last = {path: (value, at) for path, value, at in told}
        for path, (_, at) in last.items():
            wait_until(lambda path=path, at=at: self._has(path, at), f"Graphite has {path}", limit_s=30, alive=self._carbon)

    def _start_carbon(self) -> None:
        command = ["carbon-cache", "--nodaemon", f"--config={self.folder / 'carbon.conf'}", "start"]
        env = {"PATH": os.defpath, "GRAPHITE_STORAGE_DIR": str(self.folder), "GRAPHITE_ROOT": str(self.folder)}
        self._carbon = Daemon("carbon-cache", command, log=self.folder / "carbon.log", env=env)
        wait_until(self._listens, "carbon-cache listens", limit_s=30, alive=self._carbon)

    def _has(self, path: str, at: float) -> bool:
        asked = {"target": path, "from": str(int(at) - 86_401), "until": str(int(at) + 60), "format": "json"}
        found = httpx.get(f"{self.url}/render", params=asked, timeout=10).json()
        return any(value is not None for entry in found for value, _ in entry["datapoints"][-2:])

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self._line), timeout=1).close()
        except OSError:
            return False
        return True

    def _answers(self) -> bool:
        try:
            asked = {"target": "nothing", "format": "json"}
            return httpx.get(f"{self.url}/render", params=asked, timeout=5).status_code == 200
        except httpx.HTTPError:
            return False
