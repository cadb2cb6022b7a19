"""FLEUR's files: readers on small files, joins, and the released scores' figures to the digit."""

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.captions.benchmarks import read_benchmark, scores_once
from rewards.humans.captions.fleur import (
    labelled_by_results,
    read_fleur_scores,
    read_flickr8k_json,
    read_pascal50s_json,
    scores_of_captions,
    scores_of_pairs,
)
from rewards.humans.metrics.base import TextItem
from tests.shared_data import shared_file

FLICKR = {
    "p": {
        "human_judgement": [
            {"image_path": "p.jpg", "caption": "a  dog .", "rating": rating} for rating in (1.0, 2.0, 4.0)
        ],
        "ground_truth": ["a dog runs", "one dog"],
    }
}
PASCAL = {
    "MM": [{"image": "p.jpg", "captions": ["a", "b"], "label": 1, "references": ["r"]}],
    "HC": [{"image": "q.jpg", "captions": ["c", "d"], "label": 0, "references": ["r"]}],
}
RESULT = (
    "image file : p.jpg\nlabel : 0\n\ncaption : a\nmodel score : 0.5\nour score : 0.45\n\n"
    "caption : b\nmodel score : 0.5\nour score : 0.55\n\ntrue count : 1\ntie count : 0"
)


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_flickr8k_json_gives_a_record_a_judgment(tmp_path):
    records, notes = read_flickr8k_json(write(tmp_path / "f.json", FLICKR))
    assert [(r.image, r.caption, r.human) for r in records] == [("p.jpg", "a dog .", r) for r in (1, 2, 4)]
    assert records[0].references == ("a dog runs", "one dog") and notes == []


def test_pascal_json_in_the_papers_order_with_labels_as_preferences(tmp_path):
    records, notes = read_pascal50s_json(write(tmp_path / "p.json", PASCAL))
    assert [(r.category, r.a, r.b, r.preference) for r in records] == [("HC", "c", "d", 1), ("MM", "a", "b", -1)]
    assert "drawn at random" in notes[0]


def test_scores_are_joined_by_picture_and_captions_and_gaps_are_named(tmp_path):
    pairs = read_pascal50s_json(write(tmp_path / "p.json", PASCAL)).records
    blocks = read_fleur_scores(write(tmp_path / "s.txt", RESULT))
    found = scores_of_pairs(pairs, blocks)
    assert np.isnan(found.smoothed[:2]).all() and found.smoothed[2:].tolist() == [0.45, 0.55]
    assert found.raw[2:].tolist() == [0.5, 0.5] and found.notes == [
        "2 of 4 captions of pairs have no score in the files"
    ]
    assert [pair.preference for pair in labelled_by_results(pairs, blocks)] == [1, 1]
    single = "image file : p.jpg\ncaption : a dog .\nmodel score : 0.9\nour score : 0.8\n"
    judged = scores_of_captions(
        read_flickr8k_json(write(tmp_path / "f.json", FLICKR)).records,
        read_fleur_scores(write(tmp_path / "t.txt", single)),
    )
    assert judged.smoothed.tolist() == [0.8] * 3 and judged.notes == []


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (read_flickr8k_json, [], "no object with one entry a picture"),
        (read_flickr8k_json, {"p": {"human_judgement": []}}, "picture 'p': lacks ground_truth"),
        (
            read_flickr8k_json,
            {"p": {"human_judgement": [{"image_path": "p", "caption": "c", "rating": 5}], "ground_truth": []}},
            "judgment 0: rating is 5",
        ),
        (read_pascal50s_json, {"other": []}, "no object with pairs under HC, HI, HM, MM"),
        (
            read_pascal50s_json,
            {"HC": [{"image": "p", "captions": ["a"], "label": 0, "references": []}]},
            "HC 0: 1 captions and label 0",
        ),
        (read_fleur_scores, "image file : p\nscore : 1\n", "line 2: 'score : 1' is none of FLEUR's fields"),
        (read_fleur_scores, "our score : 1\n", "line 1: a score without a picture"),
        (read_fleur_scores, "image file : p\ncaption : c\nour score : high\n", "line 3: 'high' is not a number"),
        (read_fleur_scores, "true count : 1\n", "holds no scores"),
    ],
)
def test_broken_files_are_named(tmp_path, read, content, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "file", content))


def test_a_pair_whose_captions_stand_under_different_pictures_is_refused(tmp_path):
    other = RESULT.replace("caption : b", "image file : q.jpg\ncaption : b")
    with pytest.raises(InputError, match="the second caption of a pair is of another picture"):
        scores_of_pairs([], read_fleur_scores(write(tmp_path / "s.txt", other)))


def test_texts_are_scored_once():
    items = [TextItem("p", text) for text in ("a", "b", "a")] + [TextItem("q", "a")]
    once, places = scores_once(items)
    assert [(item.image, item.text) for item in once] == [("p", "a"), ("p", "b"), ("q", "a")] and places == [0, 1, 0, 2]


def test_the_released_scores_on_flickr8k_expert():
    files = [shared_file(f"fleur/{name}") for name in ("flickr8k.json", "fleur_flickr8k_expert.txt")]
    arguments = ["captions", "flickr8k-ex", str(files[0]), "--scores", str(files[1]), "--resamples", "5", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    values = {
        (row, name): f"{100 * estimate['value']:.3f}"
        for row, estimates in found["results"].items()
        for name, estimate in estimates.items()
    }
    assert values["FLEUR smoothed", "kendall_tau_c"] == "53.026" and values["FLEUR raw", "kendall_tau_c"] == "34.911"
    assert values["FLEUR smoothed", "kendall_tau_b"] == "52.666" and found["published"]["FLEUR smoothed"] == 53.0


def test_the_released_scores_on_pascal50s():
    results = [shared_file(f"fleur/fleur_pascal_{name}.txt") for name in ("HC", "HI", "MM")]
    scores = [argument for path in results for argument in ("--scores", str(path))]
    pairs = str(shared_file("fleur/pascal_50s.json"))
    arguments = ["captions", "pascal50s", pairs, *scores, "--resamples", "5", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)

    def shown(row):
        estimates = found["results"][row]
        return [f"{100 * estimates[name]['value']:.1f}" for name in ("HC", "HI", "MM")]

    assert shown("FLEUR smoothed, ties first, labels of the results") == ["61.6", "99.7", "74.3"]
    assert shown("FLEUR smoothed, ties wrong, labels of the results") == ["61.3", "99.7", "74.2"]
    assert shown("FLEUR smoothed, ties first, labels of the JSON") == ["61.6", "99.7", "74.7"]
    assert found["results"]["FLEUR raw, ties half, labels of the JSON"]["HM"]["value"] is None
    agreeing = [note for note in found["notes"] if "are those of the JSON" in note]
    assert [note.partition(" of ")[0] for note in agreeing] == ["HC: 982", "HI: 1000", "MM: 984"]


@pytest.mark.slow
def test_reference_metrics_on_real_captions_stand_beside_the_published_numbers():
    pytest.importorskip("pycocoevalcap", reason="the extra 'humans' is not installed")
    path = str(shared_file("fleur/flickr8k.json"))
    assert len(read_benchmark("flickr8k-ex", [path]).records) == 16_992
    arguments = ["captions", "flickr8k-ex", path, "--references", "--resamples", "2", "--json"]
    found = json.loads(CliRunner().invoke(app, arguments).stdout)
    # CIDEr's library is the papers' own: its figure is theirs but for the tokenizer.
    assert math.isclose(100 * found["headline"]["CIDEr"], found["published"]["CIDEr"], abs_tol=0.3)
