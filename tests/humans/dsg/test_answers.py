"""Reading DSG's answers: variants of the columns, gaps and odd cells by line, errors by line."""

import math

import pytest

from rewards.errors import InputError
from rewards.humans.dsg.answers import PictureKey, listed, read_answers, read_ratings

HEADER = "t2i_model,item_id,question_id,dependency_id,answer\n"


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_as_it_is_released(tmp_path):
    file = write(tmp_path / "a.csv", HEADER + 'sd,p1,1,0,yes\nsd,p1,2,1,no\nsd,p1,3,"1,2",yes\n')
    answers = read_answers(file)
    rows = answers.pictures[PictureKey("sd", "p1")]
    assert [(row.id, row.right, row.parents) for row in rows] == [(1, 1, ()), (2, 0, (1,)), (3, 1, (1, 2))]
    assert answers.has_dependencies and not answers.has_probabilities and answers.notes == []


def test_other_names_of_columns_and_columns_of_ones_own(tmp_path):
    file = write(
        tmp_path / "a.csv",
        "\ufeffmodel,prompt_id,proposition_id,dependency,gold,probability,answer\nsd,p1,1,0,two,0.9,two\nsd,p1,2,1,yes,,no\n",
    )
    answers = read_answers(file)
    first, second = answers.pictures[PictureKey("sd", "p1")]
    assert (first.right, first.probability) == (1.0, 0.9)
    assert second.right == 0 and math.isnan(second.probability) and second.parents == (1,)
    assert answers.has_probabilities


def test_without_numbers_and_dependencies_the_rows_of_a_picture_are_numbered(tmp_path):
    answers = read_answers(write(tmp_path / "a.csv", "t2i_model,item_id,answer\nsd,p1,yes\nsd,p2,no\nsd,p1,no\n"))
    assert [row.id for row in answers.pictures[PictureKey("sd", "p1")]] == [1, 2]
    assert not answers.has_dependencies


def test_every_odd_cell_is_reported_with_its_line(tmp_path):
    rows = 'sd,p,1,0,Yes.\nsd,p,2,"1, outside",no bus\nsd,p,3,"3,9",\nxl,p,1,0,yes\nxl,p,3,0,no\n'
    answers = read_answers(write(tmp_path / "a.csv", HEADER + rows))
    assert answers.notes == [
        "line 3: question 2 about p by sd depends on 'outside', which is no question number",
        "1 parents have no row, and lower nothing: line 4: question 3 about p by sd depends on 9",
        "1 rows are missing, and their questions left out: question 2 about p by xl",
        "1 of 5 answers have no answer",
        "1 of 5 answers are neither yes nor no, and so not right; without a column gold, yes is right",
        "1 of 5 answers are right but for case, blanks or a final stop (the released script counts them wrong)",
    ]
    first, _, third = answers.pictures[PictureKey("sd", "p")]
    assert (first.right, first.exactly_right) == (1, 0)
    assert math.isnan(third.right) and third.exactly_right == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER, "holds no rows"),
        ("item_id,answer\np,yes\n", r"no column for the generator \(t2i_model, .*it has item_id, answer"),
        ("t2i_model,item_id\nsd,p\n", "has no column answer"),
        (HEADER + "sd,p,1,0,yes\nsd,p,1,0,no\n", "line 3: question 1 about p by sd is answered twice"),
        (HEADER + "sd,p,one,0,yes\n", "line 2: 'one' is not a number"),
        (HEADER + "sd,p,1.5,0,yes\n", "line 2: question number is '1.5'"),
        (HEADER + "sd,p,1,0\n", "line 2: has another number of cells"),
        ("t2i_model,item_id,probability,answer\nsd,p,1.2,yes\n", "line 2: probability is '1.2'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read_answers(write(tmp_path / "a.csv", text))


def test_ratings_are_grouped_by_picture_and_checked(tmp_path):
    file = write(tmp_path / "r.csv", "t2i_model,item_id,answer\nsd,p,3\nsd,q,5\nsd,p,4\n")
    assert read_ratings(file) == {PictureKey("sd", "p"): (3, 4), PictureKey("sd", "q"): (5,)}
    with pytest.raises(InputError, match="line 2: rating is '6'"):
        read_ratings(write(tmp_path / "bad.csv", "t2i_model,item_id,answer\nsd,p,6\n"))


def test_long_lists_are_cut():
    assert listed([1, 2], 2) == "1, 2" and listed([1, 2, 3, 4], 2) == "1, 2 and 2 more"
