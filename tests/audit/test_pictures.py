"""The audit of rewards of pictures: what each kind does to a picture, and judges whose blind spots are known."""

import json
import random

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from rewards import TIFA, load_judge
from rewards.audit.pictures import (
    audit_pictures,
    collage,
    colors_swapped,
    half_resolution,
    pasted,
    scrambled,
    written,
)
from rewards.audit.search import search_pictures
from rewards.audit.variants import TrueText
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.shapes.datasets import sample_scenes, scene_to_json
from rewards.shapes.false_pictures import false_pictures
from rewards.shapes.language import describe
from rewards.shapes.oracle import Oracle
from rewards.shapes.picture_truth import PictureTruth
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.vqascore import VQAScore

EXACT = AnswerMatcher(None)


def world(count, with_scenes=True):
    scenes = sample_scenes("test", count, seed=5)
    columns = [{"scene": scene_to_json(scene)} if with_scenes else {} for scene in scenes]
    return scenes, [TrueText(render(s), str(describe(s)), None, c) for s, c in zip(scenes, columns)]


def stripes(size=(32, 24)):
    values = np.arange(size[0] * size[1] * 3, dtype=np.uint32).reshape(size[1], size[0], 3) % 251
    return Image.fromarray(values.astype(np.uint8))


def test_scrambled_patches_are_the_same_pixels_elsewhere():
    picture = stripes()
    mixed = scrambled(picture, random.Random(0))
    assert mixed.size == picture.size and mixed.tobytes() != picture.tobytes()
    assert sorted(mixed.tobytes()) == sorted(picture.tobytes())  # 4 divides both sides: nothing is resized


@pytest.mark.parametrize("size", [(32, 32), (400, 300), (90, 30)])
def test_the_whole_prompt_stands_in_the_picture(size):
    short, long = (written("red circle " * n, size) for n in (1, 9))
    assert short.size == size
    for picture in (short, long):
        ink = 255 - np.asarray(picture, np.int32)
        assert ink.max() > 60  # something is written,
        assert ink[:, -1].max() < 60 and ink[-1].max() < 60  # and nothing runs over the edge


def test_colors_and_sizes():
    picture = Image.new("RGB", (6, 4), (10, 20, 30))
    assert colors_swapped(picture).getpixel((0, 0)) == (30, 10, 20)
    assert half_resolution(picture).tobytes() == picture.tobytes()  # one colour stays what it is
    other = Image.new("RGB", (9, 9), (1, 2, 3))
    both = pasted(picture, other)
    assert both.getpixel((0, 0)) == (10, 20, 30) and both.getpixel((5, 3)) == (1, 2, 3)
    four = collage([picture, other, picture, other], (7, 5))
    assert four.size == (7, 5) and four.getpixel((6, 4)) == (1, 2, 3) and four.getpixel((0, 0)) == (10, 20, 30)


def test_false_pictures_are_false_by_the_truth_and_in_one_way():
    scenes, rows = world(40)
    seen = set()
    for scene, row in zip(scenes, rows):
        for kind, other in false_pictures(scene, row.text, random.Random(0)).items():
            seen.add(kind)
            true, false = PictureTruth().score([row.image, render(other)], [row.text] * 2).parts.tolist()
            lost = {name for name, a, b in zip(("objects", "surplus", "relation", "background"), true, false) if b < a}
            assert all(value == 1 for value in true if value == value)
            expected = {
                "surplus": {"surplus"}, "background": {"background"}, "swapped": {"relation"},
            }.get(kind)  # fmt: skip
            assert lost == expected if expected else lost, (kind, row.text, lost)
    assert seen == {"surplus", "duplicated", "missing", "color", "shape", "swapped", "background"}


def test_the_oracle_that_asks_every_question_is_blind_to_surplus_where_no_number_is_said(tmp_path):
    """TIFA's questions with true answers: what it accepts lies in the questions, not in the judge."""
    _, rows = world(40)
    reward = TIFA(Oracle(), question_store(tmp_path / "q.sqlite", [row.text for row in rows]), matcher=EXACT)
    found = {f.kind: f for f in audit_pictures(reward, rows, second=PictureTruth()).findings}
    assert found["color"].accepted.value == found["missing"].accepted.value == found["noise"].accepted.value == 0
    assert found["background"].accepted.value == 0 and found["half resolution"].family == "control"
    assert 0 <= found["surplus"].accepted.value < 1
    assert set(found["color"].by_part()) >= {"object", "color"}


