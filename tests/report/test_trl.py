"""Curves of a run of TRL's own trainer, without any callback of ours."""

import json

from rewards.report.reading import load_run
from tests.report.test_report import page_text, run_command


def state(folder, rows):
    folder.mkdir(parents=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 2, "log_history": rows}))


def test_the_newest_checkpoint_s_log_is_drawn_under_our_names(tmp_path):
    rows = [
        {"step": step, "epoch": 0.1, "loss": 0.5, "kl": 0.01 * step, "reward": 3.0 * step, "reward_std": 0.1,
         "rewards/HarmonicEval/mean": 2.0 * step, "rewards/HarmonicEval/fluency/mean": 4.0, "rewards/length/mean": 1.0}
        for step in (1, 2)
    ]  # fmt: skip
    state(tmp_path / "checkpoint-1", rows[:1])
    state(tmp_path / "checkpoint-2", [*rows, {"step": 2, "train_runtime": 9.0}])
    run = load_run(tmp_path)
    assert run.series("rewards/HarmonicEval/overall/mean").values.tolist() == [2.0, 4.0]
    assert run.series("policy/kl").steps.tolist() == [1, 2] and run.step_name == "optimiser step"
    result = run_command(tmp_path)
    assert result.exit_code == 0, result.output
    text = page_text(tmp_path / "report.html")
    assert "Reward that is optimised" in text and "HarmonicEval, training samples" in text and "fluency" in text
