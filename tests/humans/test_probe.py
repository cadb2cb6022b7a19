"""Probes by hand and on judges whose faults are known; explanations beside scores."""

import json
import zlib

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.harmonic.reward import HarmonicEval
from rewards.humans.explanations import explain_texts, read_items, write_explanations
from rewards.humans.metrics.base import TextItem
from rewards.humans.probe import calibration_error, error_by_sigma, probe_judge, reversed_scale
from rewards.judges.base import Judge, Ratings
from tests import tiny_models
from tests.humans.mmhe.mmhe_files import record, write

CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")


def distribution(mean, sigma):
    ratings = torch.arange(1, 6, dtype=torch.float64)
    rows = torch.exp(-0.5 * ((ratings - mean) / sigma) ** 2)
    return (rows / rows.sum()).float()


class KnownFaults(Judge):
    """Rates by the number in the text; is unsure where it errs; rates by the length too, and by the scale's order."""

    name = "known"

    def __init__(self, per_word=0.0, when_reversed=0.0):
        self.per_word, self.when_reversed = per_word, when_reversed

    def rate(self, images, prompts, ratings=("1", "2", "3", "4", "5")):
        rows = []
        for prompt in prompts:
            text = prompt.split("Caption:\n")[1].split("\n\nThe caption")[0]
            noise = (zlib.crc32(text.encode()) % 1000) / 1000
            turned = prompt.index("5 - ") < prompt.index("1 - ")
            value = 3 + (noise if noise > 0.5 else 0) + self.per_word * len(text.split()) + turned * self.when_reversed
            rows.append(distribution(value, 0.3 + noise))
        return Ratings(torch.stack(rows), torch.ones(len(rows)), (None,) * len(rows))

    def explain(self, images, prompts, ratings):
        return [f"because of {rating}" for rating in ratings]


def items(count=60):
    return [TextItem(tiny_models.picture(0), " ".join(["word"] * (1 + n % 7)) + f" {n}") for n in range(count)]


def truth(count=60):
    return {name: [3.0] * count for name in CRITERIA}


def test_a_deviation_that_knows_its_error_is_found():
    probe = probe_judge(HarmonicEval(KnownFaults()), items(), truth(), resamples=100)
    found = probe.criteria["fluency"]
    assert found.sigma_predicts_error.low > 0
    errors = [error for _, error, _ in found.error_by_sigma]
    assert errors[0] < errors[-1] and sum(n for *_, n in found.error_by_sigma) == 60


def test_length_bias_is_found_and_absent_without_it():
    biased = probe_judge(HarmonicEval(KnownFaults(per_word=0.15)), items(), truth(), resamples=100)
    fair = probe_judge(HarmonicEval(KnownFaults()), items(), truth(), resamples=100)
    assert biased.criteria["clarity"].length.low > 0 > fair.criteria["clarity"].length.low


def test_order_of_the_scale_and_paraphrases_are_measured():
    moved = probe_judge(HarmonicEval(KnownFaults(when_reversed=0.5)), items(), truth(), resamples=10)
    assert 0.2 < moved.shifts["scale reversed"]["fluency"][0] < 0.6
    assert moved.shifts["paraphrase polite"]["fluency"] == pytest.approx((0.0, 1.0))
    own = {"mine": {"fluency": "Caption:\n{text} x\n\nThe caption 1 - Very low 5 - Very high"}}
    again = probe_judge(HarmonicEval(KnownFaults()), items(), truth(), paraphrases=own, resamples=10)
    assert again.shifts["paraphrase mine"]["fluency"][0] > 0 and again.shifts["paraphrase mine"]["clarity"][0] == 0
    assert "scale reversed" in moved.text() and "rho(sigma, |error|)" in moved.text()
    json.dumps(moved.as_dict(), allow_nan=False)


def test_prompts_without_a_scale_are_noted():
    judge = KnownFaults()
    short = "1 - Very low 5 - Very high Caption:\n{text}\n\nThe caption"
    judge.prompts = {"captioning": dict.fromkeys(CRITERIA, short)}
    probe = probe_judge(HarmonicEval(judge), items(8), truth(8), resamples=5)
    assert not probe.shifts and len(probe.notes) == 2


def test_scale_is_turned_line_by_line():
    template = HarmonicEval(KnownFaults()).prompts["fluency"]
    turned = reversed_scale(template)
    assert turned.index("5 - ") < turned.index("3 - ") < turned.index("1 - ")
    assert sorted(turned) == sorted(template) and reversed_scale(turned) == template
    assert reversed_scale("{text} . fluency") is None


def test_calibration_error_by_hand():
    sure = np.array([[1.0, 0.0], [1.0, 0.0]])
    assert calibration_error(sure, np.array([1.0, 2.0]), (1, 2)) == pytest.approx(0.5)
    assert calibration_error(np.full((4, 2), 0.5), np.array([1.0, 2, 1, 2]), (1, 2)) == 0
    assert error_by_sigma(np.array([3.0, 1.0]), np.array([1.0, 0.0])) == [(1.0, 0.0, 1), (3.0, 1.0, 1)]


def test_probe_command_on_mmhe_and_on_the_shapes_study(tmp_path):
    judge = tiny_models.save("llava", tmp_path / "llava")
    tiny_models.picture(0).save(tmp_path / "a.png")
    file = write(tmp_path / "m.jsonl", [record(f"i{n}", image=str(tmp_path / "a.png")) for n in range(3)])
    failed = CliRunner().invoke(app, ["probe", "--judge", judge, "--mmhe", str(file), "--task", "vqa"])
    assert isinstance(failed.exception, InputError) and "no instance of task 'vqa'" in str(failed.exception)


def test_explanations_stand_beside_the_scores_and_are_shown(tmp_path):
    reward = HarmonicEval(KnownFaults(), explain=True)
    chosen = [TextItem(tiny_models.picture(0), "a <b> word"), TextItem(None, "no picture")]
    records = explain_texts(reward, chosen)
    assert records[0]["explanations"]["clarity"].startswith("because of ") and records[0]["parts"]["clarity"] > 1
    assert set(records[1]["explanations"].values()) == {None} and records[1]["abstained"]
    write_explanations(tmp_path / "out", chosen, records)
    page = (tmp_path / "out" / "explanations.html").read_text()
    assert "a &lt;b&gt; word" in page and "because of" in page and "data:image/png;base64" in page
    assert json.loads((tmp_path / "out" / "explanations.jsonl").read_text().splitlines()[0]) == records[0]


def test_items_to_explain_are_read_with_their_lines(tmp_path):
    path = tmp_path / "i.jsonl"
    path.write_text('{"image": "a.png", "text": "x", "box": [1, 2, 3, 4]}\n')
    assert read_items(path)[0].box == (1.0, 2.0, 3.0, 4.0)
    for bad in ("{", '{"image": "a.png"}', '{"image": "a.png", "text": 3}'):
        path.write_text('{"image": "a.png", "text": "x"}\n' + bad + "\n")
        with pytest.raises(InputError, match="line 2"):
            read_items(path)
