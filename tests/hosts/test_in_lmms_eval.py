"""lmms-eval: results by document, aggregated as its evaluator does (`make test-hosts`)."""

import math
from pathlib import Path

import pytest
from PIL import Image

from tests.hosts.pages import page, snippet

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


@pytest.mark.parametrize("uses_image", [True, False])
def test_documents_keep_their_pictures_by_the_line_of_the_page(
    world, expected, tmp_path, monkeypatch, caplog, uses_image
):
    import datasets
    from lmms_eval.api.task import ConfigurableTask
    from lmms_eval.utils import load_yaml_config

    paths, captions, config = world
    monkeypatch.chdir(Path(config).parent)
    line = "process_results_use_image: true"
    assert line in page("lmms_eval")
    (tmp_path / "utils.py").write_text(f"{snippet('lmms_eval')}\ndoc_to_visual = lambda doc: [doc['image']]\n")
    documents = datasets.Dataset.from_dict({"image": paths, "question": ["Describe."] * 3}).cast_column(
        "image", datasets.Image()
    )
    documents.to_parquet(tmp_path / "documents.parquet")
    (tmp_path / "task.yaml").write_text(
        f"task: shapes\ndataset_path: parquet\ndataset_kwargs: {{data_files: {{val: {tmp_path}/documents.parquet}}}}\n"
        "test_split: val\noutput_type: generate_until\ndoc_to_visual: !function utils.doc_to_visual\n"
        "doc_to_text: question\ndoc_to_target: question\nprocess_results: !function utils.process_results\n"
        "metric_list:\n"
        "- {metric: rewards_overall, aggregation: !function utils.overall, higher_is_better: true}\n"
        + (line if uses_image else "")
    )
    task = ConfigurableTask(config=load_yaml_config(str(tmp_path / "task.yaml")))
    given = zip(task.eval_docs_no_media, captions, strict=True)  # the documents of lmms-eval's evaluator
    results = [task.process_results(doc, [text])["rewards_overall"] for doc, text in given]
    overall = task.aggregation()["rewards_overall"](results)
    if uses_image:
        assert overall == pytest.approx(float(expected.overall.double().mean()), abs=1e-6)
    else:
        assert math.isnan(overall) and line in caplog.text
