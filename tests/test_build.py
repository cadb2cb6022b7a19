"""From settings to rewards: the same keys everywhere, every kind, and mistakes named before anything is judged."""

import pytest
from PIL import Image

from rewards import HarmonicEval, Question, QuestionStore, load_judge
from rewards.build import ORACLE, RewardSettings, build_reward, with_absolute_paths
from rewards.combined import Combined
from rewards.errors import InputError, RewardsError
from rewards.runs.config import load_config
from rewards.shapes.prompts import question_store


def length(completions, **columns):
    return [-0.1 * len(text) for text in completions]


def brightness(images, prompts, metadata=None):
    return [sum(image.getpixel((0, 0))) / 765 for image in images]


PICTURES = [Image.new("RGB", (32, 32), color) for color in ("white", "gray")]
TEXTS = ["a red circle on a white background", "a blue square on a gray background"]


def test_harmonic_settings_reach_the_reward():
    reward = build_reward(
        RewardSettings(
            judge="shapes-rater", criteria=["fluency", "correctness"], gamma=0.5, normalize=False, min_rating_mass=0.2,
            name="Rater",
        )
    )  # fmt: skip
    by_hand = HarmonicEval(
        load_judge("shapes-rater"), criteria=["fluency", "correctness"], gamma=0.5, normalize=False,
        min_rating_mass=0.2, name="Rater",
    )  # fmt: skip
    assert reward.identity() == by_hand.identity()
    assert reward.score(PICTURES, TEXTS).overall.tolist() == by_hand.score(PICTURES, TEXTS).overall.tolist()


def test_tifa_by_judge_and_by_oracle(tmp_path):
    questions = str(question_store(tmp_path / "questions.sqlite", TEXTS).path)
    soft = build_reward(RewardSettings(kind="tifa", judge="shapes-vqa", questions=questions, soft=True))
    truth = build_reward(RewardSettings(kind="tifa", judge=ORACLE, questions=questions, sentence_model=None))
    assert 0 < soft.score(PICTURES, TEXTS).overall.min() < 1
    assert truth.score(PICTURES, TEXTS).part_names == soft.score(PICTURES, TEXTS).part_names


@pytest.mark.parametrize(("function", "expected"), [("length", [-3.4, -3.4]), ("brightness", [1.0, 128 / 255])])
def test_functions_in_either_convention(function, expected):
    reward = build_reward(RewardSettings(kind="function", function=f"tests.test_build:{function}"))
    assert reward.score(PICTURES, TEXTS).overall.tolist() == pytest.approx(expected)


def test_a_combined_reward_from_yaml(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "kind: combined\nrewards:\n- {judge: shapes-rater, weight: 2}\n"
        "- {kind: function, function: 'tests.test_build:length', weight: 0.5}\n"
    )
    reward = build_reward(load_config(RewardSettings, tmp_path / "c.yaml"))
    assert isinstance(reward, Combined)
    rated = HarmonicEval(load_judge("shapes-rater")).score(PICTURES, TEXTS).overall
    assert reward.score(PICTURES, TEXTS).overall.tolist() == pytest.approx((2 * rated - 1.7).tolist())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs a judge"),
        ({"kind": "tifa", "judge": "shapes-vqa"}, "needs questions"),
        ({"kind": "function"}, "go together"),
        ({"judge": "shapes-rater", "function": "a:b"}, "go together"),
        ({"kind": "combined"}, "0 rewards"),
        ({"judge": "shapes-rater", "weight": float("nan")}, "finite"),
        ({"judge": "shapes-vqa"}, "cannot rate"),
        ({"judge": "shapes-rater", "gamma": 2}, "gamma"),
        ({"kind": "function", "function": "tests.none:x"}, "cannot be imported"),
        ({"kind": "function", "function": "tests"}, "package.module:name"),
    ],
)
def test_mistakes_are_named(settings, message):
    with pytest.raises(RewardsError, match=message):
        build_reward(RewardSettings(**settings))


def test_paths_in_full(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub" / "judge").mkdir(parents=True)
    settings = with_absolute_paths(RewardSettings(kind="tifa", judge="sub/judge", questions="q.sqlite"))
    assert settings.judge == str(tmp_path / "sub/judge") and settings.questions == str(tmp_path / "q.sqlite")
    assert with_absolute_paths(RewardSettings(judge="org/model")).judge == "org/model"


def test_a_missing_store_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"q\.sqlite"):
        build_reward(RewardSettings(kind="tifa", judge="shapes-vqa", questions=str(tmp_path / "q.sqlite")))
    assert not (tmp_path / "q.sqlite").exists()
    assert QuestionStore(tmp_path / "other.sqlite").path


def test_tifas_options_reach_the_reward(tmp_path) -> None:
    store = QuestionStore(tmp_path / "q.sqlite")
    store.add([Question("is it red?", (), "yes", "red", "color", "a red circle")])
    block = {"kind": "tifa", "judge": "shapes-vqa", "questions": str(store.path), "soft": "mass",
             "aggregate": "geometric", "dependencies": "soft", "sentence_model": None}  # fmt: skip
    identity = build_reward(RewardSettings(**block)).identity()
    assert (identity["soft"], identity["aggregate"], identity["dependencies"]) == ("mass", "geometric", "soft")
    chosen = RewardSettings(**(block | {"soft": True, "none_of_these": True}))
    assert build_reward(chosen).identity()["none_of_these"] is True
    matched = RewardSettings(**(block | {"soft": False, "matching": "official"}))
    with pytest.raises(InputError, match="needs a sentence model"):
        build_reward(matched)
