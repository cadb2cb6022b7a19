"""DSG against people: hand-made pictures, and the published figures from the released files."""

import csv
import json
import math
import random

import pytest
import scipy.stats
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.dsg.answers import Answered, Answers, PictureKey, read_answers, read_ratings
from rewards.humans.dsg.scores import picture_score
from rewards.humans.dsg.study import ALL, ANSWERED, RELEASED, WITH, WITHOUT, dsg_study, variants
from tests.shared_data import shared_file


def question(id_, answer, parents=(), unreadable=(), probability=math.nan):
    return Answered(id_, answer, "yes", probability, parents, unreadable, line=0)


CAR = (
    question(1, "no", probability=0.4),
    question(2, "yes", (1,), probability=0.9),
    question(3, "yes", probability=0.5),
)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 1 / 3),
        ({"dependencies": "none"}, 2 / 3),
        ({"aggregate": "all"}, 0.0),
        ({"soft": True}, (0.4 + 0.36 + 0.5) / 3),
        ({"soft": True, "dependencies": "none"}, 0.6),
        ({"soft": True, "aggregate": "geometric"}, (0.4 * 0.36 * 0.5) ** (1 / 3)),
    ],
)
def test_a_picture_by_hand(settings, expected):
    assert picture_score(CAR, **settings) == pytest.approx(expected)


def test_the_released_loader_drops_all_dependencies_of_a_prompt_with_an_unreadable_one():
    rows = (question(1, "no"), question(2, "yes", (1,)), question(3, "yes", (1,), ("right",)))
    assert picture_score(rows, "read") == 0.0
    assert picture_score(rows, "released") == pytest.approx(2 / 3)


def test_an_unanswered_question_abstains_and_is_wrong_only_to_the_letter():
    rows = (question(1, ""), question(2, "Yes"))
    assert math.isnan(picture_score(rows))
    assert picture_score(rows, exact=True) == 0.0


def test_parents_without_a_row_are_left_out():
    assert picture_score((question(1, "yes", (9,)),)) == 1.0


def test_pictures_without_answers_count_nothing_in_every_row_but_one():
    answers = Answers({PictureKey("sd", "a"): CAR}, has_probabilities=False, has_dependencies=True)
    columns = variants(answers, [PictureKey("sd", "a"), PictureKey("sd", "b")])
    assert columns[WITH] == [pytest.approx(1 / 3), 0.0] and math.isnan(columns[ANSWERED][1])
    assert list(columns) == [WITH, RELEASED, ANSWERED, WITHOUT, ALL]


