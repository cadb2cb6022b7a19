"""SQLite files that several threads and processes use at once: the question store and the cache of judgments."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

WAIT_SECONDS = 60.0
"""How long a process waits for the others before it gives up."""


class Database:
    """One SQLite file, opened where it is first used, by the threads of a process in turn.

    Args:
        path: The file.
        opening: Gives the connection, made by :func:`connect`. Called again after :meth:`close` and after a fork.

    SQLite's locks do not survive a fork. A child that opens a file which its parent had open believes that it holds the
    parent's locks and takes none: once the parent closes the file, the log is deleted while the child writes into it,
    and what it wrote is lost without an error. So every file is closed just before this process forks, and is opened
    anew where it is used next, in the parent and in the child.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.sqlite"
        >>> numbers = Database(path, lambda: connect(path))
        >>> with numbers.write() as connection:
        ...     _ = connection.execute("CREATE TABLE numbers (number INTEGER)")
        >>> with numbers.use() as connection:
        ...     connection.execute("SELECT count(*) FROM numbers").fetchone()
        (0,)
    """

    def __init__(self, path: str | Path, opening: Callable[[], sqlite3.Connection]) -> None:
        self.path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._opening = opening
        self._lock = threading.RLock()
        with _NO_FORK:
            _DATABASES.add(self)

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        """The connection, for this thread alone until the block ends."""
        with self._lock:
            if self._connection is None:
                with _NO_FORK:
                    self._connection = self._opening()
            yield self._connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """As :meth:`use`, in one transaction (:func:`writing`)."""
        with self.use() as connection, writing(connection, self.path):
            yield connection

    def close(self) -> None:
        """Close the file; the next :meth:`use` opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        if self._connection is not None:  # else it stays open until the garbage is collected: it refers to itself
            self._connection.close()

    def _close_if_idle(self) -> bool:
        if not self._lock.acquire(blocking=False):
            return self._connection is None
        try:
            self.close()
        finally:
            self._lock.release()
        return True

    def _forget(self) -> None:
        """In a forked child: leave what a thread of the parent is using, whose lock nobody here would ever release."""
        self._lock = threading.RLock()
        if self._connection is not None:
            _INHERITED.append(self._connection)
        self._connection = None


def connect(path: str | Path, *, cached_statements: int = 128) -> sqlite3.Connection:
    """Open `path` for one thread after another; every statement outside :func:`writing` is its own transaction.

    Raises:
        sqlite3.Error: The file cannot be opened.
    """
    return sqlite3.connect(
        path,
        timeout=WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=cached_statements,
    )


def use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the file to its write-ahead log: readers never wait, and a kill leaves the file whole.

    Raises:
        sqlite3.Error: The file is no database, or stays locked.
    """
    deadline = time.monotonic() + WAIT_SECONDS
    while True:  # SQLite does not wait for other processes here, whatever the time-out
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    connection.execute("PRAGMA synchronous = NORMAL")


@contextmanager
def writing(connection: sqlite3.Connection, path: str | Path) -> Iterator[None]:
    """One transaction, all of it or nothing, with no other writer in between.

    SQLite before 3.51.3 can damage a file when one process commits while another copies the log into the file (the
    "WAL-reset bug", https://sqlite.org/wal.html#walresetbug). SQLite copies the log at the end of a commit, after its
    own lock is gone; the lock beside the file (`<name>-lock`) is held until that is over.

    Raises:
        sqlite3.OperationalError: Another process holds the lock for more than :data:`WAIT_SECONDS`.
        OSError: The lock cannot be made beside the file.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.sqlite"
        >>> numbers = connect(path)
        >>> with writing(numbers, path):
        ...     _ = numbers.execute("CREATE TABLE numbers (number INTEGER)")
    """
    target = Path(path).resolve()
    try:
        # Made anew each time, so that neither threads nor forked children share one.
        lock = FileLock(target.with_name(f"{target.name}-lock"), timeout=WAIT_SECONDS)
        lock.acquire(poll_interval=0.005)
    except Timeout as error:
        raise sqlite3.OperationalError("database is locked") from error
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if connection.in_transaction:  # SQLite has rolled back already when the disk was full
                connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
    finally:
        lock.release()


_DATABASES: weakref.WeakSet[Database] = weakref.WeakSet()
_INHERITED: list[sqlite3.Connection] = []
"""What a child must neither use nor close: SQLite would tidy up the parent's log."""
_NO_FORK = threading.RLock()
"""Held while a file is opened, and by a thread that forks until it has forked."""


def _before_fork() -> None:
    """Close what no other thread is using; wait for the rest, which is at work on a statement or a transaction."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        _NO_FORK.acquire()
        closed = [database._close_if_idle() for database in _DATABASES]
        if all(closed) or time.monotonic() > deadline:
            return
        _NO_FORK.release()
        time.sleep(0.005)


def _after_fork_in_child() -> None:
    for database in _DATABASES:
        database._forget()
    _NO_FORK.release()


os.register_at_fork(
    before=_before_fork, after_in_parent=lambda: _NO_FORK.release(), after_in_child=_after_fork_in_child
)
