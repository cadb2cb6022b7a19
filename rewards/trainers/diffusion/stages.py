"""Several methods one after the other in one run: which of them an epoch belongs to."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from rewards.errors import InputError
from rewards.runs.files import Json
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Method

OF_THE_RUN = (
    "run_name seed output_dir log_with tracker_project_name tracker_kwargs save_freq num_checkpoint_limit "
    "resume overwrite mixed_precision allow_tf32 gradient_checkpointing use_lora lora_rank lora_alpha "
    "lora_target_modules train_ema_decay negative_prompts max_sequence_length async_reward_computation "
    "resolution max_workers max_failure_rate train_max_idle_epochs eval_freq eval_batch_size "
    "eval_num_images_per_prompt "
    "eval_num_steps eval_eta eval_guidance_scale num_logged_samples audit_freq audit_max_gap"
).split()
"""Settings that one run has once."""


class Stages:
    """The methods of a run with the epochs that each of them has.

    Args:
        methods: At least one.

    Raises:
        InputError: No method, or stages that disagree in a setting that a run has once.
    """

    def __init__(self, methods: Sequence[Method[DiffusionConfig]]) -> None:
        if not methods:
            raise InputError("a run needs at least one method")
        self._methods = list(methods)
        for number, method in enumerate(self._methods[1:], start=2):
            for name in OF_THE_RUN:
                first, here = (getattr(m.args, name) for m in (self._methods[0], method))
                if first != here:
                    raise InputError(f"stage {number}: {name} is {here!r}, but {first!r} in stage 1; a run has it once")

    def __iter__(self) -> Iterator[Method[DiffusionConfig]]:
        return iter(self._methods)

    @property
    def run_args(self) -> DiffusionConfig:
        """The settings that concern the run as a whole."""
        return self._methods[0].args

    @property
    def num_epochs(self) -> int:
        """Epochs of all stages."""
        return sum(method.args.num_epochs for method in self)

    def at(self, epoch: int) -> Method[DiffusionConfig]:
        """The method of an epoch; after the last epoch, the last method."""
        return self._methods[self._number(epoch)]

    def first_epoch(self, epoch: int) -> int:
        """The first epoch of the stage that an epoch belongs to."""
        return sum(method.args.num_epochs for method in self._methods[: self._number(epoch)])

    def _number(self, epoch: int) -> int:
        end = 0
        for number, method in enumerate(self._methods):
            end += method.args.num_epochs
            if epoch < end:
                return number
        return len(self._methods) - 1

    def identity(self, may_change: frozenset[str]) -> list[dict[str, Json]]:
        """The settings of each stage that a result depends on."""
        return [
            {"method": method.name}
            | {name: value for name, value in dataclasses.asdict(method.args).items() if name not in may_change}
            for method in self
        ]
