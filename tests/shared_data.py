"""Real data beside the repository: `../shared/data`, or `data` of REWARDS_SHARED; tests skip where it is absent."""

import os
from pathlib import Path

import pytest

SHARED = Path(os.environ.get("REWARDS_SHARED", Path(__file__).parents[2] / "shared")) / "data"


def shared_file(name: str) -> Path:
    """A file of the shared data, e.g. "dsg/vqa_mplug_dsg.csv"; skips the test where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not among the shared data ({SHARED}); set REWARDS_SHARED to its folder")
    return path
