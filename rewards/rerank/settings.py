"""Settings of a job of reranking; YAML mirrors them (configs/best_of_n_*.yaml)."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from rewards.build import RewardSettings, with_absolute_paths
from rewards.errors import InputError
from rewards.jobs.rewards import judged_kind, refuse_memory
from rewards.rerank.rows import FIELDS


@dataclass
class RerankSettings:
    """What a job of reranking depends on: the same settings and source give the same bytes.

    Attributes:
        reward: what ranks.
        audit: a second reward that scores the same candidates and never ranks: a held-out judge or an oracle.
        group_by: column whose equal values make one item of many rows; None: one row an item.
        images: folder of the pictures; default: the folder of the file.
        columns: our name -> name in the file, e.g. {prompt: caption}.
        shard_size: items committed together; a killed run repeats one shard at most.
        batch_size: candidates handed to the reward at a time.
        max_text: longest text in characters that is given to a judge.
        max_abstained: share of abstentions in a shard of 200 candidates or more above which the job stops.
    """

    reward: RewardSettings
    audit: RewardSettings | None = None
    group_by: str | None = None
    images: str | None = None
    columns: dict[str, str] = field(default_factory=dict)
    shard_size: int = 256
    batch_size: int = 128
    max_text: int = 100_000
    max_abstained: float = 0.5

    def __post_init__(self) -> None:
        for name in ("shard_size", "batch_size", "max_text"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; at least 1 is needed")
        if not 0 <= self.max_abstained <= 1:
            raise InputError(f"max_abstained is {self.max_abstained}; a share between 0 and 1 is needed")
        if unknown := sorted(set(self.columns) - set(FIELDS)):
            raise InputError(f"columns has {', '.join(unknown)}; known names are {', '.join(FIELDS)}")
        refuse_memory(self.reward)
        if self.audit is not None and len({judged_kind(self.reward), judged_kind(self.audit)} - {None}) > 1:
            raise InputError(
                f"reward {self.reward.kind!r} and audit {self.audit.kind!r} judge different things: "
                "one ranks texts, the other pictures"
            )

    @property
    def kind(self) -> str | None:
        """ "texts" or "pictures" where the reward or the audit judges nothing else."""
        return judged_kind(self.reward) or (judged_kind(self.audit) if self.audit is not None else None)

    def placed(self) -> RerankSettings:
        """The settings with every path of a folder or file in full, so that any process finds it."""
        return replace(
            self,
            reward=with_absolute_paths(self.reward),
            audit=with_absolute_paths(self.audit) if self.audit is not None else None,
            images=os.path.abspath(self.images) if self.images is not None else None,
        )
