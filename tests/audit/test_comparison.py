"""Two audits beside each other: paired by hand, unlike ones refused."""

import json
import math

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from rewards.audit.comparison import compare_audits
from rewards.audit.page import write_audit
from rewards.audit.texts import audit_texts
from rewards.audit.variants import TrueText
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.functions import FunctionReward

TEXTS = ["a red dog on a white background", "two blue cats", "a green bird on a black background", "a pink bus"]


def rows(texts=TEXTS):
    return [TrueText(Image.new("RGB", (8, 8), (50 * n, 9, 9)), text) for n, text in enumerate(texts)]


def longest(completions, **columns):
    return [float(len(text)) for text in completions]


def shortest(completions, **columns):
    return [None if "blue" in text else -float(len(text)) for text in completions]


def written(path, function, texts=TEXTS, seed=0):
    write_audit(audit_texts(FunctionReward(function), rows(texts), seed=seed), record=path)
    return path


def test_differences_are_paired_over_what_both_judged(tmp_path):
    a, b = written(tmp_path / "a.json", longest), written(tmp_path / "b.json", shortest)
    found = {row[0]: row for row in compare_audits(a, b).rows}
    assert found["padded"][2:] == ["3", "100.0%", "0.0%", "-100.0% [-100.0%, -100.0%]"]  # one abstained: 3 of 4
    assert found["empty"][2:5] == ["3", "0.0%", "100.0%"]
    drops = [{f["kind"]: f for f in json.loads(path.read_text())["findings"]}["color"]["drops"] for path in (a, b)]
    changes = [float(y <= 0) - float(x <= 0) for x, y in zip(*drops) if x is not None and y is not None]
    mean = np.mean(changes)
    error = math.sqrt(len(changes) / (len(changes) - 1) * sum((c - mean) ** 2 for c in changes)) / len(changes)
    assert found["color"][5] == f"{mean:+.1%} [{mean - 1.96 * error:+.1%}, {mean + 1.96 * error:+.1%}]"


@pytest.mark.parametrize("other", [{"texts": TEXTS[:3]}, {"seed": 1}])
def test_audits_of_other_pairs_are_refused(tmp_path, other):
    a, b = written(tmp_path / "a.json", longest), written(tmp_path / "b.json", longest, **other)
    with pytest.raises(InputError, match="other pairs"):
        compare_audits(a, b)


def test_a_file_that_is_no_audit_is_refused(tmp_path):
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match=r"x\.json is no audit"):
        compare_audits(written(tmp_path / "a.json", longest), tmp_path / "x.json")


def test_command(tmp_path):
    a, b = written(tmp_path / "a.json", longest), written(tmp_path / "b.json", shortest)
    result = CliRunner().invoke(app, ["audit", "compare", str(a), str(b)])
    assert result.exit_code == 0 and "B - A" in result.output, result.output
