"""CSV rows and cells of people's files: byte order marks, columns, and what is wrong by line."""

import math

import pytest

from rewards.errors import InputError
from rewards.humans.files import column_of, number, text
from rewards.runs.csv_files import csv_rows


def test_rows_come_with_their_line_and_without_the_byte_order_mark(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text('\ufeffa;b\n1;"two\nlines"\n3;4\n', encoding="utf-8")
    assert list(csv_rows(file, ["a"], delimiter=";")) == [(3, {"a": "1", "b": "two\nlines"}), (4, {"a": "3", "b": "4"})]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\n1\n", "has no column 'b'; it has a"),
        ("", "has no column 'a', 'b'; it is empty"),
        ("a,b\n1\n", "line 2: has another number"),
        ("a,b\n1,2\n1,2,3\n", "line 3: has another number"),
        (
            'a,b\n1,2\n\n"3,4\n5,6\n7,8\n',
            r"line 4: is not CSV: unexpected end of data \(a quote",
        ),
        ('a,b\n1,"2\n3,"4"\n', "line 2: is not CSV"),
        ("a,b\n1,caf\udce9\n", "line 2: is not UTF-8; save the file as UTF-8"),
        ("a,caf\udce9\n1,2\n", "line 1: is not UTF-8"),
    ],
)
def test_what_is_missing_is_named(tmp_path, content, message):
    file = tmp_path / "a.csv"
    file.write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message):
        list(csv_rows(file, ["a", "b"]))


def test_long_cells_and_short_rows(tmp_path):
    file = tmp_path / "a.csv"
    file.write_text(f"a,b\n{'x' * 200_000}\n1,2,3\n")
    (_, long), (_, much) = csv_rows(file, whole=False)
    assert (len(long["a"]), long["b"], much) == (200_000, "", {"a": "1", "b": "2"})


def test_cells():
    assert (number(3, ""), number(" 2.5", ""), column_of(["x"], ["y", "x"]), column_of(["x"], ["y"])) == (
        3,
        2.5,
        "x",
        None,
    )
    assert math.isnan(number(None, "")) and math.isnan(number(" ", "")) and math.isnan(number("nan", ""))
    for cell in (True, "three", [1]):
        with pytest.raises(InputError, match=r"line 7: .* is not a number"):
            number(cell, "line 7")
    assert text({"a": "x"}, "a", "") == "x"
    for row in ({}, {"a": ""}, {"a": 3}):
        with pytest.raises(InputError, match="line 8: a is"):
            text(row, "a", "line 8")
