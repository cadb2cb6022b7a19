"""Held-out evaluation of texts, TRL's log keys under the shared names, and what stops a run."""

import math

import pytest
import torch
from datasets import Dataset
from torch import nn
from transformers import TrainerControl, TrainerState

from rewards.errors import RewardsError
from rewards.functions import FunctionReward
from rewards.generation.texts import Written
from rewards.runs.evaluations import EvaluationLog
from rewards.runs.metrics import read_metrics
from rewards.runs.samples import read_samples
from rewards.scores import Scores
from rewards.trainers.audit import AuditGapExceeded
from rewards.trainers.language import held_out as held_out_module
from rewards.trainers.language.curves import MetricsCallback
from rewards.trainers.language.evaluation import HeldOutCallback, most_overrated
from rewards.trainers.language.guards import AbstentionGuard, FiniteSteps, IdleGuard
from rewards.trainers.language.held_out import HeldOut, common_means

ROWS = Dataset.from_list(
    [{"prompt": [{"role": "user", "content": "p"}], "number": index, "cluster": str(index % 2)} for index in range(5)]
)


def judge(prompts, completions, completion_ids, number, log_metric, log_extra, **columns):
    """By the length of the text and a column; the text "bb" cannot be judged."""
    texts = [completion[0]["content"] for completion in completions]
    assert [len(ids) for ids in completion_ids] == [len(text) for text in texts]
    log_metric("rewards/judge/rating_mass", 0.9)
    log_extra("judge/fluency", [float(n) for n in number])
    return [None if text == "bb" else float(len(text)) + n for text, n in zip(texts, number)]


def nothing(completions, **columns):
    return [0.0] * len(completions)


def fails_on_three(completions, number, **columns):
    if 3 in number:
        raise RuntimeError("the judge is lost")
    return [0.0] * len(completions)


class Writer:
    """Stands for the policy: what it writes depends on the row alone."""

    def __init__(self):
        self.batches = []


@pytest.fixture
def writer(monkeypatch):
    made = Writer()

    def write(self, model, processor, indices):
        made.batches.append(list(indices))
        return [Written("abcdefgh"[: 1 + index] if index != 1 else "bb", [0] * (1 + index)) for index in indices]

    monkeypatch.setattr(held_out_module.HeldOut, "_write", write)
    return made


def test_the_first_texts_and_those_that_the_judge_overrates_are_kept(writer, tmp_path):
    held_out = HeldOut(ROWS, FunctionReward(judge), [FunctionReward(nothing)], batch_size=2)
    judged = held_out.evaluate(None, None)  # 1, abstained, 5, 7 and 9 above the audit
    assert most_overrated(judged, 2) == [4, 3] and len(most_overrated(judged, 9)) == 4
    HeldOutCallback(held_out, tmp_path, num_samples=3)._keep_samples("before", 0, judged)
    kept = read_samples(tmp_path)
    assert [row["index"] for row in kept] == [0, 1, 2, 4, 3]
    assert [row["text"] for row in kept] == [judged.texts[row["index"]] for row in kept]
    alone = HeldOut(ROWS, FunctionReward(judge), [], batch_size=2)
    assert most_overrated(alone.evaluate(None, None), 2) == []


def test_an_evaluation_judges_every_text_once_and_keeps_all(writer, tmp_path):
    held_out = HeldOut(ROWS, FunctionReward(judge), [FunctionReward(nothing)], batch_size=2)
    judged = held_out.evaluate(None, None)
    assert writer.batches == [[0, 1], [2, 3], [4]]
    assert judged.scores.overall.nan_to_num(-1).tolist() == [1.0, -1.0, 5.0, 7.0, 9.0]
    metrics = judged.metrics
    assert metrics["eval/rewards/judge/overall/mean"] == 5.5 and metrics["eval/rewards/judge/overall/count"] == 4
    assert metrics["eval/rewards/judge/abstained"] == 1 and metrics["eval/rewards/judge/rating_mass"] == pytest.approx(
        0.9
    )
    # Clusters 0 (rows 0, 2, 4) and 1 (row 3): residuals -1.5 and 1.5.
    assert metrics["eval/rewards/judge/overall/standard_error"] == pytest.approx(math.sqrt(2 * 2 * 1.5**2) / 4)
    assert metrics["eval/audit/nothing/overall/mean"] == 0.0 and metrics["eval/audit/gap"] == 5.5
    log = EvaluationLog(tmp_path)
    log.append(held_out.as_evaluation(3, judged))
    (kept,) = log.read()
    assert [sample.text for sample in kept.samples] == ["a", "bb", "abc", "abcd", "abcde"]
    assert [sample.cluster for sample in kept.samples] == ["0", "1", "0", "1", "0"]
    assert (
        kept.samples[2].judgment.parts == {"fluency": 2.0} and kept.samples[1].judgment.abstained == "judge abstained"
    )
    assert kept.samples[1].audits["nothing"].overall == 0.0


