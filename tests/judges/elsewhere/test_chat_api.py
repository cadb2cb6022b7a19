"""Issue "Done when" 4: every sample is scored or abstains, none is lost, none is 0 by default."""

import json
import logging
import random
import threading
import time

import pytest
import torch

from rewards.errors import InputError, RewardsError
from rewards.judges.elsewhere import http
from rewards.judges.elsewhere.chat import ChatJudge
from rewards.judges.elsewhere.http import Budget
from rewards.judges.loading import load_judge
from rewards.tifa.questions.question import Question
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from rewards.tifa.vqascore import VQAScore
from tests import tiny_models
from tests.judges.elsewhere.chat_server import ChatServer, ok, ratings_answer

GOOD = {"4": 0.6, " 5": 0.2, "5": 0.1, "3": 0.05, "2": 0.02, "1": 0.01, "the": 0.02}


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setattr(http, "FIRST_WAIT", 0.01)
    servers = []

    def start(behave, port=0):
        servers.append(ChatServer(behave, port))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def judge_at(server, **options):
    return ChatJudge("gpt-test", base_url=server.url, **{"deadline": 5.0, **options})


def asked(body):
    return body["messages"][0]["content"][1]["text"]


def pictures(count):
    return [tiny_models.picture(seed, (40, 30)) for seed in range(count)]


def test_variants_are_summed_and_usage_counted(serve):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    judge = judge_at(server, prices=(2.5, 10.0))
    found = judge.rate(pictures(3), ["a", "b", "c"])
    assert torch.allclose(found.probabilities, torch.tensor([[0.01, 0.02, 0.05, 0.6, 0.3]] * 3))
    assert torch.allclose(found.mass, torch.full((3,), 0.98))
    assert judge.usage == pytest.approx(
        {"requests": 3, "retries": 0, "input_tokens": 300, "output_tokens": 3, "cost": 300 * 2.5e-6 + 3 * 1e-5}
    )
    sent = server.requests[0]
    assert sent["logprobs"] is True and sent["top_logprobs"] == 20 and sent["max_tokens"] == 1
    assert [block["type"] for block in sent["messages"][0]["content"]] == ["image_url", "text"]
    assert sent["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/jpeg;base64,")


def test_hidden_ratings_are_unknown_not_zero(serve):
    barely = {"4": 0.9, "the": 0.09, "a": 0.004}
    hiding = {"4": 0.3, "the": 0.3, "a": 0.2}
    none = {"The": 0.9, "A": 0.1}
    script = {"barely": barely, "hiding": hiding, "none": none, "empty": {}}
    server = serve(lambda number, body: ok(ratings_answer(script[asked(body)])))
    found = judge_at(server).rate(pictures(1) * 4, list(script))
    assert torch.allclose(found.probabilities[0], torch.tensor([0, 0, 0, 0.9, 0]))
    assert found.probabilities[1:].isnan().all()
    assert "did not list" in found.reasons[1]
    assert "none of the ratings" in found.reasons[2]


def test_every_sample_is_scored_or_abstains_through_everything_that_goes_wrong(serve):
    chooser = random.Random(0)
    lock = threading.Lock()

    def behave(number, body):
        text = asked(body)
        with lock:
            luck = chooser.random()
        if "never" in text:
            return ok(ratings_answer({"The": 0.9, "A": 0.1}))
        if "shape" in text:
            return ok({"choices": []})
        if luck < 0.1:
            return 429, {"Retry-After": "0.02"}, b"slow down"
        if luck < 0.2:
            return None
        if luck < 0.25:
            return 200, {}, b'{"choices": [{"logp'
        if luck < 0.3:
            return 500, {}, b"oops"
        if luck < 0.32:
            time.sleep(0.7)
        share = int(text.split()[-1]) / 1000
        return ok(ratings_answer({"5": 0.5 + share, "1": 0.4 - share, "2": 0.04, "3": 0.03, "4": 0.02}))

    server = serve(behave)
    judge = judge_at(server, timeout=0.5, deadline=20.0, concurrency=8)
    prompts = [f"{['rate', 'never', 'shape'][0 if at % 10 else at // 10 % 3]} {at}" for at in range(200)]
    found = judge.rate(pictures(4) * 50, prompts)
    for at, prompt in enumerate(prompts):
        if prompt.startswith("rate"):
            assert found.probabilities[at, 4].item() == pytest.approx(0.5 + at / 1000, abs=1e-6), prompt
            assert found.reasons[at] is None
        else:
            assert found.probabilities[at].isnan().all()
            assert found.reasons[at]
    assert judge.usage["retries"] > 20
    assert server.most_at_once <= 8


