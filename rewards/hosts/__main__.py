"""`python -m rewards.hosts HOST`: the path of a host's file, for hosts that load a reward by path."""

import sys
from pathlib import Path

FOLDER = Path(__file__).parent
HOSTS = {file.stem: file for file in FOLDER.glob("*.py") if file.stem not in ("__init__", "__main__", "shared")}
HOSTS |= {file.parent.name: file for file in FOLDER.glob("*/__init__.py")}

if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(f"usage: python -m rewards.hosts {{{','.join(sorted(HOSTS))}}}")
    if sys.argv[1] not in HOSTS:
        raise SystemExit(f"unknown host {sys.argv[1]!r}: there are {', '.join(sorted(HOSTS))}")
    print(HOSTS[sys.argv[1]])
