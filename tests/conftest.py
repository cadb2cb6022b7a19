"""Settings for all tests: offline, one thread, and the official data where it lies beside the checkout."""

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from pathlib import Path

import pytest
from hypothesis import settings

# The same examples on every run; HYPOTHESIS_PROFILE=default draws new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

TIFA_DATA = Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "tifa"


@pytest.fixture(scope="session")
def tifa_data() -> Path:
    """The folder of official TIFA data (Apache-2.0), or a skip that says what is missing."""
    if not TIFA_DATA.is_dir():
        pytest.skip(f"official TIFA data not found at {TIFA_DATA}")
    return TIFA_DATA.resolve()
