"""The drawn charts: axes, limits, intervals within the ends of a quantity, legends that hide nothing."""

import json
import re
from html import unescape

import numpy as np
import pytest

from rewards.report.charts import AUDIT, JUDGE, Chart, Section, build_sections, curve, dots
from rewards.report.curves import Series
from rewards.report.draw import chart_figure, draw
from rewards.report.reading import load_run
from rewards.runs.evaluations import Evaluation, EvaluationLog, HeldOutSample, Judgment
from rewards.runs.metrics import MetricsLog


def one_curve(values, window=7):
    series = Series(np.arange(len(values)), np.array(values, dtype=float), np.ones(len(values)))
    return Chart("t", "", curve(series, "judge", JUDGE, window), "score")


def axes_of(chart):
    return draw(Section("s", "S", [chart])).axes[0]


def evaluated(folder, rows):
    """A run with evaluations of a TIFA judge and an audit: step, mean, standard error."""
    log = MetricsLog(folder / "metrics.jsonl")
    for step, mean, error in rows:
        metrics = {}
        for branch in ("rewards/TIFA", "audit/oracle"):
            for part in ("overall", "color"):
                metrics |= {f"eval/{branch}/{part}/mean": mean, f"eval/{branch}/{part}/standard_error": error}
        log.append(step, metrics | {"epoch": step / 10})
    return load_run(folder)


def test_spikes_that_would_flatten_a_curve_leave_the_frame_and_are_told():
    quiet = np.sin(np.arange(200))
    axes = axes_of(one_curve(quiet))
    low, high = axes.get_ylim()
    assert -1.3 < low < -1 < 1 < high < 1.3 and axes.get_xlabel() == "step"
    quiet[[50, 120]] = 90
    axes = axes_of(one_curve(quiet))
    assert axes.get_ylim()[1] < 40
    assert axes.get_xlabel() == "step (values beyond the frame: from -1 to 90)"


def test_a_long_curve_is_drawn_as_a_band(tmp_path):
    rng = np.random.default_rng(0)
    log = tmp_path / "metrics.jsonl"
    values = rng.normal(3, 1, 10_000)
    log.write_text("".join(f'{{"step": {i}, "rewards/R/overall/mean": {v}}}\n' for i, v in enumerate(values)))
    (section, *_) = build_sections([load_run(tmp_path)])
    (line,) = section.charts[0].lines
    assert line.faint is None and len(line.values) < 500 and line.range == (values.min(), values.max())
    assert section.charts[0].note == "Line: running mean. Dark band: where nine of ten values lie."
    low, high = draw(section).axes[0].get_ylim()
    assert low < np.percentile(values, 5) and high > np.percentile(values, 95)


def test_intervals_of_shares_stay_between_0_and_1(tmp_path):
    (reward, parts) = build_sections([evaluated(tmp_path, [(0, 0.02, 0.03), (5, 0.5, 0.03), (9, 0.99, 0.03)])])
    for chart in (reward.charts[0], parts.charts[0]):
        assert (chart.unit, chart.low, chart.high) == ("score (0 to 1)", 0, 1)
        axes = axes_of(chart)
        bars = [segment for collection in axes.collections for segment in collection.get_segments()]
        assert len(bars) == 6  # judge and audit, element types too
        ends = np.array([bar[:, 1] for bar in bars])
        assert ends.min() == 0 and ends.max() == 1
        np.testing.assert_allclose(np.diff(ends)[1], 2 * 1.96 * 0.03)


@pytest.mark.parametrize("steps, joined", [((0, 9), False), ((0, 5, 9), True)])
def test_two_evaluations_are_not_drawn_as_a_curve(tmp_path, steps, joined):
    run = evaluated(tmp_path, [(step, 0.5, 0.03) for step in steps])
    axes = axes_of(build_sections([run])[0].charts[0])
    styles = [line.get_linestyle() for line in axes.get_lines() if line.get_marker() == "o"]
    assert styles == ["-" if joined else "None"] * 2


