"""The report: plots and page for every state of a run, nothing from outside, nothing unescaped."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer import Typer
from typer.testing import CliRunner

from rewards.cli.curves import curves
from rewards.report.page import write_report
from rewards.runs.evaluations import Evaluation, EvaluationLog, HeldOutSample, Judgment
from rewards.runs.metrics import MetricsLog
from rewards.runs.samples import SampleLog
from rewards.tables import Table

VOID = {"meta", "link", "img", "br"}


class Checker(HTMLParser):
    """Counts tags, and refuses tags that are not closed in order and anything fetched from outside."""

    def __init__(self, text):
        super().__init__()
        self.open, self.counts, self.texts, self.labels = [], {}, [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "href", "xlink:href"):
                assert value.startswith(("data:", "#")), value
            if name == "aria-label":
                self.labels.append(value)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def check(page: Path) -> Checker:
    text = page.read_text(encoding="utf-8")
    assert "nan" not in re.sub(r"<script>.*?</script>|data:image[^\"]*", "", text, flags=re.S).lower().split()
    assert not re.search(r"NaN|Infinity|https?://", text)
    return Checker(text)


def tifa_run(folder, steps=30, offset=0.0):
    log = MetricsLog(folder / "metrics.jsonl")
    rng = np.random.default_rng(0)
    for step in range(steps + 1):
        if step % 10 == 0:
            metrics = {}
            for branch in ("rewards/TIFA", "audit/oracle"):
                metrics |= {
                    f"eval/{branch}/overall/mean": 0.5 + 0.01 * step + offset,
                    f"eval/{branch}/overall/standard_error": 0.02,
                    f"eval/{branch}/color/mean": 0.4 + 0.01 * step,
                    f"eval/{branch}/color/count": 40,
                }
            log.append(step, metrics | {"eval/audit/gap": 0.0, "eval/audit/oracle/surplus": 0.6 - 0.01 * step})
        if step:
            count = int(rng.integers(0, 3))
            log.append(
                step,
                {
                    "rewards/TIFA/overall/mean": 0.5 + 0.01 * step + rng.normal() * 0.05,
                    "rewards/TIFA/overall/count": 8 - count,
                    "rewards/TIFA/abstained": count,
                    "rewards/TIFA/color/mean": None if count else 0.5,
                    "rewards/TIFA/color/count": 0 if count else 5,
                    "audit/oracle/overall/mean": 0.45,
                    "audit/gap": 0.05,
                    "policy/ratio": 1.0,
                    "policy/clip_fraction": 0.1,
                },
            )
    return folder


def judged(score, answers=(), **parts):
    return Judgment(score, parts, None if score is not None else "judge: TimeoutError", {"answers": list(answers)})


def page_text(page: Path) -> str:
    return re.sub(r"\s+", " ", " ".join(check(page).texts))


def test_page_and_plots_of_one_run(tmp_path):
    report = write_report([tifa_run(tmp_path / "run")])
    checker = check(report.page)
    assert report.page == tmp_path / "run" / "report.html"
    names = {path.name for path in report.plots}
    assert names == {f"{slug}.{kind}" for slug in ("reward", "parts", "training") for kind in ("png", "svg")}
    assert all(path.stat().st_size > 1000 for path in report.plots)
    titles = [label.split(":")[0] for label in checker.labels]
    assert titles[:4] == ["TIFA, held-out", "TIFA, training samples", "Gap between judge and audit",
                          "Pictures with surplus objects"]  # fmt: skip
    assert {"color", "Importance ratio", "Clip fraction"} <= set(titles)
    assert "TIFA, held-out: judge, oracle (audit)" in checker.labels
    text = page_text(report.page)
    assert "Share of importance ratios outside the clip range" in text  # from the glossary, above its chart


def two_evaluations(folder, judge, audit, texts=None):
    """Scores of three prompts before and after, by the judge and by the audit."""
    for place, step in enumerate((0, 30)):
        samples = [
            HeldOutSample(
                index, f"prompt {index}", judged(judge[place][index], color=judge[place][index]),
                {"oracle": judged(audit[place][index])}, text=texts[place][index] if texts else None,
            )
            for index in range(3)
        ]  # fmt: skip
        EvaluationLog(folder).append(Evaluation(step, "TIFA", samples))


def test_the_gap_has_a_card_and_a_sentence_with_its_interval(tmp_path):
    folder = tifa_run(tmp_path / "run")
    two_evaluations(folder, [[0.1, 0.2, 0.3], [0.5, 0.8, 0.7]], [[0.1, 0.1, 0.1], [0.2, 0.3, 0.1]])
    text = page_text(write_report([folder]).page)
    gains, growth = np.array([0.4, 0.6, 0.4]), np.array([0.3, 0.4, 0.4])
    half = [1.96 * values.std(ddof=1) / np.sqrt(3) for values in (gains, growth)]
    assert f"0.200 → 0.667 {gains.mean():+.3f} ± {half[0]:.3f}" in text
    assert f"gap: judge − oracle 0.100 → 0.467 {growth.mean():+.3f} ± {half[1]:.3f}" in text
    low, high = growth.mean() - half[1], growth.mean() + half[1]
    assert f"the gap between them grew by {growth.mean():+.3f} [{low:+.3f}, {high:+.3f}]" in text
    assert "The audit confirms no gain" in text
    assert "color 0.200 0.667" in text  # the table of parts


def test_no_clear_gap_is_not_called_gaming(tmp_path):
    folder = tifa_run(tmp_path / "run")
    two_evaluations(folder, [[0.1, 0.2, 0.3], [0.5, 0.8, 0.7]], [[0.2, 0.2, 0.2], [0.5, 0.9, 0.6]])
    assert "no clear sign of a policy that games its judge" in page_text(write_report([folder]).page)


def test_disagreements_and_lowest_scores_come_from_all_held_out_samples(tmp_path):
    folder = tifa_run(tmp_path / "run")
    two_evaluations(folder, [[0.1, 0.2, 0.3], [0.5, 0.8, None]], [[0.2, 0.2, 0.2], [0.4, 0.1, 0.6]])
    SampleLog(folder).append(30, "after", "prompt 0", image=Image.new("RGB", (8, 8)), score=0.5)
    text = page_text(write_report([folder]).page)
    apart = text.split("Where judge and audit disagree most")[1].split("Not learned yet")[0]
    assert "The 2 of 3 held-out samples at step 30" in apart and "keeps the pictures of some samples only" in apart
    SampleLog(folder).append(30, "after", "prompt 1", image=Image.new("RGB", (8, 8)), score=0.8, index=1)
    page = write_report([folder]).page.read_text(encoding="utf-8")
    assert "keeps the pictures" not in page and page.count('alt="prompt 1"') > 0
    assert apart.index("prompt 1 judge 0.80 color 0.80 audit 0.10") < apart.index("prompt 0")
    lowest = text.split("Lowest and highest scores")[1]
    assert "of all 3 held-out samples" in lowest and lowest.index("prompt 0") < lowest.index("prompt 1")
    assert "Not judged prompt 2 judge not judged judge: TimeoutError audit 0.60" in lowest


def test_objects_that_nobody_asked_for(tmp_path):
    folder = tifa_run(tmp_path / "run")
    for step, counts in ((0, (2, 1, None)), (30, (0, 1, 0))):
        audits = [Judgment(0.5, {"color": 0.5}, None, {} if count is None else {"surplus": count}) for count in counts]
        samples = [HeldOutSample(n, f"p{n}", judged(0.5), {"oracle": audit}) for n, audit in enumerate(audits)]
        EvaluationLog(folder).append(Evaluation(step, "TIFA", samples))
    text = page_text(write_report([folder]).page)
    assert (
        "Pictures with objects that nobody asked for, and how many objects those are: 100.0% (3) → 33.3% (1)." in text
    )


def test_what_is_said_before_and_after(tmp_path):
    folder = tifa_run(tmp_path / "run")
    texts = [["a red dog", "a cat", "two birds"], ["a black dog", "a black dog", "a black dog"]]
    two_evaluations(folder, [[0.1, 0.2, 0.3]] * 2, [[0.2, 0.2, 0.2]] * 2, texts)
    text = page_text(write_report([folder]).page)
    said = text.split("What is said")[1].split("Not learned yet")[0]
    assert "different texts 3 of 3 1 of 3" in said and "words a text 2.3 3.0" in said
    assert "entropy of the words, bits 2.52 1.58" in said  # 7 words, one of them twice; three of the same
    assert "black 0 of 3 3 of 3" in said and "a black dog 3" in said
    assert "different texts 3 → 1 of 3" in text


def test_every_question_with_the_answers_of_judge_and_audit(tmp_path):
    def answer(free_form, choice, right):
        return {"question": "what <b>color</b>?", "answer": "red", "free_form": free_form, "choice": choice,
                "right": right}  # fmt: skip

    log = EvaluationLog(tifa_run(tmp_path / "run"))
    judge, audit = judged(1.0, [answer("reddish", "red", True)]), judged(0.0, [answer("blue", "blue", False)])
    log.append(Evaluation(30, "TIFA", [HeldOutSample(0, "a <script>", judge, {"oracle": audit})]))
    SampleLog(log.path.parent).append(30, "after", "a <script>", image=Image.new("RGB", (600, 400)), score=1.0)
    report = write_report([log.path.parent])
    checker = check(report.page)
    assert "a <script>" in checker.texts and checker.counts["script"] == 1
    text = page_text(report.page)
    assert "1 questions; right: judge 1, audit 0" in text
    assert "what <b>color</b>? red ✓ reddish → red ✗ blue" in text
    assert "data:image/jpeg" in report.page.read_text()


def test_the_same_prompt_before_and_after_each_with_its_picture(tmp_path):
    folder = tifa_run(tmp_path / "run")
    two_evaluations(
        folder, [[0.1, 0.2, 0.3]] * 2, [[0.2, 0.2, 0.2]] * 2, [["was 0", "was 1", "was 2"], ["0", "1", "2"]]
    )
    for step, phase in ((0, "before"), (30, "after")):
        for color in ("red", "blue"):  # of prompts 0 and 1
            SampleLog(folder).append(step, phase, "?", image=Image.new("RGB", (8, 8), color), text="x", score=1.0)
    page = write_report([folder]).page.read_text().split("<h2>Before and after</h2>")[1].split("<h2>")[0]
    cards = page.split('<div class="sample">')[1:]
    assert len(cards) == 2
    assert "was 0" in cards[0] and "was 1" in cards[1] and cards[0].count("<img") == 1
    assert cards[0].split("<img")[1][:300] != cards[1].split("<img")[1][:300]


def test_what_is_most_worth_knowing_is_open_and_the_machinery_is_closed(tmp_path):
    page = write_report([tifa_run(tmp_path / "run")], tmp_path / "out").page.read_text(encoding="utf-8")
    found = re.findall(r"<details ([^>]*)><summary><h2>([^<]*)", page)
    opened = {title for state, title in found if state.endswith("open")}
    closed = {title for _, title in found} - opened
    assert opened >= {"Reward", "By criterion and element type"} and closed >= {"Training", "All logged values"}
    assert closed <= {"Weights and deviations", "Training", "All logged values"}


def test_several_runs_share_charts_and_different_rewards_get_chapters(tmp_path):
    first, second = tifa_run(tmp_path / "a"), tifa_run(tmp_path / "b", offset=0.1)
    report = write_report([first, second])
    assert report.page == tmp_path / "comparison" / "report.html"
    one = check(report.page)
    assert "a" in one.texts and "b" in one.texts and "b · oracle (audit)" in one.texts
    other = tmp_path / "c"
    MetricsLog(other / "metrics.jsonl").append(1, {"rewards/HarmonicEval/fluency/mean": 3.0, "policy/kl": 0.1})
    table = Table("Table <1>", ["", "x"], [["row & name", "5"]])
    report = write_report([first, other], tmp_path / "two", title="A & B", tables=[table])
    both = check(report.page)
    assert {"A & B", "Table <1>", "row & name", "fluency"} <= set(both.texts)
    assert {path.parent.name for path in report.plots} == {"1-a", "2-c"}


@pytest.mark.parametrize("state", ["no file", "empty file", "one point", "only nulls"])
def test_runs_with_hardly_anything(tmp_path, state):
    if state == "empty file":
        (tmp_path / "metrics.jsonl").write_text("")
    elif state != "no file":
        value = 0.5 if state == "one point" else None
        MetricsLog(tmp_path / "metrics.jsonl").append(1, {"rewards/R/overall/mean": value})
    checker = check(write_report([tmp_path]).page)
    assert bool(checker.labels) == (state == "one point")
    assert any("Nothing has been logged yet" in text for text in checker.texts) == (state != "one point")


def test_the_page_of_a_hundred_thousand_points_stays_small(tmp_path):
    rng = np.random.default_rng(0)
    lines = (
        f'{{"step": {i}, "time": {i}.0, "rewards/R/overall/mean": {v:.5f}, "policy/ratio": {1 + v / 100:.5f}}}'
        for i, v in enumerate(rng.normal(size=100_000).cumsum().tolist())
    )
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    report = write_report([tmp_path])
    check(report.page)
    assert report.page.stat().st_size < 300_000


def test_thousand_steps_with_abstentions_nulls_and_missing_keys_are_told_right(tmp_path):
    rng = np.random.default_rng(0)
    log = MetricsLog(tmp_path / "metrics.jsonl")
    counts = rng.integers(0, 9, 1000)
    values = rng.normal(0.5, 0.1, 1000)
    logged = np.arange(1000) % 10 != 3  # every tenth step lacks the keys
    for step in range(1000):
        part = {"mean": values[step] if counts[step] else float("nan"), "count": counts[step]}
        extra = {f"rewards/R/color/{key}": value for key, value in part.items()} if logged[step] else {}
        log.append(step, {"rewards/R/abstained": 8 - counts[step], "rewards/R/overall/count": counts[step], **extra})
    known = logged & (counts > 0)
    text = page_text(write_report([tmp_path]).page)
    assert f"R: {counts[known].sum():,} in training" in text
    assert f"{8000 - counts.sum():,} of 8,000 samples" in text
    assert f"{np.average(values[known], weights=counts[known]):.5g} {known.sum()}" in text


def run_command(*arguments):
    app = Typer()
    app.command()(curves)
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_command(tmp_path):
    result = run_command(tifa_run(tmp_path / "run", steps=2), "--out", tmp_path / "out", "--smooth", "3")
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "out" / "report.html") in result.output.replace("\n", "")


def test_runs_without_values_are_named_and_nothing_at_all_is_a_failure(tmp_path):
    (tmp_path / "run").mkdir()
    result = run_command(tmp_path / "run")
    assert result.exit_code == 1
    assert result.stderr.startswith("run: nothing has been logged yet")
    check(tmp_path / "run" / "report.html")
    result = run_command(tmp_path / "run", tifa_run(tmp_path / "full", steps=1), "--out", tmp_path / "out")
    assert result.exit_code == 0 and "run: nothing has been logged yet" in result.stderr
