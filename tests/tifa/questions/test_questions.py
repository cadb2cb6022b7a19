import json
import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rewards.errors import InputError
from rewards.tifa.questions.question import (
    Question,
    parse_rows,
    question_from_row,
    question_to_row,
    read_questions,
    write_questions,
)  # fmt: skip
from rewards.tifa.store.store import QuestionStore

ROW: dict[str, Any] = {
    "id": "a_1", "caption": "three dogs", "question": "how many dogs?", "choices": ["1", "2", "3"], "answer": "3",
    "element_type": "counting", "element": "three",
}  # fmt: skip


def test_official_sample_is_read_and_written_without_loss(tifa_data: Path, tmp_path: Path) -> None:
    source = tifa_data / "sample_question_answers.json"
    questions = read_questions(source)
    assert len(questions) == 19
    assert questions[0].element_type == "animal/human" and questions[0].extra == {"coco_val_id": "380711"}
    write_questions(tmp_path / "out.json", questions)
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(source.read_text())


@pytest.mark.parametrize(
    "change",
    [
        {"id": 7},
        {"caption": " three dogs\n"},
        {"question": "how many dogs? "},
        {"choices": [1, 2, 3]},
        {"answer": 3},
        {"answer": "three"},
        {"choices": ["1 ", "2", "3"], "answer": " 3"},
        {"caption": "the “three” dogs’ day"},
        {"element": None},
        {"element": ""},
        {"element_type": "mood"},
        {"coco_val_id": "1", "note": {"nested": [1, None, 1.0, True]}},
    ],
)
def test_tolerant_rows_round_trip(change: dict[str, Any]) -> None:
    row = {**ROW, **change}
    question = question_from_row(row)
    assert question.answer_index == 2
    assert json.dumps(question_to_row(question), sort_keys=True) == json.dumps(row, sort_keys=True)


@pytest.mark.parametrize("key", ["element", "element_type"])
def test_optional_keys_stay_absent(key: str) -> None:
    row = {name: value for name, value in ROW.items() if name != key}
    assert question_to_row(question_from_row(row)) == row


def test_a_changed_field_wins_over_the_old_spelling() -> None:
    question = question_from_row({**ROW, "answer": 3, "choices": [1, 2, 3]})
    row = question_to_row(replace(question, answer="2"))
    assert row["answer"] == "2" and row["choices"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"answer": "4"}, "'4' is not among its choices"),
        ({"choices": [], "answer": "red"}, "no choices"),
        ({"choices": "yes, no"}, "list of texts"),
        ({"choices": ["1", "", "3"]}, "choice 1 is ''"),
        ({"question": " "}, "text must be a text that is not blank"),
        ({"id": None}, "id must be"),
        ({"id": True}, "id must be"),
        ({"caption": None}, "prompt must be"),
        ({"answer": True}, "answer must be"),
    ],
)
def test_unusable_rows_name_file_row_and_reason(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps([ROW, {**ROW, **change}]))
    with pytest.raises(InputError, match=r"bad\.json, row 1: ") as error:
        read_questions(path)
    assert reason in str(error.value)
    good, problems = parse_rows([ROW, {**ROW, **change}])
    assert len(good) == len(problems) == 1


def test_missing_keys_are_named() -> None:
    with pytest.raises(InputError, match="no 'question', 'answer'; the keys are id, caption, choices"):
        question_from_row({"id": 1, "caption": "x", "choices": ["a"]})


@pytest.mark.parametrize(
    ("text", "reason"), [("{", "not JSON"), ("{}", "expected a list"), ('["x"]', "row 0: expected an object")]
)
def test_files_that_are_something_else(text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=reason):
        read_questions(tmp_path / "x.json")


def test_a_byte_order_mark_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps([ROW]), encoding="utf-8-sig")
    assert read_questions(tmp_path / "x.json")[0].id == "a_1"


def test_answer_index_prefers_the_exact_spelling() -> None:
    question = Question("?", ("Red.", "red"), "red", "red", "color", "a red circle", 1)
    assert question.answer_index == 1


def test_the_default_id_is_the_prompt() -> None:
    assert Question("?", ("a",), "a", "", "", " two  dogs\n").id == "two dogs"


def test_questions_can_be_pickled_and_hashed() -> None:
    question = question_from_row({**ROW, "note": [1]})
    assert pickle.loads(pickle.dumps(question)) == question and hash(question) == hash(replace(question, extra={}))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": 2**70}, "too large; a whole number of 64 bits"),
        ({"id": -(2**70)}, "too large"),
        ({"id": "\ud800"}, "half a character"),
        ({"id": 1.0}, "id must be a text or a whole number"),
        ({"id": ["a"]}, "id must be a text or a whole number"),
        ({"question": "how\udfff"}, "half a character"),
        ({"caption": "\ud83d"}, "half a character"),
        ({"element": "\ud83d"}, "half a character"),
        ({"choices": ["1", "3", "\ud83d"]}, "half a character"),
        ({"choices": ["3", math.nan]}, "choice 1 is nan"),
        ({"answer": math.inf}, "answer must be a text"),
        ({"depends_on": "abc"}, "depends_on must be a list of texts"),
        ({"depends_on": 3}, "depends_on must be a list of texts"),
        ({"more": math.nan}, "a value beside the question cannot be kept"),
        ({"more": {"deep": ["\ud800"]}}, "a value beside the question cannot be kept"),
    ],
)
def test_a_row_that_no_store_can_hold_costs_itself_alone(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    path = tmp_path / "q.json"
    path.write_text(json.dumps([ROW, ROW | {"question": "how many cats?"} | change, ROW | {"id": 2**62}]))
    questions, problems = parse_rows(json.loads(path.read_text()), str(path))
    assert [question.id for question in questions] == ["a_1", 2**62]
    assert len(problems) == 1 and problems[0].startswith(f"{path}, row 1: ") and said in problems[0]
    store = QuestionStore(tmp_path / "s.sqlite")
    assert store.add(questions).new == 2 and store.get(2**62) == (questions[1],)
