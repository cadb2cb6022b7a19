"""The guides: the page on TIFA's successors is run from its own text; every command line has known options."""

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rewards.cli.app import app
from rewards.runs.metrics import read_metrics

ROOT = Path(__file__).parents[1]
GUIDES = ROOT / "docs" / "guides"
PAGES = [*sorted(GUIDES.glob("*.md")), GUIDES.parent / "findings.md"]


def blocks(page):
    """(language, text) of the fenced blocks of a page."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)


def commands(text):
    """The words of every line that calls `rewards`."""
    return [shlex.split(line, comments=True) for line in re.findall(r"^rewards (.*)$", text, re.M)]


def test_the_page_on_successors_runs_from_its_own_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for language, text in blocks(GUIDES / "successors.md"):
        if language == "python":
            exec(text, names)
            continue
        for words in commands(text):
            done = CliRunner().invoke(app, words)
            assert done.exit_code == 0, f"{words}: {done.output}"
    assert (tmp_path / "back.jsonl").read_text() == (tmp_path / "geneval2.jsonl").read_text()
    assert names["hard"].answers[1].score in (0.0, 1.0)


def test_trls_own_trainer_runs_from_the_guides_own_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (text,) = [text for language, text in blocks(GUIDES / "train_writer.md") if language == "python"]
    shorter = {"max_steps=20": "max_steps=2", "per_device_train_batch_size=64": "per_device_train_batch_size=8"}
    for written, short in shorter.items():
        assert written in text
        text = text.replace(written, short)
    exec(text, {})
    rewards = [
        row["rewards/HarmonicEval/overall/mean"]
        for row in read_metrics(tmp_path / "runs" / "trl")
        if "rewards/HarmonicEval/overall/mean" in row
    ]
    assert len(rewards) == 2 and all(1 <= one <= 5 for one in rewards)
    assert CliRunner().invoke(app, ["curves", "runs/trl"]).exit_code == 0


def ratios(run, base):
    """Two cells: by the clock, and by CPU seconds."""
    found = [run["ratios"][f"rewards serve / {base}, samples a {key}"] for key in ("second", "cpu second")]
    return [", ".join(f"{ratio:.2f}" for ratio in one) for one in found]


def p99(run, way):
    return ", ".join(f"{turn['p99']:.1f}" for turn in run["turns"] if turn["way"] == way)


def test_the_load_tests_figures_are_those_of_the_raw_file():
    text = (GUIDES / "judges.md").read_text(encoding="utf-8")
    *compared, killed = json.loads((ROOT / "benchmarks" / "results" / "serve_load.json").read_text())
    judges = ("Qwen2.5-VL, 400", "LLaVA, 576")
    for judge, run in zip(judges, compared, strict=True):
        (line,) = [line for line in text.splitlines() if line.startswith(f"| {judge} |")]
        latencies = f"{p99(run, 'rewards serve')} s; {p99(run, 'old rewards serve')} s"
        cells = [*ratios(run, "in process"), *ratios(run, "old rewards serve"), latencies]
        assert line == f"| {judge} | {' | '.join(cells)} |"
        assert f"--image-tokens {judge.split()[1]}" in run["command"] and "--cores 1 0" in run["command"]
        assert run["old"] == "67357a0" and (run["samples"], run["clients"]) == (64, 32)
        assert min(run["ratios"]["rewards serve / in process, samples a second"]) >= 0.7
    turns = [turn for run in compared for turn in run["turns"]]
    ours = [turn for turn in turns if turn["way"] == "rewards serve"]
    assert f"largest queue was {max(turn['largest_queue'] for turn in ours)} rows" in text
    assert all(turn["difference"] < 2e-8 for turn in ours)
    assert all(turn["unscored"] == 0 for turn in turns + killed["turns"])
    told = ("itself {:.1f} to {:.1f} times that server with Qwen", "and {:.1f} times with LLaVA")
    for run, said in zip(compared, told, strict=True):
        alone, old = (
            [turn["samples_a_second"] for turn in run["turns"] if turn["way"] == way]
            for way in ("in process", "old rewards serve")
        )
        bound = [one / other for one, other in zip(alone, old, strict=True)]
        assert said.format(min(bound), max(bound)) in text and max(bound) < 3
    (turn,) = [turn for turn in killed["turns"] if turn["kills"]]
    assert (turn["kills"], turn["zeros"], killed["samples"]) == (3, 0, 64) and f"{turn['retries']} requests" in text


def test_what_large_files_cost_is_in_the_raw_file():
    text = (GUIDES / "score_files.md").read_text(encoding="utf-8")
    found = json.loads((ROOT / "benchmarks" / "results" / "large_files.json").read_text())["results"]
    for lines in (100_000, 1_000_000):
        row = found[f"rewards curves, {lines} lines x 24 keys"]
        assert f"| `rewards curves`, {lines:,} lines x 24 keys | {row['seconds']:.1f} s | {row['MB']:.0f} MB |" in text
        assert f"{row['MB after imports']:.0f} MB of the memory are imports" in text
        assert row["MB"] <= 300
    store = found["question store, 600000 questions"]
    written = [store["element_types ms after a write"], store["fingerprint ms after it"]]
    kept = found["a kept answer, a picture of 512 x 512"]["hit ms"]
    assert re.findall(r"\| ([\d.]+) ms \|", text) == [f"{value:.2f}" for value in (*written, kept)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_line_has_known_options(page):
    root = typer.main.get_command(app)
    text = page.read_text(encoding="utf-8")
    shown = [words for language, block in blocks(page) if language == "sh" for words in commands(block)]
    for words in shown + [shlex.split(line) for line in re.findall(r"(?:`|^    )rewards ([^`\n]*)", text, re.M)]:
        command = root
        while words and hasattr(command, "commands"):
            name = words.pop(0)
            assert name in command.commands, f"{page.name}: no command {name!r}"
            command = command.commands[name]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in {*known, "--help"}]
        assert not unknown, f"{page.name}: {unknown}"
