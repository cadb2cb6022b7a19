"""The importance ratio of TRL's GRPO and RLOO: exactly 1 before the first update, and logged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
from accelerate import Accelerator
from torch import Tensor, nn

Metrics: TypeAlias = defaultdict[str, list[float]]
"""TRL's, by name; one that is new begins as an empty list."""


def before_first_update(trainer: Any) -> bool:
    """Whether a TRL trainer has made no optimiser step since the texts at hand were sampled."""
    steps_per_generation = trainer.args.steps_per_generation or 1  # the config has set it by now
    since = trainer._step % (steps_per_generation * trainer.num_iterations)
    return since < trainer.current_gradient_accumulation_steps


class RatioFromOne:
    """Mix in before `GRPOTrainer` or `RLOOTrainer`.

    TRL takes the old log-probabilities from a pass of their own, in another batch composition, so that the ratio before
    the first update is 1 only up to rounding (in bfloat16 that is not small). The policy that sampled is then the
    policy at hand: its own log-probabilities are the old ones, and the ratio is exactly 1, as it is by definition.

    Logs `policy/ratio` (over tokens in GRPO, texts in RLOO; `policy/ratio_before_update` for texts on which no update
    was made yet), `policy/ratio_farthest` (the largest distance from 1) and `policy/approx_kl` (half the mean square of
    the log-ratio).
    """

    # Of TRL's trainers.
    accelerator: Accelerator
    model: Any
    _metrics: dict[str, Metrics]

    _log_probs: Tensor
    _starting: dict[str, Tensor] | None = None

    def _get_per_token_logps_and_entropies(self, *args: object, **kwargs: object) -> tuple[Tensor, ...]:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)  # type: ignore[misc]
        self._log_probs = result[0].detach()
        if self._starting is not None:  # RLOO reads this after the pass
            self._starting["old_logps"] = (self._log_probs * self._starting["completion_mask"]).sum(1)
        return result

    def _compute_loss(self, model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        mode = "train" if self.model.training else "eval"
        inputs = dict(inputs)
        if mode == "eval" or before_first_update(self):
            inputs.pop("old_per_token_logps", None)  # GRPO then divides the policy by itself
            self._starting = inputs if "old_logps" in inputs else None
        try:
            loss = super()._compute_loss(model, inputs)  # type: ignore[misc]
        finally:
            self._starting = None
        self._log_ratio(mode, inputs)
        return loss

    def _log_ratio(self, mode: str, inputs: Mapping[str, Tensor]) -> None:
        now, mask = self._log_probs, inputs["completion_mask"] * inputs.get("tool_mask", 1)
        if "old_logps" in inputs:
            change = ((now * mask).sum(1) - inputs["old_logps"]).unsqueeze(1)
            mask = torch.ones_like(change)
        else:
            change = now - inputs.get("old_per_token_logps", now)
        before_update = mode == "train" and before_first_update(self)
        log_ratio(self._metrics[mode], self.accelerator, change, mask, before_update)


def log_ratio(
    metrics: Metrics, accelerator: Accelerator, log_ratios: Tensor, mask: Tensor, before_update: bool
) -> None:
    """Log how far the policy has moved from the one that sampled, over the tokens (or texts) of all processes.

    Args:
        metrics: name -> list of values, TRL's.
        accelerator: knows the processes.
        log_ratios: log(new / old) of each token, shape (B, T).
        mask: shape (B, T), 1 where a token counts.
        before_update: whether no optimiser step was made since the texts were sampled.
    """
    log_ratios = log_ratios.detach() * mask
    change = torch.expm1(log_ratios)
    sums = torch.stack([change.sum(), log_ratios.square().sum(), mask.sum().to(change.dtype)])
    total, squares, count = accelerator.reduce(sums, reduction="sum").tolist()
    if count:
        metrics["policy/ratio"].append(1 + total / count)
        metrics["policy/approx_kl"].append(0.5 * squares / count)
        if before_update:
            metrics["policy/ratio_before_update"].append(1 + total / count)
    metrics["policy/ratio_farthest"].append(accelerator.gather(change.abs().max()).max().item())
