"""`pairs.parquet` and `sft.parquet` train in TRL as they are."""

import datasets
import pytest

from rewards.build import RewardSettings
from rewards.jobs.job import run_local
from rewards.rerank.outputs import OutputSettings, write_outputs
from rewards.rerank.settings import RerankSettings
from rewards.rerank.task import start_rerank
from tests import tiny_models

from .functions import write_lines


@pytest.fixture
def finished(tmp_path):
    for n in range(2):
        tiny_models.picture(n).save(tmp_path / f"{n}.png")
    rows = [
        {"image": f"{n}.png", "prompt": "what is it", "candidates": ["a red circle", "red", "a blue"]} for n in range(2)
    ]
    reward = RewardSettings(kind="function", function="tests.rerank.functions:by_length")
    job = start_rerank(write_lines(tmp_path / "r.jsonl", rows), tmp_path / "job", RerankSettings(reward=reward))
    run_local(job)
    write_outputs(job, OutputSettings(pairs=True, sft=True))
    return job.folder


def load(folder, name):
    return datasets.Dataset.from_parquet(str(folder / f"{name}.parquet"), cache_dir=str(folder))


def test_one_step_of_dpo(tmp_path, finished):
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from trl import DPOConfig, DPOTrainer

    path = tiny_models.save("llava", tmp_path / "llava", sharpen=1.0)
    model = AutoModelForImageTextToText.from_pretrained(path)
    before = {name: value.clone() for name, value in model.named_parameters()}
    settings = DPOConfig(
        str(tmp_path / "dpo"), max_steps=1, per_device_train_batch_size=2, learning_rate=1e-2, report_to=[],
        use_cpu=True, max_length=None, save_strategy="no", bf16=False, gradient_checkpointing=False,
        remove_unused_columns=False,
    )  # fmt: skip
    trainer = DPOTrainer(
        model,
        args=settings,
        train_dataset=load(finished, "pairs"),
        processing_class=AutoProcessor.from_pretrained(path),
    )
    result = trainer.train()
    assert result.global_step == 1 and abs(result.training_loss - 0.6931) < 0.01
    assert any(not value.equal(before[name]) for name, value in trainer.model.named_parameters())


def test_one_step_of_sft(tmp_path, finished):
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from trl import SFTConfig, SFTTrainer

    path = tiny_models.save("llava", tmp_path / "llava", sharpen=1.0)
    model = AutoModelForImageTextToText.from_pretrained(path)
    before = {name: value.clone() for name, value in model.named_parameters()}
    settings = SFTConfig(
        str(tmp_path / "sft"), max_steps=1, per_device_train_batch_size=2, learning_rate=1e-2, report_to=[],
        use_cpu=True, max_length=None, save_strategy="no", bf16=False, gradient_checkpointing=False,
    )  # fmt: skip
    trainer = SFTTrainer(
        model,
        args=settings,
        train_dataset=load(finished, "sft"),
        processing_class=AutoProcessor.from_pretrained(path),
    )
    assert trainer.train().global_step == 1
    assert any(not value.equal(before[name]) for name, value in trainer.model.named_parameters())
