import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from rewards.errors import InputError
from rewards.judges.base import Judge
from rewards.judges.loading import load_judge
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question, read_questions
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from tests import tiny_models

Ask = Callable[..., Question]
EXACT = AnswerMatcher(sentence_model=None)
RED = Image.new("RGB", (8, 8), (200, 10, 10))


@pytest.fixture(scope="session")
def tiny_blip(tmp_path_factory: pytest.TempPathFactory) -> Judge:
    return load_judge(tiny_models.save("blip", tmp_path_factory.mktemp("tifa") / "blip"))


@pytest.fixture
def world(store: QuestionStore, ask: Ask, recorded) -> SimpleNamespace:
    """Two prompts, five questions; the judge is right on three of the first and one of the second."""
    store.add([
        ask("is it red?"),
        ask("what color?", ("blue", "red"), "red"),
        ask("what shape?", ("circle", "square"), "circle", element_type="shape"),
        ask("is it blue?", id="s_2", prompt="a blue square"),
        ask("how many?", ("1", "2"), "1", element_type="counting", id="s_2", prompt="a blue square"),
    ])  # fmt: skip
    judge = recorded(
        {"is it red?": "Yes.", "what color?": "red", "what shape?": "a circle", "is it blue?": "no", "how many?": "one"}
    )
    return SimpleNamespace(
        store=store, judge=judge, prompts=["a red circle", "s_2"], tifa=TIFA(judge, store, matcher=EXACT)
    )


def test_free_form_scores(world: SimpleNamespace) -> None:
    scores = world.tifa.score([RED, RED], world.prompts)
    assert scores.overall.tolist() == [1.0, 0.5] and scores.overall.dtype == torch.float32
    assert [(row.image, row.choice, row.right, row.how) for row in scores.answers] == [
        (0, "yes", True, "exact"), (0, "red", True, "exact"), (0, "circle", True, "exact"),
        (1, "no", False, "exact"), (1, "1", True, "exact"),
    ]  # fmt: skip
    assert scores.answers[2].free_form == "a circle" and scores.reasons == [None, None]
    assert scores.by_element_type() == {"color": (pytest.approx(2 / 3), 3), "counting": (1.0, 1), "shape": (1.0, 1)}


def test_diffusion_convention(world: SimpleNamespace) -> None:
    values, info = world.tifa(torch.rand(2, 3, 8, 8), world.prompts, [{}, {}])
    assert values.dtype == np.float32 and values.tolist() == [1.0, 0.5]
    assert info == {
        "rewards/TIFA/overall/mean": 0.75, "rewards/TIFA/overall/count": 2,
        "rewards/TIFA/color/mean": pytest.approx(2 / 3), "rewards/TIFA/color/count": 3,
        "rewards/TIFA/counting/mean": 1.0, "rewards/TIFA/counting/count": 1,
        "rewards/TIFA/shape/mean": 1.0, "rewards/TIFA/shape/count": 1,
        "rewards/TIFA/abstained": 0, "rewards/TIFA/unmatched": 0,
    }  # fmt: skip
    assert world.tifa((np.random.rand(2, 8, 8, 3) * 255).astype(np.uint8), world.prompts)[0].tolist() == [1.0, 0.5]


def test_all_batches_log_the_same_keys(world: SimpleNamespace) -> None:
    _, whole = world.tifa([RED, RED], world.prompts)
    _, part = world.tifa([RED], world.prompts[:1])
    assert list(whole) == list(part) and math.isnan(part["rewards/TIFA/counting/mean"])
    assert part["rewards/TIFA/counting/count"] == 0


def test_trl_convention(world: SimpleNamespace) -> None:
    logged: dict[str, float] = {}
    prompts = [
        [{"role": "user", "content": [{"type": "text", "text": "a red circle"}]}],
        [{"role": "user", "content": "a blue square"}],
    ]
    message = [{"role": "assistant", "content": [{"type": "text", "text": "here"}, {"type": "image", "image": RED}]}]
    rewards = world.tifa(
        prompts=prompts, completions=[message, Image.new("RGB", (4, 4))], completion_ids=None, trainer_state=None,
        log_extra=None, log_metric=logged.__setitem__, source=["x", "y"],
    )  # fmt: skip
    assert rewards == [1.0, None] and logged["rewards/TIFA/abstained"] == 1
    assert not any(math.isnan(value) for value in logged.values())
    mixed = world.tifa(prompts=prompts, completions=[RED, [{"role": "assistant", "content": "text"}]])
    assert mixed == [1.0, None]
    assert world.tifa.__name__ == "TIFA"


