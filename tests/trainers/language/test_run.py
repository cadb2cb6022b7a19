"""Whole GRPO and RLOO runs of tiny models from settings to summary."""

import copy
import dataclasses
import json
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import yaml
from accelerate.commands.config.config_args import load_config_from_file
from datasets import concatenate_datasets
from huggingface_hub import ModelCard
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from trl import GRPOConfig

from rewards.build import RewardSettings, build_reward
from rewards.errors import InputError, RewardsError
from rewards.runs.config import load_config
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.locks import locked
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples
from rewards.trainers.language.arguments import own_settings, trainer_arguments
from rewards.trainers.language.data import clusters, content_of, load_prompts
from rewards.trainers.language.policy import load_policy
from rewards.trainers.language.ppo import PPOConfig
from rewards.trainers.language.run import run_language, training_functions
from rewards.trainers.language.settings import DataSettings, LanguageRunConfig, OwnTrainerSettings, PolicySettings
from tests import tiny_models
from tests.trainers.language.text_world import audit, combined, pictures, run_settings

ROOT = Path(__file__).resolve().parents[3]


def run(settings):
    return run_language(load_config(LanguageRunConfig, overrides=settings))


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
    settings["reward"] = combined(checkpoint, "every_third_fails", weight=0.5)
    settings["trainer"] |= {"per_criterion": True, "criterion_weights": {"fluency": 2.0}}
    settings["evaluation"] |= {"every": 1, "audits": [audit("evenness")]}
    return folder, run(settings), settings


def test_the_folder_holds_the_whole_run(mixed_run):
    folder, summary, _ = mixed_run
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["steps"] == [0, 2] and summary["prompts"] == summary["clusters"] == 4
    assert set(summary["audits"]) == {"evenness"} and set(summary["reward"]) == {"Combined"}
    parts = {"HarmonicEval", "every_third_fails", "HarmonicEval/correctness", "HarmonicEval/fluency"}
    assert set(summary["reward"]["Combined"]) == {"overall", *parts}
    kept = load_config(LanguageRunConfig, folder / "config.yaml")
    assert kept.trainer["criterion_weights"] == {"fluency": 2.0}
    identity = json.loads((folder / "identity.json").read_text())
    harmonic = identity["reward"]["rewards"]["HarmonicEval"]
    assert len(harmonic["prompt_hash"]) == 16 and harmonic["criteria"] == ["correctness", "fluency"]
    for place in (folder, folder / "adapter"):
        card = ModelCard.load(place / "README.md")
        assert card.data.pipeline_tag == "image-text-to-text" and card.data.library_name == "peft"
        assert harmonic["prompt_hash"] in card.text
        assert "Combined HarmonicEval/fluency" in card.text and "in the training: 25.00%" in card.text
    kept = [(row["phase"], row["step"], row["index"]) for row in read_samples(folder) if row["index"] < 2]
    assert kept == [(*of, index) for of in (("before", 0), ("during", 1), ("after", 2)) for index in range(2)]


def test_the_curves_show_criteria_others_audits_and_abstentions(mixed_run):
    rows = read_metrics(mixed_run[0])
    training = [row for row in rows if "train/loss" in row]
    evaluations = [row for row in rows if any(key.startswith("eval/") for key in row)]
    assert [row["step"] for row in training] == [1, 2] and [row["step"] for row in evaluations] == [0, 1, 2]
    for row in training:
        # One text of four has no second score, so it counts for no criterion either; the judge's own curves have all.
        assert row["rewards/HarmonicEval/overall/count"] == 4
        assert row["rewards/Combined/overall/count"] == 3 and row["rewards/Combined/abstained"] == 1
        assert row["samples/failure_rate"] == 0.25 and row["train/skipped_steps"] == 0
        assert row["rewards/every_third_fails/overall/mean"] == 1.0
        assert {f"rewards/HarmonicEval/{c}/{k}" for c in ("correctness", "fluency") for k in ("mean", "weight")} <= set(
            row
        )
        assert row["policy/clip_fraction"] == row["policy/approx_kl"] == 0.0
        assert row["policy/ratio"] == row["policy/ratio_before_update"] == 1.0
        assert {"train/grad_norm", "train/learning_rate", "train/reward"} <= set(row)
    for row in evaluations:
        assert row["eval/rewards/HarmonicEval/overall/count"] == 4
        assert row["eval/rewards/HarmonicEval/fluency/standard_error"] > 0
        gap = row["eval/rewards/Combined/overall/mean"] - row["eval/audit/evenness/overall/mean"]
        assert "eval/rewards/every_third_fails/overall/standard_error" in row
        assert abs(row["eval/audit/gap"] - gap) < 0.5  # the gap is over the three texts that both judged


