"""The criteria as separate reward functions: one pass of the judge a batch, logged once, safe under threads."""

import pickle
from concurrent.futures import ThreadPoolExecutor

from rewards.harmonic.criteria import CRITERIA
from rewards.harmonic.reward import HarmonicEval
from tests.harmonic.judging import KnownJudge, chat, picture


def batch(seed: int, images=None):
    return {
        "prompts": [[{"role": "user", "content": "Describe."}]] * 2,
        "completions": [chat(f"text {seed}"), chat("SILENT")],
        "image": images or [picture(seed), picture(seed)],
    }


def test_five_functions_share_one_pass_and_log_it_once():
    judge, logged, columns = KnownJudge(), [], []
    reward = HarmonicEval(judge)
    functions = reward.per_criterion()
    assert [function.__name__ for function in functions] == [f"HarmonicEval/{c}" for c in CRITERIA]
    given = batch(1)
    results = [
        function(**given, log_metric=lambda k, v: logged.append(k), log_extra=lambda k, v: columns.append(k))
        for function in functions
    ]
    assert judge.calls == 1
    scores = reward.score(given["image"], ["text 1", "SILENT"])
    assert results == [[scores.criteria[0, column].item(), None] for column in range(5)]
    assert len(logged) == len(set(logged)) and len(columns) == len(set(columns)) == 6


def test_a_new_round_is_judged_and_logged_again():
    judge, logged = KnownJudge(), []
    functions = HarmonicEval(judge).per_criterion()
    given = batch(1)
    for _ in range(3):
        for function in functions:
            function(**given, log_metric=lambda key, value: logged.append(key))
    assert judge.calls == 3
    assert logged.count("rewards/HarmonicEval/overall/mean") == 3


def test_other_texts_pictures_or_questions_are_other_batches():
    judge = KnownJudge()
    function = HarmonicEval(judge, task="vqa").per_criterion()[0]
    images = [picture(1), picture(1)]
    function(**batch(1, images), question=["q", "q"])
    function(**batch(2, images), question=["q", "q"])
    function(**batch(1, images), question=["q", "r"])
    function(**batch(1), question=["q", "q"])
    assert judge.calls == 4


def test_threads_wait_for_one_pass():
    judge = KnownJudge()
    functions = HarmonicEval(judge).per_criterion()
    given = batch(3)
    with ThreadPoolExecutor(5) as pool:
        results = list(pool.map(lambda function: function(**given), functions))
    assert judge.calls == 1 and len({tuple(result) for result in results}) == 5


def test_pickled_together_they_still_share():
    functions = pickle.loads(pickle.dumps(HarmonicEval(KnownJudge()).per_criterion()))
    given = batch(1)
    for function in functions:
        function(**given)
    assert functions[0]._shared is functions[4]._shared
    assert functions[0]._shared.reward.judge.calls == 1
