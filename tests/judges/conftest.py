"""Tiny judges of the real architectures, built once a session and loaded through `load_judge`."""

from collections.abc import Callable

import pytest
import torch

from rewards.judges.base import Judge
from rewards.judges.loading import load_judge
from tests import tiny_models

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_judge(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Judge]:
    """`tiny_judge("llava")` -> the loaded judge."""
    saved: dict[str, str] = {}

    def get(kind: str, **options: object) -> Judge:
        if kind not in saved:
            saved[kind] = tiny_models.save(kind, tmp_path_factory.mktemp("models") / kind)
        return load_judge(saved[kind], **options)

    return get
