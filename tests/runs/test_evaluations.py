"""Evaluations on disk and what is made of them: pairs by place, means over prompts, intervals over clusters."""

import json
import math

import numpy as np
import pytest

from rewards.errors import InputError
from rewards.runs.evaluations import Evaluation, EvaluationLog, HeldOutSample, Judgment
from rewards.runs.summary import format_summary, gains, gap_growth, summarize


def evaluation(step, scores, clusters=None, audits=None, parts=None):
    """One sample a prompt, all of one text."""
    samples = []
    for index, score in enumerate(scores):
        of = {"color": parts[index]} if parts and parts[index] is not None else {}
        judged = Judgment(score, of, None if score is not None else "judge: TimeoutError")
        audit = {"truth": Judgment(audits[index])} if audits else {}
        cluster = clusters[index] if clusters else str(index)
        samples.append(HeldOutSample(index, "the same text", judged, audit, cluster=cluster, text=f"text {index}"))
    return Evaluation(step, "R", samples)


def test_rows_say_everything_and_come_back(tmp_path):
    log = EvaluationLog(tmp_path / "run")
    written = evaluation(3, [0.5, None], audits=[math.nan, 1.0], parts=[0.25, None])
    log.append(written)
    first, second = map(json.loads, log.path.read_text().splitlines())
    assert first == {
        "step": 3, "reward": "R", "index": 0, "sample": 0, "id": "0", "prompt": "the same text", "cluster": "0",
        "text": "text 0", "overall": 0.5, "parts": {"color": 0.25}, "abstained": None, "details": {},
        "audits": {"truth": {"overall": None, "parts": {}, "abstained": None, "details": {}}},
    }  # fmt: skip
    assert (second["overall"], second["abstained"], second["parts"]) == (None, "judge: TimeoutError", {})
    (read,) = log.read()
    assert read.audits() == ["truth"] and [j.overall for j in read.judgments("truth")] == [None, 1.0]
    assert read.samples[1] == written.samples[1]


def test_what_a_reward_tells_of_a_sample_comes_back(tmp_path):
    answers = [{"question": "a dog?", "answer": "yes", "choice": "no", "right": False}]
    judged = Judgment.from_record({"overall": 0.0, "parts": {}, "abstained": None, "answers": answers})
    EvaluationLog(tmp_path).append(Evaluation(0, "TIFA", [HeldOutSample(0, "a dog", judged, {"oracle": judged})]))
    (sample,) = EvaluationLog(tmp_path).read()[0].samples
    assert sample.judgment.details == sample.audits["oracle"].details == {"answers": answers}


def test_the_ends_are_the_first_evaluation_and_the_last(tmp_path):
    log = EvaluationLog(tmp_path)
    assert log.ends() == []
    for step in (0, 4, 8):
        log.append(evaluation(step, [float(step), 1.0]))
        assert [(e.step, len(e.samples)) for e in log.ends()] == [(0, 2), (step, 2)][: 1 + (step > 0)]


def test_an_evaluation_replaces_its_step_and_a_resumed_run_drops_later_ones(tmp_path):
    log = EvaluationLog(tmp_path)
    for step, score in ((0, 0.0), (4, 1.0), (8, 2.0), (8, 3.0)):
        log.append(evaluation(step, [score, score]))
    assert [(e.step, e.samples[0].judgment.overall) for e in log.read()] == [(0, 0.0), (4, 1.0), (8, 3.0)]
    log.keep_until(4)
    assert [e.step for e in log.read()] == [0, 4]
    log.path.write_text(log.path.read_text() + '{"step": 9}\n')
    with pytest.raises(InputError, match="line 5: not a row of an evaluation"):
        log.read()


def test_gains_are_paired_by_place_and_leave_abstentions_out():
    first, last = evaluation(0, [1.0, 2.0, 3.0, None]), evaluation(9, [2.0, 2.0, 5.0, 7.0])
    gain = gains(first, last)["overall"]
    half = 1.96 * np.std([1, 0, 2], ddof=1) / math.sqrt(3)
    assert (gain.gain, gain.low, gain.high) == pytest.approx((1.0, 1 - half, 1 + half))
    assert (gain.before, gain.after, gain.count, gain.clusters) == (2.0, 4.0, 3, 3)


def test_prompts_of_one_meaning_are_one_cluster():
    scores = [0.0] * 6, [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    alone = gains(*(evaluation(step, values) for step, values in zip((0, 1), scores)))["overall"]
    meanings = ["a"] * 3 + ["b"] * 3
    together = gains(*(evaluation(s, values, meanings) for s, values in zip((0, 1), scores)))["overall"]
    assert together.gain == alone.gain == 0.5 and (together.count, together.clusters) == (6, 2)
    # Two independent groups with means 1 and 0: standard error sqrt(2 * 2 * 1.5^2) / 6 = 0.5.
    assert together.high - together.gain == pytest.approx(1.96 * 0.5)
    assert alone.high - alone.gain == pytest.approx(1.96 * math.sqrt(0.3 / 6))


def test_samples_of_a_prompt_count_as_one():
    def drawn(step, rows):
        judged = [(i, k, value) for i, row in enumerate(rows) for k, value in enumerate(row)]
        return Evaluation(step, "R", [HeldOutSample(i, f"p{i}", Judgment(value), sample=k) for i, k, value in judged])

    gain = gains(drawn(0, [[0.0, 0.0]] * 3), drawn(1, [[0.2, 0.4], [None, 0.5], [None, None]]))["overall"]
    half = 1.96 * np.std([0.3, 0.5], ddof=1) / math.sqrt(2)
    assert (gain.gain, gain.low, gain.high, gain.count) == pytest.approx((0.4, 0.4 - half, 0.4 + half, 2))
    assert gain.after == pytest.approx(0.4)  # the mean of prompts, not of samples


def test_the_summary_has_every_part_of_reward_and_audits():
    first = evaluation(0, [1.0, 2.0], audits=[1.0, 1.0], parts=[0.0, None])
    last = evaluation(6, [2.0, 4.0], audits=[1.5, None], parts=[0.5, 1.0])
    summary = summarize([first, evaluation(3, [9.0, 9.0]), last])
    json.dumps(summary, allow_nan=False)
    assert (summary["steps"], summary["prompts"], summary["clusters"]) == ([0, 6], 2, 2)
    assert summary["reward"]["R"]["overall"]["gain"] == 1.5
    color = summary["reward"]["R"]["color"]
    assert (color["before"], color["after"], color["gain"], color["low"], color["count"]) == (0.0, 0.75, 0.5, None, 1)
    assert summary["audits"]["truth"]["overall"]["after"] == 1.5
    assert "truth overall" in format_summary(summary) and "+1.500" in format_summary(summary)
    assert format_summary(summarize([])) == "no evaluation was made"


def test_the_growth_of_a_gap_is_over_samples_that_both_judged():
    first = evaluation(0, [1.0, 2.0, 5.0], audits=[1.0, 1.0, None])
    last = evaluation(6, [2.0, 4.0, 9.0], audits=[1.5, 2.0, 2.0])
    grown = gap_growth(first, last, "truth")
    assert (grown.gain, grown.count) == ((0.5 - 0.0 + 2.0 - 1.0) / 2, 2)


def test_other_prompts_are_refused():
    with pytest.raises(InputError, match="steps 0 and 1 are not of the same prompts"):
        summarize([evaluation(0, [1.0]), evaluation(1, [1.0, 2.0])])
