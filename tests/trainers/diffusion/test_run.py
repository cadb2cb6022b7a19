"""A run from its config: the shapes world, TIFA files, mistakes in one line."""

import json
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from rewards.errors import InputError
from rewards.judges.loading import load_judge
from rewards.runs.config import load_config
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples
from rewards.shapes.prompts import question_store
from rewards.tifa.questions.question import read_questions
from rewards.tifa.reward import TIFA
from rewards.trainers.diffusion.ddpo import DDPOConfig, DDPOTrainer
from rewards.trainers.diffusion.run import load_pipeline, new_methods, new_trainer, run_diffusion
from rewards.trainers.diffusion.settings import DiffusionRunConfig
from rewards.trainers.diffusion.summary import summary_table
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, stable_diffusion

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
KINDS = ("ddpo", "nft", "awm", "flow_grpo", "grpo_guard", "reward_gradient", "direct_align")
SHIPPED = sorted(path for name in KINDS for path in CONFIGS.glob(f"{name}_*.yaml"))
SMALL = {
    "num_train_prompts": 8,
    "num_eval_prompts": 4,
    "trainer.num_epochs": 1,
    "trainer.sample_batch_size": 8,
    "trainer.sample_num_batches_per_epoch": 1,
    "trainer.num_logged_samples": 2,
}


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    stable_diffusion(image_size=32, **ZERO_SNR).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_configs_load(path):
    for method in new_methods(load_config(DiffusionRunConfig, path)):
        assert method.args.samples_per_epoch() % method.args.sample_num_images_per_prompt == 0


def test_shapes_run_with_the_oracle(tmp_path, tiny_model, monkeypatch):
    oracle = {"reward.judge": "shapes-oracle", "reward.sentence_model": None, "reward.soft": False}
    overrides = SMALL | oracle | {"model": tiny_model, "output_dir": str(tmp_path)}
    config = load_config(DiffusionRunConfig, CONFIGS / "ddpo_shapes.yaml", overrides)
    result = run_diffusion(config)
    assert json.loads((tmp_path / "summary.json").read_text()) == result
    assert load_config(DiffusionRunConfig, tmp_path / "config.yaml") == config
    card = (tmp_path / "README.md").read_text()
    record = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert record["reward"]["identity"]["judge"]["name"] == "shapes-oracle" and record["audit"]["name"] == "oracle"
    assert len(record["reward"]["identity"]["questions"]) == 32
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], scope)  # as a reader would, in plain diffusers
    assert "default_0" in scope["pipeline"].unet.peft_config
    assert result["steps"] == [0, 1] and result["audits"]["oracle"] == result["reward"]["TIFA"]
    assert {"overall", "color", "object"} <= set(result["reward"]["TIFA"])
    assert result["baselines"][0]["guidance_scale"] == 2.0
    table = summary_table(result)
    assert "TIFA overall" in table and "guidance 2, audit" in table and "oracle color" in table
    rows = read_metrics(tmp_path)
    assert rows[1]["audit/oracle/color/count"] == rows[1]["rewards/TIFA/color/count"] > 0
    samples = read_samples(tmp_path)
    assert (
        len(samples) == 4
        and {"question", "element_type", "answer", "choice", "right"} <= samples[0]["details"][0].keys()
    )
    assert samples[0]["parts"]


@pytest.mark.parametrize("name", ["nft_shapes_flow", "flow_grpo_shapes"])
def test_a_short_run_on_the_packaged_flow(tmp_path, name):
    values = {"trainer.sample_num_images_per_prompt": 4, "trainer.per_prompt_stat_tracking_min_count": 4}
    overrides = SMALL | values | {"output_dir": str(tmp_path), "baseline_guidance_scales": []}
    result = run_diffusion(load_config(DiffusionRunConfig, CONFIGS / f"{name}.yaml", overrides))
    assert result["steps"] == [0, 1] and result["audits"]["oracle"]["overall"]["count"] == 4
    (row,) = (row for row in read_metrics(tmp_path) if "train/pairs" in row)
    assert row["train/pairs"] > 0 and row["train/grad_norm"] > 0
    if name == "flow_grpo_shapes":
        assert row["policy/ratio_before_update"] == 1.0
    pipeline = load_pipeline("shapes-flow")
    draw = partial(pipeline, "a red circle", num_inference_steps=8, output_type="pt", max_sequence_length=1)
    before = draw(generator=torch.Generator().manual_seed(0)).images
    pipeline.load_lora_weights(tmp_path / "adapter")
    assert (draw(generator=torch.Generator().manual_seed(0)).images - before).abs().max() > 1e-3


