"""Files of candidates: the same items from every kind, and every bad row named with its line."""

import datasets
import pytest

from rewards.errors import InputError
from rewards.rerank.index import Index
from rewards.rerank.rows import parse_rows
from rewards.rerank.sources import open_source

from .functions import picture, write_lines

ROWS = [{"id": f"i{n}", "image": "a.png", "candidates": [f"text {n}", "other"]} for n in range(7)]


def sources(folder):
    picture(folder / "a.png")
    dataset = datasets.Dataset.from_list(ROWS)
    dataset.to_parquet(folder / "rows.parquet", batch_size=3)
    dataset.save_to_disk(folder / "saved")
    return write_lines(folder / "rows.jsonl", ROWS), folder / "rows.parquet", folder / "saved"


def test_every_kind_gives_the_same_rows_by_position(tmp_path):
    for path in sources(tmp_path):
        source = open_source(path)
        scanned = list(source.scan("id", required=False))
        assert [s.key for s in scanned] == [row["id"] for row in ROWS] and [s.line for s in scanned] == list(
            range(1, 8)
        )
        assert source.read([scanned[5].position, scanned[1].position]) == [ROWS[5], ROWS[1]]
        assert len(source.fingerprint()) == 32


def test_encoded_pictures_stay_encoded(tmp_path):
    path = picture(tmp_path / "a.png")
    features = datasets.Features({"prompt": datasets.Value("string"), "candidates": datasets.List(datasets.Image())})
    dataset = datasets.Dataset.from_list([{"prompt": "p", "candidates": [str(path), str(path)]}], features=features)
    dataset.save_to_disk(tmp_path / "saved")
    row = open_source(tmp_path / "saved").read([0])[0]
    parsed = parse_rows([row], id="x", folder=tmp_path, columns={}, max_text=10)
    assert parsed.item.kind == "pictures" and isinstance(parsed.item.candidates[0], dict) and not parsed.blocked


def test_fingerprint_changes_with_the_content_and_not_with_the_place(tmp_path):
    first = write_lines(tmp_path / "rows.jsonl", ROWS)
    before = open_source(first).fingerprint()
    (tmp_path / "elsewhere").mkdir()
    assert open_source(write_lines(tmp_path / "elsewhere" / "rows.jsonl", ROWS)).fingerprint() == before
    write_lines(first, ROWS[::-1])
    assert open_source(first).fingerprint() != before


def test_what_is_no_source_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_text("a\n")
    (tmp_path / "rows.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"neither \.jsonl nor \.parquet"):
        open_source(tmp_path / "rows.csv")
    with pytest.raises(InputError, match="is not a Parquet file"):
        open_source(tmp_path / "rows.parquet")
    with pytest.raises(InputError, match="folder without dataset_info"):
        open_source(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "none.jsonl")


def test_rows_of_one_key_make_one_item_wherever_they_stand(tmp_path):
    rows = [{"key": key, "candidate": f"{key}{n}"} for n, key in enumerate("abacba")]
    source = open_source(write_lines(tmp_path / "r.jsonl", rows))
    index = Index(tmp_path / "index.sqlite")
    assert index.build(source, key="key", grouped=True) == 3
    items = list(index.items(0, 3))
    assert [(item.key, [line for _, line in item.rows]) for item in items] == [
        ("a", [1, 3, 6]),
        ("b", [2, 5]),
        ("c", [4]),
    ]
    read = source.read([position for position, _ in items[0].rows])
    assert [row["candidate"] for row in read] == ["a0", "a2", "a5"]


def test_scan_problems_are_kept_with_their_line_and_place(tmp_path):
    rows = [ROWS[0], "{broken", ROWS[1], ROWS[0], "[1, 2]", "", {"id": 3.5}, {"candidates": ["a"]}, '{"id": "\\ud800"']
    index = Index(tmp_path / "index.sqlite")
    assert index.build(open_source(write_lines(tmp_path / "r.jsonl", rows)), key="id", grouped=False) == 3
    problems = index.problems(0, 99)
    assert [line for line, _ in problems] == [2, 4, 5, 7, 9]
    assert "duplicate: id 'i0' is also on line 1" in problems[1][1] and "text or a whole number" in problems[3][1]
    assert [line for line, _ in index.problems(1, 2)] == [2]
    with pytest.raises(InputError, match="has no column 'key'"):
        saved = datasets.Dataset.from_list(ROWS)
        saved.to_parquet(tmp_path / "x.parquet")
        index.build(open_source(tmp_path / "x.parquet"), key="key", grouped=True)


def parse(tmp_path, *rows, **changes):
    picture(tmp_path / "a.png")
    settings = {"id": "line-1", "folder": tmp_path, "columns": {}, "max_text": 20, **changes}
    return parse_rows(list(rows), **settings)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"image": "a.png", "candidates": []}, "candidates are []"),
        ({"image": "a.png"}, "candidates are None"),
        ({"image": "none.png", "candidates": ["a", "b"]}, "lacks its picture: no file"),
        ({"image": 7, "candidates": ["a", "b"]}, "image is 7"),
        ({"image": [], "candidates": ["a", "b"]}, "lacks its picture: the list is empty"),
        ({"candidates": ["a", "b"]}, "has neither a picture (for texts) nor a prompt"),
        ({"image": "a.png", "candidates": ["a", "b"], "question": "q" * 21}, "question has 21 characters"),
        ({"image": "a.png", "candidates": ["a", "b"], "box": [1, 2]}, "box is [1, 2]"),
        ({"prompt": "p", "folder": "none"}, "does not exist"),
    ],
)
def test_a_row_that_cannot_be_ranked_says_why(tmp_path, row, reason):
    parsed = parse(tmp_path, row)
    assert parsed.item is None and len(parsed.notes) == 1 and reason in parsed.notes[0]


def test_single_bad_candidates_are_blocked_and_the_others_ranked(tmp_path):
    parsed = parse(tmp_path, {"image": "a.png", "candidates": ["ok", 3, "x" * 10_000_000, "fine"]})
    assert parsed.item.candidates[3] == "fine" and set(parsed.blocked) == {1, 2}
    assert parsed.notes[1] == "candidate 2: has 10000000 characters; at most 20 are judged"
    assert "10000000" in parsed.blocked[2] and len(parsed.blocked[2]) < 100
    pictures = parse(tmp_path, {"prompt": "p", "candidates": ["a.png", "b.png"]})
    assert set(pictures.blocked) == {1} and pictures.item.candidates[0] == str(tmp_path / "a.png")


def test_one_candidate_is_reported_and_ranked(tmp_path):
    parsed = parse(tmp_path, {"image": "a.png", "candidates": ["ok"]})
    assert parsed.item is not None and parsed.notes == ["has one candidate only: nothing to choose from"]


def test_folder_of_pictures_renamed_columns_grouped_rows_and_other_columns(tmp_path):
    (tmp_path / "p17").mkdir()
    for name in ("b.png", "a.png", "notes.txt"):
        picture(tmp_path / "p17" / name) if name.endswith("png") else (tmp_path / "p17" / name).write_text("x")
    item = parse(tmp_path, {"prompt": "p", "folder": "p17", "seed": 3}).item
    assert [c[-9:] for c in item.candidates] == ["p17/a.png", "p17/b.png"] and item.extra == {"seed": 3}
    rows = [{"caption_id": "k", "img": "a.png", "text": text} for text in ("one", "two")]
    item = parse(tmp_path, *rows, columns={"image": "img", "candidate": "text"}, id="k").item
    assert item.candidates == ("one", "two") and item.id == "k" and item.image.endswith("a.png")
