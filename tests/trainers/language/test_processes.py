"""GRPO, RLOO and PPO on two processes: counts over both, and no process left waiting for one whose judge fails."""

from pathlib import Path

import pytest
import yaml

from rewards.runs.metrics import read_metrics
from tests import tiny_models
from tests.trainers.language.test_killed import TWO_PROCESSES, errors, start
from tests.trainers.language.text_world import combined, run_settings

ALGORITHMS = ["grpo", "rloo", "ppo"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


def finish(algorithm, checkpoint, tmp_path, function):
    """Exit status of a run of two processes beside another reward function, and its folder."""
    settings = run_settings(checkpoint, checkpoint, tmp_path, max_steps=2, learning_rate=0.02, num_iterations=1)
    settings["reward"] = combined(checkpoint, function)
    settings["trainer"]["max_failure_rate"] = 1.0
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(settings))
    process = start(algorithm, config, tmp_path / "run", TWO_PROCESSES)
    return process.wait(timeout=500), tmp_path / "run"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_judge_that_abstains_on_one_process_holds_nobody_up(checkpoint, tmp_path, algorithm):
    status, folder = finish(algorithm, checkpoint, tmp_path, "silent_on_rank_1")
    assert status == 0, errors(folder)
    rows = [row for row in read_metrics(folder) if "train/loss" in row]
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        # Four texts a process, and HarmonicEval judges all eight.
        assert row["rewards/HarmonicEval/overall/count"] == 8 and row["rewards/HarmonicEval/abstained"] == 0
        assert row["rewards/silent_on_rank_1/overall/mean"] == 2.0  # of 1, 2, 3: what was judged
        assert row["train/grad_norm"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_judge_that_dies_on_one_process_costs_its_texts_and_nothing_else(checkpoint, tmp_path, algorithm):
    status, folder = finish(algorithm, checkpoint, tmp_path, "dies_on_rank_1")
    assert status == 0, errors(folder)
    assert "the judge of this process is lost" in Path(f"{folder}.log").read_text()
    rows = [row for row in read_metrics(folder) if "train/loss" in row]
    assert [row["rewards/Combined/abstained"] for row in rows] == [0, 4]
    assert rows[1]["samples/failure_rate"] == 0.5 and rows[1]["train/grad_norm"] > 0
