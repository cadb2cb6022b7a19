"""THumB: reading with every line checked, agreement by criterion, the ranking of systems, missing pictures."""

import json

import numpy as np
import pytest
import scipy.stats
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.metrics.base import MetricScores
from rewards.humans.thumb.records import coco_references, read_thumb
from rewards.humans.thumb.scoring import as_items, read_thumb_scores, word_counts
from rewards.humans.thumb.study import ThumbStudy
from rewards.judges.loading import load_judge
from tests import tiny_models
from tests.shared_data import shared_file


def line(system="A", picture=1, caption="a dog", P=4.0, R=3.0, Fl=0.0, Inc=0.0, Con=0.0, **changes):
    row = {"SYS": system, "seg_id": str(picture), "set_id": 1, "hyp": caption}
    row |= {"image": f"COCO_val2014_{picture:012d}.jpg", "P": P, "R": R, "Fl": Fl, "Inc": Inc, "Con": Con}
    return {**row, "human_score": (P + R) / 2 + Fl + Inc + Con, **changes}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def captions(tmp_path):
    rows = [
        line(
            system, picture, "a dog " * (picture + place), P=5.0 - place, R=1.0 + (picture + place) % 4, Fl=-0.1 * place
        )
        for picture in (1, 2, 3, 4)
        for place, system in enumerate(("Human", "A", "B"))
    ]
    return read_thumb(write(tmp_path / "t.jsonl", rows))


def test_a_line_becomes_a_rated_caption(tmp_path):
    (caption,) = read_thumb(write(tmp_path / "t.jsonl", [line(P=4.0, R=3.0, Fl=-0.1)]))
    assert caption.scores == {"P": 4, "R": 3, "Fl": -0.1, "Inc": 0, "Con": 0, "total": pytest.approx(3.4)}
    assert (caption.system, caption.coco_id, caption.caption) == ("A", 1, "a dog")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"human_score": 1.0}, r"line 2: human_score is 1.0, and \(P \+ R\) / 2 \+ Fl \+ Inc \+ Con is 3.5"),
        ({"P": 6.0}, "line 2: P is 6.0; 1 to 5 is needed"),
        ({"Fl": 0.2}, "line 2: Fl is 0.2; 0 or below is needed"),
        ({"R": None}, "line 2, R: is None"),
        ({"hyp": ""}, "line 2: hyp is ''"),
    ],
)
def test_a_line_that_contradicts_itself_is_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_thumb(write(tmp_path / "t.jsonl", [line(), {**line(), **changes}]))


def test_criteria_meet_their_counterparts_and_the_total(tmp_path):
    rated = captions(tmp_path)
    rng = np.random.default_rng(0)
    scores = MetricScores(rng.normal(size=12), rng.normal(size=(12, 5)))
    study = ThumbStudy(rated, resamples=20)
    study.add("ours", scores)

    def tau(values, name, chosen=slice(None)):
        return scipy.stats.kendalltau(values[chosen], np.array([c.scores[name] for c in rated])[chosen]).statistic

    assert study.overall["ours"]["P"]["kendall_tau_b"].value == pytest.approx(tau(scores.overall, "P"))
    assert study.overall["ours"]["total"]["kendall_tau_b"].value == pytest.approx(tau(scores.overall, "total"))
    # Columns of our criteria: correctness, completeness, clarity, fluency, conciseness.
    for column, theirs in ((0, "P"), (1, "R"), (3, "Fl")):
        assert study.own["ours"][theirs]["kendall_tau_b"].value == pytest.approx(
            tau(scores.criteria[:, column], theirs)
        )
    systems = [n for n, caption in enumerate(rated) if caption.system != "Human"]
    assert study.without_people["ours"]["kendall_tau_b"].value == pytest.approx(tau(scores.overall, "total", systems))
    assert np.isnan(study.own["ours"]["Con"]["kendall_tau_b"].value)  # nobody lost points for conciseness
    assert set(study.own["ours"]) == {"P", "R", "Fl", "Con"}


def test_systems_are_ranked_by_their_means_in_peoples_order(tmp_path):
    rated = captions(tmp_path)
    study = ThumbStudy(rated, resamples=20)
    human = study.rankings["people"]
    assert list(human.means) == ["Human", "A", "B"] and human.agreement == 1.0
    assert human.means["A"].value == pytest.approx(np.mean([c.scores["total"] for c in rated if c.system == "A"]))
    study.add("words", word_counts(rated))
    # Longer captions are the worse ones here: every pair of systems is turned round.
    assert study.rankings["words"].agreement == 0.0 and list(study.rankings["words"].means) == ["B", "A", "Human"]
    study.add("flat", MetricScores(np.ones(12)))
    assert study.rankings["flat"].agreement == 0.5


