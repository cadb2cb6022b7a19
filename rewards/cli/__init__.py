"""The `rewards` command. Each file here holds the commands of one room; heavy imports stay inside the functions."""

from __future__ import annotations

from rewards.errors import exit_cleanly


def main() -> None:
    """Run the command line; an error for the user is one line on stderr and a non-zero exit status."""
    with exit_cleanly():
        from rewards.cli.app import app

        app()
