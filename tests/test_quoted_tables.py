"""Every table of numbers in README and the documentation has raw results, and a test that compares the two."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
GENERATED = ("docs/metrics.md", "docs/guides/hosts.md", "docs/commands/", "docs/reference/", "docs/_build/")
NUMBER = re.compile(r"(?<![\w.])[+-]?\d*\.\d+|\d+(?:\.\d+)?%")

FINDINGS = "tests/shapes/test_findings.py"
AUDIT = "tests/audit/test_guide.py"
# (page, first row) -> (raw results in benchmarks/results, the test that compares the rows with them)
COMPARED = {
    ("README.md", "| | before | after | gain | 95% interval |"): ("demo.json", "tests/test_readme.py"),
    ("docs/findings.md", "| | HarmonicEval, judge | truth |"): ("harmonic_seeds.json", FINDINGS),
    ("docs/findings.md", "| | before | GRPO | RLOO | PPO |"): ("harmonic_seeds.json", FINDINGS),
    ("docs/findings.md", "| one false detail |"): ("judges_blind_spots.json", FINDINGS),
    ("docs/findings.md", "| seed | stops at step |"): ("grpo_old_rater.json", FINDINGS),
    ("docs/findings.md", "| weighting in training |"): ("harmonic_weighting.json", FINDINGS),
    ("docs/findings.md", "| gamma | "): ("harmonic_evaluation.json", FINDINGS),
    ("docs/findings.md", "| flow matching |"): ("flow_methods.json", FINDINGS),
    ("docs/findings.md", "| 200 CPU seconds |"): ("methods_equal_cpu.jsonl", FINDINGS),
    ("docs/findings.md", "| form | right answers, gain |"): ("tifa_training.json", FINDINGS),
    ("docs/findings.md", "| questions | "): ("tifa_surplus.json", FINDINGS),
    ("docs/findings.md", "| pictures | "): ("judges_other_generator.json", FINDINGS),
    ("docs/findings.md", "| command | people's answers | figures |"): ("humans", "tests/humans/test_quoted.py"),
    ("docs/findings.md", "| method | REG | VQA | VDU | IC | average |"): ("humans_shapes", FINDINGS),
    ("docs/guides/judges.md", "| judge, image tokens |"): ("serve_load.json", "tests/test_guides.py"),
    ("docs/guides/clusters.md", "| config | estimate, MiB |"): (
        "preflight_measured.json",
        "tests/preflight/test_measured.py",
    ),
    ("docs/guides/clusters.md", "| pictures x texts |"): ("gpu_counts.json", "tests/preflight/test_measured.py"),
    ("docs/guides/score_files.md", "| what | CPU time |"): ("large_files.json", "tests/test_guides.py"),
    ("docs/shapes_world.md", "| part | class |"): ("judges_other_generator.json", FINDINGS),
    ("docs/guides/audit.md", "| texts | rater before"): ("audit_shapes.json", AUDIT),
    ("docs/guides/audit.md", "| pictures | `shapes-vqa`"): ("audit_shapes.json", AUDIT),
    ("docs/guides/audit.md", "| rater | with the share of false claims after |"): ("audit_shapes.json", AUDIT),
}
ARITHMETIC = {("docs/guides/clusters.md", "| | tokens, padded batch | tokens, tree | ratio |")}
"""Tables that follow from figures beside them: see below."""


def tables():
    """Page, first row and section of every table with more than two decimals or percentages."""
    for page in PAGES:
        name = page.relative_to(ROOT).as_posix()
        if name.startswith(GENERATED):
            continue
        for section in re.split(r"^(?=#+ )", page.read_text(encoding="utf-8"), flags=re.M):
            for table in re.findall(r"(?:^\|.*\n)+", section, flags=re.M):
                if len(NUMBER.findall(table)) > 2:
                    yield name, table.splitlines()[0], section


def entry(page, first):
    return [key for key in (*COMPARED, *ARITHMETIC) if key[0] == page and first.startswith(key[1])]


def test_every_table_of_numbers_is_known():
    assert [(page, first) for page, first, _ in tables() if len(entry(page, first)) != 1] == []
    found = {key for page, first, _ in tables() for key in entry(page, first)}
    assert {*COMPARED, *ARITHMETIC} - found == set(), "compared, and no longer in the documents"


@pytest.mark.parametrize(("page", "first", "section"), list(tables()), ids=lambda value: value[:40])
def test_the_section_names_the_raw_results_and_a_test_reads_them(page, first, section):
    (key,) = entry(page, first)
    if key in ARITHMETIC:
        return
    raw, test = COMPARED[key]
    assert (ROOT / "benchmarks" / "results" / raw).exists()
    assert f"benchmarks/results/{raw}" in section
    assert f'"{raw}"' in (ROOT / test).read_text(encoding="utf-8")


def test_the_arithmetic_of_padded_batches():
    text = (ROOT / "docs" / "guides" / "clusters.md").read_text(encoding="utf-8")
    prompts = [int(n) for n in re.findall(r"prompts of (\d+) tokens with Qwen's vocabulary and (\d+)", text)[0]]
    rows = re.findall(r"^\| (?:Qwen|LLaVA)\S+, (\d+)[^|]*\| ([\d,]+) \| ([\d,]+) \| ([\d.]+) \|", text, flags=re.M)
    assert len(rows) == 2
    for prompt, (picture, padded, tree, ratio) in zip(prompts, rows, strict=True):
        padded, tree = int(padded.replace(",", "")), int(tree.replace(",", ""))
        assert padded == 5 * (int(picture) + prompt)
        assert f"{padded / tree:.1f}" == ratio
