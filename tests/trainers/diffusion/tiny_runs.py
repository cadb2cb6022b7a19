"""A small run of any method on any tiny pipeline: what the tests of methods share."""

from pathlib import Path
from typing import Any

import torch

from rewards.reward import Reward
from rewards.scores import Scores
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods import method_class
from rewards.trainers.diffusion.methods.base import Method
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO
from tests.trainers.diffusion.tiny_diffusion import (
    ZERO_SNR,
    redness,
    stable_diffusion,
    stable_diffusion_3,
    stable_diffusion_xl,
)

PROMPTS = ["a red circle", "a green square", "a blue circle", "a circle on white background"]
PIPELINES = {
    "sd1": lambda: stable_diffusion(),
    "sd2": lambda: stable_diffusion(prediction_type="v_prediction"),
    "zero_snr": lambda: stable_diffusion(**ZERO_SNR),
    "sdxl": stable_diffusion_xl,
}
METHODS: dict[str, dict[str, Any]] = {
    "ddpo": {"train_clip_range": 1e-3},
    "nft": {"nft_old_decay": 0.05},
    "awm": {"train_timestep_fraction": 1.0},
    "flow_grpo": {"train_clip_range": 1e-3, "sample_window_size": 1, "sample_window": "sliding"},
    "grpo_guard": {"train_clip_range": 1e-3, "sample_window_size": 1, "sample_window": "sliding"},
    "reward_gradient": {"gradient_mode": "alignprop", "gradient_steps": 2},
    "direct_align": {"gradient_mode": "direct_align", "gradient_steps": 3},
}
"""Name -> settings with which a short run exercises what the method remembers between epochs."""


class Redness(Reward):
    """Of the pixels themselves, so that its gradient is known."""

    __name__ = "redness"
    gradient_problem = None

    def __init__(self, abstains_on: Any = ()) -> None:
        self.abstains_on = abstains_on

    def score(self, images: Any, texts: Any, /, **columns: Any) -> Scores:
        return self.score_with_grad(images, texts)

    def score_with_grad(self, images: Any, texts: Any, /, **columns: Any) -> Scores:
        values = redness(images, texts)[0]
        out = torch.tensor([text in self.abstains_on for text in texts])
        values = torch.where(out, torch.nan, values)
        return Scores(values, [f"not {text}" if stop else None for text, stop in zip(texts, out.tolist())])

    def identity(self, texts: Any = None) -> Any:
        return {"reward": "redness"}


def class_of(method: str) -> type[Method[Any]]:
    """The class of a key of :data:`METHODS`."""
    return method_class("reward_gradient" if method == "direct_align" else method)


def pipeline_for(method: str) -> Any:
    """A tiny pipeline that a method can train."""
    return stable_diffusion_3() if issubclass(class_of(method), FlowGRPO) else PIPELINES["zero_snr"]()


def new_trainer(
    folder: Path,
    method: str,
    pipeline: Any = None,
    reward: Any = None,
    eval_prompts: Any = None,
    **changes: Any,
) -> DiffusionTrainer:
    """A trainer of two epochs of eight pictures.

    Args:
        folder: The run goes to its subfolder `run`.
        method: A key of :data:`METHODS`.
        pipeline: A pipeline, or a key of :data:`PIPELINES`; None takes one that fits.
        reward, eval_prompts: As of the trainer.
        changes: Settings.
    """
    values = {
        "output_dir": str(folder / "run"),
        "num_epochs": 2,
        "sample_num_steps": 3,
        "sample_guidance_scale": 1.0,
        "sample_batch_size": 8,
        "sample_num_batches_per_epoch": 1,
        "sample_num_images_per_prompt": 4,
        "max_sequence_length": 12,
        "train_batch_size": 4,
        "train_learning_rate": 5e-3,
        "save_freq": 0,
        "eval_freq": 0,
    }
    made = pipeline_for(method) if pipeline is None else pipeline
    kind = class_of(method)
    args = kind.config_class(**(values | METHODS[method] | changes))
    return DiffusionTrainer(
        PIPELINES[made]() if isinstance(made, str) else made,
        reward or Redness(),
        PROMPTS,
        kind(args),
        eval_prompts=eval_prompts,
    )


def weights(trainer: DiffusionTrainer) -> torch.Tensor:
    """All trained parameters in one vector."""
    return torch.cat([p.detach().flatten().clone() for p in trainer.policy.parameters])


def same_metrics(left: Any, right: Any, tolerance: float = 0.0) -> None:
    """Compares two lists of metric rows without what measures time."""
    assert len(left) == len(right)
    for a, b in zip(left, right):
        assert a.keys() == b.keys()
        for key in a.keys() - {"time"}:
            if not key.startswith("time/"):
                assert (a[key] is None) == (b[key] is None), key
                assert a[key] is None or abs(a[key] - b[key]) <= tolerance, (key, a[key], b[key])


def poison(trainer: DiffusionTrainer, calls: Any, rank: int = 0) -> None:
    """Make some of one process's predictions with a gradient NaN, counted from 1."""
    predict, count = trainer.policy.predict, [0]

    def broken(*arguments: Any) -> torch.Tensor:
        out = predict(*arguments)
        count[0] += torch.is_grad_enabled()
        bad = trainer.accelerator.process_index == rank and torch.is_grad_enabled() and count[0] in calls
        return out * float("nan") if bad else out

    trainer.policy.predict = broken  # type: ignore[method-assign]
