"""SQLite connections that nobody closes: Python 3.13 warns of them, and so do the earlier ones under the tests.

A long-lived service would keep them. Warnings are errors here, so a test that leaves one behind fails, on every Python.
"""

from __future__ import annotations

import sqlite3
import sqlite3.dbapi2
import sys
import warnings
from typing import Any


class _Watched(sqlite3.Connection):
    is_open = False

    def close(self) -> None:
        self.is_open = False
        super().close()

    def __del__(self) -> None:
        if self.is_open:
            warnings.warn(f"unclosed database in {self!r}", ResourceWarning, source=self, stacklevel=2)


def watch_connections() -> None:
    """Warn of every SQLite connection that is dropped before it is closed."""
    if sys.version_info >= (3, 13):
        return
    connect = sqlite3.dbapi2.connect

    def watched(*words: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*words, **{"factory": _Watched, **options})
        if isinstance(connection, _Watched):
            connection.is_open = True
        return connection

    sqlite3.connect = sqlite3.dbapi2.connect = watched