def test_choices_and_soft_scores(world: SimpleNamespace) -> None:
    hard = TIFA(world.judge, world.store, answer="choices").score([RED], ["s_2"])
    # "is it blue?": the judge says no, weights (1, 20); "how many?": says "one", which is no choice: weights (1, 2).
    assert [row.choice for row in hard.answers] == ["no", "2"] and hard.overall.tolist() == [0.0]
    assert all(row.how == "chosen" and row.free_form is None for row in hard.answers)
    soft = TIFA(world.judge, world.store, soft=True)
    assert soft.answer == "choices"
    scores = soft.score([RED], ["s_2"])
    assert [row.score for row in scores.answers] == pytest.approx([1 / 21, 1 / 3])
    assert scores.overall.item() == pytest.approx((1 / 21 + 1 / 3) / 2)
    assert [row.right for row in scores.answers] == [False, False]


def test_soft_score_adds_choices_that_are_equally_right(store: QuestionStore, ask: Ask, recorded) -> None:
    store.add([ask("which?", ("Red", "blue", "red."), "red")])
    scores = TIFA(recorded({}, default="green"), store, soft=True).score([RED], ["s_1"])
    assert scores.overall.item() == pytest.approx((1 + 3) / 6)


def test_a_bad_picture_abstains_and_its_neighbours_do_not(world: SimpleNamespace, tmp_path: Path) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"\x89PNG nothing")
    bad = [torch.full((3, 8, 8), math.nan), Image.new("RGB", (8, 8)), tmp_path / "missing.png", broken]
    scores = world.tifa.score([RED, *bad, RED], ["s_1"] * 6)
    assert scores.abstained.tolist() == [False, True, True, True, True, False]
    assert scores.overall[[0, 5]].tolist() == [1.0, 1.0]
    assert [reason is None for reason in scores.reasons] == [True, False, False, False, False, True]
    assert "NaN" in scores.reasons[1] and "image 2 is black" in scores.reasons[2] and "missing.png" in scores.reasons[3]
    assert {row.image for row in scores.answers} == {0, 5}
    values, info = world.tifa([RED, *bad], ["s_1"] * 5)
    assert np.isnan(values).tolist() == [False, True, True, True, True] and info["rewards/TIFA/abstained"] == 4
    assert info["rewards/TIFA/overall/mean"] == 1.0


@pytest.mark.parametrize("options", [{"matcher": EXACT}, {"answer": "choices"}, {"soft": True}])
def test_a_question_without_an_answer_makes_the_picture_abstain(options: dict, world: SimpleNamespace) -> None:
    world.judge.answers["what shape?"] = None
    scores = TIFA(world.judge, world.store, **options).score([RED, RED], world.prompts)
    assert scores.abstained.tolist() == [True, False]
    assert scores.reasons == ["the judge could not answer 'what shape?'", None]
    row = scores.answers[2]
    assert row.right is None and row.choice is None and math.isnan(row.score) and row.how == "abstained"
    assert scores.by_element_type()["shape"][1] == 0


def test_unmatched_answers_are_wrong_and_counted(world: SimpleNamespace) -> None:
    world.judge.answers |= {"what color?": "", "what shape?": "0"}
    scores = world.tifa.score([RED], ["s_1"])
    assert scores.overall.item() == pytest.approx(1 / 3) and scores.unmatched == 2
    assert scores.answers[1].right is False and scores.answers[1].choice is None
    assert world.tifa([RED], ["s_1"])[1]["rewards/TIFA/unmatched"] == 2


def test_missing_prompts_are_refused_before_the_judge_starts(world: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="no questions for 'a green star'"):
        world.tifa.score([RED, RED], ["a red circle", "a green star"])
    assert world.judge.asked == []


def test_lengths_and_settings_are_checked(world: SimpleNamespace) -> None:
    with pytest.raises(InputError, match="1 images but 2 prompts"):
        world.tifa.score([RED], world.prompts)
    with pytest.raises(InputError, match="'free_form' or 'choices'"):
        TIFA(world.judge, world.store, answer="multiple")
    with pytest.raises(InputError, match="soft=True needs"):
        TIFA(world.judge, world.store, answer="free_form", soft=True)
    with pytest.raises(InputError, match="prompts"):
        world.tifa([RED])


def test_a_missing_sentence_model_is_named_before_the_judge_works(world: SimpleNamespace) -> None:
    missing = AnswerMatcher("no/such-model")
    with pytest.raises(InputError, match=r"'no/such-model' cannot be loaded .*sentence_model=None"):
        TIFA(world.judge, world.store, matcher=missing)
    TIFA(world.judge, world.store, answer="choices", matcher=missing)  # asks for no sentence model


def test_an_empty_batch_has_no_scores(world: SimpleNamespace) -> None:
    values, info = world.tifa([], [])
    assert (
        values.shape == (0,)
        and info["rewards/TIFA/overall/count"] == 0
        and math.isnan(info["rewards/TIFA/overall/mean"])
    )


def test_each_picture_is_one_object_for_all_of_its_questions(world: SimpleNamespace) -> None:
    world.tifa.score(torch.rand(2, 3, 8, 8), ["s_1", "s_1"])
    assert len(world.judge.asked) == 6 and len({id(image) for image, _ in world.judge.asked}) == 2


