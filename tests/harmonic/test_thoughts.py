import pytest
import torch

from rewards.harmonic.reward import HarmonicEval
from rewards.harmonic.thoughts import without_thoughts
from rewards.judges.base import DEFAULT_RATINGS, Judge, Ratings, UnsupportedAbility
from tests import tiny_models


class Listening(Judge):
    """Rates everything 4, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def rate(self, images, prompts, ratings=DEFAULT_RATINGS):
        self.asked += prompts
        probabilities = torch.tensor([[0.0, 0.0, 0.1, 0.9, 0.0]] * len(prompts))
        return Ratings(probabilities, probabilities.sum(-1))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>A dog?</think>A dog.", "A dog."), ("A dog?</think>\n\nA dog.", "A dog."), ("A dog.", "A dog."),
        ("<think>A</think>B<thinking>C</thinking>D", "D"), ("A cat.<think>or a dog", "A cat."), ("<think>a", ""),
        ("  kept as it is \n", "  kept as it is \n"), ("I think <b>so</b>", "I think <b>so</b>"),
    ],
)  # fmt: skip
def test_the_answer_is_what_stands_after_the_thoughts(text, answer):
    assert without_thoughts(text) == answer


@pytest.mark.parametrize("strip", [True, False])
def test_thoughts_are_judged_only_where_asked_for(strip):
    judge = Listening()
    reward = HarmonicEval(judge, prompts={"a": "Rate: {text}", "b": "{text}"}, strip_thoughts=strip)
    reward.score([tiny_models.picture()], ["<think>bad</think>good"])
    assert judge.asked == (["Rate: good", "good"] if strip else [f"{p}<think>bad</think>good" for p in ("Rate: ", "")])
    assert reward.identity()["strip_thoughts"] is strip


def test_a_judge_that_cannot_rate_is_refused_when_the_reward_is_made():
    class Answering(Judge):
        name = "answerer"

        def answer(self, images, questions):
            return ["yes"] * len(questions)

    with pytest.raises(UnsupportedAbility, match="judge 'answerer' answers questions but cannot rate"):
        HarmonicEval(Answering())
