"""What of TRL this package leans on beyond its public interface: a new minor version must pass before the pin moves."""

import inspect

import pytest
import torch
import transformers
import trl
from trl import GRPOConfig, GRPOTrainer, RLOOTrainer
from trl.data_utils import prepare_multimodal_messages
from trl.models import unwrap_model_for_generation

from rewards.trainers.language.ppo import _PICTURE_INPUTS, PPOTrainer


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_pinned_minor_version_is_installed():
    assert trl.__version__.startswith("1.16.")


@pytest.mark.parametrize(
    ("method", "first"),
    [
        ("_get_per_token_logps_and_entropies", ["self", "model", "input_ids", "attention_mask", "logits_to_keep"]),
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
        ("_generate_and_score_completions", ["self", "inputs"]),
        ("_compute_loss", ["self", "model", "inputs"]),
        ("_save", ["self", "output_dir", "state_dict"]),
        ("_load_from_checkpoint", ["self", "resume_from_checkpoint", "model"]),
    ],
)
def test_methods_that_ppo_overrides_exist_with_these_arguments(method, first):
    assert method in vars(PPOTrainer)
    assert parameters(getattr(GRPOTrainer, method))[: len(first)] == first


def test_the_scoring_method_takes_every_picture_input_by_name():
    assert set(_PICTURE_INPUTS) <= set(parameters(GRPOTrainer._get_per_token_logps_and_entropies))


def test_attributes_and_keys_that_ppo_reads_are_in_the_source():
    source = inspect.getsource(GRPOTrainer)
    for name in (
        "self._step", "self._metrics[mode]", "self.current_gradient_accumulation_steps", "self.reward_weights",
        "self.num_iterations", 'output["old_per_token_logps"]', '"completion_mask": completion_mask',
        'inputs.get("old_per_token_logps")', "if advantages.dim() == 1:",
    ):  # fmt: skip
        assert name in source, name


def test_rloo_reads_its_old_log_probabilities_after_the_pass_that_may_replace_them():
    source = inspect.getsource(RLOOTrainer._compute_loss)
    scored = source.index("self._get_per_token_logps_and_entropies(")
    assert scored < source.index('old_logps = inputs["old_logps"]') and source.count('"old_logps"') == 1
    assert "logps = (per_token_logps * completion_mask).sum(1)" in source
    grpo = inspect.getsource(GRPOTrainer._compute_loss)
    assert "old_per_token_logps = per_token_logps.detach() if old_per_token_logps is None" in grpo


@pytest.mark.parametrize("trainer", [GRPOTrainer, RLOOTrainer])
def test_generation_happens_once_a_batch_of_steps(trainer):
    source = inspect.getsource(trainer)
    assert "self.current_gradient_accumulation_steps" in source and "self._step += 1" in source
    source = inspect.getsource(trainer._prepare_inputs)
    assert "generate_every = self.args.steps_per_generation * self.num_iterations" in source
    assert "self._step % generate_every == 0" in source


def test_a_row_of_none_is_left_out_and_a_none_beside_a_number_counts_as_zero():
    # Why the rewards of a run are one function, or parts that abstain together.
    for trainer in (GRPOTrainer, RLOOTrainer):
        source = inspect.getsource(trainer._generate_and_score_completions)
        assert "unscorable_mask = torch.isnan(rewards_per_func).all(dim=1)" in source
        assert ".nansum(dim=1)" in source


@pytest.mark.parametrize("trainer", [GRPOTrainer, RLOOTrainer])
def test_reward_functions_get_loggers_and_columns(trainer):
    source = inspect.getsource(trainer._calculate_rewards)
    for name in ('reward_kwargs["log_extra"]', 'reward_kwargs["log_metric"]', 'reward_kwargs["trainer_state"]'):
        assert name in source
    assert "prompts=prompts, completions=completions, completion_ids=completion_ids_list, **reward_kwargs" in source


@pytest.mark.parametrize("trainer", [GRPOTrainer, RLOOTrainer])
def test_what_functions_log_is_kept_until_all_rewards_are_there(trainer):
    # Why MetricsOfAllProcesses can put it together in _calculate_rewards.
    source = inspect.getsource(trainer._generate_and_score_completions)
    assert source.index("self._calculate_rewards(") < source.index("gather_object(list(self._pending_metrics))")
    assert "self._pending_metrics[name].append(value)" in inspect.getsource(trainer)
    assert parameters(trainer._calculate_rewards)[:2] == ["self", "inputs"]


def test_helpers_of_evaluation():
    assert parameters(unwrap_model_for_generation)[:2] == ["model", "accelerator"]
    message = prepare_multimodal_messages([{"role": "user", "content": "hi"}], images=["picture"])
    assert message[0]["content"] == [{"type": "image", "image": "picture"}, {"type": "text", "text": "hi"}]


def test_the_backbone_that_the_fused_head_runs_is_base_model():
    from trl.trainer.utils import add_fused_lm_head

    assert 'backbone_attr = "base_model"' in inspect.getsource(add_fused_lm_head)
    assert isinstance(inspect.getattr_static(transformers.PreTrainedModel, "base_model"), property)


def test_a_batch_is_split_by_rows_with_further_tensors_kept():
    from trl.trainer.utils import shuffle_sequence_dict, split_tensor_dict

    batch = {"advantages": torch.arange(8).view(4, 2), "value_mask": torch.arange(8).view(4, 2)}
    parts = split_tensor_dict(shuffle_sequence_dict(batch), 2)
    for part in parts:
        assert torch.equal(part["advantages"], part["value_mask"]) and part["advantages"].shape == (2, 2)


def test_group_size_must_be_two_or_more(tmp_path):
    with pytest.raises(ValueError, match="at least 2 generations"):
        GRPOConfig(str(tmp_path), use_cpu=True, bf16=False, num_generations=1, per_device_train_batch_size=4)
