"""`python -m rewards.hosts HOST`: the path of a host's file, for hosts that load a reward by path."""

import sys
from pathlib import Path

HOSTS = sorted(p.stem for p in Path(__file__).parent.glob("*.py") if p.stem not in ("__init__", "__main__", "shared"))

if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in HOSTS:
        raise SystemExit(f"usage: python -m rewards.hosts {{{','.join(HOSTS)}}}")
    print(Path(__file__).parent / f"{sys.argv[1]}.py")
