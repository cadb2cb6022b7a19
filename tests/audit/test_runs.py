"""What a run's outputs hold more of at its end: by the truth, by a second judge, by an audit's answers."""

import pytest
import yaml
from typer.testing import CliRunner

from rewards.audit.runs import answers_of_pictures, change_table, claims_of_texts, doubts_of_texts
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.runs.evaluations import Evaluation, EvaluationLog, HeldOutSample, Judgment
from rewards.shapes.datasets import sample_scenes, scene_to_json
from rewards.shapes.language import describe
from rewards.shapes.scenes import BACKGROUNDS

SCENES = sample_scenes("test", 6, seed=5)
TRUE = [str(describe(scene)) for scene in SCENES]


def wrong_background(scene):
    other = next(name for name in BACKGROUNDS if name != scene.background)
    return str(describe(scene)).replace(f"{scene.background} background", f"{other} background")


def evaluation(step, texts):
    samples = [HeldOutSample(n, f"p{n}", Judgment(1.0), text=text) for n, text in enumerate(texts)]
    return Evaluation(step, "R", samples)


def ends():
    return evaluation(0, TRUE), evaluation(9, [wrong_background(scene) for scene in SCENES])


def test_the_truth_names_what_grew():
    first, last = ends()
    scenes = [scene_to_json(scene) for scene in SCENES]
    table = change_table(first, last, claims_of_texts(first, scenes), claims_of_texts(last, scenes))
    assert table.rows[0] == ["background", "0.000", "1.000", "+1.000 [+1.000, +1.000]", "more"]
    assert all(row[1:3] == ["0.000", "0.000"] for row in table.rows if row[0] in ("color", "shape", "count"))


def test_a_second_judge_names_it_without_the_truth():
    def knows(completions, image, **columns):
        return [float(text == TRUE[number]) for text, number in zip(completions, image)]

    first, last = ends()
    images = list(range(len(TRUE)))  # this judge knows the pictures by number
    judge = FunctionReward(knows)
    details = [doubts_of_texts(end, images, judge, per_kind=20) for end in (first, last)]
    rows = {row[0]: row for row in change_table(first, last, *details).rows}
    assert rows["background"][1:3] == ["0.000", "1.000"] and rows["color"][1:3] == ["0.000", "0.000"]


def drawn(step, judged, audited, surplus):
    def answers(right):
        return {"answers": [{"question": "how many?", "element_type": "counting", "right": right}]}

    samples = [
        HeldOutSample(n, f"p{n}", Judgment(1.0, details=answers(ok)),
                      {"oracle": Judgment(1.0, details=answers(true) | {"surplus": more})})
        for n, (ok, true, more) in enumerate(zip(judged, audited, surplus))
    ]  # fmt: skip
    return Evaluation(step, "TIFA", samples)


def test_pictures_by_the_audits_answers():
    first, last = drawn(0, [True] * 4, [True] * 4, [0] * 4), drawn(5, [True] * 4, [False] * 2 + [True] * 2, [2] * 4)
    rows = {row[0]: row for row in change_table(first, last, *map(answers_of_pictures, (first, last))).rows}
    assert rows["counting"][1:3] == ["0.000", "0.500"] == rows["counting, taken for right"][1:3]
    assert rows["surplus objects"][1:3] == ["0.000", "2.000"] and rows["surplus objects"][4] == "more"


def test_runs_that_cannot_be_told_of_are_refused(tmp_path):
    with pytest.raises(InputError, match="no audit of this run"):
        answers_of_pictures(evaluation(0, TRUE))
    first, _ = ends()
    with pytest.raises(InputError, match="other prompts"):
        change_table(first, evaluation(9, TRUE[:3]), [{}] * 6, [{}] * 3)
    EvaluationLog(tmp_path).append(first)
    result = CliRunner().invoke(app, ["audit", "run", str(tmp_path)])
    assert result.exit_code != 0 and "1 evaluations" in str(result.exception)


def test_command_on_a_run_whose_rows_carry_scenes(tmp_path):
    source = {"source": "rewards.shapes.datasets:caption_prompts", "train": {"split": "train", "n": 1, "seed": 0}}
    data = source | {"held_out": {"split": "test", "n": 6, "seed": 5}}
    config = {"policy": {"path": "shapes-captioner"}, "data": data, "reward": {"judge": "shapes-rater"}}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    for evaluation in ends():
        EvaluationLog(tmp_path).append(evaluation)
    result = CliRunner().invoke(app, ["audit", "run", str(tmp_path)])
    assert result.exit_code == 0, result.output or result.exception
    first = result.output.splitlines()[3].split()
    assert first[:3] == ["background", "0.000", "1.000"] and first[-1] == "more"