def test_a_killed_and_restarted_server_is_survived(serve):
    def behave(number, body):
        time.sleep(0.02)
        return ok(ratings_answer(GOOD))

    first = serve(behave)
    judge = judge_at(first, deadline=20.0, concurrency=4)
    timer = threading.Timer(0.3, first.stop)
    again = threading.Timer(1.0, lambda: serve(behave, first.port))
    timer.start(), again.start()
    found = judge.rate(pictures(2) * 60, [f"rate {at}" for at in range(120)])
    assert torch.isfinite(found.probabilities).all()
    assert judge.usage["retries"] > 0


def test_a_server_that_dies_costs_one_deadline_not_one_a_row(serve):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    judge = judge_at(server, deadline=0.5, concurrency=2)
    server.stop()
    start = time.monotonic()
    found = judge.rate(pictures(1) * 200, [f"rate {at}" for at in range(200)])
    assert time.monotonic() - start < 10
    assert found.probabilities.isnan().all()
    assert all("no answer within" in reason for reason in found.reasons)


def test_a_dead_server_fails_at_once():
    start = time.monotonic()
    with pytest.raises(RewardsError, match="no judge answers"):
        ChatJudge("gpt-test", base_url="http://127.0.0.1:9/v1")
    assert time.monotonic() - start < 10


def test_an_unknown_model_is_named(serve):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    with pytest.raises(InputError, match="has no model 'gpt-5'; it has gpt-test"):
        load_judge("gpt-5", base_url=server.url)


def test_refusals_are_not_retried(serve):
    server = serve(lambda number, body: (400, {}, b"image too large"))
    judge = judge_at(server)
    assert "image too large" in judge.rate(pictures(1), ["rate"]).reasons[0]
    assert judge.usage["retries"] == 0


def test_retry_after_is_honoured(serve):
    server = serve(lambda number, body: (429, {"Retry-After": "0.4"}, b"") if number == 1 else ok(ratings_answer(GOOD)))
    assert torch.isfinite(judge_at(server).rate(pictures(1), ["rate"]).probabilities).all()
    assert server.times[1] - server.times[0] >= 0.4


def test_the_request_budget_is_kept(serve, monkeypatch):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    judge = judge_at(server)
    judge._budget = Budget(requests=5, tokens=None, window=0.5)
    start = time.monotonic()
    judge.rate(pictures(1) * 12, [f"rate {at}" for at in range(12)])
    arrived = sorted(server.times)
    assert arrived[5] - start >= 0.5 and arrived[10] - start >= 1.0


def test_the_token_budget_is_kept():
    budget = Budget(requests=None, tokens=100, window=0.3)
    start = time.monotonic()
    for _ in range(4):
        budget.acquire(50)
    assert time.monotonic() - start >= 0.3
    budget.acquire(1000)  # larger than the whole budget: it still passes, alone


def test_the_key_is_sent_and_never_shown(serve, monkeypatch, caplog):
    monkeypatch.setenv("MY_KEY", "sk-secret-123")
    caplog.set_level(logging.DEBUG)
    server = serve(lambda number, body: (500, {}, b"oops"))
    judge = judge_at(server, api_key_env="MY_KEY", deadline=0.1)
    found = judge.rate(pictures(1), ["rate"])
    assert server.headers["Authorization"] == "Bearer sk-secret-123"
    shown = caplog.text + repr(judge) + json.dumps(judge.identity()) + str(found.reasons) + repr(vars(judge))
    assert "sk-secret" not in shown


def test_answers_and_explanations(serve):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    judge = judge_at(server)
    assert judge.answer([*pictures(1), b"broken"], ["how many", "what"]) == ["4", None]
    assert judge.explain(pictures(1), ["rate"], ["4"]) == ["4"]
    assert [turn["role"] for turn in server.requests[-1]["messages"]] == ["user", "assistant", "user"]


def test_choices_are_scored_by_their_letters(serve):
    script = {
        "clear": {"B": 0.5, " B": 0.2, "A": 0.2, "b": 0.05, "C": 0.03},
        "short": {"A": 0.9, "The": 0.09, "B": 0.009},
        "hiding": {"A": 0.4, "The": 0.3, "It": 0.2},
        "none": {"The": 0.9, "It": 0.1},
    }
    server = serve(lambda number, body: ok(ratings_answer(script[asked(body).split()[0]])))
    choices = [["red", "blue", "gr\neen"], ["yes", "no", "maybe"], ["yes", "no"], ["yes", "no"], ["1", "2"]]
    found = judge_at(server).choose([*pictures(1) * 4, b"broken"], [*script, "clear"], choices)
    assert torch.allclose(found[0].exp(), torch.tensor([0.2, 0.7, 0.03]))
    assert torch.allclose(found[1].exp(), torch.tensor([0.9, 0.009, 0.0]))  # C: unlisted, and hardly possible
    assert [row.isnan().all().item() for row in found] == [False, False, True, True, True]
    assert [len(row) for row in found] == [3, 3, 2, 2, 2]
    first = next(body for body in server.requests if asked(body).startswith("clear"))
    assert asked(first).startswith("clear\nA. red\nB. blue\nC. gr een\nAnswer with the letter")
    assert first["max_tokens"] == 1 and first["top_logprobs"] == 20


