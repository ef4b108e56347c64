"""The lock of a site whose state is on a PostgreSQL server: one watch at a time, also over hosts."""

from __future__ import annotations

import sqlalchemy as sa

from stormpetrel.errors import StoreBusyError


class ServerLock:
    """An advisory lock of a PostgreSQL server; it is gone with the connection that holds it, so whoever keeps it renews it."""

    def __init__(self, engine: sa.Engine, key: int, *, role: str) -> None:
        self._engine, self._key, self._role = engine, key, role
        self._connection: sa.Connection | None = None

    def acquire(self) -> None:
        """Take the lock at once; StoreBusyError where another process has it."""
        # Without a transaction: one that stays open for weeks keeps the server from cleaning up.
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            free = connection.execute(sa.text("SELECT pg_try_advisory_lock(:key)"), {"key": self._key}).scalar()
            if not free:
                raise StoreBusyError(f"Another {self._role} runs on this site, perhaps on another host.", hint="One is enough.")
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def renew(self) -> None:
        """Take the lock again where its connection is lost, as after a restart of the server; as `acquire` fails."""
        if self._connection is not None:
            try:
                self._connection.execute(sa.text("SELECT 1"))
                return
            except sa.exc.DBAPIError:
                self.release()
        self.acquire()

    def release(self) -> None:
        """Give the lock back."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.invalidate()  # not back into the pool: the lock would live on in an idle connection
            connection.close()
