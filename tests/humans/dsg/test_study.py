"""DSG against people: hand-made pictures, and the published figures from the released files."""

import json
import math

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