def test_the_policy_moved_and_its_adapter_loads_in_plain_peft(mixed_run, checkpoint):
    folder = mixed_run[0]
    texts = {row["phase"]: row["text"] for row in read_samples(folder) if row["image"].endswith("-000.png")}
    assert texts["before"] != texts["after"]
    plain = PeftModel.from_pretrained(AutoModelForImageTextToText.from_pretrained(checkpoint), folder / "adapter")
    assert any("lora_B" in name and parameter.abs().sum() > 0 for name, parameter in plain.named_parameters())


def test_the_policy_that_the_audit_likes_best_is_kept(mixed_run):
    folder, summary, _ = mixed_run
    means = {
        evaluation.step: sum(judged) / len(judged)
        for evaluation in EvaluationLog(folder).read()
        if (judged := [j.overall for j in evaluation.judgments("evenness") if j.overall is not None])
    }
    best = max(means, key=lambda step: (means[step], -step))
    assert len(means) == 3 and summary["best_step"] == best
    kept = load_file(folder / "best" / "adapter_model.safetensors")
    if best == 0:
        assert all(not tensor.any() for name, tensor in kept.items() if "lora_B" in name)
    else:
        then = load_file(folder / "checkpoints" / f"checkpoint-{best}" / "adapter_model.safetensors")
        assert kept.keys() == then.keys() and all(kept[name].equal(then[name]) for name in kept)
    assert not list((folder / "best").glob("*.bin"))


def test_the_model_card_tells_how_to_load_score_and_make_it_again(mixed_run, monkeypatch):
    folder = mixed_run[0]
    card = (folder / "README.md").read_text()
    record = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert record == json.loads((folder / "identity.json").read_text())["reward"]
    assert record["weights"] == {"HarmonicEval": 1.0, "every_third_fails": 0.5}
    judge = record["rewards"]["HarmonicEval"]["judge"]
    assert {"name", "revision", "dtype"} <= judge.keys()
    assert f"rewards curves {folder}" in card and "## Commands" in card
    assert not list((folder / "adapter").glob("*.bin"))
    monkeypatch.chdir(folder)
    scope: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], scope)
    assert isinstance(scope["model"], PeftModel)


