"""The report: plots and page for every state of a run, nothing from outside, nothing unescaped."""

import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from rewards.report.charts import Chart, Line, Section, build_sections
from rewards.report.curves import Series, default_window, load_runs, smooth
from rewards.report.frame import Frame, tick_labels, ticks
from rewards.report.gains import held_out_gain
from rewards.report.page import Table, write_report
from rewards.report.plots import draw
from rewards.report.svg import DIGIT, chart_figure
from rewards.runs.metrics import MetricsLog
from rewards.runs.samples import SampleLog

VOID = {"meta", "link", "img", "line", "path", "circle", "rect", "br"}


class Checker(HTMLParser):
    """Counts tags, and refuses tags that are not closed in order and anything fetched from outside."""

    def __init__(self, text):
        super().__init__()
        self.open, self.counts, self.texts = [], {}, []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.counts[tag] = self.counts.get(tag, 0) + 1
        for name, value in attrs:
            if name in ("src", "href"):
                assert value.startswith("data:"), value
        if tag not in VOID:
            self.open.append(tag)

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
            log.append(step, metrics | {"eval/audit/gap": 0.0})
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
                    "train/ratio": 1.0,
                    "train/clip_fraction": 0.1,
                },
            )
    return folder


def test_page_and_plots_of_one_run(tmp_path):
    report = write_report([tifa_run(tmp_path / "run")])
    checker = check(report.page)
    assert report.page == tmp_path / "run" / "report.html"
    names = {path.name for path in report.plots}
    assert names == {f"{slug}.{kind}" for slug in ("reward", "parts", "training") for kind in ("png", "svg")}
    assert all(path.stat().st_size > 1000 for path in report.plots)
    assert checker.counts["svg"] == 3 + 1 + 3  # reward, training, gap; color; abstentions, ratio, clip fraction
    text = " ".join(checker.texts)
    assert "0.500 → 0.800" in text and "+0.300 ± 0.055" in text
    gain = held_out_gain(load_runs([tmp_path / "run"])[0], "rewards", "TIFA")
    assert np.isclose(gain.half, 1.96 * np.hypot(0.02, 0.02))


def test_paired_interval_from_evaluations(tmp_path):
    folder = tifa_run(tmp_path / "run")
    (folder / "evaluations.jsonl").write_text(
        '{"step": 0, "scores": [[0.0], [0.5], [null]], "audit": [[1.0], [1.0], [1.0]]}\n'
        '{"step": 30, "scores": [[0.5], [0.8], [0.9]], "audit": [[1.0], [1.0], [1.0]]}\n'
    )
    (run,) = load_runs([folder])
    half = 1.96 * np.std([0.5, 0.3], ddof=1) / np.sqrt(2)
    assert np.isclose(held_out_gain(run, "rewards", "TIFA").half, half)
    assert held_out_gain(run, "audit", "oracle").half == 0
    by_name = '{"step": %d, "rewards": {"TIFA": {"overall": [%s, 1, null], "color": [1, 2, 3]}}}'
    (folder / "evaluations.jsonl").write_text("\n".join([by_name % (0, 0), by_name % (30, 0.5), ""]))
    (run,) = load_runs([folder])
    half = 1.96 * np.std([0.5, 0.0], ddof=1) / np.sqrt(2)
    assert np.isclose(held_out_gain(run, "rewards", "TIFA").half, half)
    assert held_out_gain(run, "rewards", "TIFA", "color").half == 0


def test_several_runs_share_charts_and_different_rewards_get_chapters(tmp_path):
    first, second = tifa_run(tmp_path / "a"), tifa_run(tmp_path / "b", offset=0.1)
    report = write_report([first, second])
    assert report.page == tmp_path / "comparison" / "report.html"
    one = check(report.page)
    assert "a" in one.texts and "b" in one.texts and "b · oracle (audit)" in one.texts
    other = tmp_path / "c"
    MetricsLog(other / "metrics.jsonl").append(1, {"rewards/HarmonicEval/fluency/mean": 3.0, "kl": 0.1})
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
    report = write_report([tmp_path])
    checker = check(report.page)
    assert checker.counts.get("svg", 0) == (1 if state == "one point" else 0)
    assert any("Nothing has been logged yet" in text for text in checker.texts) == (state != "one point")


