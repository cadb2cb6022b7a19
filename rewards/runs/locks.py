"""One process at a time on a folder: of a run, a job, candidates."""

from __future__ import annotations

from pathlib import Path

from filelock import FileLock, Timeout

from rewards.errors import InputError

LOCK = "lock"


def locked(folder: Path, name: str = LOCK, *, again: bool = False) -> FileLock:
    """Hold a lock in a folder until it is released or this process ends, however it ends.

    Args:
        folder: what only one process may work on.
        name: of the lock's file, which stays empty.
        again: this process may take the lock once more while it holds it; it must be released as often.

    Raises:
        InputError: another process holds it.
        OSError: the folder does not exist, or its file system has no locks.
    """
    lock = FileLock((folder / name).resolve(), thread_local=False, is_singleton=again)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise InputError(f"another process is working on {folder}; wait for it, or choose another output") from error
    if not (folder / name).exists():  # the other process finished and cleared its folder away in between
        lock.release()
        raise InputError(f"another process has just finished {folder}; run the command again")
    return lock