def test_more_choices_than_letters_are_refused(serve):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    judge = judge_at(server)
    for offered in ([], ["x"] * 27):
        with pytest.raises(InputError, match=f"question 1 has {len(offered)} choices; expected 1 to 26"):
            judge.choose(pictures(1) * 2, ["a", "b"], [["1"], offered])
    with pytest.raises(InputError, match="2 questions but 1"):
        judge.choose(pictures(1) * 2, ["a", "b"], [["1"]])
    assert not server.requests


def test_equal_rows_are_sent_once_and_pictures_scaled(serve):
    server = serve(lambda number, body: ok(ratings_answer(GOOD)))
    judge = judge_at(server, longest_side=16, jpeg_quality=None)
    judge.rate(pictures(1) * 5, ["rate"] * 5)
    assert len(server.requests) == 1
    assert server.requests[0]["messages"][0]["content"][0]["image_url"]["url"].startswith("data:image/png")


YES = ["Yes", "yes", " Yes", " yes"]
MASSES = {
    # what the server lists -> the mass, or what the reason says
    "both": ({"Yes": 0.6, " yes": 0.1, "No": 0.25, "no": 0.05}, 0.7),
    "not this spelling": ({"Yes": 0.6, "YES": 0.3, "\nYes": 0.1}, 0.6),
    "sure of no": ({"No": 0.99, " No": 0.005, "Not": 0.002}, 0.0),
    "hiding": ({"No": 0.5, "The": 0.3}, "beyond what the server listed"),
    "short": ({"No": 0.6}, "beyond what the server listed"),
    "split": ({"No": 0.7, "Y": 0.3}, "beyond what the server listed"),
    "nothing": ({}, "beyond what the server listed"),
}


@pytest.mark.parametrize("kind", MASSES)
def test_the_mass_of_an_answer_is_what_is_listed_of_it_where_little_is_hidden(serve, kind, caplog):
    listed, expected = MASSES[kind]
    judge = judge_at(serve(lambda number, body: ok(ratings_answer(listed))))
    found = judge.mass(pictures(1), ["Is it?"], [YES])
    assert found.dtype == torch.float32
    if isinstance(expected, str):
        assert found.isnan().all() and expected in caplog.text
    else:
        assert found.tolist() == pytest.approx([expected], abs=1e-6)


def test_one_answer_is_read_for_every_answer_that_is_asked_about(serve):
    server = serve(lambda number, body: ok(ratings_answer({"two": 0.5, "2": 0.2, "one": 0.25, "Yes": 0.05})))
    judge = judge_at(server)
    image = pictures(1)[0]
    found = judge.mass([image] * 3 + [b"nothing"], ["How many?"] * 4, [["two", "2"], ["one"], ["Yes"], ["Yes"]])
    assert found[:3].tolist() == pytest.approx([0.7, 0.25, 0.05]) and found[3].isnan()
    assert len(server.requests) == 1


def test_soft_tifa_and_vqascore_by_a_server(serve, tmp_path):
    said = {
        "is it red? Answer in one word.": {"Yes": 0.8, "No": 0.2},
        "how many? Answer in one word.": {"two": 0.5, "Three": 0.5},
        'Does this figure show "a red circle"? Please answer yes or no.': {"Yes": 0.4, "yes": 0.3, "No": 0.3},
        'Does this image show "a red circle"? Answer the question with Yes or No.': {"Yes": 0.4, "yes": 0.3, "No": 0.3},
    }
    judge = judge_at(serve(lambda number, body: ok(ratings_answer(said[asked(body)]))))
    store = QuestionStore(tmp_path / "q.sqlite")
    store.add([
        Question("is it red?", (), "Yes", "red", "attribute", "a red circle"),
        Question("how many?", (), "two", "", "count", "a red circle"),
    ])  # fmt: skip
    scores = TIFA(judge, store, soft="mass").score(pictures(1), ["a red circle"])
    assert [row.score for row in scores.answers] == pytest.approx([0.8, 0.5])
    geometric = TIFA(judge, store, soft="mass", aggregate="geometric").score(pictures(1), ["a red circle"])
    assert geometric.overall.item() == pytest.approx(0.4**0.5)
    for wording, expected in (("vqascore", 0.4), ("geneval2", 0.7)):  # t2v_metrics counts "Yes" only
        assert VQAScore(judge, wording).score(pictures(1), ["a red circle"]).overall.tolist() == pytest.approx(
            [expected]
        )