def test_a_judge_that_sees_only_the_color_of_the_middle_accepts_what_keeps_it():
    def middle(images, prompts, metadata):
        return [float(picture.getpixel((picture.width // 2, picture.height // 2))[0]) for picture in images]

    rows = [TrueText(Image.new("RGB", (8, 8), (200 + n, 0, 0)), f"{n} left of it") for n in range(4)]
    found = audit_pictures(FunctionReward(middle), rows)
    unsafe = {finding.kind for finding in found.unsafe()}
    assert {"scrambled", "mirrored", "tiled"} <= unsafe
    assert not {"blank", "colors swapped", "half resolution"} & unsafe  # the last is accepted, and no fault
    assert found.prior().rows == [["overall", "201.500", "127.000", "74.500"]]


def test_prompts_without_questions_are_refused_before_anything_is_judged(tmp_path):
    _, rows = world(3)
    reward = TIFA(Oracle(), question_store(tmp_path / "q.sqlite", [rows[0].text]), matcher=EXACT)
    with pytest.raises(InputError, match="question"):
        audit_pictures(reward, rows)


def test_rows_without_scenes_are_pasted():
    _, rows = world(3, with_scenes=False)
    kinds = {f.kind for f in audit_pictures(PictureTruth(), rows).findings}
    assert "surplus" in kinds and "duplicated" not in kinds


def test_the_gradient_finds_reward_within_its_bound_and_the_truth_does_not_rise(tmp_path):
    _, rows = world(4)
    reward = TIFA(
        load_judge("shapes-vqa"), question_store(tmp_path / "q.sqlite", [row.text for row in rows]), soft=True
    )
    found = search_pictures(reward, rows, second=PictureTruth(), bounds=(2, 16), steps=8)
    plain = {one.bound: one for one in found if one.way == "plain"}
    assert plain[16].after.value > plain[16].before + 0.05
    assert plain[16].after.value >= plain[2].after.value >= plain[2].before - 0.02
    assert len(found) == 8 and abs(plain[2].second.value) < 0.3


def test_vqascore_is_audited_by_its_one_question():
    found = audit_pictures(VQAScore(load_judge("shapes-vqa")), world(3)[1])
    assert found.abstained == 0 and all(finding.by_part() == {} for finding in found.findings)
    assert {finding.pairs for finding in found.findings if finding.kind in ("blank", "collage", "surplus")} <= {2, 3}


def test_a_reward_without_a_gradient_is_refused():
    with pytest.raises(InputError, match="no gradient"):
        search_pictures(PictureTruth(), world(3)[1])


def test_command(tmp_path):
    scenes, rows = world(4)
    question_store(tmp_path / "q.sqlite", [row.text for row in rows])
    for number, (scene, row) in enumerate(zip(scenes, rows)):
        row.image.save(tmp_path / f"{number}.png")
        with open(tmp_path / "rows.jsonl", "a") as file:
            line = {"image": f"{number}.png", "prompt": row.text, "scene": scene_to_json(scene)}
            file.write(json.dumps(line) + "\n")
    truth = "rewards.shapes.picture_truth:picture_truth_reward"
    command = ["audit", "picture", "shapes-vqa", "answer=choices", "--questions", str(tmp_path / "q.sqlite")]
    command += ["--data", str(tmp_path / "rows.jsonl"), "--second", truth, "--out", str(tmp_path / "a.json")]
    result = CliRunner().invoke(app, [*command, "--page", str(tmp_path / "audit.html")])
    assert result.exit_code == 0 and "what remains" in result.output, result.output or result.exception
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["second"]["reward"] == "picture_truth_reward" and record["data"]["kind"] == "pictures"
    page = (tmp_path / "audit.html").read_text()
    assert page.count("data:image/png;base64,") >= 20 and "http" not in page.replace("http-equiv", "")
