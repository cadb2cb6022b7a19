"""PPO on a tiny LLaVA: ratio, abstention, files, resume."""

import pytest
import torch
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from rewards.errors import InputError
from rewards.trainers.language.ppo import PPOConfig, PPOTrainer
from tests import tiny_models
from tests.trainers.language.text_world import evenness, pictures


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


class Watching(PPOTrainer):
    """Keeps what it made of each batch of texts."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.batches = []

    def _generate_and_score_completions(self, inputs):
        self.batches.append(super()._generate_and_score_completions(inputs))
        return self.batches[-1]


def make_trainer(checkpoint, folder, reward=evenness, data=None, rollout_func=None, **arguments):
    settings = {
        "per_device_train_batch_size": 4, "max_completion_length": 6, "num_iterations": 2, "max_steps": 4,
        "logging_steps": 1, "save_steps": 2, "learning_rate": 1e-2, "report_to": "none", "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "remove_unused_columns": False, "disable_tqdm": True, **arguments,
    }  # fmt: skip
    torch.manual_seed(0)
    return Watching(
        model=AutoModelForImageTextToText.from_pretrained(checkpoint),
        reward_funcs=reward,
        args=PPOConfig(str(folder), **settings),
        train_dataset=data if data is not None else pictures(8),
        processing_class=AutoProcessor.from_pretrained(checkpoint, padding_side="left"),
        peft_config=LoraConfig(r=4, target_modules=["q_proj", "v_proj"]),
        rollout_func=rollout_func,
    )


def history(trainer):
    return {row["step"]: row for row in trainer.state.log_history if "loss" in row}


@pytest.fixture(scope="module")
def trained(checkpoint, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ppo")
    trainer = make_trainer(checkpoint, folder)
    trainer.train()
    trainer.save_model(folder / "adapter")
    return trainer, folder


def test_the_ratio_is_exactly_one_before_the_first_update_and_moves_after(trained):
    rows = history(trained[0])
    # Two passes over each batch of texts: steps 1 and 3 come before any update on their texts.
    assert [rows[step]["policy/ratio_farthest"] for step in (1, 3)] == [0.0, 0.0]
    assert all(rows[step]["policy/ratio_farthest"] > 0 for step in (2, 4))
    assert rows[1]["policy/ratio"] == 1.0
    assert rows[1]["policy/kl"] == 0.0 and rows[3]["policy/kl"] != 0.0
    assert "frac_reward_zero_std" not in rows[1]


def test_values_start_at_the_mean_score_and_returns_hold_the_score(trained):
    trainer = trained[0]
    rows, first = history(trainer), trainer.batches[0]
    assert rows[1]["train/value_mean"] == pytest.approx(rows[1]["reward"], abs=1e-6)
    scores = torch.tensor(
        evenness([ids[m.bool()].tolist() for ids, m in zip(first["completion_ids"], first["completion_mask"])])
    )
    last = first["value_mask"].sum(1).long() - 1
    # No KL before the first update: the last token's return is the score itself.
    assert torch.allclose(first["returns"][torch.arange(4), last], scores)
    chosen = first["advantages"][first["value_mask"].bool()]
    assert chosen.mean().abs() < 1e-5 and (chosen.std(correction=0) - 1).abs() < 1e-4


def test_the_adapter_is_plain_and_the_value_head_lies_beside_it(trained, checkpoint):
    trainer, folder = trained
    assert not any("value" in key for key in load_file(folder / "adapter" / "adapter_model.safetensors"))
    head = load_file(folder / "adapter" / "value_head.safetensors")
    assert torch.equal(head["weight"], trainer.value_head.weight) and head["weight"].abs().sum() > 0
    plain = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(checkpoint), folder / "adapter")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        assert torch.equal(plain.eval()(input_ids=ids).logits, trainer.model.eval()(input_ids=ids).logits)


def test_a_resumed_run_equals_the_uninterrupted_one(trained, checkpoint, tmp_path):
    whole, folder = history(trained[0]), trained[1]
    again = make_trainer(checkpoint, tmp_path)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    for step in (3, 4):
        resumed = history(again)[step]
        for key in whole[step].keys() - {"step_time", "time/sample", "time/judge"}:
            assert resumed[key] == pytest.approx(whole[step][key], abs=1e-6), (step, key)


def half(completions, **columns):
    return [1.0, None, 3.0, None][: len(completions)]


def test_a_text_without_a_score_takes_no_part(checkpoint, tmp_path):
    trainer = make_trainer(checkpoint, tmp_path, half, max_steps=1, save_strategy="no", num_iterations=1, kl_coef=0.0)
    trainer.train()
    batch = trainer.batches[0]
    # The order of rows is that of sampling: scores 1, None, 3, None.
    assert (batch["value_mask"][[1, 3]] == 0).all() and (
        batch["value_mask"][[0, 2]] == batch["completion_mask"][[0, 2]]
    ).all()
    assert (batch["advantages"][[1, 3]] == 0).all()
    chosen = batch["advantages"][[0, 2]][batch["completion_mask"][[0, 2]].bool()]
    assert chosen.mean().abs() < 1e-5
    row = history(trainer)[1]
    assert row["reward"] == 2.0 and row["train/value_mean"] == pytest.approx(2.0)
    assert row["policy/ratio_farthest"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"gamma": 1.5}, "gamma"),
        ({"lam": -0.1}, "lam"),
        ({"kl_coef": -1.0}, "kl_coef"),
        ({"cliprange_value": 0.0}, "cliprange_value"),
        ({"beta": 0.1}, "kl_coef instead"),
        ({"loss_type": "grpo"}, "bnpo"),
        ({"use_vllm": True}, "use_vllm is not supported by PPO"),
    ],
)
def test_refuses_settings_that_mean_nothing_in_ppo(arguments, message, tmp_path):
    with pytest.raises(InputError, match=message):
        PPOConfig(str(tmp_path), use_cpu=True, bf16=False, per_device_train_batch_size=4, **arguments)


def test_refuses_a_kl_without_an_initial_policy(checkpoint, tmp_path):
    with pytest.raises(InputError, match="kl_coef=0"):
        PPOTrainer(
            model=AutoModelForImageTextToText.from_pretrained(checkpoint),
            reward_funcs=evenness,
            args=PPOConfig(str(tmp_path), use_cpu=True, bf16=False, per_device_train_batch_size=4),
            train_dataset=pictures(2),
            processing_class=AutoProcessor.from_pretrained(checkpoint, padding_side="left"),
        )


def with_tool_answers(prompts, trainer):
    """Six tokens a text, the third, fourth and last of which a tool wrote."""
    rows = [[5 + row, 6, 7, 8, 9, 10] for row in range(len(prompts))]
    return {
        "prompt_ids": [[11, 12, 13] for _ in prompts],
        "completion_ids": rows,
        "logprobs": [[0.0] * 6 for _ in prompts],
        "env_mask": [[1, 1, 0, 0, 1, 0] for _ in prompts],
    }


def test_the_score_reaches_the_policys_own_tokens_where_tools_answer(checkpoint, tmp_path):
    def places(completions, **columns):
        return [float(row) for row in range(len(completions))]

    settings = dict(max_steps=1, num_iterations=1, kl_coef=0.0, lam=1.0, gamma=1.0, save_strategy="no")
    trainer = make_trainer(
        checkpoint,
        tmp_path,
        places,
        data=pictures(8).remove_columns("image"),
        rollout_func=with_tool_answers,
        **settings,
    )
    trainer.train()
    (batch,) = trainer.batches
    own = torch.tensor([1, 1, 0, 0, 1, 0]).bool()
    assert (batch["value_mask"] == own).all()
    assert torch.allclose(batch["returns"][:, own], torch.arange(4.0).unsqueeze(1).expand(4, 3), atol=1e-5)
    assert (batch["returns"][:, ~own] == 0).all() and (batch["advantages"][:, ~own] == 0).all()
    assert (batch["advantages"][:, own].abs() > 0.1).all() and history(trainer)[1]["grad_norm"] > 0
