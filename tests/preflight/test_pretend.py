"""A step on a device that is not there: nothing is left behind on the host, and the host waits as often as stated."""

import numpy as np
import pytest
import torch
from accelerate import Accelerator, PartialState

from rewards import TIFA, HarmonicEval, load_judge
from rewards.judges.loading import unload_judges
from rewards.preflight.pretend import DEVICE, place, pretended
from rewards.shapes.prompts import question_store
from rewards.trainers.diffusion.advantages import global_advantages
from rewards.trainers.diffusion.collection import Collector
from rewards.trainers.diffusion.methods.base import Batch, Tools
from rewards.trainers.diffusion.methods.ddpo import DDPO, DDPOConfig
from rewards.trainers.diffusion.methods.flow_grpo import FlowGRPO, FlowGRPOConfig
from rewards.trainers.diffusion.optimization import Optimization
from rewards.trainers.diffusion.policy import new_policy
from tests.tiny_models import picture, save
from tests.trainers.diffusion import tiny_diffusion

PROMPTS = ["a red circle on a white background", "a blue square on a black background"]


@pytest.fixture(autouse=True)
def forget_judges():
    yield
    unload_judges()  # those of these tests cannot be used outside


def test_tensors_of_two_devices_do_not_meet():
    with pretended(), pytest.raises(RuntimeError, match="same device"):
        torch.zeros(3) + torch.zeros(3, device="cuda")


def test_every_way_to_read_the_device_is_counted_once():
    with pretended() as reads:
        values = torch.rand(4, device="cuda")
        ways = [
            lambda: values.tolist(), lambda: values.cpu(), lambda: float(values.sum()),
            lambda: bool((values > 0).all()), lambda: values[values > 0], lambda: torch.nonzero(values),
            lambda: values.to("cpu").numpy(),
        ]  # fmt: skip
        for number, way in enumerate(ways, start=1):
            way()
            assert reads.total == number
        values.mul_(2).softmax(0)
        torch.tensor([1, 2], device="cuda")
        assert reads.total == len(ways)
    assert all("test_pretend.py" in caller for caller in reads.by_caller)


def test_what_follows_from_the_hosts_values_is_known():
    with pretended() as reads:
        counts = torch.tensor([2, 0, 3], device="cuda")
        places = torch.repeat_interleave(torch.arange(3, device="cuda"), counts)
        assert places.device == DEVICE and places.tolist() == [0, 0, 2, 2, 2]
        counts += 1
        assert (counts * 2).tolist() == [6, 2, 8]
    assert reads.total == 3  # how long `places` is, and two lists


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl"])
def test_harmonic_eval_waits_twice_a_micro_batch(kind, tmp_path):
    path = save(kind, tmp_path)
    with pretended() as reads:
        judge = load_judge(path)
        place(judge)
        forwards = []
        judge.model.model.register_forward_hook(lambda *_: forwards.append(1))
        pictures = [picture(seed) for seed in range(6)]
        scores = HarmonicEval(judge, min_rating_mass=0).score(pictures, [f"a {n}" for n in range(6)])
    assert not scores.abstained.any()
    # One copy a call is ours; one read a forward is transformers' own check of the image tokens.
    by_name = {name.rpartition(" ")[2]: count for name, count in reads.inside.items()}
    assert by_name == {"_read": 1, "torch_compilable_check": len(forwards)} and len(forwards) <= 2


def tifa(tmp_path):
    judge = load_judge("shapes-vqa")
    place(judge)
    return TIFA(judge, question_store(str(tmp_path / "questions.sqlite"), PROMPTS), answer="choices", soft=True)


def test_tifa_waits_once_a_micro_batch_and_once_for_the_pictures(tmp_path):
    with pretended() as reads:
        reward = tifa(tmp_path)
        encoded = []
        reward.judge.model.vision_model.register_forward_hook(lambda *_: encoded.append(1))
        scores = reward.score(torch.rand(12, 3, 64, 64, device="cuda"), PROMPTS * 6)
    assert not scores.abstained.any()
    assert {name.rpartition(" ")[2]: count for name, count in reads.by_caller.items()} == {
        "_read_tensors": 1, "choose": len(encoded),
    }  # fmt: skip


@pytest.mark.parametrize(
    "pipeline, method, config",
    [
        (tiny_diffusion.stable_diffusion, DDPO, DDPOConfig),
        (tiny_diffusion.stable_diffusion_3, FlowGRPO, FlowGRPOConfig),
    ],
)
def test_a_step_of_models_that_draw(pipeline, method, config, tmp_path):
    """Draw, decode, judge by TIFA, and the optimiser steps without their backward pass, which a CPU build lacks."""
    args = config(
        sample_num_steps=3, sample_batch_size=4, sample_num_batches_per_epoch=1, sample_num_images_per_prompt=2,
        train_batch_size=2, train_gradient_accumulation_steps=1, train_kl_coefficient=0.1, sample_guidance_scale=2.0,
    )  # fmt: skip
    accelerator = Accelerator(cpu=True)
    accelerator.state.device = PartialState().device = DEVICE  # its optimiser asks the second one again
    try:
        with pretended() as reads:
            policy = new_policy(pipeline(), args, DEVICE, keep_base=True)
            optimization = Optimization(policy.parameters, accelerator, args)

            def backward(losses):
                assert losses.device == DEVICE
                for parameter in policy.parameters:
                    parameter.grad = torch.zeros_like(parameter)

            accelerator.backward = backward
            trained = method(args)
            trained.start(Tools(policy, optimization, accelerator, None))
            trained.begin_epoch(0)
            collector = Collector(PROMPTS, [{}, {}], tifa(tmp_path), None, accelerator, args)
            assert reads.total == 0
            drawn = collector.epoch(trained, policy, 0)
            assert drawn.rollout.final.device == DEVICE and not drawn.judged.scores.abstained.any()
            by_name = {name.rpartition(" ")[2]: count for name, count in reads.by_caller.items()}
            assert by_name == {"score_pictures": 1, "_read_tensors": 1, "choose": 1}
            reads.by_caller.clear()
            optimization.begin_epoch(1e-3)
            rewards = np.array([0.1, 0.9, 0.2, 0.8], np.float32)
            batch = Batch(
                0, drawn.rollout, PROMPTS * 2, [{}] * 4, drawn.local, rewards, global_advantages(rewards, 1e-4)
            )
            trained.update(batch)
    finally:
        accelerator.state.device = PartialState().device = torch.device("cpu")
    by_name = {name.rpartition(" ")[2]: count for name, count in reads.by_caller.items()}
    assert optimization.taken == 2
    # One read an optimiser step, and one for all metrics of the epoch.
    assert by_name == {"_apply": optimization.taken, "metrics": 1}