def test_a_judge_that_fails_in_an_evaluation_costs_its_batch_alone(writer):
    judged = HeldOut(ROWS, FunctionReward(fails_on_three), batch_size=2).evaluate(None, None)
    assert judged.metrics["eval/rewards/fails_on_three/abstained"] == 2
    assert [reason is not None for reason in judged.scores.reasons] == [False, False, True, True, False]
    assert "the judge is lost" in judged.scores.reasons[2]


def test_shares_of_two_processes_make_one_evaluation(writer):
    held_out = HeldOut(ROWS, FunctionReward(judge), [FunctionReward(nothing)], batch_size=2)
    whole = held_out.evaluate(None, None)
    both = held_out.together([held_out.share(None, None, process, 2) for process in (0, 1)])
    assert writer.batches[3:] == [[0, 1], [4], [2, 3]]
    assert both.texts == whole.texts and both.metrics == pytest.approx(whole.metrics)
    assert both.scores.records() == whole.scores.records()
    three = held_out.together([held_out.share(None, None, process, 4) for process in range(4)])  # one has nothing to do
    assert three.metrics == pytest.approx(whole.metrics)


def test_common_means_use_the_texts_that_both_judged():
    def scores(*values):
        return Scores(torch.tensor(values), [None] * len(values))

    assert common_means(scores(1.0, 5.0, math.nan), scores(2.0, math.nan, 3.0)) == (1.0, 2.0)
    assert math.isnan(common_means(scores(math.nan), scores(1.0))[0])


def test_a_growing_gap_stops_the_run_after_a_resume_too(writer, tmp_path):
    grown = 0.0

    def growing(completions, **columns):
        return [grown] * len(completions)

    held_out = HeldOut(ROWS, FunctionReward(growing), [FunctionReward(nothing)])
    callback = HeldOutCallback(held_out, tmp_path, max_gap=0.5)
    first = held_out.evaluate(None, None)
    callback.check_gaps(first)
    grown = 0.4
    callback.check_gaps(held_out.evaluate(None, None))
    grown = 0.6
    with pytest.raises(AuditGapExceeded):
        callback.check_gaps(held_out.evaluate(None, None))
    resumed = HeldOutCallback(held_out, tmp_path, max_gap=0.5)
    resumed.restore_gaps(held_out.as_evaluation(0, first))
    with pytest.raises(AuditGapExceeded):
        resumed.check_gaps(held_out.evaluate(None, None))


def test_a_resumed_run_drops_what_came_after_its_checkpoint(tmp_path):
    callback, control = MetricsCallback(tmp_path), TrainerControl()
    state = TrainerState(is_world_process_zero=True)
    for step in range(1, 4):
        state.global_step = step
        callback.on_log(None, state, control, {"reward": float(step), "epoch": 0.1})
        callback.on_log(None, state, control, {"train_runtime": 1.0, "epoch": 0.1})
    state.global_step = 2
    MetricsCallback(tmp_path).on_train_begin(None, state, control)
    assert [row["train/reward"] for row in read_metrics(tmp_path)] == [1.0, 2.0]
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


def test_a_run_without_spread_warns_and_then_stops(caplog):
    guard, state, control = IdleGuard(3), TrainerState(global_step=7), TrainerControl()

    def log(share):
        guard.on_log(None, state, control, {"loss": 0.0, "frac_reward_zero_std": share})

    for share in (1.0, 1.0, 0.9, 1.0):
        log(share)
    guard.on_log(None, state, control, {"eval_loss": 0.0, "frac_reward_zero_std": 1.0})
    assert sum("nothing is learned" in record.message for record in caplog.records) == 3
    log(1.0)
    with pytest.raises(RewardsError, match=r"stopped at step 7: nothing was learned 3 times in a row"):
        log(1.0)


def test_a_gradient_that_is_not_finite_is_skipped_and_counted():
    guard, state, control = FiniteSteps(max_skipped=1), TrainerState(), TrainerControl()
    model = nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(value):
        model.weight.grad = torch.full_like(model.weight, value)
        model.bias.grad = torch.ones_like(model.bias)
        guard.on_pre_optimizer_step(None, state, control, model=model)
        optimizer.step()
        optimizer.zero_grad()

    step(1.0)
    before = [parameter.clone() for parameter in model.parameters()]
    step(math.nan)
    assert all(map(torch.equal, before, model.parameters())) and guard.skipped == 1
    step(1.0)
    assert not torch.equal(before[0], model.weight)
    step(math.inf)
    with pytest.raises(RewardsError, match="not finite for 2 steps in a row"):
        step(-math.inf)


def test_without_groups_the_spread_of_the_scores_says_whether_anything_is_learned(caplog):
    guard, state, control = IdleGuard(2), TrainerState(global_step=4), TrainerControl()
    for spread in (0.0, 0.25, 0.0):
        guard.on_log(None, state, control, {"loss": 0.0, "train/score_spread": spread})
    assert sum("step 4: nothing is learned" in record.message for record in caplog.records) == 2
    with pytest.raises(RewardsError, match="2 times in a row"):
        guard.on_log(None, state, control, {"loss": 0.0, "train/score_spread": 0.0})
