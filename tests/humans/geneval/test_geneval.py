"""GenEval's human answers: files with broken rows, questions and their gold, leave-one-out by hand, judges' answers."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.metrics import cohen_kappa_score
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.geneval.annotations import Prompt, read_annotations, read_metadata
from rewards.humans.geneval.questions import ask, questions_of, read_judge_answers
from rewards.humans.geneval.study import (
    PEOPLE,
    GenevalStudy,
    answer_credit,
    cohens_kappa,
    consensus,
    verdict_table,
)
from rewards.judges.base import Judge
from tests.shared_data import shared_file

HEADER = (
    "HITId,Input.index,Input.prompt_id,Input.image_id,Input.image_url,Input.caption,Input.object_0_name,"
    "Input.object_1_name,Input.object_0_name_plural,Input.object_1_name_plural,Answer.task-color-0,"
    "Answer.task-color-1,Answer.task-count-0,Answer.task-count-1,Answer.task-objects,Answer.task-position-x,"
    "Answer.task-position-y"
)
PROMPT = Prompt(
    "position",
    "a photo of a dog right of a cat",
    ({"class": "cat", "count": 1}, {"class": "dog", "count": 1, "position": ["right of", 0]}),
)


def row(colors=("black", "white"), counts=("1", "1.0"), sides=("right", "neither_y"), picture="0", objects="dog"):
    url = f"https://x.org/main/images/clip/00000/samples/0000{picture}.png"
    names = ["h", f"0_{picture}", "0", picture, url, PROMPT.prompt, "cat", "dog", "cats", "dogs"]
    return [*names, *colors, *counts, objects, *sides]


def write(path, rows):
    buffer = io.StringIO()
    csv.writer(buffer).writerows(rows)
    path.write_text(HEADER + "\n" + buffer.getvalue(), encoding="utf-8")
    return path


def questions(tmp_path, rows):
    pictures, _ = read_annotations(write(tmp_path / "annotations_clip.csv", rows))
    return {question.id: question for picture in pictures for question in questions_of(picture, PROMPT)}


def test_a_file_becomes_pictures_with_their_annotators(tmp_path):
    rows = [row(), row(colors=("black|white", ""), counts=("5", ""), sides=("", "")), row(picture="1")]
    pictures, notes = read_annotations(write(tmp_path / "annotations_if-xl.csv", rows))
    assert [(p.generator, p.prompt_id, p.image_id, p.image) for p in pictures] == [
        ("if-xl", 0, 0, "clip/00000/samples/00000.png"), ("if-xl", 0, 1, "clip/00000/samples/00001.png"),
    ]  # fmt: skip
    answers = pictures[0].answers
    assert answers["color-0"] == [{"black"}, {"black", "white"}] and answers["color-1"] == [{"white"}, set()]
    assert answers["count-0"] == [{"1"}, {"5"}] and answers["count-1"] == [{"1"}, set()]
    assert answers["position-y"] == [{"neither"}, set()] and notes == []


def test_a_row_that_a_line_break_cut_in_two_is_put_together_and_noted(tmp_path):
    file = write(tmp_path / "annotations_clip.csv", [row(), row(objects="1.dog 2.cat"), row(picture="1")])
    file.write_text(file.read_text().replace("1.dog 2.cat", "1.dog\n2.cat"))
    pictures, notes = read_annotations(file)
    assert len(pictures[0].answers["count-0"]) == 2 and pictures[0].answers["position-x"][1] == {"right"}
    assert len(pictures) == 2 and len(notes) == 1 and "line 3: a line break" in notes[0]
    file.write_text(file.read_text() + "h,0_2\n")
    with pytest.raises(InputError, match="line 6: has 2 cells and the header 17"):
        read_annotations(file)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colors": ("teal", "")}, "line 2, Answer.task-color-0: 'teal' is no answer"),
        ({"counts": ("7", "")}, "line 2, Answer.task-count-0: '7' is no answer"),
        ({"sides": ("above", "")}, "line 2, Answer.task-position-x: 'above' is no answer; left, right, neither are"),
        ({"picture": "x"}, "line 2: 'x' is no whole number"),
    ],
)
def test_an_answer_that_is_none_is_named(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_annotations(write(tmp_path / "annotations_clip.csv", [row(**changes)]))


def test_questions_are_asked_in_words_and_know_what_the_prompt_wants(tmp_path):
    found = questions(tmp_path, [row()])
    assert [(q.id, q.skill, q.gold) for q in found.values()] == [
        ("count-0", "count", None), ("count-1", "count", None), ("color-0", "color", None), ("color-1", "color", None),
        ("position-x", "position", "right"), ("position-y", "position", None),
    ]  # fmt: skip
    assert found["count-1"].question == "How many dogs are in the picture?"
    assert found["position-x"].question == "Is the dog left or right of the cat, or neither?"
    assert found["position-y"].question == "Is the dog above or below the cat, or neither?"
    picture = found["count-0"].picture
    with pytest.raises(InputError, match="prompt 0 is 'a photo of a cow' in the metadata"):
        questions_of(picture, Prompt("single_object", "a photo of a cow", ({"class": "cow", "count": 1},)))


def test_the_others_say_what_is_true():
    def sets(*answers):
        return [frozenset(answer) for answer in answers]

    assert consensus(sets(["2"], ["2"], ["3"], ["1"]), several=False) == {"2"}
    assert consensus(sets(["2"], ["2"], ["3"], ["3"]), several=False) == frozenset()
    assert consensus(sets([], [], ["3"]), several=False) == frozenset()
    assert consensus(sets(["red", "white"], ["red"], ["red", "black"], ["white"]), several=True) == {"red"}


def test_leave_one_out_by_hand(tmp_path):
    sides = [("right", ""), ("right", ""), ("right", ""), ("left", ""), ("", "")]
    found = questions(tmp_path, [row(sides=side) for side in sides])["position-x"]
    # Each is compared with the four others, who say "right" every time but once less for those who said it.
    assert answer_credit(found) == (3.0, 5.0)
    assert answer_credit(found, frozenset(["left"])) == (0.0, 5.0)
    # Without one of the three the others are divided two to two about "right": left out.
    assert verdict_table(found) == [[0.0, 2.0], [0.0, 0.0]]
    assert verdict_table(found, frozenset(["right"])) == [[0.0, 0.0], [0.0, 2.0]]
    colors = [("red|white", ""), ("red", ""), ("red", ""), ("red", ""), ("red", "")]
    assert answer_credit(questions(tmp_path, [row(colors=color) for color in colors])["color-0"]) == (4.5, 5.0)


def test_kappa_is_sklearns():
    rng = np.random.default_rng(0)
    a = rng.random(200) < 0.6
    b = np.where(rng.random(200) < 0.7, a, ~a)
    table = np.array([[((a == x) & (b == y)).sum() for y in (False, True)] for x in (False, True)], dtype=float)
    assert cohens_kappa(table) == pytest.approx(cohen_kappa_score(a, b))
    assert np.isnan(cohens_kappa(np.zeros((2, 2)))) and np.isnan(cohens_kappa(np.array([[0.0, 0.0], [0.0, 3.0]])))


class Chooses(Judge):
    """Chooses the last of the choices, or abstains on questions that hold a word."""

    name = "chooses"

    def choose(self, images, questions, choices):
        return [
            torch.full((len(c),), torch.nan) if "cats" in question else torch.arange(len(c)).float()
            for question, c in zip(questions, choices, strict=True)
        ]


def test_a_judge_is_asked_where_the_picture_is(tmp_path):
    found = list(questions(tmp_path, [row(), row(picture="1")]).values())
    with pytest.raises(InputError, match="none of the 6 pictures is there"):
        ask(Chooses(), found, tmp_path)
    path = tmp_path / found[0].picture.image
    path.parent.mkdir(parents=True)
    Image.new("RGB", (8, 8)).save(path)
    assert ask(Chooses(), found, tmp_path) == [None, "5", "gray", "gray", "neither", "neither"]


def test_answers_from_elsewhere_are_joined_and_checked(tmp_path):
    found = list(questions(tmp_path, [row()]).values())
    file = tmp_path / "judge.jsonl"
    given = {"generator": "clip", "index": "0_0", "question": "count-1", "answer": "1"}
    file.write_text(json.dumps(given) + "\n")
    assert read_judge_answers(file, found) == [None, "1", None, None, None, None]
    study = GenevalStudy(found, resamples=5)
    study.add("judge", read_judge_answers(file, found))
    assert study.results["judge"]["count"].abstained == 1 and study.results["judge"]["color"].abstained == 2
    for changes, message in (({"answer": "many"}, "line 2: 'many' is no answer"), ({}, "line 2: .* is answered twice")):
        second = {**given, **changes} if not changes else {**given, "question": "count-0", **changes}
        file.write_text(json.dumps(given) + "\n" + json.dumps(second) + "\n")
        with pytest.raises(InputError, match=message):
            read_judge_answers(file, found)


def test_the_released_files():
    files = [shared_file(f"geneval/annotations_{name}.csv") for name in ("clip", "if-xl", "sdv2")]
    metadata = shared_file("geneval/evaluation_metadata.jsonl")
    assert len(read_metadata(metadata)) == 553
    readings = [read_annotations(file) for file in files]
    assert [len(pictures) for pictures, _ in readings] == [400, 400, 400]
    assert {len(a) for pictures, _ in readings for p in pictures for a in p.answers.values()} == {5}
    arguments = ["geneval", *map(str, files), "--metadata", str(metadata), "--resamples", "50", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    people = found["results"][PEOPLE]
    assert found["questions"] == 4848 and len(found["notes"]) == 4
    shown = {skill: f"{100 * result['answer']['value']:.1f}" for skill, result in people.items()}
    assert shown == {"count": "91.5", "color": "73.5", "position": "63.7"}
    assert people["count"]["kappa"] > people["color"]["kappa"] > people["position"]["kappa"] > 0.5
