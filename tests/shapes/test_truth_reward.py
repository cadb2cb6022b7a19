"""The truth as a reward: five ratings as parts, claims as means, in every convention."""

import math
import pickle

import pytest

from rewards.errors import InputError
from rewards.functions import import_reward
from rewards.shapes.datasets import scene_to_json
from rewards.shapes.scenes import Scene, Shape
from rewards.shapes.truth import CRITERIA
from rewards.shapes.truth_reward import CaptionTruth, caption_truth_reward

ONE = scene_to_json(Scene((Shape("green", "triangle", (1, 1), 16.0, 16.0, 5.0),), "black"))
RIGHT, FALSE = "a green triangle on a black background", "a green circle on a white background"


def test_ratings_and_claims():
    scores = CaptionTruth().score([None] * 2, [RIGHT, FALSE], scene=[ONE] * 2)
    assert scores.part_names == CRITERIA
    assert scores.parts[0].tolist() == [5.0] * 5
    assert scores.parts[1].tolist() == [2.0, 3.0, 5.0, 5.0, 5.0]  # two of four claims false, two of four details said
    assert scores.overall.tolist() == [5.0, 4.0]
    assert scores.means["claims/right"].tolist() == [1.0, 0.0]
    assert scores.means["claims/right_and_complete"].tolist() == [1.0, 0.0]
    assert scores.means["claims/false"].tolist() == [0.0, 0.5]
    assert scores.means["claims/false_background"].tolist() == [0.0, 1.0]
    assert scores.means["claims/words"].tolist() == [7.0, 7.0]


def test_captions_without_a_claim_take_no_part_in_its_curve():
    reward = CaptionTruth()
    metrics = reward.metrics(reward.score([None] * 3, [RIGHT, "a red triangle", "there is"], scene=[ONE] * 3))
    assert metrics["rewards/caption_truth_reward/claims/false_background"] == 0.0
    assert metrics["rewards/caption_truth_reward/claims/false_color"] == 0.5
    assert metrics["rewards/caption_truth_reward/claims/right"] == pytest.approx(1 / 3)
    assert math.isnan(metrics["rewards/caption_truth_reward/claims/false_relation"])


def test_no_caption_abstains_and_changes_no_other():
    scores = CaptionTruth().score([None] * 2, [None, RIGHT], scene=[ONE] * 2)
    assert scores.reasons == ["no caption", None]
    assert math.isnan(scores.overall[0]) and scores.overall[1] == 5


def test_as_trl_calls_it():
    logged = {}
    said = [[{"role": "assistant", "content": text}] for text in (RIGHT, FALSE)]
    values = caption_truth_reward(
        prompts=["describe"] * 2, completions=said, scene=[ONE] * 2, log_extra=logged.__setitem__
    )
    assert values == [5.0, 4.0]
    assert logged["caption_truth_reward/correctness"] == [5.0, 2.0]


@pytest.mark.parametrize("columns", [{}, {"scene": [ONE]}])
def test_scenes_are_needed(columns):
    with pytest.raises(InputError, match="needs the column 'scene' for 2 captions"):
        CaptionTruth().score([None] * 2, [RIGHT, FALSE], **columns)


def test_by_name_and_pickled():
    reward = import_reward("rewards.shapes.truth_reward:caption_truth_reward")
    assert isinstance(reward, CaptionTruth)
    assert pickle.loads(pickle.dumps(reward)).identity() == reward.identity()
