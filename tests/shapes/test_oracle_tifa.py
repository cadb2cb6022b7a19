"""TIFA by the oracle: the scores are TIFA's, and objects that nobody asked for are counted beside them."""

import math
import pickle

import numpy as np
import pytest
import torch

from rewards.build import ORACLE, RewardSettings, build_reward
from rewards.shapes.oracle import Oracle
from rewards.shapes.oracle_tifa import OracleTIFA
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.shapes.scenes import Scene, Shape
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.reward import TIFA

PROMPT = "a red circle"
CIRCLE = Shape("red", "circle", (0, 0), 8.0, 8.0, 5.0)
SECOND = Shape("red", "circle", (2, 2), 24.0, 24.0, 5.0)
SQUARE = Shape("blue", "square", (0, 2), 24.0, 8.0, 5.0)
SCENES = [Scene(shapes, "white") for shapes in ((CIRCLE,), (CIRCLE, SQUARE), (CIRCLE, SECOND, SQUARE), (SQUARE,), ())]
SURPLUS = [0, 1, 2, 1, 0]


@pytest.fixture
def store(tmp_path):
    return question_store(tmp_path / "q.sqlite", [PROMPT])


def test_surplus_objects_are_counted_and_move_no_score(store):
    pictures, prompts = [render(scene) for scene in SCENES], [PROMPT] * len(SCENES)
    exact = AnswerMatcher(sentence_model=None)
    scores, plain = (kind(Oracle(), store, matcher=exact).score(pictures, prompts) for kind in (OracleTIFA, TIFA))
    assert scores.overall.tolist() == plain.overall.tolist()
    assert scores.part_names == plain.part_names
    assert [row["surplus"] for row in scores.details] == SURPLUS
    assert [row["answers"] for row in scores.details] == [row["answers"] for row in plain.details]
    assert scores.means["surplus"].tolist() == [float(count > 0) for count in SURPLUS]
    assert scores.metrics("oracle")["rewards/oracle/surplus"] == pytest.approx(3 / 5)


def test_pictures_that_abstain_take_no_part(store):
    oracle = OracleTIFA(Oracle(), store, answer="free_form", matcher=AnswerMatcher(sentence_model=None))
    black = torch.zeros(3, 3, 32, 32)
    black[1] = torch.from_numpy(np.asarray(render(SCENES[1]), np.float32) / 255).permute(2, 0, 1)
    scores = oracle.score(black, [PROMPT, PROMPT, None])
    assert scores.overall.isnan().tolist() == [True, False, True]
    found = scores.means["surplus"].tolist()
    assert math.isnan(found[0]) and found[1] == 1.0 and math.isnan(found[2])
    assert [row.get("surplus") for row in scores.details] == [None, 1, None]


def test_the_audit_of_shipped_configs_is_one(store):
    reward = build_reward(RewardSettings(kind="tifa", judge=ORACLE, questions=str(store.path), sentence_model=None))
    assert isinstance(reward, OracleTIFA) and isinstance(pickle.loads(pickle.dumps(reward)), OracleTIFA)
