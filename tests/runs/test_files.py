"""JSON files: what a killed writer leaves, what is not JSON, and replacement in one step."""

import json

import pytest

from rewards.errors import InputError
from rewards.runs.files import (
    append_line,
    append_lines,
    finite_or_none,
    keep_lines,
    numbered_lines,
    read_json,
    read_lines,
    replacing,
    write_json,
    write_lines,
    write_whole,
)

HALF = b'{"id": 2, "text": "cut o'


def test_lines_come_back_with_their_numbers(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": 1}\r\n\n  \n{"id": 2}')
    assert list(numbered_lines(path)) == [(1, {"id": 1}), (4, {"id": 2})]


def test_a_cut_off_last_line_is_left_out_of_a_growing_file_only(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id": 1}\n' + HALF)
    assert read_lines(path, growing=True) == [{"id": 1}]
    with pytest.raises(InputError, match=r"rows.jsonl, line 2: not JSON"):
        read_lines(path)
    path.write_bytes(HALF + b'\n{"id": 1}\n')
    with pytest.raises(InputError, match="line 1: not JSON"):
        read_lines(path, growing=True)


@pytest.mark.parametrize("line", [b"[1]", b"3", b"[" * 100_000, b"\xff{}"])
def test_what_is_no_object_is_named_by_its_line(tmp_path, line):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n" + line + b"\n{}\n")
    with pytest.raises(InputError, match="line 2"):
        read_lines(path)


def test_an_append_removes_what_a_killed_writer_left(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_line(path, {"id": 1})
    with path.open("ab") as file:
        file.write(HALF)
    append_lines(path, [{"id": 2}, {"id": 3}], durable=True)
    assert path.read_bytes() == b'{"id": 1}\n{"id": 2}\n{"id": 3}\n'


def test_an_append_removes_a_long_cut_off_line_and_one_that_is_alone(tmp_path):
    path = tmp_path / "rows.jsonl"
    for before in (b"", b'{"id": 1}\n'):
        path.write_bytes(before + b'{"text": "' + b"x" * 200_000)
        append_line(path, {"id": 2})
        assert path.read_bytes() == before + b'{"id": 2}\n'


def test_what_json_does_not_have_is_not_written(tmp_path):
    path = tmp_path / "rows.jsonl"
    with pytest.raises(ValueError, match="not JSON compliant"):
        append_lines(path, [{"id": 1}, {"score": float("nan")}])
    assert not path.exists()


def test_a_lone_surrogate_survives(tmp_path):
    path = tmp_path / "rows.jsonl"
    append_line(path, {"id": "\ud800", "text": "é"})
    append_line(path, {"text": "é"})
    assert read_lines(path) == [{"id": "\ud800", "text": "é"}, {"text": "é"}]
    assert path.read_bytes().splitlines()[1] == '{"text": "é"}'.encode()


def test_keep_lines_keeps_whole_lines(tmp_path):
    path = tmp_path / "rows.jsonl"
    keep_lines(path, lambda row: True)
    assert not path.exists()
    write_lines(path, [{"step": step} for step in range(4)])
    with path.open("ab") as file:
        file.write(HALF)
    keep_lines(path, lambda row: row["step"] != 2)
    assert path.read_bytes() == b'{"step": 0}\n{"step": 1}\n{"step": 3}\n'


def test_a_failed_replacement_changes_nothing(tmp_path):
    path = tmp_path / "summary.json"
    write_json(path, {"a": [1, None]})
    with pytest.raises(ValueError):
        write_json(path, {"a": float("inf")})
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("killed")
    assert read_json(path) == {"a": [1, None]}
    assert [file.name for file in tmp_path.iterdir()] == ["summary.json"]


def test_pieces_become_one_file(tmp_path):
    write_whole(tmp_path / "text", iter([b"a", b"b"]))
    assert (tmp_path / "text").read_text() == "ab"


def test_json_that_is_not_json_is_named(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(InputError, match=r"a\.json: not JSON"):
        read_json(tmp_path / "a.json")


def test_numbers_that_do_not_exist_are_null():
    value = {"a": [float("nan"), {"b": float("-inf")}], "c": 1.5, "d": "nan"}
    assert finite_or_none(value) == {"a": [None, {"b": None}], "c": 1.5, "d": "nan"}
    json.dumps(finite_or_none(value), allow_nan=False)
