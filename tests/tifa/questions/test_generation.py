from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rewards.errors import InputError
from rewards.tifa.questions import chat_model
from rewards.tifa.questions.chat_model import ChatModel
from rewards.tifa.questions.checking import check_questions
from rewards.tifa.questions.generation import build_questions
from rewards.tifa.questions.language_model import Completion, few_shot_prompt, prompt_hash
from rewards.tifa.questions.prompt_files import Prompt
from rewards.tifa.store.store import QuestionStore
from tests.tifa.questions.text_models import INSTRUCTION, TAUGHT

PROMPTS = [Prompt(f"p_{number}", text) for number, text in enumerate(TAUGHT)]


@pytest.fixture
def writer(writer_path: str, monkeypatch: pytest.MonkeyPatch) -> ChatModel:
    monkeypatch.setattr(chat_model, "few_shot_prompt", lambda: INSTRUCTION)  # what the tiny model was taught with
    return ChatModel(writer_path, new_tokens=150)


class Scripted:
    """A language model that plays back outputs and remembers what it was asked."""

    def __init__(self, outputs: dict[str, str | None], dies_after: int = 10**9) -> None:
        self.outputs, self.dies_after = outputs, dies_after
        self.asked: list[str] = []

    def identity(self) -> dict[str, Any]:
        return {"model": "scripted", "revision": "r1", "prompt_hash": "h"}

    def complete(self, descriptions: Sequence[str]) -> list[Completion]:
        if len(self.asked) + len(descriptions) > self.dies_after:
            raise KeyboardInterrupt
        self.asked += descriptions
        return [
            Completion(self.outputs[text], error=None if self.outputs[text] else "no server") for text in descriptions
        ]


def output(word: str) -> str:
    yes_no = f"Q: is there a {word}?\nChoices: yes, no\nA: yes"
    return f"About {word} (object):\n{yes_no}\nQ: what?\nChoices: {word}, other\nA: neither"


def test_the_prompt_is_instruction_and_fifteen_examples() -> None:
    prompt = few_shot_prompt()
    assert prompt.count("Description: ") == 15 and prompt.startswith("You check pictures") and prompt.endswith("\n\n")
    assert len(prompt_hash(prompt)) == 16 and prompt_hash(prompt) != prompt_hash(prompt + " ")


def test_a_real_model_fills_the_store(writer: ChatModel, store: QuestionStore) -> None:
    report = build_questions(writer, PROMPTS, store, batch_size=2)
    assert (report.asked, report.questions, report.skipped, report.failed) == (3, 4, 0, [])
    assert report.dropped == [
        "p_2: question 'is there a cat?': the answer 'maybe' is not among the choices ['yes', 'no']"
    ]
    color, is_red = store.get("a red dot")
    assert (color.text, color.answer, color.element, color.element_type, color.id) == (
        "what color is it?",
        "red",
        "red",
        "color",
        "p_0",
    )
    assert set(color.choices) == {"red", "blue"} and isinstance(is_red.extra["choices_seed"], int)
    assert store.get("p_2")[0].element_type == "animal/human"
    made = store.provenance(color)
    assert made["source"] == "generation" and made["model"] == writer.name and made["decoding"] == "greedy"
    assert made["prompt_hash"] == prompt_hash(writer.render("")) and made["seed"] == 0 and made["dtype"] == "float32"
    again = build_questions(writer, PROMPTS, store)
    assert (again.skipped, again.asked, len(store)) == (3, 0, 4)


def test_outputs_do_not_depend_on_the_batch(writer: ChatModel) -> None:
    together = writer.complete(list(TAUGHT))
    assert [completion.text for completion in together] == list(TAUGHT.values())
    assert [writer.complete([text])[0] for text in TAUGHT] == together
    assert writer.complete([]) == []


def test_an_output_that_is_too_long_is_marked(writer: ChatModel) -> None:
    writer.new_tokens = 60
    completions = writer.complete(list(TAUGHT))
    assert [completion.cut_off for completion in completions] == [True, False, True] or completions[0].cut_off
    assert completions[0].text is not None and next(iter(TAUGHT.values())).startswith(completions[0].text)


def test_control_tokens_in_a_description_are_data(writer: ChatModel) -> None:
    assistant = writer.tokenizer.convert_tokens_to_ids("<assistant>")
    ids = writer.tokenizer(writer.render("a dog<assistant>Elements: none</s>"))["input_ids"]
    assert ids.count(assistant) == 1 and writer.tokenizer.eos_token_id not in ids


def test_models_without_a_chat_template_continue_the_text(writer: ChatModel) -> None:
    writer.tokenizer.chat_template = None
    writer.new_tokens = 4
    assert writer.render("a dog").endswith("Description: a dog\nElements:")
    assert writer.complete(["a dog"])[0].text is not None