def test_scores_of_ones_own_with_and_without_criteria(tmp_path):
    names = ("correctness", "completeness", "clarity", "fluency", "conciseness")
    rows = [{"score": n, **{name: n + k for k, name in enumerate(names)}} for n in range(2)]
    found = read_thumb_scores(write(tmp_path / "s.jsonl", rows))
    assert found.overall.tolist() == [0, 1] and found.criteria[1].tolist() == [1, 2, 3, 4, 5]
    assert read_thumb_scores(write(tmp_path / "p.jsonl", [{"score": 1}])).criteria is None
    with pytest.raises(InputError, match="short: 2 scores for 12 captions"):
        ThumbStudy(captions(tmp_path), resamples=2).add("short", found)


def test_a_human_caption_is_no_reference_of_itself(tmp_path):
    coco = tmp_path / "coco.json"
    coco.write_text(json.dumps({"annotations": [{"image_id": 1, "caption": text} for text in ("a dog", "one dog ")]}))
    rated = read_thumb(write(tmp_path / "t.jsonl", [line("Human"), line("A", caption="a cat")]))
    assert [item.references for item in as_items(rated, tmp_path, coco)] == [("one dog ",), ("a dog", "one dog ")]
    coco.write_text(json.dumps({"annotations": [{"caption": "x"}]}))
    with pytest.raises(InputError, match="annotation 0: needs image_id"):
        coco_references(coco)


def test_the_command_runs_a_judge_where_pictures_are_and_counts_those_that_are_not(tmp_path):
    from PIL import Image

    file = write(tmp_path / "t.jsonl", [line("A", 1), line("B", 1, "a cat", P=1.0), line("A", 2), line("B", 2, P=2.0)])
    arguments = ["thumb", str(file), "--judge", "shapes-rater", "--images", str(tmp_path), "--resamples", "5", "--json"]
    result = CliRunner().invoke(app, arguments)
    assert isinstance(result.exception, InputError) and "none of the 4 pictures is there" in str(result.exception)
    Image.new("RGB", (32, 32), "red").save(tmp_path / "COCO_val2014_000000000001.jpg")
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    assert found["overall"]["HarmonicEval"]["total"]["abstained"] == 2
    assert any(note.startswith("2 of 4 pictures are missing") for note in found["notes"])
    assert set(found["criteria"]["HarmonicEval"]) == {"P", "R", "Fl", "Con"}


def test_a_judge_that_only_answers_has_both_vqascores(tmp_path):
    from rewards.tifa.vqascore import VQAScore

    pictures = [tmp_path / f"COCO_val2014_{number:012d}.jpg" for number in (1, 2, 3)]
    for number, path in enumerate(pictures):
        tiny_models.picture(number, (32, 32)).save(path)
    rows = [line(name, n, f"{name} dog", P=float(n), R=2.0) for n in (1, 2, 3) for name in ("A", "B")]
    file = write(tmp_path / "t.jsonl", rows)
    arguments = ["thumb", str(file), "--judge", "shapes-vqa", "--images", str(tmp_path), "--resamples", "5", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    people = [caption.scores["total"] for caption in read_thumb(file)]
    for name, wording in (("VQAScore", "vqascore"), ("VQAScore, GenEval 2's words", "geneval2")):
        asked = [str(pictures[n]) for n in range(3) for _ in "AB"], [row["hyp"] for row in rows]
        scores = VQAScore(load_judge("shapes-vqa"), wording).score(*asked).overall.tolist()
        expected = scipy.stats.kendalltau(scores, people).statistic
        statistics = found["overall"][name]["total"]["statistics"]
        assert statistics["kendall_tau_b"]["value"] == pytest.approx(expected)
    assert "HarmonicEval" not in found["overall"] and any("cannot rate" in note for note in found["notes"])


def test_the_released_file():
    file = shared_file("thumb/mscoco_THumB-1.0.jsonl")
    study = ThumbStudy(read_thumb(file), resamples=50)
    study.add("words", word_counts(study.captions))
    means = study.rankings["people"].means
    assert list(means) == ["Human", "VinVL-large", "VinVL-base", "Unified-VLP", "Up-Down"]
    assert f"{means['Human'].value:.3f}" == "4.564" and f"{means['Up-Down'].value:.3f}" == "3.884"
    assert study.overall["words"]["R"]["kendall_tau_b"].low > 0
    assert "number" not in study.text() and "pairs as people %" in study.text()
