"""Files of candidates: the same items from every kind, and every bad row named with its line."""

import json
from concurrent.futures import ThreadPoolExecutor

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from rewards.errors import InputError
from rewards.jobs.index import Index
from rewards.jobs.sources import open_source
from rewards.rerank.rows import parse_rows
from tests.rerank.functions import picture, write_lines

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
    (tmp_path / "rows.tsv").write_text("a\n")
    (tmp_path / "rows.parquet").write_text("not parquet")
    with pytest.raises(InputError, match=r"neither \.jsonl, \.csv nor \.parquet"):
        open_source(tmp_path / "rows.tsv")
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
        ({"image": "a.png", "candidates": ["a", "b"], "box": [1, 2, float("nan"), 3]}, "box is [1, 2, nan, 3]"),
        ({"image": "a.png", "candidates": ["a", "b"], "box": [0, 0, 1, 10**400]}, "box is [0, 0, 1, 1000"),
        ({"image": "a.png", "candidates": ["a", "b"], "prompt": float("inf")}, "prompt is inf; text is needed"),
        ({"image": "a.png", "candidates": ["a", "b"], "question": ["q"]}, "question is ['q']; text is needed"),
        ({"prompt": True, "candidates": ["a.png", "a.png"]}, "prompt is True; text is needed"),
        ({"image": "n" * 5000, "candidates": ["a", "b"]}, "lacks its picture: no file"),
        ({"image": "a.png\0", "candidates": ["a", "b"]}, "lacks its picture: no file"),
        ({"prompt": "p", "folder": "\0"}, "does not exist"),
        ({"prompt": "p", "folder": "none"}, "does not exist"),
    ],
)
def test_a_row_that_cannot_be_ranked_says_why(tmp_path, row, reason):
    parsed = parse(tmp_path, row)
    assert parsed.item is None and len(parsed.notes) == 1 and reason in parsed.notes[0] and len(parsed.notes[0]) < 400


def test_a_row_of_the_other_kind_is_reported_and_not_judged_as_what_it_is_not(tmp_path):
    captions = {"image": None, "prompt": "say it", "candidates": ["a dog", "a cat"]}
    assert parse(tmp_path, captions, kind="texts").notes == [
        "lacks its picture: there is no image. The row has image, prompt, candidates"
    ]
    pictures = {"image": "a.png", "prompt": "p", "candidates": ["a.png", "a.png"]}
    assert "the reward ranks pictures" in parse(tmp_path, pictures, kind="pictures").notes[0]
    assert parse(tmp_path, pictures, kind="texts").item and parse(tmp_path, captions).item.kind == "pictures"


def test_single_bad_candidates_are_blocked_and_the_others_ranked(tmp_path):
    parsed = parse(tmp_path, {"image": "a.png", "candidates": ["ok", 3, "x" * 10_000_000, "fine"]})
    assert parsed.item.candidates[3] == "fine" and set(parsed.blocked) == {1, 2}
    assert parsed.blocked == {1: "is 3; text is needed", 2: "has 10000000 characters; at most 20 are judged"}
    pictures = parse(tmp_path, {"prompt": "p", "candidates": ["a.png", "b.png"]})
    assert set(pictures.blocked) == {1} and pictures.item.candidates[0] == str(tmp_path / "a.png")


def test_one_candidate_is_reported_and_ranked(tmp_path):
    parsed = parse(tmp_path, {"image": "a.png", "candidates": ["ok"]})
    assert parsed.item is not None and parsed.notes == ["has one candidate only: nothing to choose from"]


def test_folder_of_pictures_renamed_columns_grouped_rows_and_other_columns(tmp_path):
    (tmp_path / "p17").mkdir()
    for name in ("b.png", "a.png", "notes.txt", "._a.png"):
        picture(tmp_path / "p17" / name) if name[0] in "ab" else (tmp_path / "p17" / name).write_text("x")
    (tmp_path / "p17" / "c.png").mkdir()
    item = parse(tmp_path, {"prompt": "p", "folder": "p17", "seed": 3}).item
    assert [c[-9:] for c in item.candidates] == ["p17/a.png", "p17/b.png"] and item.extra == {"seed": 3}
    rows = [{"caption_id": "k", "img": "a.png", "text": text} for text in ("one", "two")]
    item = parse(tmp_path, *rows, columns={"image": "img", "candidate": "text"}, id="k").item
    assert item.candidates == ("one", "two") and item.id == "k" and item.image.endswith("a.png")


