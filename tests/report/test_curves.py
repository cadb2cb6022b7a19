"""From values to curves: smoothing, intervals, bands, thinning."""

import numpy as np
import pytest

from rewards.report.curves import Series, default_window, smooth, spread, thin


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


def test_thinning_keeps_ends_and_extremes():
    values = np.zeros(100_000)
    values[[12_345, 77_777]] = 5, -3
    kept = thin(values, 400)
    assert len(kept) <= 402 and {0, 12_345, 77_777, 99_999} <= set(kept.tolist())
    assert thin(np.zeros(3)).tolist() == [0, 1, 2]


def test_intervals_of_shares_stay_within_the_values():
    values = np.r_[np.full(60, 1.0), np.full(5, 0.0), np.full(60, 1.0)]
    smoothed = smooth(Series(np.arange(125), values, np.ones(125)), 21)
    assert np.nanmax(smoothed.high) == 1.0 and np.nanmin(smoothed.low) >= 0.0
    centre = smoothed.mean[62]
    assert np.isclose(centre, 16 / 21) and smoothed.low[62] < centre < smoothed.high[62] < 1


def test_the_band_holds_nine_of_ten_values():
    values = np.random.default_rng(0).normal(3, 1, 10_000)
    band = spread(Series(np.arange(10_000), values, np.ones(10_000)))
    parts = np.split(values, 200)
    inside = [(part >= low) & (part <= high) for part, low, high in zip(parts, band.low, band.high)]
    assert len(band.low) == 200 and 0.87 < np.mean(inside) < 0.93


def test_windows():
    assert [default_window(n) for n in (1, 19, 20, 1000, 100_000)] == [1, 1, 7, 100, 500]