def test_the_page_of_a_hundred_thousand_points_stays_small(tmp_path):
    rng = np.random.default_rng(0)
    lines = (
        f'{{"step": {i}, "time": {i}.0, "rewards/R/overall/mean": {v:.5f}, "train/ratio": {1 + v / 100:.5f}}}'
        for i, v in enumerate(rng.normal(size=100_000).cumsum().tolist())
    )
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    report = write_report([tmp_path])
    check(report.page)
    assert report.page.stat().st_size < 300_000


def test_samples_before_and_after_with_answers_and_escaping(tmp_path):
    log = SampleLog(tmp_path)
    red, big = Image.new("RGB", (32, 32), "red"), Image.new("RGB", (600, 400), "blue")
    details = [
        {"question": "what <b>color</b>?", "answer": "blue", "expected": "red", "right": False},
        {"question": "is it red?", "answer": None, "expected": "yes", "right": None},
    ]
    log.append(0, "before", "a <script>", image=red, score=0.25, details=details)
    log.append(5, "after", "a <script>", image=big, score=0.75, details=details)
    log.append(5, "after", "another", image=red, score=None)
    MetricsLog(tmp_path / "metrics.jsonl").append(5, {"rewards/R/overall/mean": 1.0})
    checker = check(write_report([tmp_path]).page)
    text = " ".join(checker.texts)
    assert "a <script>" in checker.texts and checker.counts["script"] == 1
    assert "Before and after" in text and "Worst cases at step 5" in text and "Not judged at step 5" in text
    assert "blue (expected red)" in text and "no answer (expected yes)" in text
    assert "data:image/jpeg" in write_report([tmp_path]).page.read_text()


def test_texts_about_different_pictures_are_told_apart(tmp_path):
    log = SampleLog(tmp_path)
    for step, phase in ((0, "before"), (9, "after")):
        for color in ("red", "blue"):
            picture = Image.new("RGB", (8, 8), color)
            log.append(
                step, phase, "Describe it.", image=picture, text=f"{phase} {color}", score=1.0, parts={"fluency": 2}
            )
    page = write_report([tmp_path]).page.read_text()
    cards = page.split('<div class="sample">')[1:]
    assert len(cards) == 2
    assert "before red" in cards[0] and "after red" in cards[0] and "after blue" in cards[1]


