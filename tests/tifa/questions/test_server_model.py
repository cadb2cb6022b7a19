from typing import Any

import pytest

from rewards.errors import InputError, RewardsError
from rewards.tifa.questions.generation import build_questions
from rewards.tifa.questions.language_model import few_shot_prompt, prompt_hash
from rewards.tifa.questions.prompt_files import Prompt
from rewards.tifa.questions.server_model import ServerModel
from rewards.tifa.store.store import QuestionStore
from tests.judges.elsewhere.chat_server import ChatServer, ok
from tests.judges.elsewhere.test_hard_answers import NO_ANSWERS

OUTPUT = "About dog (animal):\nQ: is there a dog?\nChoices: yes, no\nA: yes\nQ: what animal?\nChoices: cat, dog\nA: do"


def answer(text: str | None, reason: str = "stop") -> Any:
    return ok({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": reason}]})


def test_a_server_writes_questions(store: QuestionStore) -> None:
    server = ChatServer(lambda number, body: answer(OUTPUT, "length"))
    model = ServerModel(server.url, "gpt-test", concurrency=2)
    report = build_questions(model, [Prompt("a", "a dog"), Prompt("b", "one dog"), Prompt("c", "dogs")], store)
    server.stop()
    assert report.questions == 3 and report.dropped[0] == "a: last line 'A: do': cut off"
    assert server.most_at_once <= 2
    body = server.requests[0]
    assert (body["model"], body["temperature"]) == ("gpt-test", 0.0)
    assert {r["messages"][0]["content"] for r in server.requests} == {
        f"{few_shot_prompt()}Description: {text}" for text in ("a dog", "one dog", "dogs")
    }
    made = store.provenance(store.get("a")[0])
    assert made["model"] == "gpt-test" and made["server"] == server.url
    assert made["prompt_hash"] == prompt_hash(few_shot_prompt())


def test_rate_limits_are_waited_for(store: QuestionStore) -> None:
    server = ChatServer(lambda number, body: (429, {"Retry-After": "0.05"}, b"{}") if number < 3 else answer(OUTPUT))
    assert ServerModel(server.url, "gpt-test").complete(["a dog"])[0].text == OUTPUT
    server.stop()
    assert len(server.requests) == 3


def test_a_prompt_that_gets_no_answer_is_asked_in_the_next_run(store: QuestionStore) -> None:
    def behave(number: int, body: dict[str, Any]) -> Any:
        if "a cat" in body["messages"][0]["content"].rsplit("Description:", 1)[1]:
            return 400, {}, b"not this one"
        return answer(OUTPUT) if number < 10 else ok({"something": "else"})

    server = ChatServer(behave)
    model = ServerModel(server.url, "gpt-test", deadline=1)
    prompts = [Prompt("d", "a dog"), Prompt("c", "a cat")]
    report = build_questions(model, prompts, store)
    assert report.asked == 1 and len(report.failed) == 1 and report.failed[0].startswith("c: ")
    assert "refused the request (400)" in report.failed[0] and "not this one" in report.failed[0]
    assert build_questions(model, prompts, store).skipped == 1
    server.stop()
    # A server that died in the middle costs its deadline, and nothing is taken for an answer.
    dead = model.complete(["a dog", "a pig"])
    assert [completion.text for completion in dead] == [None, None] and dead[0].error


@pytest.mark.parametrize("body", [{}, {"choices": []}, {"choices": [{}]}, {"choices": "x"}])
def test_an_answer_of_another_shape_is_no_answer(body: dict[str, Any]) -> None:
    server = ChatServer(lambda number, request: ok(body))
    completion = ServerModel(server.url, "gpt-test").complete(["a dog"])[0]
    server.stop()
    assert completion.text is None and "cannot be used" in (completion.error or "")


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_what_is_no_answer_of_a_judge_writes_no_questions_either(kind: str, store: QuestionStore) -> None:
    """But for one that was cut, whose whole lines are used."""
    content, reason = NO_ANSWERS[kind]
    server = ChatServer(lambda number, request: ok(content))
    model = ServerModel(server.url, "gpt-test", deadline=1)
    report = build_questions(model, [Prompt("a", "a dog")], store)
    if kind == "cut":
        assert report.dropped == ["a: last line 'two do': cut off"]
    else:
        assert report.asked == 0 and reason in report.failed[0]
        assert build_questions(model, [Prompt("a", "a dog")], store).skipped == 0
    server.stop()


@pytest.mark.parametrize(
    "content",
    [[{"type": "text", "text": OUTPUT[:20]}, {"type": "text", "text": OUTPUT[20:]}],
     f"<think>Q: is there a cat?</think>{OUTPUT}",
     f"<|channel|>analysis<|message|>Q: what?<|end|><|start|>assistant<|channel|>final<|message|>{OUTPUT}",
     f"{OUTPUT}<|im_end|>"],
)  # fmt: skip
def test_questions_in_blocks_and_after_thoughts_are_read(content: Any) -> None:
    server = ChatServer(lambda number, request: answer(content))
    assert ServerModel(server.url, "gpt-test").complete(["a dog"])[0].text == OUTPUT
    server.stop()


def test_what_cannot_work_is_said_at_once() -> None:
    server = ChatServer(lambda number, body: None)
    with pytest.raises(InputError, match="has no model 'gpt-none'; it has gpt-test"):
        ServerModel(server.url, "gpt-none")
    server.stop()
    with pytest.raises(RewardsError, match="no judge answers at"):
        ServerModel(server.url, "gpt-test")
