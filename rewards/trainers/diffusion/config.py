"""The settings of :class:`rewards.trainers.diffusion.ddpo.DDPOTrainer`, under the names of TRL's old ``DDPOConfig``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rewards.errors import InputError
from rewards.runs.config import check_number

ATTENTION_MODULES = ["to_q", "to_k", "to_v", "to_out.0"]


@dataclass
class DDPOConfig:
    """Settings of a DDPO run.

    One epoch samples ``sample_batch_size * sample_num_batches_per_epoch`` pictures on each process, scores them, and
    takes optimiser steps over all of them. An optimiser step sees ``train_batch_size *
    train_gradient_accumulation_steps`` samples a process, each with all of its trained denoising steps, as in TRL; the
    pairs of sample and step are shuffled over the whole epoch and all processes.

    Attributes:
        run_name: Name of the run in trackers.
        seed: Seed of noise, order and adapter. A picture's noise depends on the seed, the epoch and its index alone.
        logdir: Folder for ``metrics.jsonl``, ``samples.jsonl``, checkpoints and the adapter.
        log_with: A tracker of accelerate ("tensorboard", "wandb", "trackio", ...), several, or None.
        tracker_project_name: Project name in the tracker.
        tracker_kwargs: Passed to the tracker, by tracker name (``{"wandb": {"entity": ...}}``).

        num_epochs: Epochs to train.
        save_freq: Epochs between checkpoints; 0 saves none but the last.
        num_checkpoint_limit: Checkpoints kept.
        resume_from: A checkpoint, or a run folder whose newest checkpoint is taken; "auto" takes the newest of
            ``logdir`` and starts afresh where there is none; "" starts afresh, and refuses a ``logdir`` that holds a
            run.

        mixed_precision: "no", "fp16" or "bf16". Latents, log-probabilities, adapter weights and the VAE stay in
            float32.
        allow_tf32: TF32 matrix products on GPUs that have them.
        gradient_checkpointing: Recompute UNet activations in the backward pass: less memory, slower.
        use_lora: Train a LoRA adapter; False trains the whole UNet.
        lora_rank: Rank of the adapter.
        lora_alpha: Scale of the adapter; None takes the rank (scale 1).
        lora_target_modules: Names of UNet layers that get an adapter. The default is the attention projections; adding
            ``conv1, conv2, proj_in, proj_out, ff.net.0.proj, ff.net.2`` reaches convolutions and feed-forward layers.

        sample_num_steps: Denoising steps.
        sample_eta: DDIM's eta in (0, 1]: the randomness that the policy gradient needs.
        sample_guidance_scale: Classifier-free guidance, in sampling and in training; 1 turns it off.
        sample_batch_size: Pictures denoised at a time, a process.
        sample_num_batches_per_epoch: Batches sampled an epoch, a process.
        sample_num_images_per_prompt: Pictures of each prompt in an epoch.
        negative_prompts: The negative prompt under guidance.

        train_batch_size: Pairs of sample and step in one UNet call, a process.
        train_gradient_accumulation_steps: See above.
        train_num_inner_epochs: Passes over an epoch's samples.
        train_timestep_fraction: Share of each sample's denoising steps to train on, drawn at random.
        train_learning_rate: Learning rate of AdamW.
        train_lr_schedule: "constant", or "cosine" or "linear" to 0 at the last epoch.
        train_lr_warmup_epochs: Epochs of linear warm-up.
        train_adam_beta1, train_adam_beta2, train_adam_weight_decay, train_adam_epsilon: AdamW.
        train_max_grad_norm: Gradient norm is clipped to this.
        train_clip_range: Clip range of the importance ratio. It is small because log-probabilities are averaged over
            latent dimensions.
        train_adv_clip_max: Advantages are clamped to +- this.
        train_adv_min: Samples whose advantage is smaller than this in absolute value are left out of the updates: they
            cost as much as the others and move little.
        train_kl_coefficient: Weight of the KL to the base model: None neither computes nor logs it, 0 only logs it.

        per_prompt_stat_tracking: Advantages from each prompt's mean and deviation; False normalises over all samples.
        per_prompt_stat_tracking_buffer_size: Rewards kept a prompt.
        per_prompt_stat_tracking_min_count: Below this many rewards in its buffer a prompt uses the batch's statistics.
        advantage_epsilon: Added to the deviation that divides.

        async_reward_computation: Score a batch in a worker thread while the next one is sampled.
        max_workers: Worker threads.
        max_failure_rate: The run stops when a larger share of an epoch's pictures cannot be judged.

        eval_freq: Epochs between evaluations on the held-out prompts (0: only before and after).
        eval_batch_size: Pictures at a time in evaluation; None takes ``sample_batch_size``.
        eval_num_images_per_prompt: Pictures of each held-out prompt, always from the same noise.
        eval_num_steps, eval_eta, eval_guidance_scale: Sampler of evaluations; None takes the training sampler's.
        num_logged_samples: Held-out pictures kept in ``samples.jsonl`` and the tracker at each evaluation.

        audit_freq: Epochs between audits of training pictures (evaluations are always audited); 0 for none.
        audit_max_gap: Stop the run when (reward - audit) on the same pictures has grown by more than this since its
            first value; None never stops.

    Raises:
        InputError: Settings that contradict each other.

    Example:
        >>> DDPOConfig(sample_batch_size=16, sample_num_images_per_prompt=8).sample_eta
        1.0
    """

    run_name: str = ""
    seed: int = 0
    logdir: str = "runs/ddpo"
    log_with: str | list[str] | None = None
    tracker_project_name: str = "rewards"
    tracker_kwargs: dict[str, Any] = field(default_factory=dict)

    num_epochs: int = 100
    save_freq: int = 10
    num_checkpoint_limit: int = 5
    resume_from: str = ""

    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    allow_tf32: bool = True
    gradient_checkpointing: bool = False
    use_lora: bool = True
    lora_rank: int = 16
    lora_alpha: float | None = None
    lora_target_modules: list[str] = field(default_factory=lambda: list(ATTENTION_MODULES))

    sample_num_steps: int = 50
    sample_eta: float = 1.0
    sample_guidance_scale: float = 5.0
    sample_batch_size: int = 8
    sample_num_batches_per_epoch: int = 2
    sample_num_images_per_prompt: int = 8
    negative_prompts: str = ""

    train_batch_size: int = 4
    train_gradient_accumulation_steps: int = 1
    train_num_inner_epochs: int = 1
    train_timestep_fraction: float = 1.0
    train_learning_rate: float = 3e-4
    train_lr_schedule: Literal["constant", "cosine", "linear"] = "constant"
    train_lr_warmup_epochs: int = 0
    train_adam_beta1: float = 0.9
    train_adam_beta2: float = 0.999
    train_adam_weight_decay: float = 1e-4
    train_adam_epsilon: float = 1e-8
    train_max_grad_norm: float = 1.0
    train_clip_range: float = 1e-4
    train_adv_clip_max: float = 5.0
    train_adv_min: float = 0.0
    train_kl_coefficient: float | None = None

    per_prompt_stat_tracking: bool = True
    per_prompt_stat_tracking_buffer_size: int = 16
    per_prompt_stat_tracking_min_count: int = 4
    advantage_epsilon: float = 1e-4

    async_reward_computation: bool = False
    max_workers: int = 1
    max_failure_rate: float = 0.5

    eval_freq: int = 10
    eval_batch_size: int | None = None
    eval_num_images_per_prompt: int = 1
    eval_num_steps: int | None = None
    eval_eta: float | None = None
    eval_guidance_scale: float | None = None
    num_logged_samples: int = 16

    audit_freq: int = 1
    audit_max_gap: float | None = None

    def __post_init__(self) -> None:
        positive = (
            "num_checkpoint_limit lora_rank sample_num_steps sample_batch_size sample_num_batches_per_epoch "
            "sample_num_images_per_prompt train_batch_size train_gradient_accumulation_steps train_num_inner_epochs "
            "max_workers eval_num_images_per_prompt train_learning_rate train_clip_range train_adv_clip_max "
            "eval_batch_size eval_num_steps"
        )
        not_negative = (
            "num_epochs save_freq eval_freq audit_freq num_logged_samples sample_guidance_scale eval_guidance_scale "
            "train_adv_min advantage_epsilon train_kl_coefficient"
        )
        for name in positive.split():
            check_number(name, getattr(self, name), above=0)
        for name in not_negative.split():
            check_number(name, getattr(self, name), at_least=0)
        if not 0 < self.sample_eta <= 1:
            raise InputError(
                f"sample_eta must lie in (0, 1], got {self.sample_eta}: a deterministic sampler has no policy gradient"
            )
        if not 0 < self.train_timestep_fraction <= 1:
            raise InputError(f"train_timestep_fraction must lie in (0, 1], got {self.train_timestep_fraction}")
        if not 0 <= self.max_failure_rate <= 1:
            raise InputError(f"max_failure_rate must lie in [0, 1], got {self.max_failure_rate}")
        if self.eval_eta is not None and not 0 <= self.eval_eta <= 1:
            raise InputError(f"eval_eta must lie in [0, 1], got {self.eval_eta}")

    def samples_per_epoch(self, num_processes: int = 1) -> int:
        """Pictures an epoch over all processes.

        Raises:
            InputError: They do not divide into groups of ``sample_num_images_per_prompt``.
        """
        total = self.sample_batch_size * self.sample_num_batches_per_epoch * num_processes
        if total % self.sample_num_images_per_prompt:
            raise InputError(
                f"an epoch samples {total} pictures (sample_batch_size x sample_num_batches_per_epoch x processes), "
                f"which is not a multiple of sample_num_images_per_prompt = {self.sample_num_images_per_prompt}"
            )
        return total
