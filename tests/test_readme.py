"""README's snippets, run from its own text; names of checkpoints and devices are exchanged for the shipped ones."""

import json
import re
from pathlib import Path

import pytest

import rewards
from rewards.judges.loading import load_judge
from rewards.runs.metrics import read_metrics
from rewards.shapes.datasets import caption_prompts, sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.tifa.reward import TIFA

ROOT = Path(__file__).parents[1]
WEIGHTS = Path(rewards.__file__).parent / "shapes" / "weights"
SHORT_GRPO = (
    "remove_unused_columns=False, max_steps=1, per_device_train_batch_size=4, num_generations=2, logging_steps=1, "
    "max_completion_length=6, use_cpu=True, bf16=False, report_to=[]"
)
SHORT_DDPO = (
    'resume="auto", num_epochs=1, eval_freq=1, save_freq=1, sample_batch_size=4, sample_num_batches_per_epoch=1, '
    "sample_num_images_per_prompt=2, sample_num_steps=2, sample_guidance_scale=1.0, train_batch_size=4, "
    "num_logged_samples=2"
)
EXCHANGED = {
    '"Qwen/Qwen2.5-VL-7B-Instruct", device="cuda:1", dtype="bfloat16"': '"shapes-rater"',
    '"Qwen/Qwen2.5-VL-3B-Instruct"': repr(str(WEIGHTS / "captioner")),
    "remove_unused_columns=False": SHORT_GRPO,
    '"blip-large", device="cuda"': '"shapes-vqa"',
    '"stable-diffusion-v1-5/stable-diffusion-v1-5"': repr(str(WEIGHTS / "stable_diffusion")),
    'resume="auto"': SHORT_DDPO,
}


def snippets():
    """The Python blocks of README, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the snippets take for granted, in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    scenes = sample_scenes("test", 4, seed=0)
    texts = [str(describe(scene)) for scene in scenes]
    render(scenes[0]).save("photo.jpg")
    store = question_store("questions.sqlite", texts)
    return {
        "dataset": caption_prompts("train", 8, seed=0),
        "prompts": texts[:2],
        "held_out_prompts": texts[2:],
        "second_judge": TIFA(load_judge("shapes-vqa"), store, answer="choices"),
        "images": [render(scene) for scene in scenes],
        "texts": texts,
    }


def test_the_snippets_do_what_they_say(names, tmp_path):
    grpo, ddpo, best_of_n = snippets()
    for old, new in EXCHANGED.items():
        assert old in grpo + ddpo, f"README no longer has {old}"
        grpo, ddpo = grpo.replace(old, new), ddpo.replace(old, new)
    exec(compile(grpo, "README.md, GRPO", "exec"), names)
    rows = read_metrics(tmp_path / "runs" / "grpo")
    assert any(row.get("rewards/HarmonicEval/correctness/mean") is not None for row in rows)
    exec(compile(best_of_n, "README.md, best of n", "exec"), names)
    assert names["best"].candidate in ("a dog", "two dogs on grass") and names["margin"] >= 0
    assert names["scores"].overall.shape == (4,) and names["scores"].parts.shape == (4, 5)
    exec(compile(ddpo, "README.md, DDPO", "exec"), names)
    folder = tmp_path / "runs" / "ddpo"
    assert (folder / "adapter").is_dir() and any((folder / "samples").glob("after-*.png"))
    assert any(key.startswith("eval/audit/") for row in read_metrics(folder) for key in row)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


def test_the_demos_table_is_what_the_demo_printed():
    demo = json.loads((ROOT / "benchmarks" / "results" / "demo.json").read_text())
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    for title, part in (
        ("TIFA, the judge that trains", demo["nft"]["reward"]["TIFA"]["overall"]),
        ("TIFA, oracle", demo["nft"]["audits"]["oracle"]["overall"]),
        ("HarmonicEval, the judge that trains", demo["grpo"]["reward"]["HarmonicEval"]["overall"]),
        ("truth of the same captions", demo["grpo"]["audits"]["caption_truth_reward"]["overall"]),
    ):
        (row,) = [line for line in lines if line.startswith(f"| {title} |")]
        interval = f"{part['low']:+.3f} to {part['high']:+.3f}"
        assert row == f"| {title} | {part['before']:.3f} | {part['after']:.3f} | {part['gain']:+.3f} | {interval} |"
    (guidance,) = demo["nft"]["baselines"]
    said = f"{guidance['base_audit']:.3f} by the oracle, with the trained pipeline {guidance['trained_audit']:.3f}"
    assert said in " ".join(lines)
    oracle, truth = demo["nft"]["audits"]["oracle"]["overall"], demo["best_of_8"]["curves"]["truth"][-1]["value"]
    assert oracle["before"] + oracle["low"] > guidance["base_audit"]
    assert truth > demo["grpo"]["audits"]["caption_truth_reward"]["overall"]["after"]
