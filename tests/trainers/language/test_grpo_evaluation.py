"""Held-out evaluation of texts: parts, intervals, gaps, files, TRL's log keys."""

import math

import numpy as np
import pytest
from transformers import TrainerControl, TrainerState

from rewards.errors import InputError, RewardsError
from rewards.runs.folder import last_checkpoint, prepare_folder
from rewards.runs.metrics import read_metrics
from rewards.trainers.audit import AuditGapExceeded
from rewards.trainers.language.callbacks import AbstentionGuard, MetricsCallback, metric_keys
from rewards.trainers.language.evaluation import (
    TextEvaluation,
    TextEvaluationLog,
    common_means,
    judge_texts,
    part_metrics,
)
from rewards.trainers.language.held_out import HeldOut
from rewards.trainers.language.run import format_summary, summarize

ROWS = [{"prompt": [{"role": "user", "content": "p"}], "image": None, "number": index} for index in range(3)]


def judge(prompts, completions, completion_ids, number, log_metric, log_extra, **columns):
    log_metric("rewards/judge/rating_mass", 0.9)
    log_extra("judge/fluency", [1.0, None, 3.0])
    log_extra("judge/reason", [None, "silent", None])
    return [float(len(c[0]["content"])) + n for c, n in zip(completions, number)]


def test_a_reward_function_is_called_as_trl_calls_it():
    parts, logged = judge_texts(judge, ROWS, ["a", "bb", "ccc"], [[1], [2], [3]])
    assert parts == {"overall": [1.0, 3.0, 5.0], "fluency": [1.0, None, 3.0]}
    assert logged == {"rewards/judge/rating_mass": 0.9}
    with pytest.raises(InputError, match="returned 1 rewards for 3"):
        judge_texts(lambda **columns: [1.0], ROWS, ["a", "b", "c"], [[], [], []])


def test_part_metrics_leave_abstentions_out():
    metrics = part_metrics("eval/rewards/J", {"overall": [1.0, 2.0, None, 6.0], "x": [None] * 4})
    assert metrics["eval/rewards/J/overall/mean"] == 3.0
    assert metrics["eval/rewards/J/overall/standard_error"] == pytest.approx(np.std([1, 2, 6], ddof=1) / math.sqrt(3))
    assert (metrics["eval/rewards/J/overall/count"], metrics["eval/rewards/J/abstained"]) == (3, 1)
    assert metrics["eval/rewards/J/x/count"] == 0 and "eval/rewards/J/x/mean" not in metrics


def test_common_means_use_the_texts_that_both_judged():
    assert common_means({"overall": [1.0, 5.0, None]}, {"overall": [2.0, None, 3.0]}) == (1.0, 2.0)
    assert math.isnan(common_means({"overall": [None]}, {"overall": [1.0]})[0])


def test_evaluations_are_kept_by_step(tmp_path):
    log = TextEvaluationLog(tmp_path)
    for step, value in ((0, 1.0), (5, 2.0), (9, 3.0), (9, 4.0)):
        log.append(step, TextEvaluation(["t"], {"J": {"overall": [value, None]}}, {}))
    assert [row["step"] for row in log.read()] == [0, 5, 9]
    summary = summarize(log.read())
    assert summary["steps"] == [0, 9]
    assert summary["gains"]["J"]["overall"] == {
        "before": 1.0, "after": 4.0, "gain": 3.0, "low": None, "high": None, "count": 1,
    }  # fmt: skip
    assert "J overall" in format_summary(summary) and "[-, -]" in format_summary(summary)
    log.keep_until(5)
    assert [row["step"] for row in log.read()] == [0, 5]
    assert format_summary(summarize([])) == "no evaluation was made"


def test_trl_keys_become_metrics_keys():
    logs = {"rewards/f/mean": 1, "rewards/H/fluency/mean": 2, "eval_rewards/f/std": 3, "train_loss": 4, "kl": 5}
    assert metric_keys(logs) == {
        "rewards/f/overall/mean": 1, "rewards/H/fluency/mean": 2, "eval/rewards/f/overall/std": 3, "kl": 5,
    }  # fmt: skip


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
    callback, control = MetricsCallback(tmp_path), TrainerControl()
    state = TrainerState(is_world_process_zero=True)
    for step in range(1, 4):
        state.global_step = step
        callback.on_log(None, state, control, {"reward": float(step), "epoch": 0.1})
        callback.on_log(None, state, control, {"train_runtime": 1.0, "epoch": 0.1})
    state.global_step = 2
    MetricsCallback(tmp_path).on_train_begin(None, state, control)
    assert [row["reward"] for row in read_metrics(tmp_path)] == [1.0, 2.0]
    state.global_step = 0  # killed before its first checkpoint: starts afresh
    MetricsCallback(tmp_path).on_train_begin(None, state, control)
    assert read_metrics(tmp_path) == []
    callback.on_log(None, state, control, {"reward": 1.0})
    # Only the main process writes.
    callback.on_log(None, TrainerState(is_world_process_zero=False), control, {"reward": 9.0})
    assert len(read_metrics(tmp_path)) == 1


