"""Columns of scores from JSONL and CSV, and the command that compares them."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.columns import read_columns


def test_jsonl_and_csv_give_the_same_columns(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"m": 1.5, "g": "p"}\n\n{"m": null, "g": 3}\n')
    (tmp_path / "a.csv").write_text("m,g\n1.5,p\n,3\n")
    for name in ("a.jsonl", "a.csv"):
        numbers, labels = read_columns(tmp_path / name, ["m"], ["g"])
        assert numbers["m"][0] == 1.5 and np.isnan(numbers["m"][1]) and labels["g"] == ["p", "3"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"m": 1}\n{"m": "high"}\n', "line 2, column 'm': 'high' is not a number"),
        ("a.jsonl", '{"m": 1}\n{"n": 1}\n', "line 2: has no column 'm'; it has n"),
        ("a.jsonl", '{"m": 1}\n[]\n', "line 2: expected a JSON object, found list"),
        ("a.jsonl", "{", "line 1: not JSON"),
        ("a.jsonl", '{"m": true}', "line 1, column 'm': True is not a number"),
        ("a.csv", "m,n\n1\n", "line 2: has another number of cells"),
        ("a.csv", "m\n", "holds no rows"),
        ("a.txt", "", "neither .jsonl nor .csv"),
    ],
)
def test_broken_rows_are_refused_with_the_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_columns(tmp_path / name, ["m"])


def test_command_compares_metrics_and_tests_their_difference(tmp_path):
    rng = np.random.default_rng(0)
    human = rng.integers(1, 6, 120)
    rows = zip(human + rng.normal(0, 0.5, 120), rng.normal(size=120), human, np.arange(120) // 4, strict=True)
    path = tmp_path / "pairs.csv"
    path.write_text("good,noise,human,prompt\n" + "".join(f"{a},{b},{h},{p}\n" for a, b, h, p in rows))
    arguments = [
        "agreement",
        str(path),
        "--metric",
        "good",
        "--metric",
        "noise",
        "--group",
        "prompt",
        "--resamples",
        "99",
    ]
    content = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert content["metrics"]["good"]["clusters"] == 30
    assert content["differences"][0]["p_value"] == 0.02 and content["differences"][0]["b"] == "noise"
    text = CliRunner().invoke(app, arguments).stdout
    assert "pairs within group" in text and "tau-b of good minus noise" in text
