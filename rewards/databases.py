"""SQLite files that several processes write at once: the question store and the cache of judgments."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

WAIT_SECONDS = 60.0
"""How long a process waits for the others before it gives up."""


def connect(path: str | Path, *, check_same_thread: bool = True, cached_statements: int = 128) -> sqlite3.Connection:
    """Open `path` for this process; every statement outside :func:`writing` is a transaction of its own.

    Raises:
        sqlite3.Error: The file cannot be opened.
    """
    return sqlite3.connect(
        path,
        timeout=WAIT_SECONDS,
        isolation_level=None,
        check_same_thread=check_same_thread,
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
        >>> use_write_ahead_log(numbers)
        >>> with writing(numbers, path):
        ...     _ = numbers.execute("CREATE TABLE numbers (number INTEGER)")
    """
    target = Path(path).resolve()
    try:
        # Made anew each time, so that neither threads nor forked children share one.
        lock = FileLock(target.with_name(f"{target.name}-lock"), timeout=WAIT_SECONDS, poll_interval=0.005)
        lock.acquire()
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
