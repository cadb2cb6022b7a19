"""The settings that all methods for models that draw share, under the names of TRL's old `DDPOConfig`.

Each method adds its own in `methods/`, in a dataclass derived from :class:`DiffusionConfig`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from rewards.errors import InputError
from rewards.runs.config import check_number

ATTENTION_MODULES = ["to_q", "to_k", "to_v", "to_out.0"]


@dataclass
class DiffusionConfig:
    """Settings of a run, whatever its method.

    One epoch samples `sample_batch_size * sample_num_batches_per_epoch` pictures on each process, scores them, and
    takes optimiser steps over all of them. An optimiser step sees `train_batch_size *
    train_gradient_accumulation_steps` samples a process, each with all of its trained denoising steps, as in TRL; the
    pairs of sample and step are shuffled over the whole epoch and all processes.

    Attributes:
        run_name: Name of the run in trackers.
        seed: Seed of noise, order and adapter. A picture's noise depends on the seed, the epoch and its index alone.
        output_dir: Folder for `metrics.jsonl`, `samples.jsonl`, checkpoints and the adapter.
        log_with: A tracker of accelerate ("tensorboard", "wandb", "trackio", ...), several, or None.
        tracker_project_name: Project name in the tracker.
        tracker_kwargs: Passed to the tracker, by tracker name (`{"wandb": {"entity": ...}}`).

        num_epochs: Epochs to train.
        save_freq: Epochs between checkpoints; 0 saves none but the last.
        num_checkpoint_limit: Checkpoints kept.
        resume: Go on from the newest checkpoint in `output_dir`; true (or "auto") starts afresh where there is none. A
            run with other settings than those that may change (see :mod:`rewards.trainers.diffusion.record`) is
            refused.
        overwrite: Replace the run that `output_dir` holds. Without either, a folder that holds a run is refused.

        mixed_precision: "no", "fp16" or "bf16". Latents, log-probabilities, adapter weights and the VAE stay in
            float32.
        allow_tf32: TF32 matrix products on GPUs that have them.
        gradient_checkpointing: Recompute the network's activations in the backward pass: less memory, slower.
        use_lora: Train a LoRA adapter; False trains the whole network.
        lora_rank: Rank of the adapter.
        lora_alpha: Scale of the adapter; None takes the rank (scale 1).
        lora_target_modules: Names of the network's layers that get an adapter. The default is the attention
            projections; adding `conv1, conv2, proj_in, proj_out, ff.net.0.proj, ff.net.2` reaches convolutions and
            feed-forward layers.

        resolution: Side of the (square) pictures in pixels; None takes the pipeline's usual one.
        sample_num_steps: Denoising steps.
        sample_guidance_scale: Classifier-free guidance, in sampling and in training; 1 turns it off. FLUX.1 is told the
            number instead, as it was distilled to be.
        sample_batch_size: Pictures denoised at a time, a process.
        sample_num_batches_per_epoch: Batches sampled an epoch, a process.
        sample_num_images_per_prompt: Pictures of each prompt in an epoch.
        negative_prompts: The negative prompt under guidance.
        max_sequence_length: Tokens that a prompt has, at most (of Stable Diffusion 3 and FLUX: for T5).

        train_batch_size: Pairs of sample and step in one call of the network, a process.
        train_gradient_accumulation_steps: See above.
        train_num_inner_epochs: Passes over an epoch's samples.
        train_learning_rate: Learning rate of AdamW.
        train_lr_schedule: "constant", or "cosine" or "linear" to 0 at the last epoch. A run that is extended goes on
            from the rate at which it stood.
        train_lr_warmup_epochs: Epochs of linear warm-up.
        train_adam_beta1, train_adam_beta2, train_adam_weight_decay, train_adam_epsilon: AdamW.
        train_max_grad_norm: Gradient norm is clipped to this.
        train_adv_clip_max: Advantages are clamped to +- this.
        train_adv_min: Samples whose advantage is smaller than this in absolute value are left out of the updates: they
            cost as much as the others and move little.
        train_kl_coefficient: Weight of the distance to the base model: None neither computes nor logs it, 0 only logs
            it.
        train_kl_log_freq: With a weight of 0, epochs between those in which it is measured, on the pairs of their last
            optimiser step: a pass of the base model for every pair would be paid for a number alone.
        train_ema_decay: Evaluate and save a moving average of the weights, `d * average + (1 - d) * weights` after
            every epoch, with this d in [0, 1); None takes the weights as they are.
        train_max_skipped_steps: An optimiser step whose loss or gradient is not finite is skipped on all processes and
            counted. The run stops when more than this many in a row were skipped.
        train_max_idle_epochs: The run stops after this many epochs in a row whose rewards had no spread, so that
            nothing could be learned; it warns of the first.

        per_prompt_stat_tracking: Advantages from each prompt's mean and deviation; False normalises over all samples.
        per_prompt_stat_tracking_buffer_size: Rewards kept a prompt.
        per_prompt_stat_tracking_min_count: Below this many rewards in its buffer a prompt uses the batch's statistics.
        advantage_deviation: What divides: the deviation of each "prompt", or of all samples of the "epoch", as the
            reference implementations of Flow-GRPO, DiffusionNFT and AWM take it.
        advantage_epsilon: Added to the deviation that divides.

        async_reward_computation: Score a batch in a worker thread while the next one is sampled.
        max_workers: Worker threads.
        max_failure_rate: The run stops when a larger share of an epoch's pictures cannot be judged.

        eval_freq: Epochs between evaluations on the held-out prompts (0: only before and after).
        eval_batch_size: Pictures at a time in evaluation; None takes `sample_batch_size`.
        eval_num_images_per_prompt: Pictures of each held-out prompt, always from the same noise.
        eval_num_steps, eval_eta, eval_guidance_scale: Sampler of evaluations; None takes the training
            sampler's (for eta the method's own choice).
        num_logged_samples: Pictures kept in `samples.jsonl` and the tracker at each evaluation; in a run without
            held-out prompts pictures of the training, as often.

        audit_before: Before training, audit the reward on the untrained model's own pictures of held-out prompts, the
            half of them that it scores highest (:mod:`rewards.audit`): print what it accepts, keep `audit.json` and
            `audit.html` in the run folder.
        audit_freq: Epochs between audits of training pictures (evaluations are always audited); 0 for none.
        audit_max_gap: Stop the run when (reward - audit) on the same pictures has grown by more than this since its
            first value; None never stops.

    Raises:
        InputError: Settings that contradict each other.

    Example:
        >>> DiffusionConfig(sample_batch_size=16, sample_num_images_per_prompt=8).samples_per_epoch()
        32
    """

    run_name: str = ""
    seed: int = 0
    output_dir: str = "runs/diffusion"
    log_with: str | list[str] | None = None
    tracker_project_name: str = "rewards"
    tracker_kwargs: dict[str, Any] = field(default_factory=dict)

    num_epochs: int = 100
    save_freq: int = 10
    num_checkpoint_limit: int = 5
    resume: bool | Literal["auto"] = False
    overwrite: bool = False

    mixed_precision: Literal["no", "fp16", "bf16"] = "no"
    allow_tf32: bool = True
    gradient_checkpointing: bool = False
    use_lora: bool = True
    lora_rank: int = 16
    lora_alpha: float | None = None
    lora_target_modules: list[str] = field(default_factory=lambda: list(ATTENTION_MODULES))

    resolution: int | None = None
    sample_num_steps: int = 50
    sample_guidance_scale: float = 5.0
    sample_batch_size: int = 8
    sample_num_batches_per_epoch: int = 2
    sample_num_images_per_prompt: int = 8
    negative_prompts: str = ""
    max_sequence_length: int = 256

    train_batch_size: int = 4
    train_gradient_accumulation_steps: int = 1
    train_num_inner_epochs: int = 1
    train_learning_rate: float = 3e-4
    train_lr_schedule: Literal["constant", "cosine", "linear"] = "constant"
    train_lr_warmup_epochs: int = 0
    train_adam_beta1: float = 0.9
    train_adam_beta2: float = 0.999
    train_adam_weight_decay: float = 1e-4
    train_adam_epsilon: float = 1e-8
    train_max_grad_norm: float = 1.0
    train_adv_clip_max: float = 5.0
    train_adv_min: float = 0.0
    train_kl_coefficient: float | None = None
    train_kl_log_freq: int = 10
    train_ema_decay: float | None = None
    train_max_skipped_steps: int = 10
    train_max_idle_epochs: int = 3

    per_prompt_stat_tracking: bool = True
    per_prompt_stat_tracking_buffer_size: int = 16
    per_prompt_stat_tracking_min_count: int = 4
    advantage_deviation: Literal["prompt", "epoch"] = "prompt"
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

    audit_before: bool = False
    audit_freq: int = 1
    audit_max_gap: float | None = None

    def __post_init__(self) -> None:
        positive = (
            "num_checkpoint_limit lora_rank max_sequence_length sample_num_steps sample_batch_size "
            "sample_num_batches_per_epoch sample_num_images_per_prompt train_batch_size "
            "train_gradient_accumulation_steps train_num_inner_epochs max_workers eval_num_images_per_prompt "
            "train_learning_rate train_adv_clip_max train_max_idle_epochs train_kl_log_freq eval_batch_size "
            "eval_num_steps resolution"
        )
        not_negative = (
            "num_epochs save_freq eval_freq audit_freq num_logged_samples train_adv_min advantage_epsilon "
            "train_kl_coefficient train_max_skipped_steps train_lr_warmup_epochs"
        )
        for name in positive.split():
            check_number(name, getattr(self, name), above=0)
        for name in not_negative.split():
            check_number(name, getattr(self, name), at_least=0)
        for name in ("sample_guidance_scale", "eval_guidance_scale"):
            check_guidance(name, getattr(self, name))
        check_number("max_failure_rate", self.max_failure_rate, at_least=0, at_most=1)
        check_number("eval_eta", self.eval_eta, at_least=0, at_most=1)
        check_number("train_ema_decay", self.train_ema_decay, at_least=0, at_most=0.9999)
        if self.resume and self.overwrite:
            raise InputError("resume goes on with the run in output_dir, overwrite replaces it: set one of them")

    def samples_per_epoch(self, num_processes: int = 1) -> int:
        """Pictures an epoch over all processes.

        Raises:
            InputError: They do not divide into groups of `sample_num_images_per_prompt`.
        """
        total = self.sample_batch_size * self.sample_num_batches_per_epoch * num_processes
        if total % self.sample_num_images_per_prompt:
            raise InputError(
                f"an epoch samples {total} pictures (sample_batch_size x sample_num_batches_per_epoch x processes), "
                f"which is not a multiple of sample_num_images_per_prompt = {self.sample_num_images_per_prompt}"
            )
        return total


def check_guidance(name: str, scale: float | None) -> None:
    """Refuse a guidance scale below 1: it would be taken as 1, as in diffusers, and mean no guidance at all.

    Raises:
        InputError: Names the setting and the value.
    """
    if scale is not None and not scale >= 1:
        raise InputError(f"{name} must be at least 1, got {scale}; 1 turns guidance off")
