"""Run folders as columns: weights, gaps, repeated steps, damaged and growing files, and a million lines."""

import json
import subprocess
import sys

import numpy as np
import pytest

from rewards.errors import InputError
from rewards.report.reading import load_run, load_runs
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


def test_numbers_that_are_as_good_as_infinite_are_left_out(tmp_path):
    run = load_run(write(tmp_path, [(1, {"a": 1e300}), (2, {"a": 3.4e38}), (3, {"a": -1e200})]))
    assert run.series("a").values.tolist() == [3.4e38]


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


def test_a_line_without_a_step_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "a": 2}\n{"a": 3}\n')
    with pytest.raises(InputError, match=r"metrics.jsonl, line 2: expected an object with a whole number 'step'"):
        load_run(tmp_path)


def test_chunks_are_put_together_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr("rewards.report.reading.CHUNK", 7)
    steps = np.random.default_rng(0).permutation(100)
    lines = [{"step": int(s), "a": float(s) / 2, **({"b": "text"} if s % 2 else {"b": 1})} for s in steps]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = load_run(tmp_path)
    assert run.series("a").steps.tolist() == list(range(100))
    assert run.series("a").values.tolist() == [s / 2 for s in range(100)]
    assert run.series("b").steps.tolist() == list(range(0, 100, 2)) and run.last_step == 99


def test_what_a_step_is(tmp_path):
    names = {"epoch": "optimiser step", "train/optimizer_steps": "epoch", "x": "step"}
    for number, (key, name) in enumerate(names.items()):
        assert load_run(write(tmp_path / str(number), [(1, {key: 1.0})])).step_name == name


MEASURE = """
import resource, sys
from rewards.report.page import write_report
write_report([sys.argv[1]])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_lines_of_24_keys_take_less_than_300_megabytes(tmp_path):
    keys = [f"rewards/R/{part}/{kind}" for part in ("overall", *"abcdefghij") for kind in ("mean", "count")]
    keys += ["train/loss", "policy/ratio"]
    line = ", ".join(f'"{key}": %.6f' for key in keys)
    rng = np.random.default_rng(0)
    with open(tmp_path / "metrics.jsonl", "w") as file:
        for start in range(0, 1_000_000, 10_000):
            rows = rng.random((10_000, len(keys))).tolist()
            file.write("".join(f'{{"step": {start + i}, {line % tuple(row)}}}\n' for i, row in enumerate(rows)))
    done = subprocess.run([sys.executable, "-c", MEASURE, str(tmp_path)], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 300


@pytest.mark.parametrize("value", ["[1]", "[[1, 2]]", '{"a": 1}', '"text"', "1" + "0" * 400, "1e400"])
def test_what_is_no_number_is_no_point_of_a_curve(tmp_path, value):
    lines = f'{{"step": 1, "train/loss": {value}}}\n{{"step": 2, "train/loss": 0.5}}\n'
    (tmp_path / "metrics.jsonl").write_text(lines)
    steps, values = load_run(tmp_path).columns.column("train/loss")
    assert (steps[-1], values[-1]) == (2, 0.5)


@pytest.mark.parametrize("content", ["[]", '{"log_history": [1, null]}', "{}"])
def test_a_state_without_a_log_is_an_empty_run(tmp_path, content):
    (tmp_path / "trainer_state.json").write_text(content)
    assert load_run(tmp_path).last_step is None
