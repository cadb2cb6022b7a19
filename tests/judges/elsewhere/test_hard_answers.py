"""What chat servers send instead of an answer: it abstains with a reason, is never 0, and is never kept."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rewards.harmonic.reward import HarmonicEval
from rewards.judges.base import UnsupportedAbility
from rewards.judges.cache import CachedJudge
from rewards.judges.elsewhere import http
from rewards.judges.elsewhere.chat import ChatJudge
from rewards.judges.elsewhere.first_token import read_listed
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from tests import tiny_models
from tests.judges.elsewhere.chat_server import ChatServer, ok


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    servers = []

    def start(behave):
        servers.append(ChatServer(behave))
        return ChatJudge("gpt-test", base_url=servers[-1].url, deadline=2.0)

    yield start
    for server in servers:
        server.stop()


def said(content, finish="stop", **message):
    return {"choices": [{"message": {"role": "assistant", "content": content, **message}, "finish_reason": finish}]}


NO_ANSWERS = {
    "null": (said(None), "empty"),
    "empty": (said(""), "empty"),
    "blank": (said(" \n"), "empty"),
    "cut": (said("two do", "length"), "cut off"),
    "filtered": (said("", "content_filter"), "filter"),
    "half filtered": (said("two", "content_filter"), "filter"),
    "refused": (said(None, refusal="I cannot look at people."), "refused: I cannot look"),
    "refused beside": (said("no", refusal="I cannot."), "refused"),
    "refused in a block": (said([{"type": "refusal", "refusal": "No."}]), "refused"),
    "half a thought": (said("<think>The picture shows two"), "thoughts"),
    "the end of a thought": (said("two dogs, I think</think>"), "thoughts"),
    "a thought alone": (said("<think>two</think>"), "empty"),
    "no blocks": (said([]), "empty"),
    "a picture": (said([{"type": "image_url", "image_url": {"url": "x"}}]), "empty"),
    "a number": (said(2), "a int"),
    "an object": (said({"answer": "two"}), "a dict"),
    "a tool": (said(None, "tool_calls", tool_calls=[{"id": "1"}]), "tool"),
    "no choices": ({"choices": []}, "cannot be used"),
    "no message": ({"choices": [{}]}, "cannot be used"),
    "an error": ({"error": {"message": "overloaded"}}, "overloaded"),
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_no_answer_abstains_with_a_reason_and_is_not_kept(serve, caplog, tmp_path, kind):
    content, reason = NO_ANSWERS[kind]
    broken = [True]
    judge = serve(lambda number, body: ok(content if broken else said("two")))
    cached = CachedJudge(judge, tmp_path / "judgments.sqlite")
    picture = [tiny_models.picture()]
    assert cached.answer(picture, ["how many?"]) == [None]
    assert reason in caplog.text
    broken.clear()
    assert cached.answer(picture, ["how many?"]) == ["two"]


@pytest.mark.parametrize(
    "content",
    [
        said([{"type": "text", "text": "two"}]), said(["tw", "o"]), said([{"type": "output_text", "text": " two "}]),
        said("<think>One? No.</think>\n\ntwo"), said("two", usage={"prompt_tokens": "many"}),
        said("two") | {"usage": {"prompt_tokens": "many", "completion_tokens": None}},
    ],
)  # fmt: skip
def test_answers_in_other_shapes_are_read(serve, content):
    assert serve(lambda number, body: ok(content)).answer([tiny_models.picture()], ["how many?"]) == ["two"]


def test_tifa_abstains_where_the_server_does(serve, tmp_path):
    store = QuestionStore(tmp_path / "questions.sqlite")
    store.add([Question("how many?", ("one", "two"), "two", "two", "counting", "two dogs")])
    for content, _ in NO_ANSWERS.values():
        judge = serve(lambda number, body, content=content: ok(content))
        scores = TIFA(judge, store, matcher=AnswerMatcher(sentence_model=None)).score(
            [tiny_models.picture()], ["two dogs"]
        )
        assert scores.overall.isnan().all() and scores.reasons[0]


def listing(*entries, **message):
    """A rating's answer with the given (token, probability or log-probability below 0) entries."""
    top = [{"token": token, "logprob": p if p <= 0 else math.log(p)} for token, p in entries]
    choice = {"message": {"content": "4", **message}, "finish_reason": "length"}
    return {"choices": [choice | {"logprobs": {"content": [{"token": entries[0][0], "top_logprobs": top}]}}]}


UNUSABLE = {
    "a rating twice": (listing(("4", 0.5), ("4", 0.5)), "2 times"),
    "a rating twice, each small": (listing(("4", 0.4), ("5", 0.1), ("4", 0.3), ("3", 0.1)), "2 times"),
    "above one": (listing(("4", 0.7), ("5", 0.31), ("3", 0.01)), "add up to 1.02"),
    "above one beside the ratings": (listing(("4", 0.5), ("the", 0.5), ("a", 0.01)), "add up to 1.01"),
    "only sentinels": (listing(("the", -9999.0), ("4", -9999.0)), "none of the ratings"),
    "refused": (listing(("4", 0.99), refusal="No."), "refused"),
}


@pytest.mark.parametrize("kind", UNUSABLE)
def test_lists_that_contradict_themselves_abstain(serve, kind):
    content, reason = UNUSABLE[kind]
    found = serve(lambda number, body: ok(content)).rate([tiny_models.picture()], ["rate"])
    assert found.probabilities.isnan().all()
    assert reason in found.reasons[0]


