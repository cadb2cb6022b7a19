"""A run from its config: the shapes world, TIFA files, mistakes in one line."""

import json
from pathlib import Path

import pytest
import yaml
from accelerate.state import AcceleratorState

from rewards.errors import InputError
from rewards.runs.config import load_config
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples
from rewards.tifa.questions.question import read_questions
from rewards.trainers.diffusion.run import DDPORunConfig, new_trainer, run_ddpo, summary_table
from tests.trainers.diffusion.tiny_diffusion import ZERO_SNR, stable_diffusion

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
SMALL = {
    "num_train_prompts": 8,
    "num_eval_prompts": 4,
    "trainer.num_epochs": 1,
    "trainer.sample_batch_size": 8,
    "trainer.sample_num_batches_per_epoch": 1,
    "trainer.num_logged_samples": 2,
}


@pytest.fixture(autouse=True)
def fresh_accelerate_state():
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    stable_diffusion(image_size=32, **ZERO_SNR).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("ddpo_*.yaml")), ids=lambda path: path.stem)
def test_shipped_configs_load(path):
    config = load_config(DDPORunConfig, path)
    assert config.trainer.samples_per_epoch() % config.trainer.sample_num_images_per_prompt == 0


def test_shapes_run_with_the_oracle(tmp_path, tiny_model, monkeypatch):
    overrides = SMALL | {"model": tiny_model, "trainer.logdir": str(tmp_path), "reward.judge": "shapes-oracle"}
    config = load_config(DDPORunConfig, CONFIGS / "ddpo_shapes.yaml", overrides | {"reward.soft": False})
    result = run_ddpo(config)
    assert json.loads((tmp_path / "summary.json").read_text()) == result
    assert load_config(DDPORunConfig, tmp_path / "run.yaml") == config
    card = (tmp_path / "adapter" / "README.md").read_text()
    record = yaml.safe_load(card.split("```yaml\n")[1].split("```")[0])
    assert record["reward"]["identity"]["judge"]["name"] == "shapes-oracle" and record["audit"]["name"] == "oracle"
    assert len(record["questions"]) == 32
    monkeypatch.chdir(tmp_path)
    scope: dict = {}
    exec(card.split("```python\n")[1].split("```")[0], scope)  # as a reader would, in plain diffusers
    assert "default_0" in scope["pipeline"].unet.peft_config
    assert result["epochs"] == 1 and result["audit"]["before"] == result["reward"]["before"]
    assert {"color", "object"} <= set(result["reward"]["by_element_type"])
    assert result["baselines"][0]["guidance_scale"] == 2.0
    table = summary_table(result)
    assert "reward" in table and "guidance 2" in table and "color" in table
    rows = read_metrics(tmp_path)
    assert rows[1]["audit/oracle/color/count"] == rows[1]["rewards/TIFA/color/count"] > 0
    samples = read_samples(tmp_path)
    assert len(samples) == 4 and samples[0]["details"][0].keys() == {"question", "type", "answer", "expected", "right"}
    assert samples[0]["parts"]


def test_prompts_come_from_a_tifa_file_and_are_split(tmp_path, tiny_model, tifa_data):
    source = tifa_data / "sample_question_answers.json"
    config = load_config(
        DDPORunConfig,
        None,
        SMALL
        | {
            "model": tiny_model,
            "questions": str(source),
            "num_eval_prompts": 1,
            "num_train_prompts": None,
            "reward.judge": "shapes-oracle",
            "trainer.logdir": str(tmp_path / "run"),
        },
    )
    trainer = new_trainer(config)
    held_out = set(trainer._eval_set.prompts)
    assert len(held_out) == 1 and held_out.isdisjoint(trainer.prompts)
    assert held_out | set(trainer.prompts) == {question.prompt for question in read_questions(source)}
    with pytest.raises(InputError, match="none is left to train on"):
        new_trainer(load_config(DDPORunConfig, None, {"questions": str(source), "trainer.logdir": str(tmp_path / "b")}))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["trainer.num_epoch=1"], "unknown key 'trainer.num_epoch'; did you mean 'trainer.num_epochs'"),
        (["reward.judge=no-such-judge"], "no-such-judge"),
        (["model=no/such/model"], "no/such/model"),
        (["questions=missing.json"], "missing.json"),
        (["num_eval_prompts=-1"], "num_eval_prompts"),
        (["baseline_guidance_scales=[-2]"], "baseline_guidance_scales"),
        (["reward.judge=shapes-vqa", "reward.device=cuda:99"], "cuda:99"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path, tiny_model, overrides, message):
    base = [f"model={tiny_model}", f"trainer.logdir={tmp_path}", "reward.judge=shapes-oracle", "num_train_prompts=2"]
    with pytest.raises((InputError, OSError), match=message):
        run_ddpo(load_config(DDPORunConfig, None, [*base, "num_eval_prompts=1", *overrides]))
