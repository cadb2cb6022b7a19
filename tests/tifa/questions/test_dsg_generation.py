"""DSG's three steps by a language model: what is asked, what comes of it, and what is dropped."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rewards.errors import InputError
from rewards.tifa.questions import dsg_generation
from rewards.tifa.questions.chat_model import ChatModel
from rewards.tifa.questions.dsg import write_dsg
from rewards.tifa.questions.dsg_generation import DSGOutput, examples, few_shot, parse_dsg
from rewards.tifa.questions.generation import build_questions
from rewards.tifa.questions.language_model import Completion
from rewards.tifa.questions.prompt_files import Prompt
from rewards.tifa.store.store import QuestionStore

TUPLES = "1 | entity - whole (car)\n2 | attribute - color (car, red)\n3 | global (photo)"
QUESTIONS = "1 | Is there a car?\n2 | Is the car red?\n3 | Is it a photo?"
NEEDED = "1 | 0\n2 | 1\n3 | 0"


class Scripted:
    """Plays back what it has for each step, and keeps what it was asked."""

    def __init__(self, *outputs: str | None) -> None:
        self.outputs = outputs
        self.asked: list[tuple[str, list[str]]] = []

    def identity(self) -> dict[str, Any]:
        return {"model": "scripted", "revision": "r1", "prompt_hash": "tifa's"}

    def complete(self, descriptions: Sequence[str]) -> list[Completion]:
        raise AssertionError("DSG is asked in its own words")

    def write(self, shots: str, inputs: Sequence[str], stop: str) -> list[Completion]:
        step = len(self.asked) % 3
        self.asked.append((shots, list(inputs)))
        text = self.outputs[step]
        return [Completion(text, error=None if text else "no server") for _ in inputs]


def test_examples_are_whole() -> None:
    assert len(examples()) >= 6
    for example in examples():
        numbers = [fact[0] for fact in example.facts]
        assert numbers == [str(position) for position in range(1, len(numbers) + 1)]
        for number, fact, needs, question in example.facts:
            assert question.endswith("?") and fact.endswith(")")
            assert needs == "0" or all(int(need) < int(number) for need in needs.split(","))
        made = parse_dsg(
            DSGOutput(*("\n".join(f"{fact[0]} | {fact[column]}" for fact in example.facts) for column in (1, 3, 2))),
            example.description, "a",
        )  # fmt: skip
        assert made.dropped == [] and len(made.questions) == len(numbers)
        assert {question.element_type.partition(".")[0] for question in made.questions} <= {
            "entity", "attribute", "relation", "global", "other",
        }  # fmt: skip


def test_three_steps_fill_the_store_and_the_csv(store: QuestionStore, tmp_path: Path) -> None:
    model = Scripted(TUPLES, QUESTIONS, NEEDED)
    report = build_questions(model, [Prompt("a", "a red car"), Prompt("b", "a  red car")], store, form="dsg")
    assert (report.asked, report.questions, report.dropped, report.failed) == (2, 6, [], [])
    assert [(q.text, q.answer, q.element_type, q.element, q.depends_on) for q in store.get("a")] == [
        ("Is there a car?", "yes", "entity.whole", "car", ()),
        ("Is the car red?", "yes", "attribute.color", "car, red", ("Is there a car?",)),
        ("Is it a photo?", "yes", "global", "photo", ()),
    ]
    assert [shots for shots, _ in model.asked] == [few_shot(step) for step in dsg_generation.STEPS]
    assert model.asked[0][1] == ["input: a red car\noutput:"]
    assert model.asked[1][1] == model.asked[2][1] == [f"input: a red car\n{TUPLES}\noutput:"]
    made = store.provenance(store.get("a")[0])
    assert made["form"] == "dsg" and made["prompt_hash"] == dsg_generation.prompts_hash() != "tifa's"
    write_dsg(tmp_path / "d.csv", store.get("a"))
    assert (
        'a,a red car,"car, red",2,1,attribute,color,"attribute - color (car, red)",Is the car red?'
        in (tmp_path / "d.csv").read_text()
    )
    assert build_questions(model, [Prompt("a", "a red car")], store, form="dsg").skipped == 1


def test_what_cannot_be_used_is_named() -> None:
    made = parse_dsg(
        DSGOutput(
            "Here they are:\n1 | entity - whole (car)\n2 | attribute - color (car, red)\n3 | something odd",
            "1 | Is there a car?\n3 | Is it odd?\n7 | What?",
            "1 | 0\n3 | 1, 9, right",
        ),
        "a red car", "a",
    )  # fmt: skip
    assert [(q.text, q.element_type, q.depends_on) for q in made.questions] == [
        ("Is there a car?", "entity.whole", ()), ("Is it odd?", "other", ("Is there a car?",)),
    ]  # fmt: skip
    assert made.dropped == [
        "fact 2: a: proposition 2 has no question",
        "fact 3: a: dependency '1, 9, right': 'right' is no number",
        "fact 3: a: dependency '1, 9, right': '9' is no proposition of this prompt",
    ]


@pytest.mark.parametrize(
    ("outputs", "why"),
    [
        ((None, QUESTIONS, NEEDED), "a: tuples: no server"),
        ((TUPLES, None, NEEDED), "a: questions: no server"),
        ((TUPLES, QUESTIONS, None), "a: dependencies: no server"),
        (("I cannot.", QUESTIONS, NEEDED), "a: tuples: the model wrote none"),
    ],
)
def test_a_step_without_output_fails_and_is_asked_again(outputs: tuple, why: str, store: QuestionStore) -> None:
    report = build_questions(Scripted(*outputs), [Prompt("a", "a red car")], store, form="dsg")
    assert report.failed == [why] and report.questions == 0
    assert (
        build_questions(Scripted(TUPLES, QUESTIONS, NEEDED), [Prompt("a", "a red car")], store, form="dsg").asked == 1
    )


def test_forms_are_checked_first(store: QuestionStore) -> None:
    with pytest.raises(InputError, match="form is 'poem'"):
        build_questions(Scripted(), [Prompt("a", "b")], store, form="poem")


def test_a_real_model_is_given_whole_turns(writer_path: str) -> None:
    model = ChatModel(writer_path, new_tokens=8)
    made = model.write("Say. ", ["input: a\noutput:", "input: another\noutput:"], "\ninput:")
    assert len(made) == 2 and made[0] == model.write("Say. ", ["input: a\noutput:"], "\ninput:")[0]
