"""`rewards questions`, each command run as a user runs it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from rewards.cli.questions import app
from rewards.errors import InputError, RewardsError
from rewards.tifa.questions import chat_model
from rewards.tifa.store.store import QuestionStore
from tests.tifa.questions.text_models import INSTRUCTION, TAUGHT, save_t5

Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def invoke(*arguments: object, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)

    return invoke


def test_import_export_show_stats_check(run: Run, tifa_data: Path, tmp_path: Path) -> None:
    source, store = tifa_data / "sample_question_answers.json", tmp_path / "q.sqlite"
    assert "19 new, 0 known" in run("import", source, "--store", store).output
    assert "0 new, 19 known" in run("import", source, "--store", store).output
    assert run("export", store, tmp_path / "out.json").exit_code == 0
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(source.read_text())
    shown = run("show", store, "Three cats and two dogs sitting on the grass.").output
    assert "drawbench_52: Three cats" in shown and "are there cats?  *yes* | no  (animal/human: cats)" in shown
    assert "source import, file sample_question_answers.json" in shown
    numbers = json.loads(run("stats", store, "--json").output)
    assert (numbers["prompts"], numbers["questions"], numbers["by element type"]["color"]) == (2, 19, 4)
    assert numbers["fingerprint"] == QuestionStore(store).fingerprint() and "fingerprint" in run("stats", store).output
    for target in (store, source):
        checked = run("check", target, "--strict")
        assert checked.exit_code == 0 and "19 questions; nothing looks wrong" in checked.output


def test_stores_are_merged_and_bad_rows_named(run: Run, tmp_path: Path) -> None:
    row = {"id": 1, "caption": "c", "question": "q?", "choices": ["a", "b"], "answer": "a", "element_type": "other"}
    bad = {**row, "answer": "z"}
    (tmp_path / "bad.json").write_text(json.dumps([row, bad]))
    refused = run("import", tmp_path / "bad.json", "--store", tmp_path / "1.sqlite")
    assert isinstance(refused.exception, InputError) and "bad.json, row 1: " in refused.output
    assert not list(tmp_path.glob("1.sqlite*"))
    assert "1 new, 0 known, 0 kept as stored, 1 left out" in run(
        "import", tmp_path / "bad.json", "--store", tmp_path / "1.sqlite", "--skip-bad"
    ).output  # fmt: skip
    assert "1 new" in run("import", tmp_path / "1.sqlite", "--store", tmp_path / "2.sqlite").output
    (tmp_path / "two.json").write_text(json.dumps([row, {**row, "choices": ["b", "a"]}]))
    for content, message in (("[]", "holds no questions"), (None, "already has the question")):
        if content is not None:
            (tmp_path / "empty.json").write_text(content)
        source = tmp_path / ("empty.json" if content is not None else "two.json")
        failed = run("import", source, "--store", tmp_path / "3.sqlite")
        assert failed.exit_code != 0 and message in str(failed.exception) and not list(tmp_path.glob("3.sqlite*"))
    (tmp_path / "other.json").write_text(json.dumps([{**row, "choices": ["b", "a"]}]))
    conflict = run("import", tmp_path / "other.json", "--store", tmp_path / "2.sqlite")
    assert isinstance(conflict.exception, InputError) and "already has the question" in str(conflict.exception)
    kept = run("import", tmp_path / "other.json", "--store", tmp_path / "2.sqlite", "--keep")
    assert "1 kept as stored" in kept.output
    (tmp_path / "twice.json").write_text(json.dumps([row, {**row, "question": "r?", "choices": ["a", "b", " b"]}]))
    refused = run("import", tmp_path / "twice.json", "--store", tmp_path / "4.sqlite")
    assert isinstance(refused.exception, InputError) and "question 'r?': choice 'b' is given twice" in refused.output
    checked = run("check", tmp_path / "bad.json")
    assert checked.exit_code != 0 and "cannot be scored: " in checked.output


def test_build_and_filter(run: Run, writer_path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_model, "few_shot_prompt", lambda: INSTRUCTION)
    monkeypatch.setattr(chat_model.ChatModel.__init__, "__defaults__", (None, None, None, 150))
    model, store = writer_path, tmp_path / "q.sqlite"
    built = run("build", "-", "--store", store, "--model", model, stdin="\n".join(TAUGHT))
    assert built.exit_code == 0, built.output
    assert "4 questions for 3 prompts; 1 lines dropped, 0 prompts done before" in built.output
    assert "dropped: a cat on a very long green sofa: question 'is there a cat?'" in built.output
    again = run("build", "-", "--store", store, "--model", model, stdin="\n".join(TAUGHT))
    assert "0 questions for 0 prompts; 0 lines dropped, 3 prompts done before" in again.output
    t5 = save_t5(tmp_path / "t5")
    filtered = run("filter", store, "--model", t5, "--mode", "code")
    assert "0 questions kept, 4 dropped; 4 asked about now" in filtered.output, filtered.output
    decided = run("filter", store, "--no-ask", "--mode", "paper", "--threshold", "0")
    assert "4 dropped; 0 asked about now" in decided.output
    shown = run("show", store, "a red dot").output
    assert (
        "x what color is it?" in shown
        and "filter paper: with choices the answer is" in shown
        and f"model {model}" in shown
    )
    export = run("export", store, tmp_path / "out.json", "--dropped")
    assert "4 questions" in export.output


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("show", "missing.sqlite", "x"), "does not exist"),
        (("stats", "missing.sqlite"), "does not exist"),
        (("export", "missing.sqlite", "out.json"), "does not exist"),
        (("filter", "missing.sqlite"), "does not exist"),
        (("build", "missing.txt", "--store", "q.sqlite", "--model", "m"), "missing.txt"),
        (("import", "missing.json", "--store", "q.sqlite"), "missing.json"),
    ],
)
def test_what_is_not_there_is_one_clear_error(
    arguments: Any, reason: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert isinstance(result.exception, RewardsError | OSError) and reason in str(result.exception)
