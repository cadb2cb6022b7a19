"""A tiny run of any method as a process of its own, for tests that kill it or start several of it.

python -m tests.trainers.diffusion.tiny_process '{"output_dir": "...", "num_epochs": 4}' [kind of reward] [method]
"""

import json
import sys

import torch

from rewards.errors import InputError, exit_cleanly
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods import method_class
from tests.trainers.diffusion.test_reward_gradient import Redness
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, redness, stable_diffusion

PROMPTS = ["a red circle", "a green square", "a blue circle", "a circle on white background"]
DEFAULTS = {
    "sample_num_steps": 3,
    "sample_guidance_scale": 1.0,
    "sample_batch_size": 4,
    "sample_num_batches_per_epoch": 2,
    "sample_num_images_per_prompt": 4,
    "train_batch_size": 2,
    "train_num_inner_epochs": 2,
    "train_learning_rate": 5e-3,
    "train_kl_coefficient": 0.0,
    "train_kl_log_freq": 1,
    "eval_freq": 2,
    "save_freq": 1,
    "num_logged_samples": 2,
}
OWN = {
    "ddpo": {"train_clip_range": 1e-3},
    "nft": {"nft_old_decay": 0.05, "train_timestep_fraction": 0.67},
    "reward_gradient": {"gradient_mode": "alignprop", "gradient_steps": 2},
}


def main() -> None:
    torch.set_num_threads(1)
    options, kind, name = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3]
    calls = []

    def reward(images, prompts, metadata):
        calls.append(1)
        rank = trainer.accelerator.process_index
        if kind == "some_abstain":  # depends on the picture alone, not on who scores it
            values, info = redness(images, prompts)
            values[torch.frac(values.double() * 1e3) < 0.3] = float("nan")
            return values, info
        if kind == "dies_on_rank_1" and rank == 1:
            raise ConnectionError("no judge here")
        if kind == "refuses_on_rank_1" and rank == 1 and len(calls) > 3:
            raise InputError("no questions for this prompt")
        return redness(images, prompts)

    with exit_cleanly():
        method = method_class(name)
        trainer = DiffusionTrainer(
            stable_diffusion(**ZERO_SNR),
            Redness() if name == "reward_gradient" else reward,
            PROMPTS,
            method(method.config_class(**(DEFAULTS | OWN[name] | options))),
            eval_prompts=["a blue square", "a red square", "a green circle"],
        )
        if kind == "nan_on_rank_1":
            poison(trainer)
        trainer.train()


def poison(trainer: DiffusionTrainer) -> None:
    """On the second process the third prediction with a gradient is NaN."""
    predict, count = trainer.policy.predict, [0]

    def broken(*arguments):
        out = predict(*arguments)
        count[0] += torch.is_grad_enabled()
        bad = trainer.accelerator.process_index == 1 and torch.is_grad_enabled() and count[0] == 3
        return out * float("nan") if bad else out

    trainer.policy.predict = broken


if __name__ == "__main__":
    main()
