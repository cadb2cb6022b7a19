"""PPO for vision-language models, on the machinery of TRL's GRPOTrainer.

TRL removed its `PPOTrainer` in 2026 (1.12 was the last release with it; text-only, rewards had to be models). This one
takes pictures, and reward functions exactly as GRPO does. It relies on private methods of `GRPOTrainer`, so trl is
pinned to a minor version and `tests/trainers/language/test_trl_contract.py` names what it leans on.

| TRL's old `PPOConfig` | here |
|---|---|
| `num_ppo_epochs` | `num_iterations` |
| `num_mini_batches` | `steps_per_generation` / `gradient_accumulation_steps` |
| `cliprange` | `epsilon` |
| `cliprange_value`, `vf_coef`, `kl_coef`, `gamma`, `lam` | the same |
| `response_length` | `max_completion_length` |
| `reward_model` | `reward_funcs` |
| `value_model` | a value head on the policy |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from rewards.errors import InputError
from rewards.trainers.language.guards import SPREAD, FiniteWeights
from rewards.trainers.language.on_policy import before_first_update, log_ratio
from rewards.trainers.language.ppo_math import (
    clipped_value_loss,
    explained_variance,
    generalized_advantages,
    masked_moments,
    token_rewards,
    whiten,
)
from rewards.trainers.language.schedule import ScheduleGoesOn
from rewards.trainers.language.shared_metrics import MetricsOfAllProcesses
from rewards.trainers.language.value_head import ValueCapture, ValueHead, load_value_head, save_value_head

# What the policy needs beside token ids; GRPOTrainer hands these on under the same names.
_PICTURE_INPUTS = (
    "pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles",
    "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids",
)  # fmt: skip


@dataclass
class PPOConfig(GRPOConfig):
    """Settings of :class:`PPOTrainer`: those of `trl.GRPOConfig` and PPO's own.

    Two of GRPO's mean nothing here: `scale_rewards`, and `num_generations`, which TRL wants to be 2 or more (how often
    a prompt occurs in a batch; texts are not compared with their siblings).

    Args:
        gamma: discount a token.
        lam: GAE's lambda.
        kl_coef: weight of the KL to the policy before training, as part of the reward.
        vf_coef: weight of the value loss.
        cliprange_value: clip range of the values.
        num_iterations: passes over the sampled texts (old name: `num_ppo_epochs`).
        num_generations: see above.
        loss_type: mean over tokens (`bnpo`), as in PPO.
    """

    gamma: float = field(default=1.0, metadata={"help": "Discount a token."})
    lam: float = field(default=0.95, metadata={"help": "GAE's lambda."})
    kl_coef: float = field(default=0.05, metadata={"help": "Weight of the KL to the initial policy in the reward."})
    vf_coef: float = field(default=0.1, metadata={"help": "Weight of the value loss."})
    cliprange_value: float = field(default=0.2, metadata={"help": "Clip range of the values."})
    num_iterations: int = field(default=4, metadata={"help": "Passes over the sampled texts."})
    num_generations: int | None = field(default=2, metadata={"help": "How often a prompt occurs in a batch."})
    loss_type: str = field(default="bnpo", metadata={"help": "Mean over tokens."})

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("gamma", "lam"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        for name in ("kl_coef", "vf_coef"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.cliprange_value <= 0:
            raise InputError(f"cliprange_value must be above 0, got {self.cliprange_value}")
        if self.beta != 0:
            raise InputError("beta is GRPO's KL in the loss; PPO has its KL in the reward: set kl_coef instead")
        if self.use_vllm:
            raise InputError("use_vllm is not supported by PPO: the value head would be sent to the server as a weight")
        if self.loss_type != "bnpo":
            raise InputError(f"loss_type must be 'bnpo' (mean over tokens) for PPO, got {self.loss_type!r}")


class PPOTrainer(MetricsOfAllProcesses, FiniteWeights, ScheduleGoesOn, GRPOTrainer):
    """PPO with a value head, GAE, clipped policy and value losses, and a KL to the initial policy in the reward.

    Args:
        args: a :class:`PPOConfig`.
        Everything else as in `trl.GRPOTrainer`: `model`, `reward_funcs`, `train_dataset`, `processing_class`,
        `peft_config`, `callbacks`, ...

    A text that no reward function could score takes no part in advantages, value targets and statistics.

    Checkpoints and :meth:`save_model` hold a plain adapter (or model) and `value_head.safetensors` beside it. One
    process and DDP are tested; FSDP and DeepSpeed are not.

    Raises:
        InputError: for a KL without an adapter to switch off, or settings outside their range.

    Example:
        >>> trainer = PPOTrainer(model, reward_funcs=HarmonicEval(judge), args=PPOConfig("runs/ppo"),
        ...                      train_dataset=dataset, processing_class=processor, peft_config=lora)  # doctest: +SKIP
        >>> trainer.train()  # doctest: +SKIP
    """

    _tag_names = ["trl", "ppo"]  # noqa: RUF012 - declared so by the parent
    _name = "PPO"

    args: PPOConfig
    model: nn.Module

    def __init__(self, model: str | PreTrainedModel, reward_funcs: Any, args: PPOConfig, **options: Any) -> None:
        super().__init__(model=model, reward_funcs=reward_funcs, args=args, **options)
        policy = self.accelerator.unwrap_model(self.model)
        self._has_adapter = hasattr(policy, "disable_adapter")
        if args.kl_coef > 0 and not self._has_adapter:
            raise InputError("the KL needs the initial policy: train an adapter (peft_config=), or set kl_coef=0")
        base = policy.get_base_model() if self._has_adapter else policy
        # On the outer model: the optimiser, DDP and FSDP see it, and the adapter's own files stay plain.
        policy.value_head = ValueHead(base.config.get_text_config().hidden_size).to(base.device)
        self._capture = ValueCapture(base.base_model, policy.value_head)
        self._value_bias_is_set = False
        self._recorded: tuple[Tensor, Tensor] | None = None
        self._rewards_per_func: Tensor | None = None

    @property
    def value_head(self) -> ValueHead:
        """The value head."""
        return self.accelerator.unwrap_model(self.model).value_head

    def _get_per_token_logps_and_entropies(
        self,
        model: nn.Module,
        input_ids: Tensor,
        attention_mask: Tensor,
        logits_to_keep: int,
        *args: object,
        **kwargs: object,
    ) -> tuple[Tensor, ...]:
        with self._capture.recording(logits_to_keep) as values:
            result = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
            )
            self._recorded = (result[0], torch.cat(values))
        return result

    def _calculate_rewards(self, inputs: Sequence[object], *args: object, **kwargs: object) -> Tensor:
        self._rewards_per_func = super()._calculate_rewards(inputs, *args, **kwargs)
        return self._rewards_per_func

    def _generate_and_score_completions(self, inputs: list[dict[str, object]]) -> dict[str, Tensor]:
        self._recorded = None
        output = super()._generate_and_score_completions(inputs)
        # The parent computes old log-probabilities only where its own loss needs them.
        recorded = self._recorded if "old_per_token_logps" in output else None
        log_probs, values = recorded or self._score_tokens(output, reference=False)
        log_probs = output.get("old_per_token_logps", log_probs)
        reference = self._score_tokens(output, reference=True)[0] if self.args.kl_coef > 0 else None

        scores, judged = self._text_scores(len(inputs))
        mask = output["completion_mask"] * output.get("tool_mask", 1) * judged.unsqueeze(1)
        values = self._start_values(values, scores, judged)
        rewards = token_rewards(scores, log_probs, reference, mask, self.args.kl_coef)
        advantages, returns = generalized_advantages(rewards, values, mask, self.args.gamma, self.args.lam)
        moments = self.accelerator.reduce(masked_moments(advantages, mask), reduction="sum")
        output |= {
            "advantages": whiten(advantages, mask, moments),
            "returns": returns,
            "old_values": values * mask,
            "old_per_token_logps": log_probs,
            "value_mask": mask,
        }
        self._log_texts(scores, judged, values, returns, log_probs, reference, mask)
        return output

    def _score_tokens(self, output: Mapping[str, Tensor], reference: bool) -> tuple[Tensor, Tensor]:
        """Log-probabilities and values of the completions under the policy, or under the policy before training."""
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        attention_mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        pictures = {name: output[name] for name in _PICTURE_INPUTS if name in output}
        mode = "train" if self.model.training else "eval"
        batch_size = self.args.per_device_train_batch_size if mode == "train" else self.args.per_device_eval_batch_size
        policy = self.accelerator.unwrap_model(self.model)
        with torch.no_grad(), policy.disable_adapter() if reference else torch.no_grad():
            self._get_per_token_logps_and_entropies(
                self.model, ids, attention_mask, output["completion_ids"].size(1), batch_size=batch_size, **pictures
            )
        assert self._recorded is not None
        return self._recorded

    def _text_scores(self, count: int) -> tuple[Tensor, Tensor]:
        """This process's weighted rewards, (B,), and whether any function gave one, (B,)."""
        assert self._rewards_per_func is not None
        start = self.accelerator.process_index * count
        rows = self._rewards_per_func[start : start + count]
        judged = ~rows.isnan().all(dim=1)
        return (rows * self.reward_weights.to(rows.device)).nansum(dim=1), judged

    def _start_values(self, values: Tensor, scores: Tensor, judged: Tensor) -> Tensor:
        """Before the first update, let the head predict the mean score of the first batch.

        A head that starts at 0 under rewards around 3 gives late tokens a larger advantage than early ones until it
        has learned that constant, which at the policy's learning rate takes hundreds of steps.
        """
        if self._value_bias_is_set or not self.model.training:
            return values
        moments = self.accelerator.reduce(masked_moments(scores, judged), reduction="sum")
        if moments[2] == 0:
            return values
        self._value_bias_is_set = True
        mean = (moments[0] / moments[2]).float()
        with torch.no_grad():
            self.value_head.bias.add_(mean)
        return values + mean

    def _compute_loss(self, model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
        mode = "train" if self.model.training else "eval"
        if mode == "eval" or before_first_update(self):
            # The policy that sampled is the policy at hand: the ratio is exactly 1, whatever rounding another batch
            # composition would bring.
            inputs = {key: value for key, value in inputs.items() if key != "old_per_token_logps"}
        policy_loss = super()._compute_loss(model, inputs)
        assert self._recorded is not None
        log_probs, values = self._recorded
        value_loss, clipped = clipped_value_loss(
            values, inputs["old_values"], inputs["returns"], inputs["value_mask"], self.args.cliprange_value
        )
        change = log_probs - inputs.get("old_per_token_logps", log_probs)
        before_update = mode == "train" and before_first_update(self)
        log_ratio(self._metrics[mode], self.accelerator, change, inputs["value_mask"], before_update)
        for name, value in (("value_loss", value_loss.detach()), ("value_clip_fraction", clipped)):
            self._metrics[mode][f"train/{name}"].append(self.accelerator.gather(value).mean().item())
        accumulation = self.current_gradient_accumulation_steps if mode == "train" else 1
        return policy_loss + self.args.vf_coef * value_loss / accumulation

    def _log_texts(
        self,
        scores: Tensor,
        judged: Tensor,
        values: Tensor,
        returns: Tensor,
        log_probs: Tensor,
        reference: Tensor | None,
        mask: Tensor,
    ) -> None:
        log = self._metrics["train" if self.model.training else "eval"]
        # GRPO compares the texts of a prompt; PPO does not, so its group statistics would mislead.
        log.pop("frac_reward_zero_std", None)
        found = self.accelerator.gather(scores)[self.accelerator.gather(judged)]
        log[SPREAD].append((found.max() - found.min()).item() if len(found) else 0.0)
        # Sums, not gathered tokens: processes pad their texts to different lengths.
        of_values, of_returns, of_errors = (
            self.accelerator.reduce(masked_moments(tokens, mask), reduction="sum")
            for tokens in (values, returns, returns - values)
        )
        if of_values[2] > 0:
            log["train/value_mean"].append((of_values[0] / of_values[2]).item())
            log["train/return_mean"].append((of_returns[0] / of_returns[2]).item())
            log["train/explained_variance"].append(explained_variance(of_errors, of_returns))
        if reference is not None:
            # Of whole texts, as TRL's old objective/kl.
            gather = self.accelerator.gather
            kl = gather(((log_probs - reference) * mask).sum(1))[gather(judged)]
            if len(kl):
                log["policy/kl"].append(kl.mean().item())

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            save_value_head(self.value_head, output_dir or str(self.args.output_dir))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        self._value_bias_is_set = load_value_head(self.value_head, resume_from_checkpoint)
