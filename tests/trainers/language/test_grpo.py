"""Whole GRPO and RLOO runs of tiny models from settings to summary."""

import copy
import dataclasses
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig

from rewards.errors import InputError, RewardsError
from rewards.runs.config import load_config
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples
from rewards.trainers.language.grpo import GRPORunConfig, run_grpo
from rewards.trainers.language.ppo import PPOConfig
from rewards.trainers.language.ppo_run import PPORunConfig
from rewards.trainers.language.run import trainer_arguments
from rewards.trainers.language.settings import DataSettings, OtherReward, PolicySettings, RewardSettings
from rewards.trainers.language.setup import import_function, load_policy, load_prompts, make_rewards
from tests import tiny_models
from tests.trainers.language.text_world import run_settings

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


@pytest.fixture(scope="module")
def mixed_run(checkpoint, tmp_path_factory):
    """Two criteria with weights beside a function that fails on every third text, audited; evaluated at every step."""
    folder = tmp_path_factory.mktemp("runs") / "grpo"
    settings = run_settings(
        checkpoint, checkpoint, folder, max_steps=2, learning_rate=0.05, steps_per_generation=1, save_strategy="steps",
        save_steps=1,
    )  # fmt: skip
    settings["reward"] |= {
        "per_criterion": True,
        "criterion_weights": {"fluency": 2.0},
        "others": [{"function": "tests.trainers.language.text_world:every_third_fails", "weight": 0.5}],
    }
    settings["evaluation"] |= {"every": 1, "audits": [{"function": "tests.trainers.language.text_world:evenness"}]}
    return folder, run_grpo(load_config(GRPORunConfig, overrides=settings)), settings


def test_the_folder_holds_the_whole_run(mixed_run):
    folder, summary, _ = mixed_run
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["steps"] == [0, 2]
    assert set(summary["gains"]) == {"HarmonicEval", "every_third_fails", "evenness"}
    assert set(summary["gains"]["HarmonicEval"]) == {"overall", "correctness", "fluency"}
    assert load_config(GRPORunConfig, folder / "config.yaml").reward.criterion_weights == {"fluency": 2.0}
    identity = json.loads((folder / "reward.json").read_text())
    card = (folder / "adapter" / "README.md").read_text()
    assert identity["prompt_hash"] in card and "base_model" in card
    assert "HarmonicEval fluency" in card and "in the training: 0.00%" in card
    assert len(identity["prompt_hash"]) == 16 and identity["criteria"] == ["correctness", "fluency"]
    phases = [(row["phase"], row["step"]) for row in read_samples(folder)]
    assert phases == [("before", 0)] * 2 + [("during", 1)] * 2 + [("after", 2)] * 2


def test_the_curves_show_criteria_others_audits_and_abstentions(mixed_run):
    rows = read_metrics(mixed_run[0])
    training = [row for row in rows if "loss" in row]
    evaluations = [row for row in rows if any(key.startswith("eval/") for key in row)]
    assert [row["step"] for row in training] == [1, 2] and [row["step"] for row in evaluations] == [0, 1, 2]
    for row in training:
        # One text of four has no third score, so it counts for no criterion either; the judge's own curves have all.
        assert row["rewards/HarmonicEval/overall/count"] == 4
        assert row["rewards/every_third_fails/overall/mean"] == 1.0
        assert {f"rewards/HarmonicEval/{c}/{k}" for c in ("correctness", "fluency") for k in ("mean", "weight")} <= set(
            row
        )
        assert row["clip_ratio/region_mean"] == 0.0
    for row in evaluations:
        assert row["eval/rewards/HarmonicEval/overall/count"] == 4
        gap = row["eval/rewards/HarmonicEval/overall/mean"] - row["eval/audit/evenness/overall/mean"]
        assert row["eval/audit/gap"] == pytest.approx(gap)


def test_the_policy_moved_and_its_adapter_loads_in_plain_peft(mixed_run, checkpoint):
    folder = mixed_run[0]
    texts = {row["phase"]: row["text"] for row in read_samples(folder) if row["image"].endswith("-000.png")}
    assert texts["before"] != texts["after"]
    plain = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(checkpoint), folder / "adapter")
    assert any("lora_B" in name and parameter.abs().sum() > 0 for name, parameter in plain.named_parameters())


def test_the_model_card_tells_how_to_load_score_and_make_it_again(mixed_run, monkeypatch):
    folder = mixed_run[0]
    card = (folder / "adapter" / "README.md").read_text()
    record = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert record == json.loads((folder / "reward.json").read_text()) | {"judge": record["judge"]}
    assert record["weights"] == {
        "HarmonicEval/correctness": 1.0, "HarmonicEval/fluency": 2.0, "every_third_fails": 0.5,
    }  # fmt: skip
    assert {"name", "revision", "dtype"} <= record["judge"].keys() and len(record["prompt_hash"]) == 16
    assert f"rewards curves {folder}" in card and "## Commands" in card
    assert not list((folder / "adapter").glob("*.bin"))
    monkeypatch.chdir(folder)
    scope: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], scope)
    assert isinstance(scope["model"], PeftModel)


