"""Reading runs and turning them into curves: weights, gaps, smoothing, thinning."""

import json

import numpy as np
import pytest

from rewards.errors import InputError
from rewards.report.curves import Series, default_window, load_run, load_runs, smooth, thin
from rewards.runs.metrics import MetricsLog


def write(folder, rows):
    log = MetricsLog(folder / "metrics.jsonl")
    for step, metrics in rows:
        log.append(step, metrics)
    return folder


def test_thousand_steps_with_abstentions_nan_and_missing_keys_give_right_means_and_counts(tmp_path):
    rng = np.random.default_rng(0)
    rows, total, weight, abstained = [], 0.0, 0, 0
    for step in range(1000):
        count = int(rng.integers(0, 9))
        value = float(rng.normal()) if count else float("nan")
        metrics = {"rewards/R/abstained": 8 - count}
        if step % 10:  # every tenth step does not log the part at all
            metrics |= {"rewards/R/color/mean": value, "rewards/R/color/count": count}
            total, weight = total + (value * count if count else 0.0), weight + count
        abstained += 8 - count
        rows.append((step, metrics))
    run = load_run(write(tmp_path, rows))
    series = run.series("rewards/R/color/mean")
    assert series.weights.sum() == weight == run.total("rewards/R/color/count")
    assert np.isclose(series.mean, total / weight, rtol=1e-12)
    assert run.total("rewards/R/abstained") == abstained
    assert np.isfinite(series.values).all() and (series.weights > 0).all()
    assert run.last_step == 999


def test_smoothing_is_the_weighted_mean_of_the_window():
    series = Series(np.arange(5), np.array([1.0, 2.0, 6.0, 4.0, 0.0]), np.array([1.0, 3.0, 1.0, 1.0, 2.0]))
    smoothed = smooth(series, 3)
    expected = [(1 + 6) / 4, (1 + 6 + 6) / 5, (6 + 6 + 4) / 5, (6 + 4 + 0) / 4, (4 + 0) / 3]
    np.testing.assert_allclose(smoothed.mean, expected)
    alone = smooth(series, 1)
    assert alone.mean.tolist() == series.values.tolist() and np.isnan(alone.low).all()
    values = np.array([2.0, 6.0, 4.0])
    variance = np.average((values - 3.2) ** 2, weights=[3, 1, 1])
    half = 1.96 * np.sqrt(variance / (25 / 11 - 1))  # effective number of values: (3+1+1)^2 / (9+1+1)
    assert np.isclose(smoothed.high[2] - smoothed.mean[2], half)


def test_interval_of_a_running_mean_covers_the_truth():
    rng = np.random.default_rng(1)
    smoothed = smooth(Series(np.arange(20_000), rng.normal(5, 2, 20_000), np.ones(20_000)), 41)
    inside = (smoothed.low <= 5) & (smoothed.high >= 5)
    assert 0.92 < inside[20:-20].mean() < 0.97


def test_large_offsets_do_not_cancel():
    values = 1e9 + np.tile([0.0, 1.0], 50)
    smoothed = smooth(Series(np.arange(100), values, np.ones(100)), 11)
    assert np.allclose(smoothed.high[50] - smoothed.mean[50], 1.96 * np.sqrt(0.25 / 10), rtol=0.02)


def test_a_huge_value_spoils_its_own_window_only():
    values = np.full(400, 0.25) + np.tile([-0.01, 0.01], 200)
    values[100] = 1e20
    smoothed = smooth(Series(np.arange(400), values, np.ones(400)), 21)
    away = np.abs(np.arange(400) - 100) > 10
    np.testing.assert_allclose(smoothed.mean[away], 0.25, atol=1e-3)
    np.testing.assert_allclose((smoothed.high - smoothed.mean)[111:389], 0.00438, rtol=0.01)
    assert smoothed.mean[100] == pytest.approx(1e20 / 21)


def test_numbers_that_are_as_good_as_infinite_are_left_out(tmp_path):
    run = load_run(write(tmp_path, [(1, {"a": 1e300}), (2, {"a": 3.4e38}), (3, {"a": -1e200})]))
    assert run.series("a").values.tolist() == [3.4e38]


def test_thinning_keeps_ends_and_extremes():
    values = np.zeros(100_000)
    values[[12_345, 77_777]] = 5, -3
    kept = thin(np.arange(100_000), values, 400)
    assert len(kept) <= 402 and {0, 12_345, 77_777, 99_999} <= set(kept.tolist())
    assert thin(np.arange(3), np.zeros(3)).tolist() == [0, 1, 2]


def test_rewards_and_parts_are_found(tmp_path):
    keys = ["rewards/A/overall/mean", "rewards/A/color/mean", "eval/audit/B/shape/mean", "rewards/A/color/count", "kl"]
    run = load_run(write(tmp_path, [(1, dict.fromkeys(keys, 1.0))]))
    assert run.rewards("rewards") == ["A"] and run.parts("rewards", "A") == ["color"]
    assert run.rewards("eval/audit") == ["B"] and run.parts("eval/audit", "B") == ["shape"]
    assert run.rewards("audit") == []


def test_repeated_steps_take_the_last_line_and_order_does_not_matter(tmp_path):
    run = load_run(write(tmp_path, [(2, {"a": 1}), (1, {"a": 5}), (2, {"a": 7})]))
    assert run.series("a").steps.tolist() == [1, 2] and run.series("a").values.tolist() == [5, 7]


def test_running_empty_and_missing_runs(tmp_path):
    write(tmp_path / "x" / "run", [(1, {"a": 1})])
    with open(tmp_path / "x" / "run" / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"step": 2, "a": 3})[:-4])
    assert load_run(tmp_path / "x" / "run" / "metrics.jsonl").last_step == 1
    (tmp_path / "y" / "run").mkdir(parents=True)
    empty = load_run(tmp_path / "y" / "run")
    assert empty.last_step is None and empty.keys == [] and len(empty.series("a")) == 0
    assert [run.name for run in load_runs([tmp_path / "x" / "run", tmp_path / "y" / "run"])] == ["x/run", "y/run"]
    with pytest.raises(InputError, match="no run folder"):
        load_run(tmp_path / "z")
    with pytest.raises(InputError, match="at least one"):
        load_runs([])
    assert [default_window(n) for n in (1, 19, 20, 1000, 100_000)] == [1, 1, 7, 100, 500]
