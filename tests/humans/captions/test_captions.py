"""Caption benchmarks on small files in their published formats: values, protocols, and broken rows refused."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.stats
from typer.testing import CliRunner

from rewards.cli.humans import app
from rewards.errors import InputError
from rewards.humans.captions.benchmarks import compare, items_to_score, read_benchmark
from rewards.humans.captions.composite import read_composite
from rewards.humans.captions.flickr8k import read_flickr8k_crowdflower, read_flickr8k_expert
from rewards.humans.captions.foil import read_foil
from rewards.humans.captions.pascal50s import read_pascal50s
from rewards.humans.captions.records import CaptionPair, pair_accuracy

TOKENS = "".join(f"{p}.jpg#{k}\ta {p} caption {k} .\n" for p in "xyz" for k in range(5))


def flickr(tmp_path, lines):
    (tmp_path / "tokens.txt").write_text(TOKENS)
    (tmp_path / "judgments.txt").write_text("".join("\t".join(map(str, line)) + "\n" for line in lines))
    return tmp_path / "judgments.txt", tmp_path / "tokens.txt"


def test_flickr8k_expert_flattens_judgments_and_leaves_out_own_captions(tmp_path):
    files = flickr(
        tmp_path, [("x.jpg", "y.jpg#0", 1, 1, 2), ("x.jpg", "x.jpg#1", 4, 4, 4), ("y.jpg", "z.jpg#3", 3, 2, 3)]
    )
    records, notes = read_flickr8k_expert(*files)
    assert [(r.image, r.human) for r in records] == [("x.jpg", 1), ("x.jpg", 1), ("x.jpg", 2)] + [
        ("y.jpg", h) for h in (3, 2, 3)
    ]
    assert records[0].caption == "a y caption 0 ." and len(records[0].references) == 5
    assert notes == ["1 captions left out: among the references of their own picture"]
    scores = np.array([0.1, 0.1, 0.1, 0.5, 0.5, 0.5])
    expected = scipy.stats.kendalltau(scores, [1, 1, 2, 3, 2, 3], variant="c").statistic
    found = compare("flickr8k-ex", records, scores, resamples=20)
    assert found["kendall_tau_c"].value == pytest.approx(expected)


def test_flickr8k_crowdflower_uses_the_share_of_yes_and_tau_b(tmp_path):
    files = flickr(
        tmp_path,
        [("x.jpg", "y.jpg#0", 0.0, 0, 3), ("x.jpg", "z.jpg#1", 0.6666667, 2, 1), ("y.jpg", "z.jpg#2", 1, 3, 0)],
    )
    records = read_benchmark("flickr8k-cf", files).records
    assert [r.human for r in records] == pytest.approx([0, 2 / 3, 1])
    found = compare("flickr8k-cf", records, np.array([1.0, 2.0, 2.0]), resamples=20)
    assert found["kendall_tau_b"].value == pytest.approx(0.8165, abs=1e-4)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("x.jpg", "y.jpg#0", 1, 1), "line 2: has 4 columns"),
        (("x.jpg", "y.jpg#9", 1, 1, 1), "line 2: caption 'y.jpg#9' is not in"),
        (("q.jpg", "y.jpg#0", 1, 1, 1), "line 2: picture 'q.jpg' has no captions"),
        (("x.jpg", "y.jpg#0", 1, 1, 5), "line 2: judgments are"),
        (("x.jpg", "y.jpg#0", 1, 1, "?"), r"line 2: '\?' is not a number"),
    ],
)
def test_broken_flickr8k_lines_are_refused(tmp_path, line, message):
    with pytest.raises(InputError, match=message):
        read_flickr8k_expert(*flickr(tmp_path, [("x.jpg", "y.jpg#0", 1, 1, 2), line]))


def test_votes_that_do_not_fit_their_share_and_repeated_ids_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"line 1: share 0.5 does not fit 2 yes and 1 no"):
        read_flickr8k_crowdflower(*flickr(tmp_path, [("x.jpg", "y.jpg#0", 0.5, 2, 1)]))
    files = flickr(tmp_path, [("x.jpg", "y.jpg#0", 1, 1, 1)])
    files[1].write_text(TOKENS + "x.jpg#0\tagain\n")
    with pytest.raises(InputError, match=r"line 16: caption id 'x.jpg#0' occurs twice"):
        read_flickr8k_expert(*files)


COMPOSITE = (
    "HITId;Input.image_url;Input.text1;Input.text2;Answer.Q1Answer;Answer.Q2Answer\n"
    "h1;http://x.org/a%20b.jpg;a dog;a cat;4;1\n"
    "h2;http://x.org/c.jpg;two men;a car;2;5\n"
)


def test_composite_reads_every_caption_and_notes_the_published_trailer(tmp_path):
    path = tmp_path / "8k_correctness.csv"
    path.write_text(COMPOSITE + "total;;;;;\n;;;;;\n")
    records, notes = read_composite(path)
    assert [(r.image, r.caption, r.human) for r in records] == [
        ("a b.jpg", "a dog", 4), ("a b.jpg", "a cat", 1), ("c.jpg", "two men", 2), ("c.jpg", "a car", 5),
    ]  # fmt: skip
    assert notes == ["2 rows at the end without picture and rating left out"]
    assert compare("composite", records, np.array([4.0, 1, 2, 5]), resamples=10)["kendall_tau_c"].value == 1.0
    records, notes = read_composite(path, references={"c.jpg": ["a car"]})
    assert len(records) == 3 and "1 captions left out" in notes[1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("h3;http://x.org/d.jpg;a dog;a cat;4;9", "line 4: Input.text2 is 'a cat' and Answer.Q2Answer is '9'"),
        ("h3;http://x.org/d.jpg;a dog;;4;3", "line 4: Input.text2 is ''"),
        ("h3;http://x.org/d.jpg;a dog;a cat;4", "line 4: has another number of cells"),
        ("h3;;a dog;a cat;4;3", "line 4: has no Input.image_url"),
        (";;;;;\nh4;http://x.org/d.jpg;a dog;a cat;4;3", "line 4: has no Input.image_url"),
    ],
)
def test_broken_composite_rows_are_refused(tmp_path, row, message):
    path = tmp_path / "c.csv"
    path.write_text(COMPOSITE + row + "\n")
    with pytest.raises(InputError, match=message):
        read_composite(path)


def test_composite_without_its_columns_is_refused(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text(COMPOSITE.replace("Answer.Q2Answer", "Answer.other"))
    with pytest.raises(InputError, match=r"has no columns .*Answer\.Q2Answer"):
        read_composite(path)


def pascal(tmp_path, category=(1, 4), authors=((6, 6), (2, 3)), votes=((1, 1, -1), (-1, 1)), swap=False):
    """Two pairs in MATLAB structs and cells as scipy reads them back from the published files."""
    pairs = [("p.jpg", "b one", "c one"), ("q.jpg", "b two", "c two")]
    new_input = np.zeros((1, 2), dtype=[(name, object) for name in ("image", "b", "c")])
    triplets = []
    for n, pair in enumerate(pairs):
        new_input[0, n] = tuple(np.array([text]) for text in pair)
        for v, vote in enumerate(votes[n]):
            b, c = (pair[2], pair[1]) if swap and v == 0 else pair[1:]
            cell = [
                np.array([[f"reference {n} {v}"]], dtype=object),
                np.array([[b]], dtype=object),
                np.array([[c]], dtype=object),
            ]
            triplets.append((*cell, np.array([[vote]])))
    packed = np.zeros((1, len(triplets)), dtype=[(name, object) for name in "abcd"])
    for n, triplet in enumerate(triplets):
        packed[0, n] = triplet
    scipy.io.savemat(
        tmp_path / "pair.mat", {"new_input": new_input, "new_data": np.array(authors), "category": np.array([category])}
    )
    scipy.io.savemat(tmp_path / "consensus.mat", {"triplets": packed})
    return tmp_path / "pair.mat", tmp_path / "consensus.mat"


def test_pascal50s_takes_the_majority_and_marks_ties(tmp_path):
    records, notes = read_pascal50s(*pascal(tmp_path, votes=((1, 1, -1, 1), (-1, 1, 1, -1))))
    assert [(r.image, r.a, r.b, r.preference, r.category) for r in records] == [
        ("p.jpg", "b one", "c one", 1, "HC"), ("q.jpg", "b two", "c two", 0, "MM"),
    ]  # fmt: skip
    assert records[0].references[1] == "reference 0 1" and len(notes) == 1
    swapped = read_pascal50s(*pascal(tmp_path, votes=((1, 1, -1, 1), (-1, 1, 1, -1)), swap=True)).records
    assert swapped[0].preference == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"votes": ((1, 1, -1), (-1, 1))}, "5 votes cannot be shared out over 2 pairs"),
        ({"votes": ((1, 3), (1, 1))}, r"pair 0: a vote is 3.0"),
        ({"votes": ((1,), (1,)), "category": (2, 4)}, r"pair 0: category 2 does not fit its authors"),
    ],
)
def test_broken_pascal50s_files_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_pascal50s(*pascal(tmp_path, **changes))


def test_files_that_are_not_matlab_or_lack_a_variable_are_refused(tmp_path):
    pair, consensus = pascal(tmp_path, votes=((1,), (1,)))
    with pytest.raises(InputError, match="has no variable new_input"):
        read_pascal50s(consensus, pair)
    consensus.write_text("not matlab, but long enough to look like a header " * 10)
    with pytest.raises(InputError, match="is not a MATLAB file"):
        read_pascal50s(pair, consensus)
    with pytest.raises(FileNotFoundError):
        read_pascal50s(pair, tmp_path / "none")


def foil_files(tmp_path, **changes):
    annotations = [
        {"id": 1, "image_id": 7, "caption": "a dog runs", "foil": False},
        {"id": 1, "image_id": 7, "caption": "a cat runs", "foil": True},
        {"id": 1, "image_id": 7, "caption": "a cow runs", "foil": True},
    ]
    annotations[2].update(changes)
    coco = [{"image_id": 7, "caption": text} for text in ("a dog runs", "r1", "r2", "r3", "r4")]
    (tmp_path / "foil.json").write_text(
        json.dumps({"images": [{"id": 7, "file_name": "7.jpg"}], "annotations": annotations})
    )
    (tmp_path / "coco.json").write_text(json.dumps({"annotations": coco}))
    return tmp_path / "foil.json", tmp_path / "coco.json"


def test_foil_pairs_the_true_caption_with_each_foil_and_counts_references(tmp_path):
    files = foil_files(tmp_path)
    four, one = (read_benchmark(f"foil-{n}", files).records for n in (4, 1))
    assert [(r.a, r.b, r.preference) for r in four] == [
        ("a dog runs", "a cat runs", 1),
        ("a dog runs", "a cow runs", 1),
    ]
    assert four[0].references == ("r1", "r2", "r3", "r4") and one[0].references == ("r1",)
    found = compare("foil-1", one, np.array([2.0, 1.0, 1.0, 1.0]), resamples=10)
    assert found["FOIL"].value == 0.75


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"foil": "yes"}, "annotation 2: foil is 'yes'"),
        ({"foil": False}, "annotation id 1: has 2 true captions and 1 foils"),
        ({"image_id": 8}, "the foil is of picture 8"),
        ({"caption": ""}, "annotation 2: caption is ''"),
    ],
)
def test_broken_foil_rows_are_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        read_foil(*foil_files(tmp_path, **changes))


def test_pair_accuracy_by_hand_with_ties_on_both_sides():
    pairs = [CaptionPair("p", "a", "b", preference, "HC") for preference in (1, -1, 0, 1)] + [
        CaptionPair("q", "a", "b", 1, "MM")
    ]
    result = pair_accuracy(pairs, np.array([2.0, 2, 2, 1, np.nan]), np.array([1.0, 1, 1, 1, 0]), resamples=20)
    # right, wrong, tied vote, metric tie; the last pair was not judged.
    assert result["HC"].value == (1 + 0 + 0.5 + 0.5) / 4 and np.isnan(result["MM"].value) and result["all"].value == 0.5


@pytest.mark.parametrize(("ties", "expected"), [("half", 2 / 3), ("wrong", 1 / 3), ("first", 2 / 3)])
def test_rules_for_a_metric_tie(ties, expected):
    pairs = [CaptionPair("p", "a", "b", preference, "HC") for preference in (1, 1, -1)]
    found = pair_accuracy(pairs, np.array([2.0, 1, 1]), np.array([1.0, 1, 1]), ties=ties, resamples=10)
    assert found["HC"].value == pytest.approx(expected)


def test_classes_are_counted_apart_and_their_mean_is_theirs():
    pairs = [CaptionPair("p", "a", "b", 1, category) for category in ("HC", "HC", "HC", "MM")]
    found = pair_accuracy(pairs, np.array([2.0, 2, 0, 0]), np.ones(4), resamples=10)
    assert [found[name].value for name in ("HC", "MM", "all", "mean")] == [
        pytest.approx(2 / 3), 0.0, 0.5, pytest.approx(1 / 3),
    ]  # fmt: skip


def test_command_lists_captions_and_compares_scores(tmp_path):
    files = [str(file) for file in foil_files(tmp_path)]
    listing = tmp_path / "list.jsonl"
    result = CliRunner().invoke(app, ["captions", "foil-4", *files, "--list", str(listing)])
    assert result.exit_code == 0 and "2 pairs of captions; nothing is compared with them yet" in result.stdout
    rows = [json.loads(line) for line in listing.read_text().splitlines()]
    assert [row["caption"] for row in rows] == ["a dog runs", "a cat runs", "a dog runs", "a cow runs"]
    scores = tmp_path / "length.jsonl"
    scores.write_text('{"score": 2}\n{"score": 1}\n{"score": 2}\n{"score": 1}\n')
    result = CliRunner().invoke(app, ["captions", "foil-4", *files, "--scores", str(scores)])
    assert result.exit_code == 0 and "length  100.000  100.000  100.000" in result.stdout
    scores.write_text('{"score": 2}\n')
    assert isinstance(
        CliRunner().invoke(app, ["captions", "foil-4", *files, "--scores", str(scores)]).exception, InputError
    )


def test_unknown_benchmark_and_number_of_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="unknown benchmark 'nocaps'"):
        read_benchmark("nocaps", [])
    with pytest.raises(InputError, match="foil-4 needs 2 files, got 1"):
        read_benchmark("foil-4", ["x"])
    assert items_to_score([]) == []
