import io
import json
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from rewards.errors import InputError
from rewards.tifa.questions.prompt_files import Prompt, read_prompts


def test_official_text_inputs(tifa_data: Path) -> None:
    prompts = read_prompts(tifa_data / "tifa_v1.0_text_inputs.json")
    rows = json.loads((tifa_data / "tifa_v1.0_text_inputs.json").read_text())
    assert prompts == [Prompt(row["id"], row["caption"]) for row in rows] and len(prompts) == 4081


def test_text_jsonl_json_and_standard_input_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a red dot\n\n  a  dog \na red dot\n“quotes”\n"
    (tmp_path / "p.txt").write_text(text, encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip()]
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prompt": line}) for line in lines) + "\n\n")
    (tmp_path / "p.json").write_text(json.dumps(lines))
    Dataset.from_dict({"text": lines, "other": [1] * len(lines)}).save_to_disk(tmp_path / "data")
    expected = [Prompt("a red dot", "a red dot"), Prompt("a dog", "  a  dog "), Prompt("“quotes”", "“quotes”")]
    for name in ("p.txt", "p.jsonl", "p.json", "data"):
        assert read_prompts(tmp_path / name) == expected, name
    for name in ("p.txt", "p.jsonl"):
        monkeypatch.setattr("sys.stdin", io.StringIO((tmp_path / name).read_text(encoding="utf-8")))
        assert read_prompts("-") == expected, name


def test_ids_are_kept_as_they_are(tmp_path: Path) -> None:
    rows = [{"id": 5, "caption": "x"}, {"id": "5", "caption": "y"}, {"id": 5, "caption": " x"}]
    (tmp_path / "p.json").write_text(json.dumps(rows))
    assert read_prompts(tmp_path / "p.json") == [Prompt(5, "x"), Prompt("5", "y")]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("p.json", '[{"id": 1}]', "row 0 has no text under 'caption', 'prompt', 'text'; its keys are \\['id'\\]"),
        ("p.json", '[{"caption": " "}]', "row 0 has no text"),
        ("p.json", "[7]", "row 0 is a int"),
        ("p.json", '[{"id": [], "caption": "x"}]', "row 0: id \\[\\] is neither"),
        ("p.json", '[{"id": 1, "caption": "x"}, {"id": 1, "caption": "y"}]', "row 1: id 1 is 'x' above, here 'y'"),
        ("p.jsonl", '{"caption": "x"}\n{', "line 2 is not JSON"),
    ],
)
def test_rows_that_are_no_prompts(name: str, text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=reason):
        read_prompts(tmp_path / name)


def test_folders_and_bytes_that_are_something_else(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not UTF-8"):
        read_prompts(tmp_path / "p.txt")
    with pytest.raises(InputError, match="not a data set"):
        read_prompts(tmp_path)
    DatasetDict({"train": Dataset.from_dict({"text": ["x"]})}).save_to_disk(tmp_path / "splits")
    with pytest.raises(InputError, match="holds the splits train"):
        read_prompts(tmp_path / "splits")
    with pytest.raises(OSError):
        read_prompts(tmp_path / "missing.txt")


def test_only_line_ends_part_lines(tmp_path: Path) -> None:
    text = "a red\u2028circle \u0085 \x0b \x0c here"
    (tmp_path / "p.txt").write_bytes(f"\ufeff{text}\r\nblue\n".encode())
    (tmp_path / "p.jsonl").write_bytes(json.dumps({"prompt": text}, ensure_ascii=False).encode() + b"\n\n")
    assert [prompt.text for prompt in read_prompts(tmp_path / "p.txt")] == [text, "blue"]
    assert [prompt.text for prompt in read_prompts(tmp_path / "p.jsonl")] == [text]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ('{"id": 1180591620717411303424, "prompt": "a"}', "row 1: 1180591620717411303424 is too large"),
        ('{"id": "\\ud800", "prompt": "a"}', "row 1: .* half a character"),
        ('{"prompt": "\\ud800"}', "row 1: .* half a character"),
        ("null", "row 1 is a NoneType"),
        ("[" * 100_000, "line 2 is not JSON"),
    ],
)
def test_a_row_that_no_store_can_hold_is_named(tmp_path: Path, row: str, said: str) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": "fine"}\n' + row + "\n")
    with pytest.raises(InputError, match=said):
        read_prompts(tmp_path / "p.jsonl")
