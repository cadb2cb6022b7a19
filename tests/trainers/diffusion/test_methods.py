"""Methods beside one another: one of a user's own from a config, and several as stages of one run."""

from pathlib import Path

import pytest
import torch

from rewards.errors import InputError
from rewards.runs.config import load_config
from rewards.runs.metrics import read_metrics
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.methods.ddpo import DDPO, DDPOConfig
from rewards.trainers.diffusion.methods.nft import NFT, NFTConfig
from rewards.trainers.diffusion.run import new_methods, run_diffusion
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from tests.trainers.diffusion import unclipped
from tests.trainers.diffusion.test_trainer import settings
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, redness, stable_diffusion
from tests.trainers.diffusion.tiny_runs import PIPELINES, PROMPTS, same_metrics, weights

REWARD = "reward={kind: function, function: 'tests.trainers.diffusion.tiny_diffusion:redness'}"


def test_method_of_ones_own_is_a_file_of_under_40_lines_and_a_config(tmp_path):
    assert len(Path(unclipped.__file__).read_text().splitlines()) < 40
    stable_diffusion(image_size=32, **ZERO_SNR).save_pretrained(tmp_path / "model")
    words = [f"model={tmp_path / 'model'}", f"output_dir={tmp_path / 'run'}", "num_eval_prompts=2", REWARD]
    words += ["method=tests.trainers.diffusion.unclipped:Unclipped", "num_train_prompts=4"]
    words += ["trainer={num_epochs: 1, sample_num_steps: 3, sample_guidance_scale: 1, train_learning_rate: 0.005}"]
    summary = run_diffusion(load_config(DiffusionRunConfig, None, words))
    assert summary["steps"] == [0, 1] and "redness" in summary["reward"]
    (row,) = [row for row in read_metrics(tmp_path / "run") if "train/loss" in row]
    assert row["policy/ratio_before_update"] == 1.0 and row["policy/clip_fraction"] == 0.0
    assert row["train/optimizer_steps"] == 4


def stages(folder, first=2, second=2, **changes):
    """NFT, then DDPO."""
    both = {"output_dir": str(folder / "run"), "sample_num_steps": 3, "sample_guidance_scale": 1.0, "save_freq": 1}
    both |= {"sample_num_images_per_prompt": 4, "train_learning_rate": 5e-3, "eval_freq": 0} | changes
    return [NFT(NFTConfig(num_epochs=first, **both)), DDPO(DDPOConfig(num_epochs=second, **both))]


def test_stages_follow_one_another_and_are_resumed(tmp_path):
    whole = DiffusionTrainer(PIPELINES["zero_snr"](), redness, PROMPTS, stages(tmp_path / "whole"))
    whole.train()
    rows = read_metrics(tmp_path / "whole" / "run")
    assert ["policy/old_decay" in row for row in rows] == [True, True, False, False]
    assert ["policy/ratio" in row for row in rows] == [False, False, True, True]
    for stop in (1, 2, 3):  # in the first stage, between the two, in the second
        folder = tmp_path / str(stop)
        cut = DiffusionTrainer(PIPELINES["zero_snr"](), redness, PROMPTS, stages(folder))
        cut._epoch = lambda epoch, run=cut._epoch, stop=stop: run(epoch) if epoch < stop else 1 / 0
        with pytest.raises(ZeroDivisionError):
            cut.train()
        resumed = DiffusionTrainer(PIPELINES["zero_snr"](), redness, PROMPTS, stages(folder, resume=True))
        assert resumed.step == stop
        resumed.train()
        same_metrics(rows, read_metrics(folder / "run"), 1e-6)
        torch.testing.assert_close(weights(whole), weights(resumed), atol=1e-7, rtol=0)


def test_stages_share_what_a_run_has_once(tmp_path):
    both = [DDPO(settings(tmp_path)), DDPO(settings(tmp_path, lora_rank=4))]
    with pytest.raises(InputError, match="stage 2: lora_rank is 4, but 16 in stage 1"):
        DiffusionTrainer(PIPELINES["zero_snr"](), redness, PROMPTS, both)


def test_stages_of_a_config(tmp_path):
    words = ["trainer={num_epochs: 3, train_clip_range: 0.5, nft_beta: 0.5}"]
    words += ["stages=[{method: nft}, {method: ddpo, num_epochs: 2, train_learning_rate: 1e-3}]"]
    first, second = new_methods(load_config(DiffusionRunConfig, None, words))
    assert (first.name, first.args.num_epochs, first.args.nft_beta) == ("nft", 3, 0.5)
    assert (second.name, second.args.num_epochs, second.args.train_clip_range) == ("ddpo", 2, 0.5)
    assert second.args.train_learning_rate == 1e-3
    with pytest.raises(InputError, match="'clip_range': no stage's method has it"):
        new_methods(load_config(DiffusionRunConfig, None, [*words, "trainer.clip_range=1"]))