def test_grouped_rows_without_a_candidate_are_named(tmp_path):
    texts = [{"image": "a.png", "candidate": text} for text in (None, "one", "two")]
    parsed = parse(tmp_path, *texts)
    assert parsed.item.candidates[1:] == ("one", "two") and parsed.blocked == {0: "is None; text is needed"}
    lists = [{"image": "a.png", "candidates": ["a", "b"]}] * 2
    assert parse(tmp_path, *lists).notes == ["has 2 rows of one key without a candidate; each needs one"]


def test_json_that_no_file_can_hold_again_is_a_problem_and_escaped_pairs_are_not(tmp_path):
    lines = ['{"id": "\\ud800"}', '{"id": "\\ud83d\\ude00"}', '{"id": "a", "candidates": ["\\uDFFF"]}']
    scanned = list(open_source(write_lines(tmp_path / "r.jsonl", lines)).scan("id", required=False))
    assert [s.key for s in scanned] == [None, "😀", None]
    assert "surrogates not allowed" in scanned[0].problem and "surrogates not allowed" in scanned[2].problem


def test_byte_order_mark_and_windows_line_ends_are_read(tmp_path):
    (tmp_path / "r.jsonl").write_bytes(b'\xef\xbb\xbf{"id": "a"}\r\n\r\n{"id": "b"}\r\n')
    source = open_source(tmp_path / "r.jsonl")
    scanned = list(source.scan("id", required=True))
    assert [(s.key, s.line) for s in scanned] == [("a", 1), ("b", 3)]
    assert source.read([s.position for s in scanned]) == [{"id": "a"}, {"id": "b"}]


def test_an_edit_of_the_same_length_in_the_middle_changes_the_fingerprint(tmp_path):
    lines = [json.dumps({"id": str(n).zfill(6), "text": "x" * 100}) for n in range(30_000)]
    before = open_source(write_lines(tmp_path / "r.jsonl", lines)).fingerprint()
    lines[15_000] = lines[15_000].replace("x" * 100, "y" * 100)
    assert open_source(write_lines(tmp_path / "r.jsonl", lines)).fingerprint() != before


def damaged(path, rows):
    """A Parquet file with the second half of its pages zeroed, but for the footer."""
    table = pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, path, row_group_size=len(rows) // 4, compression="snappy")
    metadata = pyarrow.parquet.ParquetFile(path).metadata
    column = metadata.row_group(2).column(1)
    content = bytearray(path.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    content[start + 40 : start + column.total_compressed_size] = bytes(column.total_compressed_size - 40)
    path.write_bytes(content)


def test_a_damaged_row_group_costs_its_own_rows_only(tmp_path):
    rows = [{"id": str(n), "candidates": [f"{n * 7919 % 1000} words {k}" for k in range(9)]} for n in range(400)]
    damaged(tmp_path / "r.parquet", rows)
    source = open_source(tmp_path / "r.parquet")
    assert [s.key for s in source.scan("id", required=True)] == [row["id"] for row in rows]
    assert source.read([0, 399]) == [rows[0], rows[399]]
    with pytest.raises(ValueError):
        source.read([250])
    with pytest.raises(InputError, match=r"r\.parquet, column 'candidates', row \d+ or after"):
        list(source.scan("candidates", required=False))


def test_threads_of_several_devices_read_their_own_rows(tmp_path):
    rows = [{"id": str(n)} for n in range(64)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "r.parquet", row_group_size=1)
    source = open_source(tmp_path / "r.parquet")
    with ThreadPoolExecutor(4) as pool:
        for n, read in enumerate(pool.map(lambda n: source.read([n % 64]), range(640))):
            assert read == [rows[n % 64]]