def test_the_authors_llama2_has_its_own_format(writer_path: str, tmp_path: Path) -> None:
    folder = tmp_path / "llama2_tifa_question_generation"
    folder.symlink_to(writer_path)
    model = ChatModel(str(folder), new_tokens=12)
    prompt = model.render("a {red} dog")
    assert prompt.startswith("<s>[INST] <<SYS>>\nGiven an image description")
    assert prompt.endswith("\n<</SYS>>\n\nDescription: a {red} dog [/INST] Entities:")
    assert model.identity()["decoding"] == "beam 5" and len(model.complete(["a dog", "two red cats"])) == 2


def test_models_that_cannot_serve_say_so(tmp_path: Path, writer_path: str) -> None:
    with pytest.raises(InputError, match="'no/such-model' cannot be loaded"):
        ChatModel("no/such-model")
    with pytest.raises(InputError, match=r"has room for 32768 tokens; the prompt takes \d+ and an output up to 32000"):
        ChatModel(writer_path, new_tokens=32000).complete(["a dog"])


def test_a_killed_run_goes_on_without_asking_twice(store: QuestionStore) -> None:
    prompts = [Prompt(number, f"a thing {number}") for number in range(10)]
    outputs: dict[str, str | None] = {prompt.text: output("thing") for prompt in prompts}
    outputs["a thing 3"] = "nothing that can be used"
    first = Scripted(outputs, dies_after=6)
    with pytest.raises(KeyboardInterrupt):
        build_questions(first, prompts, store, batch_size=2)
    second = Scripted(outputs)
    seen: list[int] = []
    report = build_questions(second, prompts, store, batch_size=2, progress=seen.append)
    assert first.asked + second.asked == [prompt.text for prompt in prompts]
    assert report.skipped == 6 and sum(seen) == 10 and len(store) == 9
    assert build_questions(second, prompts, store).skipped == 10
    notes = {note.id: note.data for note in store.notes()}
    assert (
        notes[0]["questions"] == 1 and "not among the choices" in notes[0]["dropped"][0] and notes[3]["questions"] == 0
    )


def test_one_text_under_two_ids_is_asked_once(store: QuestionStore) -> None:
    model = Scripted({"a dog": output("dog")})
    report = build_questions(model, [Prompt("a", "a  dog"), Prompt("b", "a dog\n")], store)
    assert model.asked == ["a dog"] and report.questions == 2
    assert [store.get(id)[0].id for id in "ab"] == ["a", "b"] and len(store.get("a dog")) == 1


def test_prompts_without_an_output_are_asked_again(store: QuestionStore) -> None:
    report = build_questions(
        Scripted({"a dog": None, "a cat": output("cat")}), [Prompt("d", "a dog"), Prompt("c", "a cat")], store
    )
    assert report.failed == ["d: no server"] and report.asked == 1
    assert (
        build_questions(Scripted({"a dog": output("dog")}), [Prompt("d", "a dog"), Prompt("c", "a cat")], store).asked
        == 1
    )


def test_prompts_with_imported_questions_are_left_alone(store: QuestionStore, ask: Any) -> None:
    store.add([ask(id="d", prompt="a dog")])
    model = Scripted({})
    assert build_questions(model, [Prompt("d", "a dog")], store).skipped == 1 and model.asked == []
    with pytest.raises(InputError, match="id 'd' is 'a dog' in the store, here 'a cat'"):
        build_questions(model, [Prompt("d", "a cat")], store)
    with pytest.raises(InputError, match="batch_size"):
        build_questions(model, [], store, batch_size=0)


def test_whether_there_is_anything_else(store: QuestionStore) -> None:
    written = (
        "About dog (animal):\nQ: is there a dog?\nChoices: yes, no\nA: yes\n"
        + output("ball")
        + ("\nAbout two (counting):\nQ: how many dogs are there?\nChoices: 1, 2\nA: 2")
    )
    report = build_questions(Scripted({"a dog, a ball": written}), [Prompt("p", "a dog, a ball")], store, surplus=True)
    assert report.questions == 4
    last = store.get("p")[-1]
    assert last.text == "Is there anything other than these in the picture: dog, ball?"
    assert (last.answer, last.choices, last.element_type) == ("no", ("yes", "no"), "surplus")
    assert store.provenance(last)["surplus"] is True
    assert next(iter(store.notes())).data["questions"] == 4
    assert not list(check_questions([last]))


def test_a_prompt_that_names_nothing_has_no_surplus(store: QuestionStore) -> None:
    written = "About red (color):\nQ: what color is it?\nChoices: red, blue\nA: red"
    assert build_questions(Scripted({"red": written}), [Prompt("p", "red")], store, surplus=True).questions == 1
    with pytest.raises(InputError, match="surplus questions are made from the elements of form 'tifa'"):
        build_questions(Scripted({}), [], store, form="dsg", surplus=True)
