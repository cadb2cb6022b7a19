"""The figures about people's answers that README and the documents quote are those that the commands printed."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# (what the documents say, file of raw results, what stands there)
QUOTED = [
    ("mPLUG .463 / .380", "dsg_mplug", ["0.463 [", "0.380 ["]),
    ("InstructBLIP .442 / .364", "dsg_instructblip", ["0.442 [", "0.364 ["]),
    (".464 / .378, .436 / .355", "dsg_mplug", ["0.464 [", "0.378 ["]),
    (".464 / .378, .436 / .355", "dsg_instructblip", ["0.436 [", "0.355 ["]),
    ("Spearman -0.001 [-0.008, 0.005]", "dsg_mplug", ["Spearman: -0.001 [-0.008, 0.005]"]),
    ("+0.006 [0.000, 0.013]", "dsg_instructblip", ["Spearman: 0.006 [0.000, 0.013]"]),
    ("tau-c 53.026 smoothed, 34.911 raw", "captions_flickr8k", ["53.026 [", "34.911 ["]),
    ("HC 61.6, HI 99.7, MM 74.3", "captions_pascal50s", ["61.600  99.700", "74.300"]),
    ("61.3, 99.7, 74.2", "captions_pascal50s", ["61.300  99.700", "74.200"]),
    ("tau-b 12.7 with recall, -0.8 with precision", "thumb", ["-0.8  12.7"]),
    ("count 91.5%, colour 73.5%, position 63.7%", "geneval", ["91.5 [", "73.5 [", "63.7 ["]),
    ("better response first in 1,245", "pairs", ["the better one in 1245"]),
    ("mPLUG Pearson 59.67 [52.36, 66.23], Spearman 59.22 [51.80, 65.50]", "tifa", ["59.67 [52.36, 66.23]", "59.22 ["]),
]


@pytest.mark.parametrize(("said", "name", "printed"), QUOTED, ids=[f"{name}: {said}" for said, name, _ in QUOTED])
def test_the_documents_quote_what_was_printed(said, name, printed):
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    documents = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    raw = (ROOT / "benchmarks" / "results" / "humans" / f"{name}.txt").read_text(encoding="utf-8")
    assert said in documents
    for cell in printed:
        assert cell in raw, cell
