"""Accuracy by hand under each unit and tie rule; criterion-wise agreement; scores files."""

import json

import numpy as np
import pytest

from rewards.errors import InputError
from rewards.humans.mmhe.best_of_three import accuracy_by_task, credit, criterion_agreement, report
from rewards.humans.mmhe.records import CRITERIA, read_mmhe
from rewards.humans.mmhe.scores import CandidateScores, read_scores
from tests.humans.mmhe.mmhe_files import record, write


@pytest.mark.parametrize(
    ("scores", "unit", "ties", "expected"),
    [
        ([3, 1, 2], "pairs", "half", (2, 2, 0)),
        ([2, 1, 3], "pairs", "half", (1, 2, 0)),
        ([2, 2, 1], "pairs", "half", (1.5, 2, 1)),
        ([2, 2, 1], "pairs", "wrong", (1, 2, 1)),
        ([2, 2, 1], "pairs", "drop", (1, 1, 1)),
        ([2, 3, 3], "pairs", "half", (0, 2, 0)),
        ([3, 1, 2], "best", "half", (1, 1, 0)),
        ([2, 2, 2], "best", "half", (1 / 3, 1, 1)),
        ([2, 2, 1], "best", "wrong", (0, 1, 1)),
        ([2, 2, 1], "best", "drop", (0, 0, 1)),
        ([1, 2, 2], "best", "drop", (0, 1, 0)),
    ],
)
def test_credit_by_hand(scores, unit, ties, expected):
    assert credit(np.array(scores, dtype=float), 0, unit, ties) == pytest.approx(expected)


@pytest.fixture
def instances(tmp_path):
    rows = [record("v0", "vqa"), record("v1", "vqa", best=1), record("c0"), record("c1", choices=[0, 1, 2])]
    return read_mmhe(write(tmp_path / "m.jsonl", rows))


def test_accuracy_by_task_and_average(instances):
    overall = np.array([[3.0, 2, 1], [3, 2, 1], [1, 2, 3], [3, 2, 1]])
    result = accuracy_by_task(instances, overall, resamples=50)
    assert list(result) == ["vqa", "captioning", "average"]
    # v0: 2 of 2; v1 (best 1): below 0, above 2 -> 1 of 2; c0: 0 of 2; c1 has no majority.
    assert result["vqa"].estimate.value == 0.75 and result["captioning"].estimate.value == 0.0
    assert result["average"].estimate.value == 0.375 and result["average"].comparisons == 6


def test_abstained_instances_are_counted_not_scored(instances):
    overall = np.array([[3.0, np.nan, 1], [3, 2, 1], [3, 2, 1], [3, 2, 1]])
    result = accuracy_by_task(instances, overall, resamples=20)
    assert result["vqa"].abstained == 1 and result["vqa"].estimate.value == 0.5
    assert np.isnan(accuracy_by_task(instances, np.full((4, 3), np.nan), resamples=20)["vqa"].estimate.value)


def test_wrong_shape_is_refused(instances):
    with pytest.raises(InputError, match=r"shape \(4, 2\)"):
        accuracy_by_task(instances, np.zeros((4, 2)))


def test_criteria_are_compared_one_by_one_or_by_the_overall_score(instances):
    overall = np.tile([3.0, 2, 1], (4, 1))
    criteria = np.repeat(overall[..., None], 5, axis=2)
    criteria[..., 3] *= -1
    found = criterion_agreement(instances, CandidateScores(overall, criteria), resamples=20)["vqa"]
    assert found["correctness"]["kendall_tau_b"].value == 1 and found["fluency"]["kendall_tau_b"].value == -1
    by_overall = criterion_agreement(instances, CandidateScores(overall), resamples=20)["vqa"]
    assert by_overall["fluency"]["kendall_tau_b"].value == 1


def test_report_shows_the_effect_of_the_tie_rule(instances):
    effect = report(instances, {"flat": CandidateScores(np.ones((4, 3)))}, resamples=20).tie_effect["flat"]
    assert effect["half"] == 0.5 and effect["wrong"] == 0.0 and np.isnan(effect["drop"])


def score_rows(instances, **changes):
    rows = [{"id": i.id, "candidate": k, "overall": float(k)} for i in instances for k in range(3)]
    return [{**row, **changes} for row in rows]


def test_scores_are_read_in_any_order_and_null_is_an_abstention(tmp_path, instances):
    rows = score_rows(instances)[::-1]
    rows[0]["overall"] = None
    scores = read_scores(write(tmp_path / "s.jsonl", rows), instances)
    assert np.isnan(scores.overall[3, 2]) and scores.overall[0].tolist() == [0, 1, 2] and scores.criteria is None


def test_broken_scores_are_refused_with_the_line(tmp_path, instances):
    good = score_rows(instances)
    some = [dict(row) for row in good]
    some[0]["criteria"] = dict.fromkeys(CRITERIA, 1.0)
    for rows, message in (
        ([*good, good[0]], "line 13: candidate 0 of 'v0' is out of range or scored twice"),
        (good[:-1], "candidate 2 of 'c1' and 0 others have no score"),
        ([{**good[0], "id": "zz"}, *good[1:]], "line 1: needs a known id"),
        ([{**good[0], "overall": "high"}, *good[1:]], "line 1: 'high' is not a number"),
        (some, "1 of 12 lines have criteria"),
    ):
        with pytest.raises(InputError, match=message):
            read_scores(write(tmp_path / "s.jsonl", [json.dumps(row) for row in rows]), instances)
