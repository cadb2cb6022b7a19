"""What TRL calls the numbers that it logs, and the names that all trainers of this package share for them."""

from __future__ import annotations

from collections.abc import Mapping

NAMES = {
    "loss": "train/loss",
    "grad_norm": "train/grad_norm",
    "learning_rate": "train/learning_rate",
    "num_tokens": "train/tokens",
    "frac_reward_zero_std": "train/zero_std_groups",
    "reward": "train/reward",
    "reward_std": "train/reward_std",
    "step_time": "time/step",
    "kl": "policy/kl",
    "entropy": "policy/entropy",
    "clip_ratio/region_mean": "policy/clip_fraction",
    "clip_ratio/low_mean": "policy/clip_fraction_low",
    "clip_ratio/high_mean": "policy/clip_fraction_high",
    "completions/mean_length": "samples/length",
    "completions/min_length": "samples/length_smallest",
    "completions/max_length": "samples/length_largest",
    "completions/clipped_ratio": "samples/cut_off",
}
"""TRL's key -> the key in `metrics.jsonl`. `train/reward` is TRL's own weighted sum, which is what is optimised."""

# The final log line of transformers' Trainer describes the whole run, not a step.
_RUN_TOTALS = ("train_", "total_flos")


def metric_keys(logs: Mapping[str, float]) -> dict[str, float]:
    """TRL's log keys as they stand in `metrics.jsonl`.

    `eval_x` becomes `eval/x`; TRL's own `rewards/<function>/mean` becomes `rewards/<function>/overall/mean`, so that a
    plain reward function has the same shape as one with parts; totals of the whole run are left out. The share of
    texts without a reward is added as `samples/failure_rate`, from the reward that could judge fewest.

    Example:
        >>> metric_keys({"eval_rewards/length/mean": 1.0, "train_runtime": 9.0, "kl": 0.1})
        {'eval/rewards/length/overall/mean': 1.0, 'policy/kl': 0.1}
    """
    renamed = {}
    # TRL's own keys come last: they are over all processes, and stand where a reward logged the same.
    for key, value in sorted(logs.items(), key=lambda item: "/overall/" not in item[0]):
        if key.startswith(_RUN_TOTALS) and "/" not in key:
            continue
        branch = "eval/" if key.startswith("eval_") else ""
        key = key.removeprefix("eval_") if branch else key
        parts = key.split("/")
        if parts[-1] in ("mean", "std") and parts[-3:-2] == ["rewards"]:
            key = "/".join([*parts[:-1], "overall", parts[-1]])
        renamed[branch + NAMES.get(key, key)] = value
    if (rates := failure_rates(logs)) and "loss" in logs:
        renamed["samples/failure_rate"] = max(rates.values())
    return renamed


def failure_rates(logs: Mapping[str, float]) -> dict[str, float]:
    """Share of texts that each reward could not judge, by its name, for rewards that log `abstained` and `count`.

    Example:
        >>> failure_rates({"rewards/J/abstained": 1, "rewards/J/overall/count": 3})
        {'J': 0.25}
    """
    rates = {}
    for key, abstained in logs.items():
        if key.startswith("rewards/") and key.endswith("/abstained") and abstained is not None:
            judged = logs.get(key.removesuffix("abstained") + "overall/count") or 0
            if abstained + judged:
                rates[key.removeprefix("rewards/").removesuffix("/abstained")] = abstained / (abstained + judged)
    return rates
