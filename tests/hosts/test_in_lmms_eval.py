"""lmms-eval: results by document, aggregated as its evaluator does (`make test-hosts`)."""

import math
from pathlib import Path

import pytest
from PIL import Image

from tests.hosts.pages import snippet

pytestmark = pytest.mark.hosts


def test_the_lines_of_the_page_are_loaded_and_aggregated(world, expected, tmp_path, monkeypatch):
    from lmms_eval.utils import load_yaml_config

    paths, captions, config = world
    monkeypatch.chdir(Path(config).parent)
    more = "fluency, abstained = task.mean('fluency'), task.abstained\n"
    (tmp_path / "utils.py").write_text(f"{snippet('lmms_eval')}\n{more}")
    (tmp_path / "task.yaml").write_text(
        "task: shapes\noutput_type: generate_until\nprocess_results: !function utils.process_results\nmetric_list:\n"
        "- {metric: rewards_overall, aggregation: !function utils.overall, higher_is_better: true}\n"
        "- {metric: rewards_fluency, aggregation: !function utils.fluency, higher_is_better: true}\n"
        "- {metric: rewards_abstained, aggregation: !function utils.abstained, higher_is_better: false}\n"
    )
    task = load_yaml_config(str(tmp_path / "task.yaml"))
    docs = [{"image": Image.open(path)} for path in paths] + [{"image": None}]
    texts = [*captions, "unseen"]
    results = [task["process_results"](doc, [text]) for doc, text in zip(docs, texts, strict=True)]
    found = {m["metric"]: m["aggregation"]([row[m["metric"]] for row in results]) for m in task["metric_list"]}
    assert found["rewards_overall"] == pytest.approx(float(expected.overall.double().mean()), abs=1e-6)
    assert found["rewards_fluency"] == pytest.approx(float(expected.criteria[:, 3].double().mean()), abs=1e-6)
    assert found["rewards_abstained"] == 1
    assert math.isnan(task["metric_list"][0]["aggregation"]([]))