def test_pickled_reward_scores_the_same(tiny_blip: Judge, store: QuestionStore, ask: Ask) -> None:
    store.add([ask("is it red?"), ask("what color?", ("blue", "red"), "red")])
    tifa = TIFA(tiny_blip, store, soft=True)
    copy = pickle.loads(pickle.dumps(tifa))
    assert copy.judge is tiny_blip and copy.__name__ == "TIFA"
    pictures = [tiny_models.picture(seed) for seed in range(3)]
    assert torch.equal(copy.score(pictures, ["s_1"] * 3).overall, tifa.score(pictures, ["s_1"] * 3).overall)
    assert tifa.identity()["judge"]["name"] == tiny_blip.name


def test_score_does_not_depend_on_the_batch(tiny_blip: Judge, store: QuestionStore, ask: Ask) -> None:
    store.add(
        [
            ask("is it red?"),
            ask("what color is the circle?", ("blue", "red", "yes"), "red"),
            ask("how many?", ("1", "2"), "2", id="b", prompt="b"),
        ]
    )
    tifa = TIFA(tiny_blip, store, soft=True)
    pictures = [tiny_models.picture(seed) for seed in range(4)]
    prompts = ["s_1", "b", "s_1", "b"]
    together = tifa.score(pictures, prompts).overall
    alone = torch.cat([tifa.score([picture], [prompt]).overall for picture, prompt in zip(pictures, prompts)])
    reverse = tifa.score(pictures[::-1], prompts[::-1]).overall.flip(0)
    assert torch.allclose(together, alone, atol=1e-5) and torch.allclose(together, reverse, atol=1e-5)
    assert together.std() > 1e-4  # the judge does tell the pictures apart


def test_official_sample_is_scored_by_blip(
    tiny_blip: Judge, store: QuestionStore, tifa_data: Path, matcher: AnswerMatcher
) -> None:
    store.add(read_questions(tifa_data / "sample_question_answers.json"))
    images = {id: tifa_data / name for id, name in json.loads((tifa_data / "sample_imgs.json").read_text()).items()}
    for tifa in (
        TIFA(tiny_blip, store, matcher=matcher),
        TIFA(tiny_blip, store, answer="choices"),
        TIFA(tiny_blip, store, soft=True),
    ):
        scores = tifa.score(list(images.values()), list(images))
        assert len(scores.answers) == 19 and not scores.abstained.any()
        assert ((scores.overall >= 0) & (scores.overall <= 1)).all()


def test_official_scores_from_the_recorded_answers(
    store: QuestionStore, tifa_data: Path, recorded, matcher: AnswerMatcher
) -> None:
    result = json.loads((tifa_data / "sample_evaluation_result.json").read_text())
    rows = [row for part in result["question_details"].values() for row in part.values()]
    store.add(read_questions(tifa_data / "sample_question_answers.json"))
    tifa = TIFA(recorded({row["question"]: row["free_form_vqa"] for row in rows}), store, matcher=matcher)
    scores = tifa.score([RED] * len(result["caption_scores"]), list(result["caption_scores"]))
    assert scores.overall.tolist() == list(result["caption_scores"].values())
    differing = [
        (own.free_form, own.choice, row["multiple_choice_vqa"])
        for own, row in zip(scores.answers, rows)
        if own.choice != row["multiple_choice_vqa"]
    ]
    assert differing == [("0", None, "1")]  # the official scorer takes "0" for "1"; wrong either way
    assert scores.overall.mean().item() == 0.8125 and sum(row.right for row in scores.answers) == 16
    assert {name: mean for name, (mean, _) in scores.by_element_type().items()} == pytest.approx(
        result["accuracy_by_type"]
    )


def test_a_prompt_that_is_no_list_is_named_as_such(store, ask, recorded):
    store.add([ask()])
    tifa = TIFA(recorded({}, default="yes"), store, matcher=AnswerMatcher(sentence_model=None))
    with pytest.raises(InputError, match="prompts must be a list, got a single string 'red'"):
        tifa.score([Image.new("RGB", (8, 8), "red")] * 3, "red")


@pytest.mark.parametrize("prompt", [["a"], True, 1.5, {"text": "a"}, float("nan")], ids=str)
def test_a_prompt_that_is_no_text_is_named(prompt: object, store: QuestionStore) -> None:
    class Answering(Judge):
        def answer(self, images, questions):  # type: ignore[no-untyped-def]
            return ["yes"] * len(questions)

    tifa = TIFA(Answering(), store, matcher=AnswerMatcher(sentence_model=None))
    with pytest.raises(InputError, match=f"prompt 0 is a {type(prompt).__name__}"):
        tifa.score([Image.new("RGB", (8, 8), "red")], [prompt])  # type: ignore[list-item]