def _written(folder):
    """When each file was last written, but for the lock, which older filelocks truncate whenever it is asked for."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.name != ".lock"}


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        (
            "trainer.criterion_weights",
            {"fluency": 3.0},
            r"trainer\.criterion_weights\.fluency was 2\.0 and is now 3\.0",
        ),
        ("trainer.learning_rate", 0.04, r"trainer\.learning_rate was 0\.05 and is now 0\.04"),
        ("trainer.beta", 0.1, r"trainer\.beta was not set and is now 0\.1"),
        ("trainer.per_device_train_batch_size", 2, r".*trainer\.texts_per_step was 4 and is now 2"),
        ("reward.rewards.0.gamma", 0.5, r"reward\.rewards\.HarmonicEval\.gamma was 0\.75 and is now 0\.5"),
        ("reward.rewards.1.weight", 1.0, r"reward\.weights\.every_third_fails was 0\.5 and is now 1\.0"),
        ("evaluation.audits", [], r"audits\.evenness was \{.* and is now not set"),
        ("evaluation.seed", 1, r"evaluation\.seed was 0 and is now 1"),
        ("data.train", {"n": 9}, r"data\.train was '"),
        ("data.held_out", {"n": 4, "seed": 101}, r"data\.held_out was '"),
        ("policy.lora_rank", 8, r"policy\.lora_rank was 4 and is now 8"),
        ("policy.lora_alpha", 64, r"policy\.lora_alpha was None and is now 64"),
        ("seed", 1, "seed was 0 and is now 1"),
        ("algorithm", "rloo", "algorithm was 'grpo' and is now 'rloo'"),
    ],
)
def test_a_run_that_would_be_another_one_is_not_resumed(mixed_run, key, value, named):
    folder, _, settings = mixed_run
    before = _written(folder)
    settings = copy.deepcopy(settings) | {"resume": True}
    target = settings
    *parents, last = key.split(".")
    for parent in parents:
        target = target[int(parent)] if parent.isdigit() else target[parent]
    target[last] = value
    with pytest.raises(InputError, match=f"begun otherwise: {named}"):
        run(settings)
    assert _written(folder) == before


def test_other_weights_in_the_policys_folder_are_another_run(checkpoint, tmp_path):
    policy = tmp_path / "policy"
    shutil.copytree(checkpoint, policy)
    settings = run_settings(str(policy), checkpoint, tmp_path / "run", max_steps=1)
    run(settings)
    weights = load_file(policy / "model.safetensors")
    save_file({name: tensor * 1.5 for name, tensor in weights.items()}, policy / "model.safetensors", {"format": "pt"})
    with pytest.raises(InputError, match=r"begun otherwise: policy\.weights was"):
        run(settings | {"resume": True})


def test_a_run_is_not_overwritten_by_accident_and_resumes_where_it_was(mixed_run):
    folder, summary, settings = mixed_run
    with pytest.raises(InputError, match="already holds a run"):
        run(settings)
    # As after a kill between the first checkpoint and the end.
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    before = [row for row in read_metrics(folder) if "train/loss" in row]
    (folder / "checkpoints" / "checkpoint-2" / "trainer_state.json").write_text('{"cut off')
    resumed = run(settings | {"resume": "auto"})
    after = [row for row in read_metrics(folder) if "train/loss" in row]
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == len(lines)
    for old, new in zip(before, after, strict=True):
        for key in old.keys() - {"time", "time/step", "time/sample", "time/judge"}:
            assert new[key] == pytest.approx(old[key], abs=1e-6), key
    assert resumed == summary
    # As after a kill in the last evaluation: no step is added to a run that has made them all.
    (folder / "summary.json").unlink()
    assert run(settings | {"resume": True}) == summary
    assert [row["step"] for row in read_metrics(folder) if "train/loss" in row] == [1, 2]
    assert not (folder / "checkpoints" / "checkpoint-3").exists()


def test_a_running_scale_goes_on_where_the_checkpoint_left_it(checkpoint, tmp_path):
    settings = run_settings(checkpoint, checkpoint, tmp_path, max_steps=4, save_strategy="steps", save_steps=2)
    settings["reward"] = combined(checkpoint, "evenness") | {"standardize": "running"}
    run(settings)
    before = [row for row in read_metrics(tmp_path) if "train/loss" in row]
    (tmp_path / "checkpoints" / "checkpoint-4" / "trainer_state.json").unlink()
    run(settings | {"resume": True})
    after = [row for row in read_metrics(tmp_path) if "train/loss" in row]
    for old, new in zip(before, after, strict=True):
        assert new["train/reward"] == pytest.approx(old["train/reward"], abs=1e-6)


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "ppo"])
def test_the_learning_rate_of_an_extended_run_does_not_jump(checkpoint, tmp_path, algorithm):
    """Linear from step 0 to 8, stopped at 4 and extended to 12: from .5 on in steps of .5 / 8."""
    settings = run_settings(
        checkpoint, checkpoint, tmp_path, max_steps=8, learning_rate=8e-3, lr_scheduler_type="linear",
        save_strategy="steps", save_steps=4, num_iterations=1,
    )  # fmt: skip
    settings |= {"algorithm": algorithm}
    run(settings)
    (tmp_path / "checkpoints" / "checkpoint-8" / "trainer_state.json").unlink()
    settings["trainer"]["max_steps"] = 12
    run(settings | {"resume": True})
    rates = [row["train/learning_rate"] for row in read_metrics(tmp_path) if "train/loss" in row]
    assert rates[:4] == pytest.approx([8e-3, 7e-3, 6e-3, 5e-3])
    assert rates[4:] == pytest.approx([4e-3 - 0.5e-3 * step for step in range(8)])
    with pytest.raises(InputError, match="reached the end of its learning-rate schedule at step 12"):
        settings["trainer"]["max_steps"] = 16
        run(settings | {"resume": True})


def test_rloo_and_a_judge_that_abstains_too_often(checkpoint, tmp_path):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "rloo", max_steps=1)
    settings |= {"algorithm": "rloo"}
    assert run(settings)["steps"] == [0, 1]
    dead = run_settings(checkpoint, checkpoint, tmp_path / "dead", max_steps=3)
    dead["reward"]["min_rating_mass"] = 1.0
    with pytest.raises(RewardsError, match="stopped at step 1: 100% of the texts could not be judged by HarmonicEval"):
        run(dead)
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
        ("trainer.criterion_weights", {"fluency": 1.0}, "per_criterion"),
        ("trainer.per_criterion", "yes", "per_criterion"),
        ("trainer.save_strategy", "steps", "save_steps"),
        ("evaluation.audits", [{}], "needs a judge"),
        ("evaluation.audits", [audit("evenness"), audit("evenness")], "audits must have different names"),
        ("data.cluster", "scene", "data.cluster is 'scene'"),
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
        ("trainer.audit_max_gap", float("nan"), "trainer.audit_max_gap"),
        ("trainer.max_failure_rate", 7, "trainer.max_failure_rate must be at most 1"),
        ("reward.weight", float("nan"), "weight of a reward must be a finite number"),
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
        run(settings)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("policy.path", "no/such-policy", "no/such-policy"),
        ("policy.dtype", "float31", "unknown dtype"),
        ("data.source", "tests.trainers.language.text_world:nothing", "nothing"),
        ("data.held_out", {"n": 0}, "gave no rows"),
    ],
)
def test_what_can_be_wrong_without_a_judge_is_said_before_one_loads(checkpoint, tmp_path, key, value, message):
    settings = run_settings(checkpoint, "no/such-judge", tmp_path / "run")
    room, name = key.split(".")
    settings[room][name] = value
    with pytest.raises(InputError, match=message):
        run(settings)


def test_data_without_prompts_or_pictures_is_refused():
    source = "tests.trainers.language.text_world:pictures"
    renamed = DataSettings(source, {"n": 2}, {}, prompt="describe", rename={"number": "question"})
    rows = load_prompts(renamed, renamed.train)
    assert rows[0]["prompt"] == [{"role": "user", "content": "describe"}] and rows[1]["question"] == 1
    with pytest.raises(InputError, match="no column 'picture'"):
        load_prompts(DataSettings(source, {"n": 2}, {}, rename={"picture": "image"}), {"n": 2})
    with pytest.raises(InputError, match="expected 'image' or 'images'"):
        load_prompts(DataSettings(source, {"n": 2}, {}, rename={"image": "picture"}), {"n": 2})
    with pytest.raises(InputError, match="cannot be imported"):
        load_prompts(DataSettings("tests.trainers.language.text_world:", {}, {}), {})


def test_rows_share_what_the_data_says_or_their_pictures():
    rows = pictures(4)
    assert len(set(clusters(rows, None))) == 4
    twice = concatenate_datasets([rows, rows])
    assert clusters(twice, None)[:4] == clusters(twice, None)[4:]
    scenes = rows.add_column("cluster", ["a", "a", "b", "b"]).add_column("document", [1, 2, 3, 3])
    assert clusters(scenes, None) == ["a", "a", "b", "b"] and clusters(scenes, "document") == ["1", "2", "3", "3"]
    with pytest.raises(InputError, match=r"data\.cluster is 'page'; the columns are prompt"):
        clusters(scenes, "page")


def test_the_content_of_data_counts_prompts_pictures_and_order():
    rows = pictures(3)
    assert content_of(rows) == content_of(pictures(3)) == content_of(pictures(5).select([0, 1, 2]))
    others = [pictures(4), pictures(3, seed=1), rows.select([1, 0, 2]), rows.remove_columns("number")]
    assert len({content_of(rows), *map(content_of, others)}) == 5


CHECKPOINTING = [name for name in ("gradient_checkpointing", "activation_checkpointing") if hasattr(GRPOConfig, name)]
"""The setting's names: transformers has the second from 5.23 on, and tells the first what the second is."""


