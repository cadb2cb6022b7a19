"""The importance ratio before the first update, in TRL's trainers as this package drives them."""

import math
from collections import defaultdict

import pytest
import torch
from peft import LoraConfig
from transformers import AutoModelForImageTextToText, AutoProcessor
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer

from rewards.trainers.language.grpo import ExactGRPOTrainer
from rewards.trainers.language.rloo import ExactRLOOTrainer
from tests import tiny_models
from tests.trainers.language.text_world import evenness, pictures

SETTINGS = {
    "per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 6, "max_steps": 4,
    "learning_rate": 1e-2, "report_to": "none", "use_cpu": True, "bf16": False, "gradient_checkpointing": False,
    "remove_unused_columns": False, "disable_tqdm": True, "save_strategy": "no", "logging_steps": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


def watch(trainer_class):
    """Keeps the largest change of the ratio of every pass, not only the mean of a log line."""

    class Watching(trainer_class):
        changes: list[float]

        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            self.__dict__.setdefault("changes", []).append(self._metrics["train"]["policy/ratio_farthest"][-1])
            return loss

    return Watching


@pytest.fixture
def rounding(monkeypatch):
    """What another batch composition does to TRL's own pass for the old log-probabilities, large enough to be seen."""
    for trainer in (GRPOTrainer, RLOOTrainer):
        score = trainer._get_per_token_logps_and_entropies

        def rounded(self, *args, score=score, **options):
            log_probs, *rest = score(self, *args, **options)
            return (log_probs if torch.is_grad_enabled() else log_probs + 1e-4, *rest)

        monkeypatch.setattr(trainer, "_get_per_token_logps_and_entropies", rounded)


@pytest.mark.parametrize(
    ("trainer_class", "config_class"), [(ExactGRPOTrainer, GRPOConfig), (ExactRLOOTrainer, RLOOConfig)]
)
@pytest.mark.parametrize(
    ("arguments", "on_policy"),
    [
        # New texts at every step; then two passes over the same texts; then a batch of texts in two optimiser steps of
        # two accumulated passes each, so that the texts are scored four rows at a time and trained on two at a time.
        ({"steps_per_generation": 1}, [True] * 4),
        ({"steps_per_generation": 1, "num_iterations": 2}, [True, False, True, False]),
        (
            {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "steps_per_generation": 4,
             "max_steps": 2},
            [True, True, False, False],
        ),
    ],
)  # fmt: skip
def test_ratio_is_exactly_one_before_the_first_update(
    checkpoint, tmp_path, rounding, trainer_class, config_class, arguments, on_policy
):
    torch.manual_seed(0)
    trainer = watch(trainer_class)(
        model=AutoModelForImageTextToText.from_pretrained(checkpoint),
        reward_funcs=evenness,
        args=config_class(str(tmp_path), **(SETTINGS | arguments)),
        train_dataset=pictures(8),
        processing_class=AutoProcessor.from_pretrained(checkpoint, padding_side="left"),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
    )
    trainer.train()
    assert [change == 0.0 for change in trainer.changes] == on_policy
    assert all(change > 1e-6 for change, exact in zip(trainer.changes, on_policy) if not exact)
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert rows[0]["policy/ratio"] == 1.0 and rows[0]["policy/ratio_farthest"] == 0.0
    assert rows[0]["grad_norm"] > 0  # a ratio of 1 still has its gradient


@pytest.mark.parametrize("trainer_class", [ExactGRPOTrainer, ExactRLOOTrainer])
def test_the_logged_ratio_is_that_of_the_loss(trainer_class):
    """By hand, with old log-probabilities that differ: token by token in GRPO, text by text in RLOO."""
    mask = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    now = torch.log(torch.tensor([[0.5, 0.4, 0.9], [0.3, 0.9, 0.9]]))
    old = torch.log(torch.tensor([[0.25, 0.4, 0.1], [0.6, 0.1, 0.1]]))
    inputs = {"completion_mask": mask}
    if trainer_class is ExactGRPOTrainer:
        inputs["old_per_token_logps"] = old
        ratios = [2.0, 1.0, 0.5]
    else:
        inputs["old_logps"] = (old * mask).sum(1)
        ratios = [2.0, 0.5]

    class OneProcess:
        def reduce(self, value, reduction):
            return value

        gather = staticmethod(lambda value: value)

    trainer = object.__new__(trainer_class)
    trainer.accelerator, trainer._log_probs = OneProcess(), now
    trainer._metrics = {"eval": defaultdict(list)}
    trainer._log_ratio("eval", inputs)
    assert trainer._metrics["eval"] == {
        "policy/ratio": [pytest.approx(sum(ratios) / len(ratios))],
        "policy/ratio_farthest": [pytest.approx(1.0)],
        "policy/approx_kl": [pytest.approx(0.5 * sum(math.log(r) ** 2 for r in ratios) / len(ratios))],
    }
