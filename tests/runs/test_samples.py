"""samples.jsonl and its pictures."""

import math

import pytest
from PIL import Image

from rewards.errors import InputError
from rewards.runs.samples import SampleLog, read_samples


def test_pictures_and_texts_are_kept(tmp_path):
    log = SampleLog(tmp_path)
    red = Image.new("RGB", (4, 4), "red")
    log.append(0, "before", "a red square", image=red, score=math.nan, parts={"color": 1.0, "shape": math.nan})
    log.append(0, "before", "again", image=red, score=0.5, details=[{"question": "q", "right": True}])
    log.append(2, "after", "describe", text="a red square")
    first, second, third = read_samples(tmp_path)
    assert first["score"] is None and first["parts"] == {"color": 1.0, "shape": None}
    assert first["image"] != second["image"]
    assert Image.open(tmp_path / second["image"]).getpixel((0, 0)) == (255, 0, 0)
    assert second["details"] == [{"question": "q", "right": True}]
    assert third["text"] == "a red square" and "image" not in third
    log.keep_until(1)
    assert [row["step"] for row in read_samples(tmp_path)] == [0, 0]


def test_mistakes_are_refused(tmp_path):
    log = SampleLog(tmp_path)
    with pytest.raises(InputError, match="phase"):
        log.append(0, "later", "p", text="t")
    with pytest.raises(InputError, match="image or a text"):
        log.append(0, "after", "p")
    assert read_samples(tmp_path) == []
