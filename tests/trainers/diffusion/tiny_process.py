"""A tiny run of any method as a process of its own, for tests that kill it or start several of it.

python -m tests.trainers.diffusion.tiny_process '{"output_dir": "...", "num_epochs": 4}' [kind of reward] [method]
"""

import json
import sys

import torch

from rewards.errors import InputError, exit_cleanly
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.reward_gradient import RewardGradient
from tests.trainers.diffusion.tiny_diffusion import redness
from tests.trainers.diffusion.tiny_runs import METHODS, PROMPTS, Redness, class_of, pipeline_for, poison

DEFAULTS = {
    "sample_num_steps": 3,
    "sample_guidance_scale": 1.0,
    "sample_batch_size": 4,
    "sample_num_batches_per_epoch": 2,
    "sample_num_images_per_prompt": 4,
    "max_sequence_length": 12,
    "train_batch_size": 2,
    "train_num_inner_epochs": 2,
    "train_learning_rate": 5e-3,
    "train_kl_coefficient": 0.0,
    "train_kl_log_freq": 1,
    "eval_freq": 2,
    "save_freq": 1,
    "num_logged_samples": 2,
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
        method = class_of(name)
        trainer = DiffusionTrainer(
            pipeline_for(name),
            Redness() if method is RewardGradient else reward,
            PROMPTS,
            method(method.config_class(**(DEFAULTS | METHODS[name] | options))),
            eval_prompts=["a blue square", "a red square", "a green circle"],
        )
        if kind == "nan_on_rank_1":
            poison(trainer, calls={3}, rank=1)
        trainer.train()


if __name__ == "__main__":
    main()