def test_what_is_equal_beside_the_ratings_does_not_matter(serve):
    """Half characters of several tokens are all shown as one replacement character."""
    content = listing(("4", 0.5), ("�", 0.2), ("�", 0.2), ("5", 0.1))
    found = serve(lambda number, body: ok(content)).rate([tiny_models.picture()], ["rate"])
    assert torch.allclose(found.probabilities, torch.tensor([[0, 0, 0, 0.5, 0.1]]))


@pytest.mark.parametrize("sentinel", [-9999.0, -1000.0, -100.0, -99.0, -50.0, -math.inf])
def test_a_sentinel_hides_a_rating_and_does_not_set_it_to_zero(serve, sentinel):
    filled = listing(("4", 0.5), ("the", 0.3), ("5", sentinel), ("3", sentinel))
    plain = listing(("4", 0.5), ("the", 0.3))
    judge = serve(lambda number, body: ok(filled if "filled" in json.dumps(body["messages"]) else plain))
    found = judge.rate([tiny_models.picture()] * 2, ["filled", "plain"])
    assert found.probabilities.isnan().all() and found.reasons[0] == found.reasons[1]
    assert "did not list" in found.reasons[0]


@given(certain=st.floats(1e-12, 1e-3), small=st.floats(-80.0, -30.0))
def test_a_true_entry_below_the_cut_is_not_missed(certain, small):
    """A list with a true entry so small adds up to 1: whether it is read or left out changes nothing."""
    top = {"5": math.log1p(-certain), "4": math.log(certain), "3": small}
    entries = [{"token": token, "logprob": value} for token, value in top.items()]
    answer = {"choices": [{"message": {}, "logprobs": {"content": [{"top_logprobs": entries}]}}]}
    found = read_listed(answer, ("1", "2", "3", "4", "5"), 1e-6, "ratings")
    assert found.probabilities == pytest.approx([0, 0, 0, certain, 1 - certain], abs=1e-12) and found.unseen < 1e-12


SCALE = tuple(str(rating) for rating in range(1, 11))


def test_a_server_that_splits_ten_is_refused_before_it_rates(serve):
    judge = serve(lambda number, body: ok(listing(("1", 0.9), ("2", 0.1))))
    with pytest.raises(UnsupportedAbility, match="does not write the rating '10' as one token"):
        judge.rate([tiny_models.picture()], ["rate"], SCALE)
    assert torch.isfinite(judge.rate([tiny_models.picture()], ["rate"]).probabilities).all()


def test_a_server_that_writes_ten_is_asked_once(serve):
    ten = listing(("10", 0.9), ("1", 0.1))
    asked = []
    judge = serve(lambda number, body: asked.append(json.dumps(body["messages"])) or ok(ten))
    for _ in range(2):
        found = judge.rate([tiny_models.picture()], ["rate"], SCALE)
        assert found.probabilities[0, 9].item() == pytest.approx(0.9) and found.probabilities[0, 0] == pytest.approx(
            0.1
        )
    assert sum("Write the number 10" in text for text in asked) == 1


def test_a_server_that_cannot_be_asked_is_no_refusal(serve):
    judge = serve(lambda number, body: (500, {}, b"oops"))
    found = judge.rate([tiny_models.picture()], ["rate"], SCALE)
    assert found.probabilities.isnan().all() and "one token is not known" in found.reasons[0]


OTHERS = [{"1": 0.95, "2": 0.04}, {"1": 0.7, "2": 0.28}, {"2": 0.6, "3": 0.38}, None, {"3": 0.5, "2": 0.47}]


def overall(serve, fourth: dict[str, float]) -> float:
    """HarmonicEval's score where four criteria are torn and the fourth has the given list."""
    lists = [entry or fourth for entry in OTHERS]
    names = ["a", "b", "c", "d", "e"]

    def behave(number, body):
        asked = body["messages"][0]["content"][1]["text"]
        entry = lists[names.index(asked[0])]
        return ok(listing(*entry.items()))

    reward = HarmonicEval(serve(behave), prompts={name: f"{name} {{text}}" for name in names})
    scores = reward.score([tiny_models.picture()], ["text"])
    assert scores.reasons == [None]
    return scores.overall.item()


def test_a_short_list_is_no_certainty_and_the_score_moves_continuously(serve):
    """Issue: "5" at .99 alone took all of the weight (overall 5.0); with "4" at 1e-5 in the list 4.59."""
    alone = overall(serve, {"5": 0.99})
    assert alone < 4
    for smaller in (1e-3, 1e-5, 1e-7, 1e-9, 1e-12):
        assert overall(serve, {"5": 0.99, "4": smaller}) == pytest.approx(alone, abs=20 * smaller + 1e-4)


def test_the_score_moves_continuously_as_the_rest_goes_to_zero_too(serve):
    """Towards a judge that is certain, and shows it: the weight goes to it step by step."""
    found = [overall(serve, {"5": 1 - rest}) for rest in (1e-2, 1e-4, 1e-8, 1e-12, 0.0)]
    assert found == sorted(found) and found[-1] == pytest.approx(5.0, abs=1e-3)


def test_hidden_mass_survives_the_cache(serve, tmp_path):
    judge = CachedJudge(serve(lambda number, body: ok(listing(("5", 0.9), ("the", 0.07)))), tmp_path / "j.sqlite")
    for _ in range(2):
        found = judge.rate([tiny_models.picture()], ["rate"])
        assert found.unseen is not None and found.unseen.item() == pytest.approx(0.03, abs=1e-6)
    assert judge.hits == 1