def test_a_run_is_not_resumed_with_other_weights(mixed_run):
    settings = copy.deepcopy(mixed_run[2]) | {"resume": True}
    settings["reward"]["criterion_weights"] = {"fluency": 3.0}
    with pytest.raises(InputError, match="the reward has changed \\(weights"):
        run_grpo(load_config(GRPORunConfig, overrides=settings))


def test_a_run_is_not_overwritten_by_accident_and_resumes_where_it_was(mixed_run):
    folder, summary, settings = mixed_run
    with pytest.raises(InputError, match="already holds a run"):
        run_grpo(load_config(GRPORunConfig, overrides=settings))
    other = copy.deepcopy(settings) | {"resume": True}
    other["reward"]["gamma"] = 0.5
    with pytest.raises(InputError, match=r"the reward has changed \(gamma 0.75 -> 0.5\)"):
        run_grpo(load_config(GRPORunConfig, overrides=other))
    # As after a kill between the first checkpoint and the end.
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    before = [row for row in read_metrics(folder) if "loss" in row]
    for path in (folder / "checkpoint-2").iterdir():
        if path.name == "trainer_state.json":
            path.write_text('{"cut off')
    resumed = run_grpo(load_config(GRPORunConfig, overrides=settings | {"resume": True}))
    after = [row for row in read_metrics(folder) if "loss" in row]
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == len(lines)
    for old, new in zip(before, after, strict=True):
        for key in old.keys() - {"time", "step_time"}:
            assert new[key] == pytest.approx(old[key], abs=1e-6), key
    assert resumed == summary
    # As after a kill in the last evaluation: no step is added to a run that has made them all.
    (folder / "summary.json").unlink()
    assert run_grpo(load_config(GRPORunConfig, overrides=settings | {"resume": True})) == summary
    assert [row["step"] for row in read_metrics(folder) if "loss" in row] == [1, 2]
    assert not (folder / "checkpoint-3").exists()


def test_rloo_and_a_judge_that_abstains_too_often(checkpoint, tmp_path):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "rloo", max_steps=1)
    settings |= {"algorithm": "rloo"}
    assert run_grpo(load_config(GRPORunConfig, overrides=settings))["steps"] == [0, 1]
    dead = run_settings(checkpoint, checkpoint, tmp_path / "dead", max_steps=3)
    dead["reward"]["min_rating_mass"] = 1.0
    with pytest.raises(RewardsError, match="stopped at step 1: 100% of the texts could not be judged by HarmonicEval"):
        run_grpo(load_config(GRPORunConfig, overrides=dead))
    assert all("rewards/HarmonicEval/overall/mean" not in row or row["rewards/HarmonicEval/overall/mean"] is None
               for row in read_metrics(tmp_path / "dead"))  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("polciy", {}, "did you mean 'policy'"),
        ("reward.gama", 1, "did you mean 'reward.gamma'"),
        ("trainer.lerning_rate", 1, "did you mean 'learning_rate'"),
        ("trainer.max_steps", "many", "max_steps"),
        ("reward.judge", "no/such-judge", "no/such-judge"),
        ("policy.path", "no/such-policy", "no/such-policy"),
        ("data.source", "tests.trainers.language.text_world:nothing", "nothing"),
        ("data.train", {"m": 3}, "unexpected keyword"),
        ("reward.criterion_weights", {"fluency": 1.0}, "per_criterion"),
        ("trainer.save_strategy", "steps", "save_steps"),
        ("evaluation.audits", [{}], "either a judge or a function"),
        ("trainer.learning_rate", -1, "trainer.learning_rate must be at least 0, got -1"),
        ("trainer.temperature", 0, "trainer.temperature must be above 0"),
        ("trainer.num_iterations", 0, "trainer.num_iterations must be above 0"),
        ("trainer.report_to", "nothing", "nothing is not supported"),
        ("policy.lora_rank", -1, "policy.lora_rank must be at least 0"),
        ("policy.lora_target_modules", ["nothing"], "GRPO: Target modules {'nothing'} not found"),
        ("data.train", {"n": 0}, "gave no rows"),
        ("data.held_out", {"n": 0}, "gave no rows"),
        ("evaluation.every", -1, "evaluation.every must be at least 0"),
        ("evaluation.batch_size", 0, "evaluation.batch_size must be above 0"),
        ("evaluation.audit_max_gap", float("nan"), "evaluation.audit_max_gap"),
        ("reward.max_failure_rate", 7, "reward.max_failure_rate must be at most 1"),
        ("reward.weight", float("nan"), "reward weight must be a finite number"),
    ],
)
def test_settings_that_cannot_be_used_give_one_clear_line(checkpoint, tmp_path, key, value, message):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "run", steps_per_generation=3, save_steps=500)
    target = settings
    *parents, last = key.split(".")
    for parent in parents:
        target = target[parent]
    target[last] = value
    with pytest.raises(InputError, match=message) as caught:
        run_grpo(load_config(GRPORunConfig, overrides=settings))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_data_without_prompts_or_pictures_is_refused():
    source = "tests.trainers.language.text_world:pictures"
    renamed = DataSettings(source, {"n": 2}, {}, prompt="describe", rename={"number": "question"})
    rows = load_prompts(renamed, renamed.train)
    assert rows[0]["prompt"] == [{"role": "user", "content": "describe"}] and rows[1]["question"] == 1
    with pytest.raises(InputError, match="no column 'picture'"):
        load_prompts(DataSettings(source, {"n": 2}, {}, rename={"picture": "image"}), {"n": 2})
    with pytest.raises(InputError, match="expected 'image' or 'images'"):
        load_prompts(DataSettings(source, {"n": 2}, {}, rename={"image": "picture"}), {"n": 2})
    with pytest.raises(InputError, match="cannot import"):
        import_function("tests.trainers.language.text_world")


