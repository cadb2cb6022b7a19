import os
import pickle

import pytest
import torch
from filelock import FileLock

from rewards import databases
from rewards.errors import RewardsError
from rewards.judges.cache import CachedJudge
from tests import tiny_models


def test_what_was_asked_is_not_asked_again(tiny_judge, tmp_path):
    judge = tiny_judge("llava")
    images, prompts = [tiny_models.picture(0), tiny_models.picture(1)], ["rate a", "rate b"]
    expected = judge.rate(images, prompts)
    cached = CachedJudge(judge, tmp_path / "j.sqlite")
    assert torch.equal(cached.rate(images, prompts).probabilities, expected.probabilities)
    again = CachedJudge(judge, tmp_path / "j.sqlite")
    found = again.rate([*images, images[0]], [*prompts, "rate c"])
    assert (again.hits, again.misses) == (2, 1)
    assert torch.equal(found.probabilities[:2], expected.probabilities)
    assert torch.equal(found.mass, found.probabilities.sum(-1))
    assert again.rate([tiny_models.picture(0).copy()], ["rate a"]).mass.item() == expected.mass[0].item()
    assert again.hits == 3  # the same picture in another object
    again.rate(images, prompts, ratings=("1", "2"))
    assert again.hits == 3  # another scale is another question


def test_answers_choices_and_minus_infinity(tiny_judge, tmp_path):
    judge = tiny_judge("vilt")
    images, questions, choices = [tiny_models.picture(0, (48, 48))], ["how many"], [["1", "purple"]]
    for _ in range(2):
        cached = CachedJudge(judge, tmp_path / "j.sqlite")
        assert cached.answer(images, questions) == judge.answer(images, questions)
        assert torch.equal(cached.choose(images, questions, choices)[0], judge.choose(images, questions, choices)[0])
    assert (cached.hits, cached.misses) == (2, 0)


def test_abstentions_are_tried_again(tiny_judge, tmp_path):
    cached = CachedJudge(tiny_judge("llava"), tmp_path / "j.sqlite")
    for _ in range(2):
        found = cached.rate([b"broken", tiny_models.picture(0)], ["a", "b"])
        assert "image 0" in found.reasons[0] and found.reasons[1] is None
        assert found.probabilities[0].isnan().all()
    assert (cached.hits, cached.misses) == (1, 3)
    assert cached.answer([b"broken"], ["a"]) == [None]


def test_another_judge_is_another_key_and_pickles_reload(tiny_judge, tmp_path):
    images, prompts = [tiny_models.picture(0)], ["rate a"]
    CachedJudge(tiny_judge("llava"), tmp_path / "j.sqlite").rate(images, prompts)
    other = CachedJudge(tiny_judge("llava", dtype="bfloat16"), tmp_path / "j.sqlite")
    other.rate(images, prompts)
    assert other.misses == 1
    again = pickle.loads(pickle.dumps(other))
    assert again.judge is other.judge
    again.rate(images, prompts)
    assert again.hits == 1


def test_the_cache_of_judgments_is_written_under_its_lock(tiny_judge, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(databases, "WAIT_SECONDS", 0.05)
    cached = CachedJudge(tiny_judge("llava"), tmp_path / "j.sqlite")
    known = cached.rate([tiny_models.picture(0)], ["a"])
    with FileLock(tmp_path / "j.sqlite-lock"):
        assert torch.equal(cached.rate([tiny_models.picture(0)], ["a"]).probabilities, known.probabilities)
        with pytest.raises(RewardsError, match="locked"):
            cached.rate([tiny_models.picture(0)], ["b"])
    assert cached.rate([tiny_models.picture(0)], ["b"]).mass.isfinite().all()


def test_a_forked_child_keeps_its_judgments_when_the_parent_closes(tiny_judge, tmp_path) -> None:
    judge = CachedJudge(tiny_judge("llava"), tmp_path / "judgments.sqlite")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        judge._keep([("one", "1")])
        os.read(reader, 1)  # until the parent has closed the file
        judge._keep([("two", "2")])
        os._exit(0)
    while not judge._look_up({0: "one"}):
        pass
    judge.close()
    os.write(writer, b"x")
    assert os.waitpid(child, 0)[1] == 0
    assert judge._look_up({0: "one", 1: "two"}) == {0: 1, 1: 2}