def test_soft_scores_are_compared_where_the_answers_carry_probabilities(tmp_path):
    lines = ["t2i_model,item_id,question_id,dependency_id,probability,answer"]
    ratings = ["t2i_model,item_id,answer"]
    for n in range(12):
        lines += [f"sd,p{n},1,0,{(n + 1) / 13:.3f},{'yes' if n % 3 else 'no'}", f"sd,p{n},2,1,0.9,yes"]
        ratings += [f"sd,p{n},{1 + n // 3}"]
    for name, rows in (("a.csv", lines), ("r.csv", ratings)):
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    study = dsg_study(read_answers(tmp_path / "a.csv"), read_ratings(tmp_path / "r.csv"), resamples=50)
    soft = study.variants["soft, arithmetic mean"]["spearman"].value
    assert soft == pytest.approx(scipy.stats.spearmanr(range(12), [n // 3 for n in range(12)]).statistic)
    assert [(pair.a, pair.b) for pair in study.comparisons][2:] == [
        ("soft, arithmetic mean", WITH),
        ("soft, arithmetic mean", "soft, geometric mean"),
    ]


def test_files_about_other_pictures_are_refused():
    answers = Answers({PictureKey("sd", "a"): CAR}, has_probabilities=False, has_dependencies=True)
    with pytest.raises(InputError, match="no picture has both answers and ratings"):
        dsg_study(answers, {PictureKey("other", "a"): (3,)})


@pytest.mark.parametrize(
    ("model", "with_dependencies", "without"),
    [("mplug", ("0.463", "0.380"), ("0.464", "0.378")), ("instructblip", ("0.442", "0.364"), ("0.436", "0.355"))],
)
def test_the_published_figures(model, with_dependencies, without):
    answers, ratings = shared_file(f"dsg/vqa_{model}_dsg.csv"), shared_file("dsg/tifa160-likert-anns.csv")
    arguments = ["dsg", str(answers), "--ratings", str(ratings), "--resamples", "100", "--json"]
    study = json.loads(CliRunner().invoke(app, arguments).stdout)

    def shown(variant, found=study):
        statistics = found["variants"][variant]["statistics"]
        return tuple(f"{statistics[name]['value']:.3f}" for name in ("spearman", "kendall_tau_b"))

    assert shown(WITH) == shown(RELEASED) == with_dependencies
    assert shown(WITHOUT) == without
    assert (study["variants"][WITH]["items"], study["variants"][ANSWERED]["items"], study["prompts"]) == (800, 795, 160)
    assert sum("tifa160_67" in note and "'outside'" in note for note in study["notes"]) == 5
    plain = json.loads(CliRunner().invoke(app, [*arguments, "--no-dependencies"]).stdout)
    assert shown(WITHOUT, plain) == without and next(iter(plain["variants"])) == WITHOUT


def test_the_table_names_every_variant():
    answers, ratings = shared_file("dsg/vqa_mplug_dsg.csv"), shared_file("dsg/tifa160-likert-anns.csv")
    text = dsg_study(read_answers(answers), read_ratings(ratings), resamples=20).text()
    assert "Kendall tau-b" in text and "5 rated pictures have no answers: tifa160_134 by sd1dot1" in text
    assert "with dependencies minus without dependencies, Spearman: -0.001" in text


def another_model(path, seed=0):
    """mPLUG's and InstructBLIP's answers mixed into a file of a third model, written by somebody else.

    Columns are renamed and in another order, rows shuffled, answers in capitals with blanks and stops; some rows and
    some answers are missing.

    Returns:
        The file's rows as the released columns have them, the picture of every missing answer, and how many rows are
        missing.
    """
    rng = random.Random(seed)
    tables = []
    for model in ("mplug", "instructblip"):
        with shared_file(f"dsg/vqa_{model}_dsg.csv").open(encoding="utf-8", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    rows = [rng.choice(pair) for pair in zip(*tables, strict=True)]
    rows = [row for row in rows if row["dsg_prompt_split"] == "tifa160"]
    kept = [row for row in rows if rng.random() > 0.01]
    blank = set()
    written = []
    for row in kept:
        answer = row["answer"].split("\n")[0][:40]
        row["answer"] = answer
        if rng.random() < 0.002:
            row["answer"], said = "", " "
            blank.add((row["t2i_model"], row["item_id"]))
        else:
            said = rng.choice([answer, answer.upper(), f" {answer.capitalize()}."])
        number = f"{row['question_id']}.0" if rng.random() < 0.5 else row["question_id"]
        written.append({
            "vqa_model": "third", "answer": said, "dependency": row["dependency_id"], "proposition_id": number,
            "item_id": row["item_id"], "generator": row["t2i_model"],
        })  # fmt: skip
    rng.shuffle(written)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(written[0]))
        writer.writeheader()
        writer.writerows(written)
    return kept, blank, len(rows) - len(kept)


def replayed(rows, ratings, *, dependencies):
    """DSG's rule written again: (scores, mean ratings) of the rated pictures, 0 where there are no answers."""
    by_picture = {}
    for row in rows:
        by_picture.setdefault((row["t2i_model"], row["item_id"]), []).append(row)
    scores, people = [], []
    for key, given in ratings.items():
        questions = by_picture.get((key.generator, key.prompt), [])
        raw = {row["question_id"]: float(row["answer"].strip().lower() == "yes") for row in questions}
        kept = [
            0.0 if dependencies and any(raw.get(p.strip(), 1) == 0 for p in row["dependency_id"].split(","))
            else raw[row["question_id"]] for row in questions
        ]  # fmt: skip
        scores.append(sum(kept) / len(kept) if kept else 0.0)
        people.append(sum(given) / len(given))
    return scores, people


def test_a_third_model_in_another_hand_gives_the_figures_of_the_rule(tmp_path):
    file = tmp_path / "third.csv"
    rows, blank, missing = another_model(file)
    path = shared_file("dsg/tifa160-likert-anns.csv")
    arguments = ["dsg", str(file), "--ratings", str(path), "--resamples", "20", "--json"]
    study = json.loads(CliRunner().invoke(app, arguments).stdout)
    ratings = {key: given for key, given in read_ratings(path).items() if (key.generator, key.prompt) not in blank}
    for variant, dependencies in ((WITH, True), (WITHOUT, False)):
        scores, people = replayed(rows, ratings, dependencies=dependencies)
        found = study["variants"][variant]
        assert found["items"] == len(ratings) < 800
        for name, expected in (
            ("spearman", scipy.stats.spearmanr(scores, people).statistic),
            ("kendall_tau_b", scipy.stats.kendalltau(scores, people).statistic),
        ):
            assert found["statistics"][name]["value"] == pytest.approx(expected, abs=1e-9), (variant, name)
    notes = "\n".join(study["notes"])
    assert f"{missing} rows are missing" in notes and "5 rated pictures have no answers" in notes
    assert f"{len(blank)} rated pictures have a question without an answer and are left out" in notes
    assert "have no answer\n" in notes and "are right but for case, blanks or a final stop" in notes
    assert "answers are neither yes nor no, and so not right" in notes and len(study["notes"]) < 20
