"""Prompts, rewards and settings for testing the text trainers on tiny models, offline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset, Image

from tests import tiny_models


def pictures(n: int, seed: int = 0) -> Dataset:
    """`n` rows with a prompt, a noise picture and a number."""
    rows = {
        "prompt": [[{"role": "user", "content": "rate the picture" + " now" * (i % 3)}] for i in range(n)],
        "image": [tiny_models.picture(seed + i, (32, 32)) for i in range(n)],
        "number": list(range(n)),
    }
    return Dataset.from_dict(rows).cast_column("image", Image())


CHECKLISTS = (
    [{"item": "names the colour", "kind": "essential", "weight": None}],
    [
        {"item": "says how many", "kind": "optional", "weight": 2.0},
        {"item": "invents", "kind": "pitfall", "weight": None},
    ],
)


def checklists(n: int, seed: int = 0, broken: int | None = None) -> Dataset:
    """:func:`pictures` with a checklist a row, one of which may be broken."""
    items = [CHECKLISTS[i % 2] if i != broken else [{"item": " ", "kind": None, "weight": None}] for i in range(n)]
    return pictures(n, seed).add_column("rubric", items)


def evenness(completion_ids: Sequence[Sequence[int]], **columns: Any) -> list[float]:
    """Share of even token ids: a reward that a tiny model learns within a few steps."""
    return [sum(token % 2 == 0 for token in ids) / max(len(ids), 1) for ids in completion_ids]


def every_third_fails(
    completions: Sequence[Any], log_metric: Callable[[str, float], None] | None = None, **columns: Any
) -> list[float | None]:
    """1 for a text, None for every third."""
    return [None if index % 3 == 2 else 1.0 for index in range(len(completions))]


def silent_on_rank_1(completions: Sequence[Any], **columns: Any) -> list[float | None]:
    """A judge that can judge nothing on the second process, and all but one text on the first."""
    if PartialState().process_index == 1:
        return [None] * len(completions)
    return [None, *(float(index) for index in range(1, len(completions)))]


def dies_on_rank_1(completions: Sequence[Any], **columns: Any) -> list[float]:
    """A judge that is lost on the second process, at its second call."""
    dies_on_rank_1.asked += 1  # type: ignore[attr-defined]
    if PartialState().process_index == 1 and dies_on_rank_1.asked > 1:  # type: ignore[attr-defined]
        raise RuntimeError("the judge of this process is lost")
    return [float(index) for index in range(len(completions))]


dies_on_rank_1.asked = 0  # type: ignore[attr-defined]


def falling(completions: Sequence[Any], trainer_state: Any = None, **columns: Any) -> list[float]:
    """An audit that gets worse every time that it is asked."""
    falling.asked += 1  # type: ignore[attr-defined]
    return [-float(falling.asked)] * len(completions)  # type: ignore[attr-defined]


falling.asked = 0  # type: ignore[attr-defined]


def combined(judge: str, function: str, weight: float = 1.0) -> dict[str, Any]:
    """Settings of a reward: HarmonicEval with a function of this module beside it."""
    harmonic = {"judge": judge, "min_rating_mass": 0.0, "criteria": ["correctness", "fluency"]}
    other = {"kind": "function", "function": f"tests.trainers.language.text_world:{function}", "weight": weight}
    return {"kind": "combined", "rewards": [harmonic, other]}


def audit(function: str) -> dict[str, Any]:
    """Settings of an audit by a function of this module."""
    return {"kind": "function", "function": f"tests.trainers.language.text_world:{function}"}


def run_settings(policy: str, judge: str, folder: Path, **trainer: Any) -> dict[str, Any]:
    """Settings of a run of two pictures a step on tiny models, as YAML would hold them."""
    return {
        "policy": {"path": policy, "lora_rank": 4, "lora_target_modules": ["q_proj", "v_proj"]},
        "data": {
            "source": "tests.trainers.language.text_world:pictures",
            "train": {"n": 8},
            "held_out": {"n": 4, "seed": 100},
        },
        "reward": {"judge": judge, "min_rating_mass": 0.0, "criteria": ["correctness", "fluency"]},
        "evaluation": {"batch_size": 4, "num_samples": 2},
        "trainer": {
            "per_device_train_batch_size": 4,
            "num_generations": 2,
            "max_completion_length": 6,
            "max_steps": 3,
            "learning_rate": 1e-3,
            "disable_tqdm": True,
            **trainer,
        },
        "output_dir": str(folder),
    }
