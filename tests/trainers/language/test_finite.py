"""A loss that is not finite costs its step and nothing else, in every trainer; checkpoints stay finite."""

import math

import pytest
import torch
from peft import LoraConfig
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor, TrainerCallback
from trl import GRPOConfig, RLOOConfig

from rewards.errors import RewardsError
from rewards.functions import FunctionReward
from rewards.trainers.language.grpo import ExactGRPOTrainer
from rewards.trainers.language.guards import FiniteSteps, IdleGuard
from rewards.trainers.language.ppo import PPOConfig, PPOTrainer
from rewards.trainers.language.reward_state import RewardState
from rewards.trainers.language.rloo import ExactRLOOTrainer
from tests import tiny_models
from tests.trainers.language.text_world import evenness, pictures

TRAINERS = [(ExactGRPOTrainer, GRPOConfig), (ExactRLOOTrainer, RLOOConfig), (PPOTrainer, PPOConfig)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


def make_trainer(trainer_class, config_class, checkpoint, folder, broken, callbacks=()):
    """A trainer whose loss is NaN at the steps `broken`."""

    class Overflowing(trainer_class):
        def _compute_loss(self, model, inputs):
            loss = super()._compute_loss(model, inputs)
            return loss * math.nan if self.state.global_step in broken else loss

    torch.manual_seed(0)
    settings = {
        "per_device_train_batch_size": 4, "num_generations": 2, "num_iterations": 1, "max_completion_length": 6,
        "max_steps": 4, "learning_rate": 1e-2, "report_to": "none", "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "remove_unused_columns": False, "disable_tqdm": True,
        "save_strategy": "steps", "save_steps": 2, "logging_steps": 1,
    }  # fmt: skip
    return Overflowing(
        model=AutoModelForImageTextToText.from_pretrained(checkpoint),
        reward_funcs=evenness,
        args=config_class(str(folder), **settings),
        train_dataset=pictures(8),
        processing_class=AutoProcessor.from_pretrained(checkpoint, padding_side="left"),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
        callbacks=list(callbacks),
    )


@pytest.mark.parametrize(("trainer_class", "config_class"), TRAINERS)
def test_a_step_that_is_not_finite_is_skipped_and_counted(trainer_class, config_class, checkpoint, tmp_path):
    trainer = make_trainer(trainer_class, config_class, checkpoint, tmp_path, broken={1})
    trainer.train()
    rows = [row for row in trainer.state.log_history if "loss" in row]
    assert [row["train/skipped_steps"] for row in rows] == [0, 1, 0, 0]
    before, after = (load_file(tmp_path / f"checkpoint-{step}" / "adapter_model.safetensors") for step in (2, 4))
    assert all(tensor.isfinite().all() for tensor in (*before.values(), *after.values()))
    assert any(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(("trainer_class", "config_class"), TRAINERS)
def test_too_many_in_a_row_stop_the_run_with_its_last_checkpoint_whole(
    trainer_class, config_class, checkpoint, tmp_path
):
    trainer = make_trainer(trainer_class, config_class, checkpoint, tmp_path, {2, 3}, [FiniteSteps(max_skipped=1)])
    with pytest.raises(RewardsError, match="stopped at step 4: the gradient was not finite for 2 steps in a row"):
        trainer.train()
    saved = load_file(tmp_path / "checkpoint-2" / "adapter_model.safetensors")
    assert all(tensor.isfinite().all() for tensor in saved.values())


def ruin_weights(trainer):
    next(p for n, p in trainer.model.named_parameters() if "lora_B" in n).data[0, 0] = math.nan


def ruin_value_head(trainer):
    trainer.value_head.weight.data[0, 0] = math.inf


def ruin_moments(trainer):
    next(iter(trainer.optimizer.state.values()))["exp_avg_sq"].view(-1)[0] = math.inf


def ruin_moments_of_the_value_head(trainer):
    trainer.optimizer.state[trainer.value_head.bias]["exp_avg"].fill_(math.nan)


def ruin_running_statistics(trainer):
    trainer.model.register_buffer("running_mean", torch.tensor([1.0, math.nan]))


def ruin_what_the_reward_learned(trainer):
    class Learning(FunctionReward):
        def state_dict(self):
            return {"scale": {"mean": math.nan}}

    trainer.add_callback(RewardState(Learning(evenness)))


OF_EVERY_TRAINER = (ruin_weights, ruin_moments, ruin_running_statistics, ruin_what_the_reward_learned)
RUINED = [(kind, *trainer) for kind in OF_EVERY_TRAINER for trainer in TRAINERS]
RUINED += [(kind, *TRAINERS[2]) for kind in (ruin_value_head, ruin_moments_of_the_value_head)]


@pytest.mark.parametrize(("ruin", "trainer_class", "config_class"), RUINED)
def test_a_checkpoint_with_a_value_that_is_not_finite_is_never_written(
    ruin, trainer_class, config_class, checkpoint, tmp_path
):
    """As an optimiser's own overflow would leave it, whoever keeps the value."""

    class Ruins(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 4:
                ruin(trainer)

    trainer = make_trainer(trainer_class, config_class, checkpoint, tmp_path, broken=(), callbacks=[Ruins()])
    with pytest.raises(RewardsError, match="is not finite: no checkpoint is written of it"):
        trainer.train()
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


@pytest.mark.parametrize(("trainer_class", "config_class"), TRAINERS)
def test_a_run_that_learns_nothing_is_stopped_after_three_log_lines(
    trainer_class, config_class, checkpoint, tmp_path, caplog
):
    trainer = make_trainer(trainer_class, config_class, checkpoint, tmp_path, broken=(), callbacks=[IdleGuard(3)])
    trainer.reward_funcs = [lambda completions, **columns: [0.5] * len(completions)]
    with pytest.raises(RewardsError, match="stopped at step 3: nothing was learned 3 times in a row"):
        trainer.train()
    assert [r.message.split(":")[0] for r in caplog.records if "nothing is learned" in r.message] == [
        "step 1",
        "step 2",
    ]
