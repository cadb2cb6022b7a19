"""Does every trainer learn from every seed? Both tables in one go: DDPO (soft and hard), then GRPO, RLOO and PPO.

    python benchmarks/trainer_seeds.py --seeds 5          # about 80 minutes of one free core

Finished runs are not repeated: started again, it goes on, and what `ddpo_seeds.py` and `harmonic_seeds.py` have run
already is taken from their folders.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    subprocess.run([sys.executable, HERE / "ddpo_seeds.py", "--seeds", str(seeds)], check=True)
    subprocess.run([sys.executable, HERE / "harmonic_seeds.py", "--seeds", *map(str, range(seeds))], check=True)


if __name__ == "__main__":
    main()