def test_axes_are_named_and_a_colour_means_one_thing(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(30):
        row = {"rewards/H/clarity/mean": 2.0 + step / 20, "audit/truth/overall/mean": 3.0, "policy/kl": 0.1}
        log.append(step, row | {"rewards/H/overall/mean": 3.0, "rewards/H/rating_mass": 0.99, "epoch": 0.1})
    evaluated(tmp_path, [(0, 3.0, 0.1)])
    charts = {chart.title: chart for section in build_sections([load_run(tmp_path)]) for chart in section.charts}
    for chart in charts.values():
        assert axes_of(chart).get_xlabel() == "optimiser step" and axes_of(chart).get_ylabel() == chart.unit != ""
    assert charts["clarity"].unit == "rating (1 to 5)" and charts["KL to the base model"].unit == "nats"
    colors = {
        (line.label.partition(",")[0].partition(" (")[2] or line.label.partition(",")[0], line.color)
        for chart in charts.values()
        for line in chart.lines
        if line.label
    }
    assert colors == {("judge", JUDGE), ("audit)", AUDIT)}


def test_trl_s_weighted_sum_is_drawn_where_it_is_not_the_reward(tmp_path):
    for name, names, factor in (("one", ["A"], 1.0), ("weighted", ["A"], 0.5), ("two", ["A", "B"], 1.0)):
        log = MetricsLog(tmp_path / name / "metrics.jsonl")
        for step in range(5):
            means = {f"rewards/{reward}/overall/mean": float(step) for reward in names}
            log.append(step, means | {"train/reward": factor * step})
        titles = [chart.title for chart in build_sections([load_run(tmp_path / name)])[0].charts]
        assert ("Reward that is optimised" in titles) == (name != "one")


def test_legends_stand_above_the_curves():
    series = Series(np.arange(3), np.arange(3.0), np.ones(3))
    lines = [line for i in range(5) for line in curve(series, f"criterion {i}", i)]
    figure = draw(Section("s", "S", [Chart("a title", "", lines), Chart("alone", "", lines[:1])]))
    figure.canvas.draw()
    axes = figure.axes[0]
    legend, frame = axes.get_legend().get_window_extent(), axes.get_window_extent()
    title = axes._left_title.get_window_extent()
    assert legend.y0 >= frame.y1 and legend.x1 <= frame.x1 + 1 and title.y0 >= legend.y1 - 1
    assert title.y1 <= figure.bbox.y1 and figure.axes[1].get_legend() is None
    for axes in figure.axes:
        assert all(label.get_window_extent().x0 >= 0 for label in axes.get_yticklabels())


def test_values_that_differ_in_the_fifth_digit_have_labels_that_tell_them_apart():
    axes = axes_of(one_curve(0.9998 + 1e-5 * (np.arange(30) % 7)))
    axes.figure.canvas.draw()
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(set(labels)) == len(labels) >= 3
    assert all(label.get_window_extent().x0 >= 0 for label in axes.get_yticklabels())


def test_the_page_s_drawing_has_values_under_the_pointer(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step, mean in ((0, 0.25), (10, 0.75)):
        log.append(step, {"eval/rewards/R/overall/mean": mean})
    lines = dots(load_run(tmp_path), "eval/rewards/R/overall/mean", "judge & co", JUDGE)
    html = chart_figure(Chart("A <title>", "", lines, "score"), 3)
    assert "A &lt;title&gt;" in html and "var(--c0)" in html and "xmlns" not in html
    (line,) = json.loads(unescape(re.search(r'data-lines="([^"]*)"', html)[1]))
    assert line["label"] == "judge & co" and [(step, float(value)) for step, _, value in line["points"]] == [
        (0, 0.25),
        (10, 0.75),
    ]
    left, right = (place for _, place, _ in line["points"])
    assert 30 < left < 80 and 330 < right < 355  # within the 360 units of the drawing


def test_intervals_come_from_the_evaluations_where_none_was_logged(tmp_path):
    scores = [0.25, 0.5, 1.0, 1.0]
    clusters = ["a", "a", "b", "c"]
    for step in (0, 4):
        MetricsLog(tmp_path / "metrics.jsonl").append(
            step, {"eval/rewards/TIFA/color/mean": 0.6875, "eval/audit/gap": 0.1}
        )
        samples = [
            HeldOutSample(i, "p", Judgment(score, {"color": score}), {"o": Judgment(0.5)}, cluster=cluster)
            for i, (score, cluster) in enumerate(zip(scores, clusters))
        ]
        EvaluationLog(tmp_path).append(Evaluation(step, "TIFA", samples))
    sections = build_sections([load_run(tmp_path)])
    residuals = np.array([0.25 + 0.5 - 2 * 0.6875, 1 - 0.6875, 1 - 0.6875])  # summed by cluster
    error = np.sqrt(3 / 2 * (residuals**2).sum()) / 4
    charts = {chart.title: chart for section in sections for chart in section.charts}
    for title in ("color", "Gap between judge and audit"):
        np.testing.assert_allclose(charts[title].lines[0].errors, [1.96 * error] * 2)