@pytest.mark.parametrize("name", ["gradient_checkpointing", "activation_checkpointing"])
def test_checkpointing_is_set_under_either_name_without_a_warning(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        for chosen in (True, False):
            arguments = trainer_arguments(GRPOConfig, {name: chosen, "num_generations": 2}, tmp_path, 0)
            assert arguments.gradient_checkpointing is chosen and arguments.activation_checkpointing is chosen


def test_weights_follow_the_functions(checkpoint):
    others = [
        OtherReward("tests.trainers.language.text_world:evenness", weight=0.1, optional=True),
        OtherReward("tests.trainers.language.text_world:every_third_fails", weight=0.2),
    ]
    settings = RewardSettings(checkpoint, criteria=["fluency"], weight=3.0, others=others, per_criterion=True)
    rewards = make_rewards(settings)
    names = [function.__name__ for function in rewards.functions]
    assert dict(zip(names, rewards.weights)) == {
        "HarmonicEval/fluency": 3.0, "every_third_fails": 0.2, "evenness": 0.1,
    }  # fmt: skip


def test_full_fine_tuning_has_no_adapter_and_an_unknown_dtype_is_named(checkpoint):
    assert load_policy(PolicySettings(checkpoint, lora_rank=0))[2] is None
    with pytest.raises(InputError, match="float99"):
        load_policy(PolicySettings(checkpoint, dtype="float99"))


def test_the_example_gives_one_line_and_a_non_zero_exit(tmp_path):
    config = tmp_path / "bad.yaml"
    config.write_text(yaml.safe_dump({"polciy": {}}))
    for script in ("grpo_vlm.py", "ppo_vlm.py"):
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / script, "--config", config], capture_output=True, text=True, cwd=ROOT
        )
        assert done.returncode == 1
        assert done.stderr.strip().splitlines()[-1] == f"error: {config}: unknown key 'polciy'; did you mean 'policy'?"
        assert "Traceback" not in done.stderr


CONFIGS = sorted([*(ROOT / "configs").glob("grpo_*.yaml"), *(ROOT / "configs").glob("ppo_*.yaml")])


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_name_only_what_exists(path):
    run_class, trainer_class = (PPORunConfig, PPOConfig) if path.name.startswith("ppo") else (GRPORunConfig, GRPOConfig)
    config = load_config(run_class, path)
    assert set(config.trainer) <= {field.name for field in dataclasses.fields(trainer_class)}
    assert config.trainer["max_steps"] > 0
    for audit in config.evaluation.audits:
        assert audit.judge or callable(import_function(audit.function))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_trainer_settings_go_together(path, tmp_path):
    """As the run would build them, but for what only a GPU has."""
    trainer_class = PPOConfig if path.name.startswith("ppo") else GRPOConfig
    settings = yaml.safe_load(path.read_text())["trainer"]
    arguments = trainer_arguments(trainer_class, settings | {"bf16": False, "use_cpu": True}, tmp_path, 0)
    assert arguments.max_steps == settings["max_steps"] and not arguments.remove_unused_columns
    assert arguments.activation_checkpointing is settings.get("gradient_checkpointing", False)


@pytest.mark.parametrize("path", sorted((ROOT / "configs" / "accelerate").glob("*.yaml")), ids=lambda path: path.name)
def test_shipped_accelerate_configs_are_understood(path):
    config = load_config_from_file(str(path))
    assert {"cpu" if config.use_cpu else "gpu", config.mixed_precision} == {"gpu", "bf16"}
    assert config.num_processes >= 1


@pytest.mark.parametrize(("kind", "config"), [("qwen2_5_vl", "grpo_qwen2_5_vl_3b"), ("smolvlm", "ppo_smolvlm")])
def test_adapters_of_real_runs_reach_the_language_model_only(kind, config):
    policy = yaml.safe_load((ROOT / "configs" / f"{config}.yaml").read_text())["policy"]
    model = tiny_models.KINDS[kind]()[0]
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=policy["lora_target_modules"]))
    names = [name for name, _ in adapted.named_parameters() if "lora_A" in name]
    layers = model.config.get_text_config().num_hidden_layers
    assert len(names) == 7 * layers and not any("vision" in name or "visual" in name for name in names)
