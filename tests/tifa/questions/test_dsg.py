"""DSG's CSV in and out; bad dependencies named by row; the released replay through the reward."""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
from PIL import Image
from typer.testing import CliRunner

from rewards.cli.app import app
from rewards.errors import InputError
from rewards.judges.base import Judge
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.dsg import COLUMNS, read_dsg, write_dsg
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from tests.shared_data import shared_file

RED = Image.new("RGB", (8, 8), (200, 10, 10))
ROWS = [
    ("a", "a red car", "car", "1", "0", "entity", "whole", "entity - whole (car)", "Is there a car?"),
    ("a", "a red car", "red", "2", "1", "attribute", "color", "attribute - color (car, red)", "Is the car red?"),
    ("a", "a red car", "photo", "3", "1, right", "global", "-", "global (photo)", "Is it a photo?"),
    ("a", "a red car", "old", "4", "1,9", "attribute", "age", "attribute (old)", "Is the car old?"),
    ("a", "a red car", "car", "5", "2", "entity", "whole", "entity - whole (car)", "Is there a car?"),
    ("a", "a red car", "car", "5", "0", "entity", "whole", "entity - whole (car)", "Is there a wheel?"),
    ("a", "a red car", "car", "6", "0", "entity", "whole", "entity - whole (car)", " "),
]


def written(path: Path, rows: list[tuple[str, ...]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    return path


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def test_rows_become_questions_and_faults_are_named_by_row(tmp_path: Path) -> None:
    path = written(tmp_path / "d.csv", ROWS)
    found = read_dsg(path)
    assert [(q.text, q.element_type, q.depends_on) for q in found.questions] == [
        ("Is there a car?", "entity.whole", ("Is the car red?",)),
        ("Is the car red?", "attribute.color", ("Is there a car?",)),
        ("Is it a photo?", "global", ("Is there a car?",)),
        ("Is the car old?", "attribute.age", ("Is there a car?",)),
    ]
    assert found.warnings == [
        f"{path}, line 4: a: dependency '1, right': 'right' is no number",
        f"{path}, line 5: a: dependency '1,9': '9' is no proposition of this prompt",
        f"{path}, line 6: a: 'Is there a car?' is asked already; it counts once",
    ]
    assert found.problems == [
        f"{path}, line 7: a: there is a proposition 5 already",
        f"{path}, line 8: a: proposition 6 has no question",
    ]
    with pytest.raises(InputError, match=r"no column .*'dependency'"):
        (tmp_path / "e.csv").write_text("item_id,text\n")
        read_dsg(tmp_path / "e.csv")


def test_questions_from_elsewhere_are_numbered(tmp_path: Path, ask) -> None:
    write_dsg(tmp_path / "d.csv", [
        ask("Is there a car?", element="car", element_type="entity.whole"),
        ask("Is it red?", element="red", element_type="attribute.color", depends_on=("Is there a car?", "gone?")),
    ])  # fmt: skip
    first, second = cells(tmp_path / "d.csv")
    assert (first["proposition_id"], first["dependency"], second["dependency"]) == ("1", "0", "1")
    assert second["tuple"] == "attribute - color (red)" and second["category_detailed"] == "color"


@pytest.mark.parametrize(("name", "bad"), [("dsg-1k-anns.csv", 10), ("tifa160-dev-anns.csv", 0)])
def test_the_released_files_go_through_a_store_and_back(name: str, bad: int, tmp_path: Path) -> None:
    released = shared_file(f"dsg/{name}")
    store, back = tmp_path / "q.sqlite", tmp_path / "back.csv"
    done = CliRunner().invoke(app, ["questions", "import", str(released), "--store", str(store), "--skip-bad"])
    assert done.exit_code == 0, done.output
    assert done.output.count("is no number") == bad
    left_out = done.output.count("left out: ")
    assert CliRunner().invoke(app, ["questions", "export", str(store), str(back)]).exit_code == 0
    kept = [row for row in cells(released) if row["question_natural_language"].strip()]
    numbers: set[tuple[str, str]] = set()
    expected = []
    for row in kept:
        number = (row["item_id"], row["proposition_id"])
        if number not in numbers:
            expected.append(
                {key: value.strip() if "question" in key or key == "text" else value for key, value in row.items()}
            )
            numbers.add(number)
    order = lambda row: (row["item_id"], int(row["proposition_id"]))  # noqa: E731
    assert sorted(cells(back), key=order) == sorted(expected, key=order)
    assert len(cells(back)) + left_out == len(cells(released))


class Replayed(Judge):
    """Answers that a VQA model gave, by question."""

    name = "replayed"

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers

    def answer(self, images, questions):
        return [self.answers[question] for question in questions]


@pytest.mark.parametrize(("dependencies", "column"), [("hard", 1), ("none", 0)])
def test_real_answers_give_the_scores_of_the_released_rule(dependencies: str, column: int, tmp_path: Path) -> None:
    """Against `calc_vqa_score`'s rule, written again here, on mPLUG's answers for every prompt without repetitions."""
    answers: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in cells(shared_file("dsg/vqa_mplug_dsg.csv")):
        if row["dsg_prompt_split"] == "tifa160":
            answers[row["item_id"], row["t2i_model"]].append(row)
    dsg = read_dsg(shared_file("dsg/dsg-1k-anns.csv"))
    odd = {question.id for question in dsg.questions if len(question.extra["dsg"]) > 1}
    odd |= {line.split(": ")[1] for line in dsg.warnings}
    store = QuestionStore(tmp_path / "q.sqlite")
    store.add(question for question in dsg.questions if str(question.id).startswith("tifa160"))
    compared = lowered = 0
    for (item, _), rows in list(answers.items())[:400]:
        if item in odd:
            continue
        raw = {row["question_id"]: float(row["answer"] == "yes") for row in rows}
        zeroed = {
            row["question_id"]: 0.0 if any(raw.get(p.strip(), 1) == 0 for p in row["dependency_id"].split(",")) else
            raw[row["question_id"]] for row in rows
        }  # fmt: skip
        expected = (fmean(raw.values()), fmean(zeroed.values()))
        judge = Replayed({row["question"].strip(): row["answer"] for row in rows})
        tifa = TIFA(judge, store, matcher=AnswerMatcher(None), dependencies=dependencies)
        assert tifa.score([RED], [item]).overall.item() == pytest.approx(expected[column]), item
        compared += 1
        lowered += expected[0] != expected[1]
    assert compared > 300 and lowered > 30
