"""What a host's page tells a user to add: its own lines, run by the tests as they stand there."""

import ast
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

from rewards.hosts.__main__ import HOSTS

EXAMPLES = Path(__file__).parents[2] / "examples" / "hosts"


def page(host: str) -> str:
    """The text from which a host's section of the guide is made."""
    return ast.get_docstring(ast.parse(HOSTS[host].read_text(encoding="utf-8")))


def snippet(host: str) -> str:
    """The first indented block of a host's page."""
    lines = page(host).splitlines()
    start = next(at for at, line in enumerate(lines) if line.startswith("    "))
    stop = next(at for at, line in enumerate(lines[start:], start) if not line.startswith("    "))
    return textwrap.dedent("\n".join(lines[start:stop]))


def arguments(host: str, variable: str = "HOME") -> tuple[str, list[str]]:
    """What a shell makes of the page's lines: a variable that they export, and the arguments that they add."""
    told = snippet(host).splitlines()
    exports = [line for line in told if line.startswith("export ")]
    rest = " ".join(line for line in told if not line.startswith("export "))
    script = "\n".join([*exports, f'printf "%s\\n" "${{{variable}}}" {rest}'])
    python = f"PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH\n"
    done = subprocess.run(["bash", "-ec", python + script], capture_output=True, text=True, check=True)
    value, *added = done.stdout.splitlines()
    return value, added
