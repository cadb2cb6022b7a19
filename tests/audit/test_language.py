"""What a language model adds to an audit: its edits are checked, its guesses are counted by element type."""

import json
import re

import pytest
from typer.testing import CliRunner

from rewards import TIFA
from rewards.audit.edits import KINDS
from rewards.audit.language import differs_in_one_place, guessed_without_picture, written_edits
from rewards.audit.pictures import audit_pictures
from rewards.audit.texts import audit_texts
from rewards.audit.variants import TrueText
from rewards.cli.app import app
from rewards.errors import InputError
from rewards.functions import FunctionReward
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.oracle import Oracle
from rewards.shapes.prompts import question_store
from rewards.shapes.render import render
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.server_model import ServerModel
from tests.judges.elsewhere.chat_server import ChatServer, ok


def serve(reply):
    """A chat server that answers by the last example of its prompt."""

    def answer(number, body):
        last = body["messages"][0]["content"].split("\n\n")[-1]
        return ok({"choices": [{"message": {"content": reply(last)}, "finish_reason": "stop"}]})

    return ChatServer(answer)


def guess(last):
    """Says yes where it may, and else the first choice."""
    choices = re.search(r"Choices: (.*)", last)[1].split(", ")
    return "yes" if "yes" in choices else f" {choices[0].capitalize()}."


def edit(last):
    kind, text = re.search(r"Kind: (.*)\nText: (.*)", last).groups()
    answers = {"color": text.replace("red", "blue"), "count": text.replace("a ", "two "), "object": "A zoo. What else?"}
    return answers.get(kind, "none")


@pytest.fixture
def world(tmp_path):
    scenes = sample_scenes("test", 12, seed=5)
    rows = [TrueText(render(scene), str(describe(scene))) for scene in scenes]
    return rows, question_store(tmp_path / "q.sqlite", [row.text for row in rows])


def test_guesses_are_counted_by_element_type(world):
    rows, store = world
    reward = TIFA(Oracle(), store, matcher=AnswerMatcher(None))
    found = audit_pictures(reward, rows)
    asked = store.prepare([row.text for row in rows])
    server = serve(guess)
    table = guessed_without_picture(ServerModel(server.url, "gpt-test"), rows, asked, found)
    server.stop()
    right = {}
    for question in (question for own in asked for question in own if len(question.choices) > 1):
        said = "yes" if "yes" in question.choices else question.choices[0]
        for name in ("overall", question.element_type):
            right.setdefault(name, []).append((said == question.answer, 1 / len(question.choices)))
    assert [row[0] for row in table.rows] == ["overall", *sorted(set(right) - {"overall"})] and len(right) > 2
    for name, number, chance, share, seen, above in table.rows:
        value = sum(one for one, _ in right[name]) / len(right[name])
        assert int(number) == len(right[name])
        assert float(chance) == pytest.approx(sum(p for _, p in right[name]) / len(right[name]), abs=5e-4)
        assert float(share.split()[0]) == pytest.approx(value, abs=5e-4)
        assert seen == f"{found.truths()[name]:.3f}"
        assert float(above) == pytest.approx(found.truths()[name] - value, abs=1.1e-3)


def test_questions_without_choices_cannot_be_guessed(world):
    rows, store = world
    found = audit_pictures(TIFA(Oracle(), store, matcher=AnswerMatcher(None)), rows)
    server = serve(guess)
    with pytest.raises(InputError, match="choices"):
        guessed_without_picture(ServerModel(server.url, "gpt-test"), rows, [()] * len(rows), found)
    server.stop()


def test_only_edits_of_one_place_are_taken():
    texts = ["a red dog and a cat", "a grey bird", "a red dog and a cat"]
    server = serve(edit)
    edits = written_edits(ServerModel(server.url, "gpt-test"), texts)
    server.stop()
    assert edits("a red dog and a cat") == {"color, written": ["a blue dog and a cat"]}
    assert edits("a grey bird") == {"count, written": ["two grey bird"]}
    assert edits("never asked about") == {}
    assert len(server.requests) == 2 * len(KINDS)  # each distinct text once a kind


@pytest.mark.parametrize(
    ("changed", "one"),
    [
        ("a red dog and a cat", False),
        ("a red dog", True),
        ("a red dog and a cat and a bird", True),
        ("A red dog, and an old cat.", True),
        ("a blue dog and a hen", False),
        ("one two three four five six", False),
        ("", False),
        ("a red dog and a cat " + "too " * 7, False),
    ],
)
def test_one_place(changed, one):
    assert differs_in_one_place("a red dog and a cat", changed) is one


def test_its_edits_are_kinds_of_the_audit(world):
    rows, _ = world
    truths = {row.text for row in rows}
    reward = FunctionReward(lambda completions, image, **columns: [float(text in truths) for text in completions])
    found = audit_texts(reward, rows, edits=lambda text: {"color, written": [f"{text} and more"]})
    kind = {f.kind: f for f in found.findings}["color, written"]
    assert (kind.pairs, kind.accepted.value, kind.drop.value) == (len(rows), 0.0, 1.0)


def test_the_command_line_asks_the_language_model(world, tmp_path):
    rows, store = world
    lines = []
    for number, row in enumerate(rows[:3]):
        row.image.save(tmp_path / f"{number}.png")
        lines.append(json.dumps({"image": f"{number}.png", "prompt": row.text, "text": row.text}))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    server = serve(guess)
    audit = ["audit", "picture", "shapes-vqa", "answer=choices", "--data", str(tmp_path / "rows.jsonl")]
    words = ["--questions", str(store.path), "--language-model", "gpt-test", "--server", server.url]
    done = CliRunner().invoke(app, [*audit, *words])
    server.stop()
    assert done.exit_code == 0, done.output
    assert "Answered by a language model that sees no picture" in done.output and "above the guess" in done.output
    for missing in (words[2:], words[:2] + words[4:]):
        refused = CliRunner().invoke(app, [*audit, *missing])
        assert refused.exit_code != 0 and isinstance(refused.exception, InputError | SystemExit)
