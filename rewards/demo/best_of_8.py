"""The demo's third part: no training, only choosing the best of eight captions a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from rewards.generation.texts import write_batches
from rewards.harmonic.reward import HarmonicEval
from rewards.judges.loading import load_judge
from rewards.rerank import Item, Ranking, best_of_n, gain_curves
from rewards.runs.files import Json, write_whole
from rewards.shapes.datasets import caption_prompts
from rewards.shapes.truth_reward import caption_truth_reward
from rewards.trainers.language.held_out import conversation
from rewards.trainers.language.policy import load_policy
from rewards.trainers.language.settings import PolicySettings

CANDIDATES = 8
BATCH = 64


def rerank_captions(folder: Path, pictures: int, seed: int) -> dict[str, Json]:
    """Sample eight captions of each held-out picture from the untrained captioner and keep the rater's choice.

    Args:
        folder: gets ``ranking.jsonl`` (a picture a line, candidates best first, with parts) and ``gain.json``.
        pictures: how many held-out pictures.
        seed: of pictures and captions.

    Returns:
        The gain curves as plain values (see :class:`rewards.rerank.gain.GainCurves`); ``truth`` is the held-out judge.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model, processor, _ = load_policy(PolicySettings(path="shapes-captioner"))
    rows = [row for row in caption_prompts("test", pictures, seed=seed + 2) for _ in range(CANDIDATES)]
    texts: list[str] = []
    for number in tqdm(range(0, len(rows), BATCH), desc="best of 8: captions", unit="batch"):
        made = write_batches(
            model,
            processor,
            [conversation(row) for row in rows[number : number + BATCH]],
            max_new_tokens=24,
            batch_size=BATCH,
            seed=seed,
            first_batch=number // BATCH,
        )
        texts += [g.text for g in made]
    items = [
        Item(
            candidates=tuple(texts[i : i + CANDIDATES]),
            image=rows[i]["image"],
            id=str(i // CANDIDATES),
            extra={"scene": rows[i]["scene"]},
        )
        for i in range(0, len(rows), CANDIDATES)
    ]
    rankings = best_of_n(HarmonicEval(load_judge("shapes-rater"), task="captioning"), items)
    curves = gain_curves(rankings, {"truth": best_of_n(caption_truth_reward, items)}, seed=seed).as_dict()
    write_whole(folder / "ranking.jsonl", "".join(json.dumps(row) + "\n" for row in _rows(rankings)))
    write_whole(folder / "gain.json", json.dumps(curves, indent=1) + "\n")
    return curves


def _rows(rankings: Sequence[Ranking]) -> list[dict[str, object]]:
    return [
        {
            "id": ranking.item.id,
            "margin": ranking.margin,
            "candidates": [
                {"rank": c.rank, "text": c.candidate, "overall": c.score.overall, "parts": dict(c.score.parts)}
                for c in ranking.candidates
            ],
        }
        for ranking in rankings
    ]
