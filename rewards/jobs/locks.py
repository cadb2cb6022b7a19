"""One process at a time on an output."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from rewards.errors import InputError

LOCK = "lock"


def locked(folder: Path) -> FileLock:
    """Hold the lock of a job's folder until the lock is released or this process ends, however it ends.

    Raises:
        InputError: another process holds it.
        OSError: the folder does not exist, or its file system has no locks.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(f"another process is working on {folder}; wait for it, or choose another output") from error
    if not (folder / LOCK).exists():  # the other process finished and cleared its folder away in between
        lock.release()
        raise InputError(f"another process has just finished {folder}; run the command again")
    return lock
