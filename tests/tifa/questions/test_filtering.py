from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rewards.errors import InputError
from rewards.tifa.questions.filtering import THRESHOLDS, filter_questions, verdict, word_f1
from rewards.tifa.questions.question import Question, read_questions
from rewards.tifa.questions.unifiedqa import UnifiedQA, encode
from rewards.tifa.store.store import QuestionStore
from tests.tifa.questions.text_models import save_t5

Ask = Callable[..., Question]


@pytest.mark.parametrize(
    ("prediction", "answer", "paper", "code"),
    [
        ("red", "red", 1, 1),
        ("red", "blue", 0, 0),
        ("", "", 1, 1),
        ("", "red", 0, 0),
        ("red", "", 0, 0),
        ("a red car", "red car", 0.8, 0.8),  # precision 2/3, recall 1
        ("red", "red car", 2 / 3, 2 / 3),  # precision 1, recall 1/2
        ("red red", "red", 2 / 3, 1),  # paper: precision 1/2; code: no word of the prediction is unwanted
        ("red", "red red", 2 / 3, 1),  # paper: recall 1/2; code: both words of the answer are hits
        ("big ben", "Big Ben", 0, 0),
        ("to to to by", "to by", 2 / 3, 1),
    ],
)
def test_word_f1(prediction: str, answer: str, paper: float, code: float) -> None:
    assert word_f1(prediction, answer) == pytest.approx(paper)
    assert word_f1(prediction, answer, mode="code") == pytest.approx(code)


COUNT = Question("how many dogs?", ("2", "3"), "3", "three", "counting", "three dogs", 1)
COLOR = Question("what color?", ("red", "dark red"), "dark red", "dark red", "color", "a dark red dot", 1)
CLOCK = Question("what tower?", ("Big Ben", "Eiffel Tower"), "Big Ben", "Big Ben", "object", "Big Ben at night", 1)
SHIRT = Question("what is worn?", ("t-shirt", "coat"), "t-shirt", "t-shirt", "object", "a man in a t-shirt", 1)
YES = Question("is it red?", ("yes", "no"), "yes", "red", "color", "a red dot", 1)


@pytest.mark.parametrize(
    ("question", "multiple_choice", "free_form", "paper", "code", "official"),
    [
        (YES, "yes", "yes", True, True, True),
        (YES, "yes", "a red dot", False, True, True),  # code exempts yes and no from F1
        (YES, "no", "yes", False, False, False),
        (YES, "Yes.", "yes", True, True, False),
        (COUNT, "3", "3", True, True, True),
        (COUNT, "3", "three", True, True, True),
        (COUNT, "three", "there are three", False, True, False),  # the released code compares letter by letter
        (COUNT, "3", "there are three", False, True, True),
        (COUNT, "3", "two or three", False, False, False),  # 5, says word2number
        (COUNT, "3", "one and two", False, False, True),  # 3, says word2number
        (COUNT, "2", "3", False, False, False),
        (COLOR, "dark red", "dark red", True, True, True),
        (COLOR, "dark red", "Dark Red!", True, True, True),
        (COLOR, "dark red", "red", False, True, True),  # F1 2/3 lies between the thresholds
        (COLOR, "dark red", "blue", False, False, False),
        (CLOCK, "big ben", "big ben", True, True, False),
        (CLOCK, "Big Ben", "Big Ben.", True, True, False),  # the released code lowers one side only
        (SHIRT, "t-shirt", "T-shirt", True, True, False),  # and takes its hyphen away
    ],
)
def test_verdicts_of_paper_and_code(
    question: Question, multiple_choice: str, free_form: str, paper: bool, code: bool, official: bool
) -> None:
    for mode, kept in (("paper", paper), ("code", code), ("official", official)):
        result = verdict(question, multiple_choice, free_form, mode)
        assert result.kept is kept and (result.reason is None) is kept


def test_thresholds_are_strict_and_can_be_given() -> None:
    assert THRESHOLDS == {"paper": 0.7, "code": 0.6, "official": 0.6}
    assert verdict(COLOR, "dark red", "red", threshold=0.66).kept
    assert not verdict(COLOR, "dark red", "dark red", threshold=1.0).kept
    for options in ({"mode": "strict"}, {"threshold": 1.5}):
        with pytest.raises(InputError, match=r"mode|threshold"):
            verdict(COLOR, "dark red", "red", **options)


class Scripted:
    """A text model with given answers: question -> (with choices, freely)."""

    def __init__(self, answers: dict[str, tuple[str, str]], dies_after: int = 10**9, name: str = "scripted") -> None:
        self.answers, self.dies_after, self.name = answers, dies_after, name
        self.asked: list[str] = []

    def identity(self) -> dict[str, Any]:
        return {"name": self.name}

    def answer(self, questions: Sequence[Question]) -> list[tuple[str, str]]:
        if len(self.asked) + len(questions) > self.dies_after:
            raise KeyboardInterrupt
        self.asked += [question.text for question in questions]
        return [self.answers[question.text] for question in questions]


ANSWERS = {"q1": ("yes", "yes"), "q2": ("yes", "a dog"), "q3": ("no", "yes")}


