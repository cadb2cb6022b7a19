"""Best-of-n: choose among candidate texts or pictures by a reward, without training.

- items.py: `Item`: what is to be ranked; ranking.py: `Ranking`: the order, ties, margins
- scoring.py: any reward -> scores of candidates; selection.py: `best_of_n(reward, items)`
- gain.py: expected reward of best-of-k for every k, with a held-out judge beside it
- sources.py, rows.py, index.py: files of candidates, read by position, each bad row named
- settings.py, job.py, manifest.py, outputs.py: resumable work in shards, and what comes out of it
- engine.py, ray_engine.py: who does the work
- generate.py: candidates from a VLM or a diffusers pipeline, each reproducible by its seed
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rewards.rerank.gain import gain_curves
    from rewards.rerank.items import Item
    from rewards.rerank.ranking import Ranking
    from rewards.rerank.selection import best_of_n

_HOMES = {"best_of_n": "selection", "gain_curves": "gain", "Item": "items", "Ranking": "ranking"}

__all__ = ["Item", "Ranking", "best_of_n", "gain_curves"]


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
