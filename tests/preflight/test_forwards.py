"""Forwards a picture: the arithmetic against a count, the comments of the shipped configs against the arithmetic."""

import re

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from rewards.cli.configs import shipped
from rewards.functions import as_reward
from rewards.preflight.drawing import forwards_a_picture
from rewards.runs.config import load_config
from rewards.trainers.diffusion.collection import Collector
from rewards.trainers.diffusion.methods.awm import AWM, AWMConfig
from rewards.trainers.diffusion.methods.base import Batch, Tools
from rewards.trainers.diffusion.methods.ddpo import DDPO, DDPOConfig
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO, FlowGRPOConfig
from rewards.trainers.diffusion.methods.nft import NFT, NFTConfig
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.policy import new_policy
from rewards.trainers.diffusion.run import new_methods
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from tests.trainers.diffusion import tiny_diffusion


@pytest.mark.parametrize(
    "method, expected",
    [
        (DDPO(DDPOConfig(sample_num_steps=4, sample_guidance_scale=3.0, train_kl_coefficient=0.1)), 2 * (4 + 3 * 4)),
        (NFT(NFTConfig(sample_num_steps=4, train_timestep_fraction=0.5)), 4 + 2 * 4),
        (AWM(AWMConfig(sample_num_steps=4, train_timestep_fraction=0.5)), 4 + 2 * 5),
    ],
    ids=["ddpo", "nft", "awm"],
)
def test_the_arithmetic_is_what_the_network_is_called_for(method, expected):
    args = method.args
    args.sample_batch_size = args.train_batch_size = args.sample_num_images_per_prompt = 4
    args.sample_num_batches_per_epoch = args.train_gradient_accumulation_steps = 1
    accelerator = Accelerator(cpu=True)
    pipeline = tiny_diffusion.stable_diffusion(**tiny_diffusion.ZERO_SNR)
    policy = new_policy(pipeline, args, torch.device("cpu"), keep_base=True)
    rows = []
    policy.network.register_forward_pre_hook(
        lambda _, inputs: rows.append((3 if torch.is_grad_enabled() else 1) * len(inputs[0]))
    )
    method.start(Tools(policy, Optimization(policy.parameters, accelerator, args), accelerator, None))
    reward = as_reward(tiny_diffusion.redness)
    drawn = Collector(["a red circle"], [{}], reward, None, accelerator, args).epoch(method, policy, 0)
    scores = np.array([1, -1, 1, -1], np.float32)
    method.update(Batch(0, drawn.rollout, ["a"] * 4, [{}] * 4, drawn.local, scores, scores))
    assert sum(rows) / 4 == expected
    # The shapes pipeline has this scheduler: zero terminal SNR, trailing steps, none without noise but the last.
    assert forwards_a_picture("shapes", method) == expected


def test_the_comments_of_the_configs():
    told = {}
    for path in shipped():
        text = path.read_text("utf-8")
        if (match := re.search(r"^# (\d+) forwards of the network a picture", text, re.MULTILINE)) is not None:
            config = load_config(DiffusionRunConfig, path)
            (method,) = new_methods(config)
            assert forwards_a_picture(config.model, method) == int(match[1]), path.name
            told[path.stem] = int(match[1])
    assert len(told) == 13 and told["ddpo_sd15"] == 250  # every config of a model that draws and is not packaged


def test_a_guidance_that_is_told_to_the_network_costs_no_second_row():
    flux = FlowGRPO(FlowGRPOConfig(sample_num_steps=4, sample_window_size=2, sample_guidance_scale=3.5))
    classifier_free = forwards_a_picture("stabilityai/stable-diffusion-3.5-medium", flux)
    assert forwards_a_picture("black-forest-labs/FLUX.1-dev", flux) * 2 == classifier_free