@pytest.mark.filterwarnings("error")
def test_loading_takes_the_wanted_precision_and_warns_of_nothing():
    assert load_pipeline("shapes", mixed_precision="bf16").unet.dtype == torch.bfloat16
    assert load_pipeline("shapes").unet.dtype == torch.float32


def test_prompts_come_from_a_tifa_file_and_are_split(tmp_path, tiny_model, tifa_data):
    source = tifa_data / "sample_question_answers.json"
    config = load_config(
        DiffusionRunConfig,
        None,
        SMALL
        | {
            "model": tiny_model,
            "prompts": str(source),
            "num_eval_prompts": 1,
            "num_train_prompts": None,
            "reward": {"kind": "tifa", "judge": "shapes-oracle", "sentence_model": None},
            "output_dir": str(tmp_path / "run"),
        },
    )
    trainer = new_trainer(config)
    held_out = set(trainer._eval_set.prompts)
    assert len(held_out) == 1 and held_out.isdisjoint(trainer.prompts)
    assert held_out | set(trainer.prompts) == {question.prompt for question in read_questions(source)}
    few = {"prompts": str(source), "output_dir": str(tmp_path / "b"), "num_eval_prompts": 99}
    with pytest.raises(InputError, match="none is left to train on"):
        new_trainer(load_config(DiffusionRunConfig, None, few))


@pytest.mark.parametrize("without", ["a red circle", "a prompt that is held out"])
def test_a_prompt_without_questions_is_found_before_a_model_loads(tmp_path, without):
    prompts = ["two red circles and a blue square", "three green triangles", without]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts))
    question_store(tmp_path / "questions.sqlite", prompts[:2]).close()
    reward = {"kind": "tifa", "judge": "no-such-judge", "questions": str(tmp_path / "questions.sqlite")}
    for held_out in (0, 2):  # the prompt is among those that train, or may be held out
        settings = {"model": "no/such/model", "prompts": str(tmp_path / "prompts.txt"), "num_eval_prompts": held_out}
        config = load_config(DiffusionRunConfig, None, settings | {"reward": reward, "output_dir": str(tmp_path / "a")})
        with pytest.raises(InputError, match=without):
            run_diffusion(config)


def test_the_trainer_asks_the_reward_about_its_prompts_at_the_start(tmp_path):
    tifa = TIFA(load_judge("shapes-vqa"), question_store(tmp_path / "q.sqlite", ["a red circle"]), answer="choices")
    arguments = DDPOConfig(output_dir=str(tmp_path / "run"))
    for reward, audit in ((tifa, None), (lambda images, prompts, metadata: [0.0] * len(prompts), tifa)):
        with pytest.raises(InputError, match="a blue square"):
            DDPOTrainer(None, reward, ["a red circle"], arguments, eval_prompts=["a blue square"], audit=audit)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.num_epoch=1"], "trainer: unknown key 'num_epoch'; did you mean 'num_epochs'"),
        (["trainer.seed=1"], "seed is a setting of the run"),
        (["method=dpo"], "method 'dpo' is not known; there are ddpo, nft, awm, flow_grpo, grpo_guard, reward_gradient"),
        (["reward.judge=no-such-judge"], "no-such-judge"),
        (["model=no/such/model", "reward.judge=no-such-judge"], "no/such/model"),
        (["prompts=missing.json"], "missing.json"),
        (["num_eval_prompts=-1"], "num_eval_prompts"),
        (["baseline_guidance_scales=[0.5]"], "baseline_guidance_scales must be at least 1"),
        (["reward.judge=shapes-vqa", "reward.device=cuda:99"], "cuda:99"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path, tiny_model, overrides, message):
    base = [
        f"model={tiny_model}",
        f"output_dir={tmp_path}",
        "reward={kind: tifa, judge: shapes-oracle, sentence_model: null}",
        "num_train_prompts=2",
    ]
    with pytest.raises((InputError, OSError), match=message):
        run_diffusion(load_config(DiffusionRunConfig, None, [*base, "num_eval_prompts=1", *overrides]))


def test_the_reward_is_audited_before_it_is_trained_on(tmp_path, tiny_model, capsys):
    oracle = {"reward.judge": "shapes-oracle", "reward.sentence_model": None, "reward.soft": False}
    values = {"model": tiny_model, "output_dir": str(tmp_path), "trainer.audit_before": True}
    run_diffusion(load_config(DiffusionRunConfig, CONFIGS / "ddpo_shapes.yaml", SMALL | oracle | values))
    record = json.loads((tmp_path / "audit.json").read_text())
    assert record["rows"] == 2 and {"blank", "collage", "half resolution"} <= {f["kind"] for f in record["findings"]}
    assert record["verdict"] in capsys.readouterr().out and (tmp_path / "audit.html").stat().st_size > 10_000
