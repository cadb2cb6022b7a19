"""The audit of rewards whose blind spots are known: it names them, and nothing else."""

import json
import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from rewards import HarmonicEval, load_judge
from rewards.audit.texts import audit_texts
from rewards.audit.variants import TrueText
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.render import render

OLD_RATER = Path(__file__).resolve().parents[1] / "fixtures" / "old_rater"
TEXTS = ["a red dog on a white background", "two blue cats", "a green bird on a black background"]


def rows():
    return [TrueText(Image.new("RGB", (8, 8), (60 * n, 9, 9)), text) for n, text in enumerate(TEXTS)]


def exact(completions, image, **columns):
    """Knows each picture's true text and rates nothing else: 1 for the truth, 0 for the rest."""
    known = {(60 * n, 9, 9): text for n, text in enumerate(TEXTS)}
    return [float(known.get(picture.getpixel((0, 0))) == text) for picture, text in zip(image, completions)]


def without_background(text):
    return re.sub(r" on an? \w+ background$", "", text)


def blind_to_backgrounds(completions, image, **columns):
    cut = [without_background(text) for text in completions]
    known = {(60 * n, 9, 9): without_background(text) for n, text in enumerate(TEXTS)}
    return [float(known.get(picture.getpixel((0, 0))) == text) for picture, text in zip(image, cut)]


def longest(completions, **columns):
    return [float(len(text)) for text in completions]


def test_a_reward_that_knows_the_truth_accepts_nothing():
    found = audit_texts(FunctionReward(exact), rows())
    assert found.unsafe(0.0) == [] and "nothing is accepted" in found.verdict()
    assert {finding.kind for finding in found.findings} >= {"color", "background", "count", "empty", "noise"}
    assert all(finding.drop.value == 1 for finding in found.findings)


def test_a_blind_spot_is_named_first():
    found = audit_texts(FunctionReward(blind_to_backgrounds), rows())
    assert [finding.kind for finding in found.unsafe()] == ["background"]
    assert found.ranked()[0].accepted.value == 1 and "background (100%)" in found.verdict()
    example = found.ranked()[0].examples[0]
    assert example.drop == 0 and example.truth != example.variant
    assert without_background(example.truth) == without_background(example.variant)


def test_a_love_of_length_shows_in_the_empty_gains():
    unsafe = {finding.kind for finding in audit_texts(FunctionReward(longest), rows()).unsafe()}
    assert {"padded", "repeated", "flattery", "blank"} <= unsafe and "empty" not in unsafe


def test_what_cannot_be_judged_is_counted_and_takes_no_part():
    def some(completions, **columns):
        return [None if "orange" in text or "dog" in text else 1.0 / (1 + len(text)) for text in completions]

    found = audit_texts(FunctionReward(some), rows())
    assert found.abstained > 0
    assert all(finding.pairs <= 2 and len(finding.drops) <= 3 for finding in found.findings)


def test_the_same_seed_asks_the_same_and_rows_do_not_depend_on_each_other():
    first, again = (audit_texts(FunctionReward(longest), rows(), seed=3).record() for _ in range(2))
    assert first == again


def test_edits_of_ones_own_stand_beside_the_rules():
    found = audit_texts(FunctionReward(exact), rows(), edits=lambda text: {"weather": [f"{text} in the rain"]})
    (weather,) = (finding for finding in found.findings if finding.kind == "weather")
    assert weather.pairs == 3 and weather.examples[0].variant.endswith(" in the rain")


def test_what_a_second_judge_finds_no_worse_takes_no_part():
    found = audit_texts(FunctionReward(longest), rows(), second=FunctionReward(blind_to_backgrounds))
    kinds = {finding.kind: finding for finding in found.findings}
    assert kinds["background"].pairs == 0 and kinds["background"].spared == 2 and kinds["color"].pairs == 3
    assert kinds["blank"].pairs == 3  # no text is true of it, whatever a judge of texts says
    assert "background" not in {finding.kind for finding in found.unsafe()}


def fails(completions, **columns):
    raise RuntimeError("out of memory")


@pytest.mark.parametrize(("reward", "second"), [(fails, None), (longest, FunctionReward(fails))])
def test_a_judge_that_can_judge_nothing_is_no_clean_verdict(reward, second):
    with pytest.raises(InputError, match=r"fails could judge nothing: .*out of memory"):
        audit_texts(FunctionReward(reward), rows(), second=second)


def test_one_picture_is_no_comparison():
    with pytest.raises(InputError, match="at least 2"):
        audit_texts(FunctionReward(longest), rows()[:1])


def shapes(count):
    scenes = sample_scenes("test", count, seed=5)
    return [TrueText(render(scene), str(describe(scene))) for scene in scenes]


def test_the_rater_that_a_policy_fooled_is_blind_to_backgrounds():
    rater = HarmonicEval(load_judge(OLD_RATER))
    found = audit_texts(rater, shapes(100))
    details = [finding for finding in found.ranked() if finding.family == "false detail"]
    assert details[0].kind == "background"
    assert details[0].accepted.value == pytest.approx(0.55, abs=0.10)  # the truth wins in 45% of the pairs


def test_command(tmp_path):
    for number, row in enumerate(shapes(4)):
        row.image.save(tmp_path / f"{number}.png")
        with open(tmp_path / "rows.jsonl", "a") as file:
            file.write(json.dumps({"image": f"{number}.png", "text": row.text}) + "\n")
    command = [
        "audit",
        "text",
        "shapes-rater",
        "--data",
        str(tmp_path / "rows.jsonl"),
        "--out",
        str(tmp_path / "a.json"),
    ]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0 and "accepted" in result.output, result.output
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["rows"] == 4 and len(record["findings"]) > 10
    failing = CliRunner().invoke(app, [*command, "--fail-above", "0"])
    assert failing.exit_code == (1 if any(f["accepted"][0] > 0 for f in record["findings"]) else 0)
    (tmp_path / "rows.jsonl").write_text('{"image": "0.png"}\n')
    missing = CliRunner().invoke(app, command)
    assert missing.exit_code != 0 and "line 1" in str(missing.exception or missing.output)