def test_filtering_keeps_answers_and_verdicts(store: QuestionStore, ask: Ask) -> None:
    store.add([ask(text) for text in ANSWERS])
    report = filter_questions(store, Scripted(ANSWERS), mode="paper", batch_size=2)
    assert (report.asked, report.kept, report.dropped) == (3, 1, 2)
    assert [question.text for question in store.get("s_1")] == ["q1"]
    _, kept, checks = list(store.everything())[1]
    assert not kept and checks == {
        "model": {"name": "scripted"}, "multiple_choice": "yes", "free_form": "a dog", "mode": "paper",
        "threshold": 0.7, "f1": 0.0, "reason": "freely the answer is 'a dog'",
    }  # fmt: skip
    assert store.provenance(ask("q1"))["filter"]["mode"] == "paper"


@pytest.mark.parametrize("mode", ["paper", "code"])
def test_a_perfect_text_model_drops_nothing_of_the_sample(mode: str, tifa_data) -> None:
    words = {"1": "one", "2": "two", "3": "three", "4": "four"}
    for question in read_questions(tifa_data / "sample_question_answers.json"):
        said = words.get(question.answer, question.answer)
        assert verdict(question, question.answer, said, mode).kept, question


def test_official_mode_takes_only_answers_to_the_released_prompts(store: QuestionStore, ask: Ask) -> None:
    store.add([ask(text) for text in ANSWERS])
    with pytest.raises(InputError, match="encoding='released'"):
        filter_questions(store, Scripted(ANSWERS), mode="official")
    filter_questions(store, Scripted(ANSWERS), mode="code")
    with pytest.raises(InputError, match="3 questions were never checked in this form"):
        filter_questions(store, None, mode="official")
    released = Scripted(ANSWERS)
    released.identity = lambda: {"name": "scripted", "encoding": "released"}
    report = filter_questions(store, released, mode="official")
    assert (report.asked, report.kept) == (3, 2)
    assert filter_questions(store, None, mode="official").asked == 0


def test_another_mode_or_threshold_asks_nothing(store: QuestionStore, ask: Ask) -> None:
    store.add([ask(text) for text in ANSWERS])
    filter_questions(store, Scripted(ANSWERS), mode="paper")
    report = filter_questions(store, None, mode="code")
    assert (report.asked, report.kept, report.dropped) == (0, 2, 1)
    assert [question.text for question in store.get("s_1")] == ["q1", "q2"]
    filter_questions(store, None, mode="paper", threshold=0.0)
    assert [question.text for question in store.get("s_1")] == ["q1"]
    store.add([ask("q4")])
    with pytest.raises(InputError, match="1 questions were never checked"):
        filter_questions(store, None)


def test_settings_are_checked_before_the_model_is_asked(store: QuestionStore, ask: Ask) -> None:
    store.add([ask("q1")])
    model = Scripted(ANSWERS)
    with pytest.raises(InputError, match="mode is 'strict'"):
        filter_questions(store, model, mode="strict")
    assert model.asked == []


def test_a_killed_run_goes_on_without_asking_twice(store: QuestionStore, ask: Ask) -> None:
    answers = {f"q{number}": ("yes", "yes") for number in range(7)}
    store.add([ask(text) for text in answers])
    first, second = Scripted(answers, dies_after=4), Scripted(answers)
    with pytest.raises(KeyboardInterrupt):
        filter_questions(store, first, batch_size=2)
    seen: list[int] = []
    assert filter_questions(store, second, batch_size=2, progress=seen.append).asked == 3
    assert first.asked + second.asked == list(answers) and sum(seen) == 7
    other = Scripted(answers, name="other")
    assert filter_questions(store, other).asked == 7  # another model's answers are not taken for its own


def test_batched_answers_equal_one_at_a_time(tmp_path, tifa_data) -> None:
    questions = read_questions(tifa_data / "sample_question_answers.json")
    model = UnifiedQA(save_t5(tmp_path / "t5"))
    questions = questions[::2]
    together = model.answer(questions)
    assert len(set(together)) > 5  # the answers do depend on the question
    results = []
    for name, batch_size in (("batched", 5), ("single", 1)):
        store = QuestionStore(tmp_path / f"{name}.sqlite")
        store.add(questions)
        filter_questions(store, model, batch_size=batch_size)
        results.append([(question, kept, checks) for question, kept, checks in store.everything()])
    assert results[0] == results[1]
    assert [(checks["multiple_choice"], checks["free_form"]) for _, _, checks in results[1]] == together


def test_encoding_is_that_of_unifiedqa(ask: Ask) -> None:
    question = ask("What  color?", ("Red", "b", "c", "d", "e"), "Red", prompt="A Dot\n")
    assert encode(question, True) == r"what color? \n (a) red (b) b (c) c (d) d (e) e \n a dot"
    assert encode(question, False) == r"what color? \n a dot"
    released = "What  color? \n A Dot\n \n (A) Red (B) b (C) c (D) d "
    assert encode(question, True, "released") == released
    assert encode(question, False, "released") == "What  color? \n A Dot\n"
    with pytest.raises(InputError, match="encoding is 'other'"):
        UnifiedQA("any", encoding="other")


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(InputError, match="'no/such-model' cannot be loaded"):
        UnifiedQA("no/such-model")