def test_command(tmp_path):
    import typer

    from rewards.cli.curves import curves

    app = typer.Typer()
    app.command()(curves)
    tifa_run(tmp_path / "run", steps=2)
    result = CliRunner().invoke(app, [str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--smooth", "3"])
    assert result.exit_code == 0, result.output
    assert str(tmp_path / "out" / "report.html") in result.output.replace("\n", "")


def test_a_run_without_values_says_so_and_writes_its_page(tmp_path):
    import typer

    from rewards.cli.curves import curves

    app = typer.Typer()
    app.command()(curves)
    (tmp_path / "run").mkdir()
    result = CliRunner().invoke(app, [str(tmp_path / "run")])
    assert result.exit_code == 0, result.output
    assert result.stderr == "run: nothing has been logged yet\n"
    assert result.stdout.replace("\n", "") == str(tmp_path / "run" / "report.html")
    check(tmp_path / "run" / "report.html")


def test_ticks():
    assert tick_labels(ticks(0.994, 1.006)) == ["0.995", "1.000", "1.005"]
    assert ticks(-1, 1) == [-1.0, -0.5, 0.0, 0.5, 1.0]
    # A constant rate of 1e-4: two labels must never read the same.
    assert tick_labels(ticks(9e-5, 1.1e-4)) == ["9.00e-5", "9.50e-5", "1.00e-4", "1.05e-4", "1.10e-4"]


def chart(values, **line):
    series = Series(np.arange(len(values)), np.array(values, dtype=float), np.ones(len(values)))
    return Chart("t", "", [Line("", 0, series, smooth(series, 7), **line)])


def test_spikes_that_would_flatten_a_curve_leave_the_frame_and_are_told():
    quiet = np.sin(np.arange(200))
    frame = Frame.of(chart(quiet))
    assert frame.beyond(chart(quiet)) is None and frame.y0 < -1 and frame.y1 > 1
    spiked = quiet.copy()
    spiked[[50, 120]] = 90
    frame = Frame.of(chart(spiked))
    assert frame.y1 < 40
    assert frame.beyond(chart(spiked)).share == 0.01 and frame.beyond(chart(spiked)).high == 90
    page = chart_figure(chart(spiked), 0)
    assert "1.0% of the values lie outside: they go from -1 to 90." in page
    assert "lie outside" not in chart_figure(chart(quiet), 0)


def test_a_long_curve_is_drawn_as_the_band_of_nine_values_in_ten(tmp_path):
    rng = np.random.default_rng(0)
    log = tmp_path / "metrics.jsonl"
    values = rng.normal(3, 1, 10_000)
    log.write_text("".join(f'{{"step": {i}, "rewards/R/overall/mean": {v}}}\n' for i, v in enumerate(values)))
    (section, *_) = build_sections(load_runs([tmp_path]))
    (line,) = section.charts[0].lines
    inside = [(values[i : i + 50] >= a) & (values[i : i + 50] <= b)
              for i, a, b in zip(range(0, 10_000, 50), line.spread.low, line.spread.high)]  # fmt: skip
    assert len(line.spread.low) == 200 and 0.87 < np.mean(inside) < 0.93
    assert section.charts[0].note == "Line: running mean. Shaded: where nine of ten values lie."
    page = write_report([tmp_path]).page.read_text()
    assert 'class="spread c0"' in page and 'class="raw' not in page


def test_thousand_steps_with_abstentions_nulls_and_missing_keys_are_drawn_right(tmp_path):
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
    (run,) = load_runs([tmp_path])
    chart = next(c for section in build_sections([run]) for c in section.charts if c.title == "color")
    (line,) = chart.lines
    assert line.series.steps.tolist() == np.flatnonzero(known).tolist()
    kept = np.flatnonzero(known)
    half = (default_window(len(kept)) - 1) // 2
    window = kept[350 - half : 350 + half + 1]
    assert np.isclose(line.smoothed.mean[350], np.average(values[window], weights=counts[window]))
    page = write_report([tmp_path]).page.read_text()
    assert f"R: {counts[known].sum():,} in training" in page
    assert f"{8000 - counts.sum():,} of 8,000 samples" in page
    assert f"<td>{np.average(values[known], weights=counts[known]):.5g}</td><td>{known.sum()}</td>" in page


def test_labels_stay_within_the_drawing_and_counts_are_shown(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(1, 31):
        log.append(step, {"train/ratio": 0.9998 + 1e-5 * (step % 7), "rewards/R/color/mean": 0.5,
                          "rewards/R/color/count": 1000})  # fmt: skip
    page = write_report([tmp_path]).page.read_text()
    labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([^<]+)</text>', page)
    assert ("0.99980" in {b for _, b in labels}) and all(float(x) >= DIGIT * len(t) for x, t in labels)
    assert "R: 30,000 in training" in page


def test_legends_stand_above_the_curves(tmp_path):
    lines = [Line(f"criterion {i}", i, Series(np.arange(3), np.arange(3.0), np.ones(3))) for i in range(5)]
    figure = draw(Section("s", "S", [Chart("a title", "", lines), Chart("alone", "", lines[:1])]))
    figure.canvas.draw()
    axes = figure.axes[0]
    legend, frame = axes.get_legend().get_window_extent(), axes.get_window_extent()
    title = axes._left_title.get_window_extent()
    assert legend.y0 >= frame.y1 and legend.x1 <= frame.x1 + 1 and title.y0 >= legend.y1 - 1
    assert title.y1 <= figure.bbox.y1 and figure.axes[1].get_legend() is None
    for axes in figure.axes:
        assert all(label.get_window_extent().x0 >= 0 for label in axes.get_yticklabels())
