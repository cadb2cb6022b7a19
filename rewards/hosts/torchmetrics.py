"""torchmetrics: a reward as a `Metric`, for evaluation loops that gather over processes.

    from rewards.hosts.torchmetrics import RewardMetric
    metric = RewardMetric("reward.yaml")

and `metric.update(images, texts)`, `metric.compute()` as of any metric, alone or in a `MetricCollection`. What cannot
be judged is left out of the means and counted (`abstained`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from rewards.hosts.shared import resident_reward
from rewards.reward import Reward


class RewardMetric(Metric):
    """Mean overall score, and the mean of every part.

    Args:
        config: YAML file of the reward, or a reward.
        settings: keys of :class:`rewards.build.RewardSettings`.

    Example:
        >>> metric = RewardMetric(judge="shapes-rater")                     # doctest: +SKIP
        >>> metric.update([picture], ["a red circle"])                      # doctest: +SKIP
        >>> metric.compute()["correctness"]                                 # doctest: +SKIP
        tensor(4.9)
    """

    higher_is_better = True
    full_state_update = False
    total: Tensor
    count: Tensor
    abstained: Tensor

    def __init__(self, config: str | Reward | None = None, **settings: object) -> None:
        super().__init__()
        self.reward = config if isinstance(config, Reward) else resident_reward(config, **settings)
        self.parts = self.reward.score([], [], inputs=[], boxes=[]).part_names
        size = len(self.parts) + 1
        self.add_state("total", torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros(size, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("abstained", torch.tensor(0.0), dist_reduce_fx="sum")
        # A MetricCollection updates one metric for all whose states are equal after the first batch: those of two
        # rewards that could not judge it would be.
        which = hashlib.sha256(json.dumps(self.reward.identity(), sort_keys=True, default=str).encode()).digest()
        self.add_state("which", torch.tensor(list(which), dtype=torch.float64), dist_reduce_fx="max")

    def update(self, images: Sequence[object], texts: Sequence[str | None], **columns: Sequence[object]) -> None:
        """Take N samples; arguments as :meth:`rewards.reward.Reward.score`."""
        scores = self.reward.score(images, texts, **columns)
        judged = ~scores.abstained
        values = torch.cat([scores.overall.double().unsqueeze(1), scores.parts.double()], dim=1)[judged]
        counts = torch.cat([torch.ones(len(scores), 1), scores.counts], dim=1).double()[judged]
        self.total += torch.where(counts > 0, values * counts, 0.0).sum(0).to(self.total)
        self.count += counts.sum(0).to(self.count)
        self.abstained += float((~judged).sum())

    def compute(self) -> dict[str, Tensor]:
        """`overall` and every part, NaN where nothing was judged, and `abstained` (a number of samples)."""
        means = self.total / torch.where(self.count > 0, self.count, torch.nan)
        return {"overall": means[0], **dict(zip(self.parts, means[1:], strict=True)), "abstained": self.abstained}
