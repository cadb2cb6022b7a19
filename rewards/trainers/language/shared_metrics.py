"""What reward functions log, put together over processes: counts are summed, means weighted by their counts."""

from __future__ import annotations

from typing import Any

from accelerate.utils import gather_object
from torch import Tensor

from rewards.runs.metrics import merge_metrics


class MetricsOfAllProcesses:
    """Mix in before a TRL trainer.

    TRL averages what functions hand to `log_metric` over processes, each with the same weight: two processes would
    report half of the texts, and a process that could judge one text would count as much as one that judged sixty.
    """

    # Of TRL's trainers.
    accelerator: Any
    _pending_metrics: Any

    def _calculate_rewards(self, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
        rewards = super()._calculate_rewards(inputs, *args, **kwargs)  # type: ignore[misc]
        if self.accelerator.num_processes > 1:
            mine = {name: values[-1] for name, values in self._pending_metrics.items() if values}
            merged = merge_metrics(gather_object([(mine, len(inputs))]))
            self._pending_metrics.clear()
            self._pending_metrics.update({name: [value] for name, value in merged.items()})
        return rewards
