"""A tiny DDPO run as a process of its own, for tests that kill it or start several of it.

python -m tests.trainers.diffusion.ddpo_process '{"output_dir": "...", "num_epochs": 4}' [kind of reward]
"""

import json
import sys

import torch

from rewards.errors import InputError, exit_cleanly
from rewards.trainers.diffusion.ddpo import DDPOConfig, DDPOTrainer
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
    "train_clip_range": 1e-3,
    "train_kl_coefficient": 0.0,
    "eval_freq": 2,
    "save_freq": 1,
    "num_logged_samples": 2,
}


def main() -> None:
    torch.set_num_threads(1)
    options, kind = json.loads(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "plain"
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
        trainer = DDPOTrainer(
            stable_diffusion(**ZERO_SNR),
            reward,
            PROMPTS,
            DDPOConfig(**(DEFAULTS | options)),
            eval_prompts=["a blue square", "a red square", "a green circle"],
        )
        trainer.train()


if __name__ == "__main__":
    main()