def test_a_dead_judge_stops_the_run_and_a_few_abstentions_do_not():
    guard, state, control = AbstentionGuard(0.5), TrainerState(), TrainerControl()
    guard.on_log(None, state, control, {"rewards/H/abstained": 2.0, "rewards/H/overall/count": 2.0})
    guard.on_log(None, state, control, {"rewards/H/abstained": 0.0, "rewards/H/overall/count": 0.0})
    with pytest.raises(RewardsError, match="75% of the texts could not be judged by H"):
        guard.on_log(None, state, control, {"rewards/H/abstained": 3.0, "rewards/H/overall/count": 1.0})
    with pytest.raises(RewardsError, match="100%"):
        guard.on_log(None, state, control, {"rewards/H/abstained": 3.0})


def audit(**columns):
    return [0.0] * 3


def merged(held_out: HeldOut, rewards: list[float]) -> dict[str, float]:
    shares = [
        ([0, 2], ["a", "c"], {"judge": ({"overall": [rewards[0], rewards[2]]}, {"rewards/judge/rating_mass": 0.8}),
                              "audit": ({"overall": [0.0, 0.0]}, {})}),
        ([1], ["b"], {"judge": ({"overall": [rewards[1]]}, {"rewards/judge/rating_mass": 0.5}),
                      "audit": ({"overall": [0.0]}, {})}),
    ]  # fmt: skip
    evaluation = held_out._merge(shares)
    assert evaluation.texts == ["a", "b", "c"] and evaluation.rewards["judge"]["overall"] == rewards
    return evaluation.metrics


def test_shares_of_two_processes_make_one_evaluation_and_a_growing_gap_stops_the_run():
    held_out = HeldOut(ROWS, [judge], [audit], max_gap=0.5)
    metrics = merged(held_out, [1.0, 2.0, 3.0])
    assert metrics["eval/rewards/judge/overall/mean"] == 2.0 and metrics["eval/audit/gap"] == 2.0
    assert metrics["eval/rewards/judge/rating_mass"] == pytest.approx(0.7)  # weighted by texts
    held_out.check_gaps()
    merged(held_out, [1.4, 2.4, 3.4])
    held_out.check_gaps()
    merged(held_out, [1.6, 2.6, 3.6])
    with pytest.raises(AuditGapExceeded):
        held_out.check_gaps()
    resumed = HeldOut(ROWS, [judge], [audit], max_gap=0.5)
    resumed.restore_gaps({"judge": {"overall": [1.0, 2.0, 3.0]}, "audit": {"overall": [0.0] * 3}})
    merged(resumed, [1.6, 2.6, 3.6])
    with pytest.raises(AuditGapExceeded):
        resumed.check_gaps()


def test_a_run_folder_is_fresh_resumed_or_refused(tmp_path):
    assert prepare_folder(tmp_path / "new", resume=False, overwrite=False) is None
    assert prepare_folder(tmp_path / "none", resume=True, overwrite=False) is None and (tmp_path / "none").is_dir()
    run = tmp_path / "run"
    for step, state in ((2, "{}"), (10, "{}"), (12, '{"cut'), (14, None)):
        (run / f"checkpoint-{step}").mkdir(parents=True)
        if state is not None:
            (run / f"checkpoint-{step}" / "trainer_state.json").write_text(state)
    assert last_checkpoint(run) == run / "checkpoint-10"
    assert prepare_folder(run, resume=True, overwrite=False) == str(run / "checkpoint-10")
    with pytest.raises(InputError, match="already holds a run"):
        prepare_folder(run, resume=False, overwrite=False)
    (run / "mine.txt").write_text("kept")
    assert prepare_folder(run, resume=False, overwrite=True) is None
    assert [path.name for path in run.iterdir()] == ["mine.txt"]
