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
    grown = {}
    for name, first in (
        ("tests/fixtures/old_rater", "before (`tests/fixtures/old_rater`)"),
        ("shapes-rater", "`shapes-rater`"),
    ):
        found = RESULTS["exploited"][name]
        told = [found["correlation"][key] for key in ("false after", "change")]
        assert f"| {first} | " + " | ".join(f"{c['spearman']:.2f} (p = {c['p_one_sided']:.2f})" for c in told) in GUIDE
        assert found["seeds"] == 5
        grown[name] = {k: sum(v > 0.05 for v in by_seed) for k, by_seed in found["change_by_seed"].items()}
    nothing = dict.fromkeys(("background", "color", "count", "object", "relation"), 0)
    assert grown == {"tests/fixtures/old_rater": nothing | {"background": 3}, "shapes-rater": nothing}
    background = RESULTS["exploited"]["tests/fixtures/old_rater"]["kinds"]["background"]
    assert f"{background['before']:.1%} to\n{background['after']:.1%}" in GUIDE


def test_what_a_model_that_draws_kept():
    before, after = (RESULTS["drawn"]["hard-0"][phase] for phase in ("before", "after"))
    assert before["pictures"] == after["pictures"] == 48
    assert f"from {before['objects']:.0%} to {after['objects']:.0%}" in GUIDE
    assert f"from {before['without_surplus']:.0%} to {after['without_surplus']:.0%}" in GUIDE


def test_speed():
    speed = RESULTS["speed"]
    a_variant = speed["cpu_seconds"] / speed["variants"]
    assert f"{speed['variants']:,} variants" in GUIDE and f"{speed['cpu_seconds']:.0f} seconds of CPU" in GUIDE
    assert 200 * 40 * a_variant < 180  # 40 variants a picture in less than three minutes
