"""metrics.jsonl: values, nulls, cut-off lines, resuming."""

import json
import math

import numpy as np
import pytest
import torch

from rewards.errors import InputError
from rewards.runs.metrics import MetricsLog, merge_metrics, read_metrics


def test_values_that_do_not_exist_are_null(tmp_path):
    log = MetricsLog(tmp_path / "run" / "metrics.jsonl")
    log.append(
        3, {"a": math.nan, "b": None, "c": math.inf, "d": torch.tensor(0.5), "e": np.float32(2), "n": np.int64(4)}
    )
    (row,) = read_metrics(tmp_path / "run")
    time = row.pop("time")
    assert time > 1e9
    assert row == {"step": 3, "a": None, "b": None, "c": None, "d": 0.5, "e": 2.0, "n": 4}


@pytest.mark.parametrize("metrics", [{"a": "text"}, {"a": torch.zeros(2)}, {"step": 1}])
def test_what_is_not_a_number_is_refused(tmp_path, metrics):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    with pytest.raises(InputError, match="metric '"):
        log.append(0, metrics)
    assert not log.path.exists()


def test_cut_off_last_line_is_skipped_and_then_replaced(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    log.append(0, {"a": 1})
    with open(log.path, "a") as file:
        file.write('{"step": 1, "a": 0.1234')
    assert [row["step"] for row in read_metrics(log.path)] == [0]
    log.append(2, {"a": 3})
    assert [row["step"] for row in read_metrics(log.path)] == [0, 2]


def test_damage_inside_the_file_is_named(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 0}\n{"ste\n{"step": 2}\n')
    with pytest.raises(InputError, match="line 2"):
        read_metrics(path)
    path.write_text('{"step": 0}\n{"a": 1}\n{"step": 2}\n')
    with pytest.raises(InputError, match="line 2"):
        read_metrics(path)


def test_keep_until_drops_what_a_resumed_run_repeats(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl")
    for step in range(5):
        log.append(step, {"a": step})
    log.keep_until(2)
    log.append(3, {"a": 30})
    assert [row["a"] for row in read_metrics(log.path)] == [0, 1, 2, 30]


def test_empty_file_has_no_rows(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert read_metrics(tmp_path) == []
    json.dumps(read_metrics(tmp_path))


def test_infos_merge_by_count():
    rows = [
        ({"r/color/mean": 1.0, "r/color/count": 3, "r/abstained": 1, "r/mass": 0.5}, 4),
        ({"r/color/mean": math.nan, "r/color/count": 0, "r/abstained": 0, "r/mass": 1.0}, 1),
        ({"r/color/mean": 0.0, "r/color/count": 1, "r/shape/mean": math.nan}, 4),
    ]
    merged = merge_metrics(rows)
    assert merged["r/color/mean"] == 0.75 and merged["r/color/count"] == 4 and merged["r/abstained"] == 1
    assert merged["r/mass"] == pytest.approx(0.6) and math.isnan(merged["r/shape/mean"])
    assert merge_metrics([]) == {}
