import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

from rewards.tifa.scoring import (
    AGGREGATES,
    accuracy_by_type,
    all_right,
    faithfulness,
    geometric_mean,
    macro_deviation,
    macro_mean,
    pooled_accuracy,
)

NAN = math.nan


def test_hand_computed_values() -> None:
    assert faithfulness([1, 0, 1, 1, 0]) == pytest.approx(0.6)
    prompts = {"a": [1.0, 0.5], "b": [0.25], "c": [NAN, 0.5], "d": [NAN]}
    assert macro_mean(prompts) == pytest.approx((0.75 + 0.25 + 0.5) / 3)
    assert macro_deviation(prompts) == pytest.approx(0.25)
    assert pooled_accuracy([1, 1, 0, NAN, 0, 0]) == (pytest.approx(0.4), 5)
    assert accuracy_by_type([("color", 1), ("", 0), ("color", NAN)]) == {"color": (1.0, 1), "other": (0.0, 1)}


def test_a_question_without_an_answer_leaves_the_picture_unscored() -> None:
    assert math.isnan(faithfulness([1, NAN, 1]))


def test_empty_input_and_one_prompt_have_values() -> None:
    assert math.isnan(faithfulness([])) and math.isnan(macro_mean({})) and math.isnan(macro_deviation({}))
    assert macro_deviation({"a": [0.5]}) == 0.0
    assert accuracy_by_type([]) == {} and pooled_accuracy([])[1] == 0
    value, count = accuracy_by_type([("color", NAN)])["color"]
    assert math.isnan(value) and count == 0


def test_macro_and_pooled_of_the_official_result(tifa_data: Path) -> None:
    result = json.loads((tifa_data / "sample_evaluation_result.json").read_text())
    details = {id: list(rows.values()) for id, rows in result["question_details"].items()}
    scores = {id: [faithfulness([row["scores"] for row in rows])] for id, rows in details.items()}
    assert macro_mean(scores) == result["tifa_average"] == 0.8125
    assert macro_deviation(scores) == pytest.approx(result["tifa_stdev"], abs=1e-15)
    rows = [row for part in details.values() for row in part]
    assert pooled_accuracy([row["scores"] for row in rows]) == (pytest.approx(16 / 19), 19)
    by_type = accuracy_by_type((row["element_type"], row["scores"]) for row in rows)
    assert {name: mean for name, (mean, _) in by_type.items()} == pytest.approx(result["accuracy_by_type"])


def test_geometric_mean_is_scipys_and_on_hard_answers_all_right() -> None:
    scores = np.random.default_rng(0).uniform(0.01, 1, 9).tolist()
    assert geometric_mean(scores) == pytest.approx(scipy.stats.gmean(scores))
    for bits in ([1, 1, 1], [1, 0, 1], [0, 0, 0]):
        assert geometric_mean(bits) == all_right(bits) == float(all(bits))
    assert all_right([0.51, 1.0]) == 1.0 and all_right([0.5, 1.0]) == 0.0


@pytest.mark.parametrize("name", AGGREGATES)
def test_no_question_and_an_unanswered_question_are_undefined(name: str) -> None:
    assert math.isnan(AGGREGATES[name]([]))
    assert math.isnan(AGGREGATES[name]([1.0, math.nan]))
