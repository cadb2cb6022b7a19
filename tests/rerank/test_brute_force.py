"""Ranked files equal a plain sort of `reward.score`: texts and pictures, any batch size, shuffled input.

The same on 2,000 items, on both engines: `python benchmarks/rerank_jobs.py ranks`.
"""

import random

import pytest

from rewards.build import RewardSettings
from rewards.jobs.job import run_local
from rewards.rerank.outputs import OutputSettings, write_outputs
from rewards.rerank.settings import RerankSettings
from rewards.rerank.task import start_rerank

from . import brute_force
from .functions import read_lines

ITEMS = 6


def texts(folder):
    rows = brute_force.text_rows(folder, ITEMS)
    return rows, brute_force.text_scores(folder, rows), RewardSettings(judge="shapes-rater")


def pictures(folder):
    rows = brute_force.picture_rows(folder, ITEMS, cut_every=3)
    reward = RewardSettings(kind="tifa", judge="shapes-vqa", questions=str(folder / "questions.sqlite"), soft=True)
    return rows, brute_force.picture_scores(folder, rows), reward


@pytest.mark.parametrize("kind", [texts, pictures])
def test_ranks_equal_a_plain_sort_of_reward_score(tmp_path, kind):
    rows, scores, reward = kind(tmp_path)
    candidates = {row["id"]: row["candidates"] for row in rows}
    for batch_size, shard_size in ((1, 4), (19, 100), (1000, 3)):
        shuffled = random.Random(batch_size).sample(rows, ITEMS)
        source = brute_force.write_rows(tmp_path / f"{batch_size}.jsonl", shuffled)
        settings = RerankSettings(reward=reward, batch_size=batch_size, shard_size=shard_size)
        job = start_rerank(source, tmp_path / f"job{batch_size}", settings)
        run_local(job)
        write_outputs(job, OutputSettings())
        ranked = read_lines(job.folder / "ranked.jsonl")
        assert [row["id"] for row in ranked] == [row["id"] for row in shuffled]
        found = brute_force.compare(ranked, scores, candidates)
        assert (found.items, found.wrong) == (ITEMS, [])
        assert found.abstained == (2 if kind is pictures else 0)


def row(*order, scores=(0.5, 0.9, 0.5)):
    entries = [{"index": k, "overall": None if scores[k] != scores[k] else scores[k]} for k in order]
    return {"id": "i", "candidates": entries}


NAN = float("nan")


@pytest.mark.parametrize(
    ("ranked", "scores", "wrong"),
    [
        (row(1, 0, 2), (0.5, 0.9, 0.5), []),
        (row(0, 1, 2), (0.5, 0.9, 0.5), ["i"]),
        (row(1, 0), (0.5, 0.9, 0.5), ["i"]),
        (row(1, 2, 0), (0.5, 0.9, 0.5), ["i"]),
        (row(1, 0, 2), (0.5, 0.8, 0.5), ["i"]),
        (row(1, 0, 2), (0.5, 0.9, NAN), ["i"]),
        (row(1, 0, 2, scores=(0.5, 0.9, NAN)), (0.5, 0.9, NAN), []),
        (row(2, 1, 0, scores=(0.5, 0.9, NAN)), (0.5, 0.9, NAN), ["i"]),
    ],
)
def test_the_comparison_finds_faults(ranked, scores, wrong):
    candidates = {"i": ["same", "other", "same"]}
    assert brute_force.compare([ranked], {"i": scores}, candidates).wrong == wrong
