"""The shapes study: the published rules by hand, instances with a best candidate, and the whole run on a tiny judge."""

import json
import random
import zlib

import pytest
import torch
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.humans.mmhe.records import CRITERIA, TASKS
from rewards.humans.shapes_study.answers import answer_truth
from rewards.humans.shapes_study.documents import document_truth, flawed_reading, sample_document
from rewards.humans.shapes_study.instances import MARGIN, overall_truth, study_instances
from rewards.humans.shapes_study.study import run_study
from rewards.judges.base import Judge, Ratings
from rewards.shapes.language import Phrase
from rewards.shapes.scenes import Scene, Shape
from tests import tiny_models

SCENE = Scene(
    (Shape("red", "circle", (0, 0), 6.5, 6.5, 5.0), Shape("blue", "square", (2, 2), 25.5, 25.5, 5.0)), "white"
)
CIRCLE = Phrase(1, "red", "circle")
LINES = [["apple", "12", "door", "lamp"], ["bread", "7", "house", "glass"], ["island", "9", "door", "lamp"]]


def test_a_full_answer_is_5_throughout():
    assert answer_truth(SCENE, CIRCLE, "a red circle", only_asked=True) == dict.fromkeys(CRITERIA, 5.0)
    assert set(answer_truth(SCENE, CIRCLE, "", only_asked=True).values()) == {1.0}


def test_rules_of_answers_by_hand():
    wrong = answer_truth(SCENE, CIRCLE, "a blue circle", only_asked=True)
    assert wrong["correctness"] == 3.5 and wrong["completeness"] == pytest.approx(1 + 8 / 3) and wrong["fluency"] == 5
    # The square is in the scene: true as an answer, but not what is in the box; three words and one joint too many.
    both = "a red circle and a blue square"
    assert answer_truth(SCENE, CIRCLE, both, only_asked=False)["correctness"] == 5
    assert answer_truth(SCENE, CIRCLE, both, only_asked=True)["correctness"] < 5
    assert answer_truth(SCENE, CIRCLE, both, only_asked=False)["conciseness"] == 3.0
    assert answer_truth(SCENE, CIRCLE, "a thing", only_asked=True)["clarity"] == 3.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("apple 12 door lamp", (5, 5, 5, 5, 5)),
        ("apple 13 door lamp", (3.5, 4, 5, 5, 5)),
        ("apple 12 lamp", (5, 4, 5, 5, 5)),
        ("apple 12 door door lamp", (5, 5, 5, 3.5, 4.5)),
        ("apple 12 rood lamp", (3.5, 4, 4, 5, 5)),
        ("12 apple door lamp", (5, 4, 5, 3.5, 5)),
        ("apple 12 door lamp bread 7", (5, 5, 5, 5, 4)),
    ],
)
def test_rules_of_documents_by_hand(text, expected):
    assert tuple(document_truth(LINES, 0, text)[name] for name in CRITERIA) == pytest.approx(expected)


def test_more_faults_make_worse_readings_on_the_whole():
    rng = random.Random(0)
    means = []
    for faults in (0, 1, 3):
        overall = []
        for _ in range(100):
            lines = sample_document(rng)
            overall.append(overall_truth("document", document_truth(lines, 1, flawed_reading(lines, 1, rng, faults))))
        means.append(sum(overall) / 100)
    assert means[0] == 5 and means[0] > means[1] > means[2]


def test_instances_have_a_clear_best_three_different_texts_and_do_not_depend_on_their_number(tmp_path):
    instances = study_instances(tmp_path, per_task=12, seed=3)
    assert [i.task for i in instances] == [task for task in TASKS for _ in range(12)]
    assert {i.best for i in instances} == {0, 1, 2}
    for instance in instances:
        overall = sorted(
            overall_truth(instance.task, {c: k.ratings[c][0] for c in CRITERIA}) for k in instance.candidates
        )
        assert overall[2] - overall[1] >= MARGIN and len({k.text for k in instance.candidates}) == 3
        assert all(1 <= k.ratings[c][0] <= 5 for k in instance.candidates for c in CRITERIA)
        assert (instance.box is not None) == (instance.task == "referring")
        assert (instance.input is not None) == (instance.task in ("vqa", "document"))
    again = study_instances(tmp_path / "again", per_task=2, seed=3)
    assert [i.candidates for i in again if i.task == "vqa"] == [i.candidates for i in instances if i.task == "vqa"][:2]


class Moody(Judge):
    """Rates at random, but always alike."""

    name = "moody"

    def rate(self, images, prompts, ratings=("1", "2", "3", "4", "5")):
        seeds = [zlib.crc32(prompt.encode()) for prompt in prompts]
        rows = torch.stack([torch.rand(len(ratings), generator=torch.Generator().manual_seed(seed)) for seed in seeds])
        return Ratings(rows / rows.sum(1, keepdim=True), torch.ones(len(prompts)), (None,) * len(prompts))


def test_the_study_writes_four_tables_and_their_plots(tmp_path):
    study = run_study(Moody(), tmp_path / "study", per_task=5, resamples=50)
    text = study.text()
    assert (tmp_path / "study" / "study.txt").read_text() == text + "\n"
    for word in ("Table 2", "Table 3", "Table 5", "Table 6", "HarmonicEval", "w/o harmonic weighting"):
        assert word in text
    assert "Harmonic weighting makes no clear difference here" in text or "Harmonic weighting h" in text
    content = json.loads((tmp_path / "study" / "study.json").read_text())
    assert content["instances"] == 20 and set(content["table6"]) == {"0", "0.01", "0.25", "0.5", "0.75", "1"}
    assert content["table5"]["HarmonicEval"] == content["table6"]["0.75"] == content["table2"]["HarmonicEval"]
    assert content["table5"]["w/o harmonic weighting"] == content["table6"]["1"]
    assert all((tmp_path / "study" / f"table{n}.png").stat().st_size > 5000 for n in (2, 3, 5, 6))


def test_the_command_says_so_when_a_judge_abstains_throughout(tmp_path):
    judge = tiny_models.save("llava", tmp_path / "llava")
    arguments = ["shapes", "--judge", judge, "--instances", "1", "--out", str(tmp_path / "study")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    row = next(line for line in result.stdout.splitlines() if line.startswith("HarmonicEval"))
    assert row.split()[1] == "-" and "cannot be compared: the judge abstained" in result.stdout
