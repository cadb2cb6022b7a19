"""An epoch's pictures: drawn by the method, decoded, and scored while the next ones are drawn."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from accelerate import Accelerator
from torch import Tensor

from rewards.reward import Reward
from rewards.trainers.diffusion.config import DiffusionConfig
from rewards.trainers.diffusion.methods.base import Method
from rewards.trainers.diffusion.plan import prompt_indices
from rewards.trainers.diffusion.policy.base import Policy
from rewards.trainers.diffusion.randomness import Noise
from rewards.trainers.diffusion.rollout import Rollout
from rewards.trainers.diffusion.scoring import Judged, score_pictures


@dataclass
class Drawn:
    """An epoch's pictures.

    Attributes:
        rollout: This process's.
        judged: Its scores.
        audited: Those of the audit, in an epoch that is audited.
        prompt_rows: Index of the prompt of every picture of all processes.
        local: Global indices of this process's pictures.
        seconds: By the host's clock: `sample` (drawing and decoding), `judge` (all judges, in whichever thread), `wait`
            (nothing to draw any more, and scores still to come).
    """

    rollout: Rollout
    judged: Judged
    audited: Judged | None
    prompt_rows: list[int]
    local: range
    seconds: dict[str, float]


class Collector:
    """Draws and scores epochs.

    Args:
        prompts, metadata: All training prompts.
        reward: Trains.
        audit: Never trains; or None.
        accelerator: Knows the processes.
        args: Whether to score in worker threads, and when to audit.
    """

    def __init__(
        self,
        prompts: Sequence[str],
        metadata: Sequence[Mapping[str, object]],
        reward: Reward,
        audit: Reward | None,
        accelerator: Accelerator,
        args: DiffusionConfig,
    ) -> None:
        self.prompts = prompts
        self.metadata = metadata
        self.reward = reward
        self.audit = audit
        self.accelerator = accelerator
        self.audit_freq = args.audit_freq
        self._judging: list[float] = []
        self._executor = ThreadPoolExecutor(args.max_workers) if args.async_reward_computation else None

    def epoch(self, method: Method[DiffusionConfig], policy: Policy, epoch: int) -> Drawn:
        """This process's pictures and scores of an epoch."""
        args, processes = method.args, self.accelerator.num_processes
        count, group = args.samples_per_epoch(processes), args.sample_num_images_per_prompt
        chosen = prompt_indices(len(self.prompts), count // group, epoch, args.seed)
        rows = [row for row in chosen for _ in range(group)]
        first = self.accelerator.process_index * (count // processes)
        local = range(first, first + count // processes)
        audit = self.audit if self.audit_freq > 0 and epoch % self.audit_freq == 0 else None
        parts, scores, audits = [], [], []
        self._judging = []
        started = time.perf_counter()
        for start in range(local.start, local.stop, args.sample_batch_size):
            indices = range(start, start + args.sample_batch_size)
            prompts = [self.prompts[rows[index]] for index in indices]
            metadata = [self.metadata[rows[index]] for index in indices]
            part = method.draw(prompts, Noise(args.seed, f"train/{epoch}", indices, policy.latent_shape))
            images = policy.pictures(part.final)
            parts.append(part)
            scores.append(self._submit(self.reward, images, prompts, metadata))
            if audit is not None:
                audits.append(self._submit(audit, images, prompts, metadata))
        busy = time.perf_counter() - started
        judged = Judged.concatenate([score.result() for score in scores])
        audited = None if audit is None else Judged.concatenate([score.result() for score in audits])
        judging = sum(self._judging)
        seconds = {
            "sample": busy if self._executor is not None else busy - judging,
            "judge": judging,
            "wait": time.perf_counter() - started - busy,
        }
        return Drawn(Rollout.concatenate(parts), judged, audited, rows, local, seconds)

    def _submit(
        self, reward: Reward, images: Tensor, prompts: Sequence[str], metadata: Sequence[Mapping[str, object]]
    ) -> Future[Judged]:
        """Score in a worker while the next batch is drawn, or at once."""
        if self._executor is not None:
            return self._executor.submit(self._score, reward, images, prompts, metadata)
        done: Future[Judged] = Future()
        done.set_result(self._score(reward, images, prompts, metadata))
        return done

    def _score(
        self, reward: Reward, images: Tensor, prompts: Sequence[str], metadata: Sequence[Mapping[str, object]]
    ) -> Judged:
        begun = time.perf_counter()
        judged = score_pictures(reward, images, prompts, metadata)
        self._judging.append(time.perf_counter() - begun)
        return judged
