"""The guide quotes what the benchmark wrote."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guides" / "audit.md").read_text(encoding="utf-8")
RESULTS = json.loads((ROOT / "benchmarks" / "results" / "audit_shapes.json").read_text())
TABLES = {
    "texts": [RESULTS["texts"][name] for name in ("tests/fixtures/old_rater", "shapes-rater")],
    "pictures": [RESULTS["pictures"][f"shapes-vqa, {way}"] for way in ("hard", "soft")],
}


def rows():
    for name, audits in TABLES.items():
        body = GUIDE.split(f"| {name} |")[1].split("\n\n")[0]
        for line in body.splitlines()[2:]:
            kind, *cells = (cell.strip() for cell in line.strip("|").split("|"))
            yield from ((kind, audit, cell) for audit, cell in zip(audits, cells, strict=True))


@pytest.mark.parametrize(("kind", "audit", "cell"), list(rows()))
def test_accepted_shares(kind, audit, cell):
    measured = next(found["accepted"] for found in audit["findings"] if found["kind"] == kind)
    told = [float(number) / 100 for number in re.findall(r"[\d.]+", cell)]
    assert told == pytest.approx(measured[: len(told)], abs=0.00051)


def test_the_order_is_the_audits():
    for audits, first in ((TABLES["texts"], "background"), (TABLES["pictures"], "surplus")):
        assert audits[0]["findings"][0]["kind"] == first
    assert TABLES["texts"][1]["verdict"].startswith("nothing is accepted")


def found(audit, kind):
    return next(finding for finding in audit["findings"] if finding["kind"] == kind)


def test_what_it_found():
    old, new = TABLES["texts"]
    correct = found(old, "background")["parts"]["correctness"]["accepted"][0]
    assert f"{correct:.0%} of the false backgrounds" in GUIDE
    blank = [{name: unseen for name, _, unseen, _ in audit["prior"]}["overall"] for audit in (old, new)]
    assert f"{float(blank[0]):.2f} and {float(blank[1]):.2f} of 5" in GUIDE
    counted = found(TABLES["pictures"][0], "surplus")["parts"]["counting"]["accepted"][0]
    assert f"misses {counted:.0%} of the surplus" in GUIDE
    gains = [f for audit in (old, new) for f in audit["findings"] if f["family"] == "empty gain"]
    assert {f["kind"] for f in gains if f["accepted"][0] > 0} == {"another picture's text"}


def test_what_grpo_did():
    old = RESULTS["exploited"]["tests/fixtures/old_rater"]
    after, change = (old["correlation"][key] for key in ("false after", "change"))
    assert f"{after['spearman']:.2f} on the rater before (one-sided exact p = {after['p_one_sided']:.2f};" in GUIDE
    assert f"{change['spearman']:.2f} with the change since the start (p = {change['p_one_sided']:.2f})" in GUIDE
    background = old["kinds"]["background"]
    assert f"{background['before']:.1%} to {background['after']:.1%}" in GUIDE
    grown = {kind: sum(value > 0.05 for value in values) for kind, values in old["change_by_seed"].items()}
    assert grown == dict.fromkeys(grown, 0) | {"background": 3}


def test_speed():
    speed = RESULTS["speed"]
    assert speed["pictures"] == 200 and speed["variants"] >= 40 * 200 and speed["cpu_seconds"] < 180