@pytest.mark.parametrize("name", CHECKPOINTING)
def test_checkpointing_is_set_under_either_name_without_a_warning(name, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        for chosen in (True, False):
            arguments = trainer_arguments(GRPOConfig, {name: chosen, "num_generations": 2}, tmp_path, 0)
            assert all(getattr(arguments, known) is chosen for known in CHECKPOINTING)


def test_parts_are_trained_on_with_their_weights(checkpoint):
    harmonic = RewardSettings(judge=checkpoint, criteria=["fluency", "clarity"], weight=3.0)
    function = RewardSettings("function", function="tests.trainers.language.text_world:evenness", weight=0.1)
    both = build_reward(RewardSettings("combined", rewards=[harmonic, function]))
    own = own_settings({"per_criterion": True, "criterion_weights": {"fluency": 2.0}, "max_steps": 3})
    functions, weights = training_functions(both, own)
    assert dict(zip([function.part for function in functions], weights, strict=True)) == {
        "HarmonicEval/fluency": 6.0, "HarmonicEval/clarity": 3.0, "evenness": 0.1,
    }  # fmt: skip
    assert training_functions(both, OwnTrainerSettings()) == ([both], [1.0])
    with pytest.raises(InputError, match="criterion_weights names 'fluenzy'; the parts are HarmonicEval/fluency"):
        training_functions(both, OwnTrainerSettings(per_criterion=True, criterion_weights={"fluenzy": 1.0}))
    with pytest.raises(InputError, match="evenness does not say beforehand"):
        training_functions(build_reward(function), own)


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


CONFIGS = [f for f in sorted((ROOT / "configs").glob("*.yaml")) if "policy" in yaml.safe_load(f.read_text())]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_name_only_what_exists(path):
    config = load_config(LanguageRunConfig, path)
    assert config.algorithm == path.name.partition("_")[0]
    trainer_class = PPOConfig if config.algorithm == "ppo" else GRPOConfig
    fields = {field.name for of in (trainer_class, OwnTrainerSettings) for field in dataclasses.fields(of)}
    assert set(config.trainer) <= fields
    assert config.trainer["max_steps"] > 0
    for chosen in config.evaluation.audits:
        assert chosen.judge or build_reward(chosen)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_trainer_settings_go_together(path, tmp_path):
    """As the run would build them, but for what only a GPU has."""
    trainer_class = PPOConfig if path.name.startswith("ppo") else GRPOConfig
    settings = yaml.safe_load(path.read_text())["trainer"]
    arguments = trainer_arguments(trainer_class, settings | {"bf16": False, "use_cpu": True}, tmp_path, 0)
    assert arguments.max_steps == settings["max_steps"] and not arguments.remove_unused_columns
    assert getattr(arguments, CHECKPOINTING[-1]) is settings.get("gradient_checkpointing", False)


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


def test_checklists_of_the_rows_are_trained_on(checkpoint, tmp_path):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "run", max_steps=1)
    settings["data"] |= {"source": "tests.trainers.language.text_world:checklists", "prompt": "Describe it."}
    settings["reward"] = {"kind": "rubric", "judge": checkpoint, "soft": True}
    summary = run(copy.deepcopy(settings))
    assert {"overall", "essential", "optional", "pitfall"} <= set(summary["reward"]["Rubric"])
    (step,) = [row for row in read_metrics(tmp_path / "run") if "train/loss" in row]
    counts = [step[f"rewards/Rubric/{kind}/count"] for kind in ("essential", "optional", "pitfall")]
    assert counts[0] + counts[1] == 4 and counts[1] == counts[2]  # each text by its own row's checklist
    settings["data"]["train"] = {"n": 8, "broken": 5}
    settings["output_dir"] = str(tmp_path / "broken")
    with pytest.raises(InputError, match=r"data.train: row 5, column 'rubric': an item of a rubric must be a text"):
        run(copy.deepcopy(settings))
    settings["reward"]["column"] = "checks"
    with pytest.raises(InputError, match=r"data.train: .* no column 'checks'; the columns are number, rubric, prompt"):
        run(settings)
    assert not (tmp_path / "broken").exists()


