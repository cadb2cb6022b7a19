"""The held-out judge of GRPO, RLOO and PPO: its curve, the gap, the stop; and the trackers that hear of it."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rewards.report.charts import build_sections
from rewards.report.page import write_report
from rewards.report.reading import load_run
from rewards.runs.config import load_config
from rewards.runs.metrics import read_metrics
from rewards.trainers.audit import AuditGapExceeded
from rewards.trainers.language.run import run_language
from rewards.trainers.language.settings import LanguageRunConfig
from tests import tiny_models
from tests.trainers.language import text_world
from tests.trainers.language.text_world import audit, run_settings

ALGORITHMS = ["grpo", "ppo", pytest.param("rloo", marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return tiny_models.save("llava", tmp_path_factory.mktemp("llava"))


def run(algorithm, settings):
    return run_language(load_config(LanguageRunConfig, overrides=settings | {"algorithm": algorithm}))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_growing_gap_stops_the_run_and_its_curve_is_drawn(checkpoint, tmp_path, algorithm, monkeypatch):
    monkeypatch.setattr(text_world.falling, "asked", 0)
    settings = run_settings(checkpoint, checkpoint, tmp_path / "run", max_steps=6, learning_rate=0.0)
    settings["evaluation"] |= {
        "every": 1, "audits": [audit("falling")],
    }  # fmt: skip
    settings["trainer"]["audit_max_gap"] = 1.5
    with pytest.raises(AuditGapExceeded, match=r"drifted 2\.000 away from the audit"):
        run(algorithm, settings)
    rows = [row for row in read_metrics(tmp_path / "run") if "eval/audit/gap" in row]
    # The policy does not move (learning rate 0), the audit falls by 1 an evaluation: over 1.5 at the third.
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert [row["eval/audit/falling/overall/mean"] for row in rows] == [-1, -2, -3]
    for row in rows:
        gap = row["eval/rewards/HarmonicEval/overall/mean"] - row["eval/audit/falling/overall/mean"]
        assert row["eval/audit/gap"] == row["eval/audit/falling/gap"] == pytest.approx(gap)
    assert not (tmp_path / "run" / "adapter").exists()
    charts = {
        chart.title: chart for section in build_sections([load_run(tmp_path / "run")]) for chart in section.charts
    }
    held_out = {line.label: line.values.tolist() for line in charts["HarmonicEval, held-out"].lines}
    assert held_out["falling (audit)"] == [-1, -2, -3] and len(held_out["judge"]) == 3
    assert len(charts["Gap between judge and audit"].lines[0].values) == 3
    assert "falling (audit)" in write_report([tmp_path / "run"]).page.read_text()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_audit_and_its_evaluations_change_nothing_in_the_training(checkpoint, tmp_path, algorithm):
    rows = []
    for name, evaluation in (
        ("without", {}),
        ("with", {"every": 1, "audits": [audit("evenness")]}),
    ):
        settings = run_settings(checkpoint, checkpoint, tmp_path / name, max_steps=3, learning_rate=0.02)
        settings["evaluation"] |= evaluation
        run(algorithm, settings)
        rows.append([row for row in read_metrics(tmp_path / name) if "train/loss" in row])
    for left, right in zip(*rows, strict=True):
        for key in left.keys() - {"time", "time/step", "time/sample", "time/judge"}:
            assert left[key] == right[key], (left["step"], key)


def test_a_judge_can_audit_under_its_own_name(checkpoint, tmp_path):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "run", max_steps=1)
    settings["evaluation"] |= {"audits": [settings["reward"] | {"name": "Second"}]}
    summary = run("grpo", settings)
    assert set(summary["reward"]) == {"HarmonicEval"} and set(summary["audits"]) == {"Second"}
    last = read_metrics(tmp_path / "run")[-1]
    # The same judge with the same settings: no gap.
    assert last["eval/audit/Second/overall/mean"] == pytest.approx(last["eval/rewards/HarmonicEval/overall/mean"])
    assert last["eval/audit/gap"] == pytest.approx(0.0, abs=1e-6)


def test_the_tracker_hears_of_the_last_evaluation_before_it_closes(checkpoint, tmp_path):
    settings = run_settings(checkpoint, checkpoint, tmp_path / "run", max_steps=2, report_to="tensorboard")
    settings["evaluation"] |= {"audits": [audit("evenness")]}
    run("grpo", settings)
    (events,) = (tmp_path / "run").rglob("events*")  # one run, not two
    scalars = EventAccumulator(str(events)).Reload()
    for key in ("eval/rewards/HarmonicEval/overall/mean", "eval/audit/evenness/overall/mean", "eval/audit/gap"):
        assert [event.step for event in scalars.Scalars(key)] == [0, 2], key
    assert [event.step for event in scalars.Scalars("train/rewards/HarmonicEval/overall/mean")] == [1, 2]
