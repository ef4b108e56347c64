"""A real PostgreSQL on loopback, in a folder of its own: `with RealPostgres() as server: server.url`."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.parts import Daemon, find_program, free_ports, is_root, require, wait_until

PROGRAMS = ("initdb", "postgres", "pg_isready", "psql", "setpriv")


class RealPostgres:
    """A server that trusts everyone on 127.0.0.1 and is gone afterwards."""

    def __enter__(self) -> RealPostgres:
        require(*PROGRAMS, install="postgresql")
        self.folder = Path(tempfile.mkdtemp(prefix="petrel-postgres-", dir=_in_memory()))
        self.folder.chmod(0o755)
        self._data = self.folder / "data"
        self._user = "postgres" if is_root() else None
        if is_root():
            shutil.chown(self.folder, "postgres", "postgres")
        (self.port,) = free_ports(1)
        self._daemon: Daemon | None = None
        self._databases = 0
        try:
            self._run_as_owner("initdb", "-D", str(self._data), "-U", "petrel", "-A", "trust", "-E", "UTF8", "--no-sync")
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemon is not None and self._daemon.process.poll() is None:
            self._daemon.process.send_signal(signal.SIGQUIT)  # at once: nothing of it is needed any more
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str, *, user: str = "petrel", password: str = "") -> str:
        """The address of a database, as site.toml wants it."""
        return f"postgresql://{user}{':' + password if password else ''}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create an empty database; its address."""
        self._databases += 1
        name = f"site{self._databases}"
        self.sql(f"CREATE DATABASE {name}")
        return self.url(name)

    def sql(self, statement: str, *, database: str = "postgres") -> str:
        """Run a statement; what psql prints."""
        psql = [find_program("psql") or "psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-At"]
        command = [*psql, "-d", self.url(database), "-c", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    def start(self) -> None:
        """Start the server, on the port it had before."""
        settings = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")  # it never outlives a crash
        settings += ("listen_addresses=127.0.0.1", "unix_socket_directories=")
        options = [word for setting in settings for word in ("-c", setting)]
        command = ["postgres", "-D", str(self._data), "-p", str(self.port), *options]
        self._daemon = Daemon(
            "postgres", command, log=self.folder / "postgres.log", user=self._user, stop_signal=signal.SIGINT
        )  # SIGINT: a fast shutdown that does not wait for clients
        ready = [find_program("pg_isready") or "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        wait_until(
            lambda: subprocess.run(ready, timeout=10).returncode == 0, "PostgreSQL answers", limit_s=30, alive=self._daemon
        )

    def stop(self) -> None:
        """Stop the server; what it holds stays."""
        if self._daemon is not None:
            self._daemon.stop()

    def _run_as_owner(self, program: str, *arguments: str) -> None:
        become = ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", "--"] if is_root() else []
        words = [*become, find_program(program) or program, *arguments]
        subprocess.run(words, check=True, capture_output=True, timeout=60, cwd=self.folder)


def _in_memory() -> str | None:
    """A folder in memory that takes the thousands of small files of many databases (8 MiB each); None: the usual place."""
    memory = Path("/dev/shm")
    return str(memory) if memory.is_dir() and shutil.disk_usage(memory).free > 2**31 else None
