"""Errors that a user can act on, and the one way in which commands and examples show them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


class RewardsError(Exception):
    """Base of every error that this package raises on purpose."""


class InputError(RewardsError, ValueError):
    """What the caller passed cannot be used; the message says which input, what was wrong and what would be right."""


@contextmanager
def exit_cleanly() -> Iterator[None]:
    """Turn an error for the user into one line on stderr and exit status 1 (130 after Ctrl-C).

    Bugs keep their traceback: only :class:`RewardsError` and :class:`OSError` (a missing file, a full disk) are caught.

    Example:
        >>> with exit_cleanly():
        ...     pass
    """
    try:
        yield
    except (RewardsError, OSError) as error:
        print(f"error: {' '.join(_message(error).split())}", file=sys.stderr)
        raise SystemExit(1) from error
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def _message(error: Exception) -> str:
    """What went wrong, without Python's number for it: "absent.json: No such file or directory"."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    if isinstance(error, FileNotFoundError) and not error.strerror:
        return f"{error}: No such file or directory"
    return str(error)
