"""What reward functions log, put together over processes, and where a step's time goes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from rewards.runs.metrics import merge_metrics


class MetricsOfAllProcesses:
    """Mix in before a TRL trainer.

    TRL averages what functions hand to `log_metric` over processes, each with the same weight: two processes would
    report half of the texts, and a process that could judge one text would count as much as one that judged sixty.
    Counts are summed, means weighted by their counts.

    Logs `time/sample` (writing) and `time/judge` beside TRL's time of the whole step; the rest of it is training.
    """

    # Of TRL's trainers.
    accelerator: Accelerator
    model: nn.Module
    _metrics: Any
    _pending_metrics: Any

    def _generate(self, *args: object, **kwargs: object) -> Any:
        with self._timed("time/sample"):
            return super()._generate(*args, **kwargs)  # type: ignore[misc]

    def _calculate_rewards(self, inputs: Sequence[object], *args: object, **kwargs: object) -> Tensor:
        with self._timed("time/judge"):
            rewards = super()._calculate_rewards(inputs, *args, **kwargs)  # type: ignore[misc]
        if self.accelerator.num_processes > 1:
            mine = {name: values[-1] for name, values in self._pending_metrics.items() if values}
            merged = merge_metrics(gather_object([(mine, len(inputs))]))
            self._pending_metrics.clear()
            self._pending_metrics.update({name: [value] for name, value in merged.items()})
        return rewards

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        mode, begun = "train" if self.model.training else "eval", time.perf_counter()
        yield
        self._metrics[mode][name].append(time.perf_counter() - begun)
