"""What the model cards of all trainers share: how to load the base model, and the commands of the run."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def base_model(path: str) -> tuple[str, list[str], str]:
    """How a card names a base model and code loads it.

    Args:
        path: Name on the Hub, or a directory.

    Returns:
        The name for readers, lines of code that must come first, and the expression that `from_pretrained` takes. A
        checkpoint of the shapes world is found in whatever place the package is installed.

    Example:
        >>> base_model("org/model")
        ('org/model', [], '"org/model"')
    """
    if not Path(path).resolve().is_relative_to(_PACKAGE):
        return path, [], f'"{path}"'
    inside = Path(path).resolve().relative_to(_PACKAGE).as_posix()
    setup = ["from pathlib import Path", "import rewards", f'base = Path(rewards.__file__).parent / "{inside}"']
    return f"rewards/{inside}", setup, "base"


def commands(run_folder: str | Path, processes: int) -> str:
    """The section of a card with the command that made the model and the one that draws its curves.

    Args:
        run_folder: The run's.
        processes: How many took part.
    """
    launcher = "python" if processes == 1 else f"accelerate launch --num_processes {processes}"
    lines = [f"{launcher} {shlex.join(sys.argv)}", f"rewards curves {shlex.quote(str(run_folder))}"]
    return "## Commands\n\n```sh\n" + "\n".join(lines) + "\n```\n"