def test_the_reward_is_audited_before_it_is_trained_on(checkpoint, tmp_path, capsys):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "run", max_steps=1)
    with pytest.raises(InputError, match=r"data\.truth names its column"):
        run(settings | {"audit_before": True})
    settings["data"]["truth"] = "number"
    settings["overwrite"] = True
    run(settings | {"audit_before": True})
    record = json.loads((tmp_path / "run" / "audit.json").read_text())
    assert record["rows"] == 4 and {"blank", "padded", "empty"} <= {f["kind"] for f in record["findings"]}
    assert record["identity"] == json.loads((tmp_path / "run" / "identity.json").read_text())["reward"]
    assert record["verdict"] in capsys.readouterr().out and (tmp_path / "run" / "audit.html").exists()


def test_a_second_process_on_a_run_is_refused_and_touches_nothing(checkpoint, tmp_path, mixed_run):
    folder, _, settings = mixed_run
    held = locked(folder, ".lock")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for flags in ({"resume": True}, {"overwrite": True}, {}):
        with pytest.raises(InputError, match=r"^another process is working on .*grpo; wait for it"):
            run(settings | flags)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    held.release()
    begun = run_settings(checkpoint, checkpoint, tmp_path / "run", max_steps=1)
    begun["policy"]["lora_target_modules"] = ["no_such_module"]
    with pytest.raises(InputError, match="no_such_module"):
        run(begun)
    locked(tmp_path / "run", ".lock").release()  # a run that failed lets go
