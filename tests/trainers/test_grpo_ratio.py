"""The importance ratio before the first update, in TRL's own trainers as this package drives them."""

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from tests import tiny_models
from tests.trainers.text_world import evenness, pictures

SETTINGS = {
    "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 6, "max_steps": 2,
    "learning_rate": 1e-2, "report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
    "remove_unused_columns": False, "disable_tqdm": True, "save_strategy": "no", "steps_per_generation": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


def watch(trainer_class):
    class Watching(trainer_class):
        ratios: list[float]

        def _get_per_token_logps_and_entropies(self, *args, **options):
            result = super()._get_per_token_logps_and_entropies(*args, **options)
            self.latest = result[0].detach()
            return result

        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            now, mask = self.latest, inputs["completion_mask"]
            if trainer_class is RLOOTrainer:
                ratio = torch.exp((now * mask).sum(1) - inputs["old_logps"])
            else:  # without old log-probabilities TRL divides the policy by itself
                ratio = torch.exp((now - inputs.get("old_per_token_logps", now)) * mask)
            self.__dict__.setdefault("ratios", []).append((ratio - 1).abs().max().item())
            return loss

    return Watching


@pytest.mark.parametrize(
    ("trainer_class", "config_class", "iterations", "tolerance"),
    [
        (GRPOTrainer, GRPOConfig, 1, 0.0),
        # TRL takes the old log-probabilities from a pass of their own here: 1 up to float32 rounding of their sum.
        (RLOOTrainer, RLOOConfig, 2, 1e-5),
    ],
)
def test_ratio_is_one_before_the_first_update(checkpoint, tmp_path, trainer_class, config_class, iterations, tolerance):
    trainer = watch(trainer_class)(
        model=AutoModelForImageTextToText.from_pretrained(checkpoint),
        reward_funcs=evenness,
        args=config_class(str(tmp_path), num_iterations=iterations, **SETTINGS),
        train_dataset=pictures(4),
        processing_class=AutoProcessor.from_pretrained(checkpoint, padding_side="left"),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
    )
    trainer.train()
    assert trainer.ratios[0] <= tolerance
    if iterations == 1:
        assert trainer.ratios[1] <= tolerance  # new texts at every step
    else:
        assert trainer.ratios[1] > 1e-4
