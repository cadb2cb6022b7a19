"""Each known fault of the official scorer and parser (`tifascore`), and what happens here instead."""

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from rewards.errors import InputError
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.parsing import parse_output
from rewards.tifa.questions.question import Question, question_from_row, question_to_row, read_questions
from rewards.tifa.reward import TIFA
from rewards.tifa.scoring import macro_deviation, macro_mean
from rewards.tifa.store.store import Added, QuestionStore

Ask = Callable[..., Question]
EXACT = AnswerMatcher(sentence_model=None)
RED = Image.new("RGB", (8, 8), (200, 10, 10))


def test_the_deviation_of_one_prompt_is_zero_not_an_error() -> None:
    assert macro_deviation({"a": [0.5]}) == 0.0


def test_empty_input_is_no_error(store: QuestionStore, recorded) -> None:
    assert math.isnan(macro_mean({})) and TIFA(recorded({}), store, matcher=EXACT).score([], []).answers == []


def test_a_repeated_question_counts_once_and_rows_are_never_mixed(store: QuestionStore, ask: Ask, recorded) -> None:
    assert store.add([ask(), ask(), ask("q2", answer="no")]) == Added(new=2, known=1)
    scores = TIFA(recorded({}, default="yes"), store, matcher=EXACT).score([RED], ["s_1"])
    assert scores.overall.item() == 0.5 and len(scores.answers) == 2
    with pytest.raises(InputError, match="already has the question"):
        store.add([ask(choices=("yes", "no", "maybe"))])


def test_int_and_str_ids_do_not_collide(store: QuestionStore, ask: Ask) -> None:
    store.add([ask(id=1, prompt="number"), ask(id="1", prompt="text")])
    assert [store.get(1)[0].prompt, store.get("1")[0].prompt] == ["number", "text"]


def test_one_missing_picture_loses_nothing_else(store: QuestionStore, ask: Ask, recorded, tmp_path: Path) -> None:
    store.add([ask()])
    scores = TIFA(recorded({}, default="yes"), store, matcher=EXACT).score([RED, tmp_path / "no.png", RED], ["s_1"] * 3)
    assert scores.overall[0] == scores.overall[2] == 1 and scores.overall[1].isnan()
    assert "no.png" in (scores.reasons[1] or "")


def test_an_answer_outside_its_choices_is_refused() -> None:
    row = {"id": 1, "caption": "c", "question": "q?", "choices": ["a", "b"], "answer": "c", "element_type": "other"}
    with pytest.raises(InputError, match="the answer 'c' is not among its choices"):
        question_from_row(row)


@pytest.mark.parametrize(
    ("gold", "said"), [("yes ", "yes"), ("yes", "yes "), ("yes", "Yes."), ("3", "three"), ("dog", "a dog")]
)
def test_blanks_case_and_points_do_not_make_an_answer_wrong(
    gold: str, said: str, store: QuestionStore, ask: Ask, recorded
) -> None:
    store.add([ask(choices=(gold, "other"), answer=gold)])
    assert TIFA(recorded({}, default=said), store, matcher=EXACT).score([RED], ["s_1"]).overall.item() == 1


def test_an_empty_answer_is_not_no(matcher: AnswerMatcher) -> None:
    assert matcher.match([""], [["yes", "no"]])[0].how == "unmatched"


def test_zero_is_not_one(matcher: AnswerMatcher) -> None:
    assert matcher.match(["0"], [["1", "2", "3", "4"]])[0].how == "unmatched"


def test_ties_are_not_decided_by_noise(matcher: AnswerMatcher) -> None:
    choices = ["dog", "Dog", "DOG"]
    assert [matcher.match(["puppy"], [choices])[0].index for _ in range(3)] == [0, 0, 0]
    assert matcher.match(["puppy", "a much longer answer"], [choices, ["x", "y"]])[0].index == 0


def test_empty_choices_are_refused_with_the_row() -> None:
    with pytest.raises(InputError, match="has no choices"):
        question_from_row({"id": 1, "caption": "c", "question": "q?", "choices": [], "answer": "a dog"})


def test_rows_of_the_caller_are_not_changed(tifa_data: Path, store: QuestionStore, recorded) -> None:
    rows = json.loads((tifa_data / "sample_question_answers.json").read_text())
    before = copy.deepcopy(rows)
    questions = [question_from_row(row) for row in rows]
    store.add(questions)
    TIFA(recorded({}, default="yes"), store, matcher=EXACT).score([RED], ["coco_301091"])
    question_to_row(questions[0])["answer"] = "changed"
    assert rows == before and [question_to_row(question) for question in questions] == before


def test_a_picture_is_read_once_and_a_choice_embedded_once(
    tifa_data: Path, store: QuestionStore, recorded, minilm: str
) -> None:
    store.add(read_questions(tifa_data / "sample_question_answers.json"))
    judge, matcher = recorded({}, default="something blue"), AnswerMatcher(minilm)
    tifa = TIFA(judge, store, matcher=matcher)
    tifa.score([tifa_data / "coco_301091.jpg"], ["coco_301091"])
    assert len({id(image) for image, _ in judge.asked}) == 1
    encoded: list[str] = []
    original = matcher._model.encode
    matcher._model.encode = lambda texts, **options: encoded.extend(texts) or original(texts, **options)
    tifa.score([tifa_data / "coco_301091.jpg"], ["coco_301091"])
    assert encoded == []


@pytest.mark.parametrize(
    "line",
    ["Choices: yes, no", "Choices:yes,no", "Choices : yes , no", "choices: yes; no", "Choices: yes,no,"],
)
def test_choices_are_split_however_they_are_written(line: str) -> None:
    question = parse_output(f"About red (color):\nQ: is it red?\n{line}\nA: yes", "a red dot").questions[0]
    assert set(question.choices) == {"yes", "no"}


def test_an_element_with_parentheses_keeps_its_name_and_type() -> None:
    question = parse_output("About Big Ben (clock) (object):\nQ: is it?\nChoices: yes, no\nA: yes", "p").questions[0]
    assert (question.element, question.element_type) == ("Big Ben (clock)", "object")


@pytest.mark.parametrize(
    "header", ["About several", "About several:", "About several (counting", "About several ()", "About", "About ("]
)
def test_an_element_without_a_type_is_no_crash(header: str) -> None:
    parsed = parse_output(f"{header}\nQ: are there?\nChoices: yes, no\nA: yes", "p")
    assert parsed.questions == [] and len(parsed.dropped) == 1


def test_a_cut_off_last_line_costs_only_its_question() -> None:
    output = "About red (color):\nQ: is it red?\nChoices: yes, no\nA: yes\nQ: what color?\nChoices: red, bl"
    parsed = parse_output(output, "p", cut_off=True)
    assert [question.text for question in parsed.questions] == ["is it red?"] and len(parsed.dropped) == 2
