"""What every logged key means: the one list that the report's notes and axes and the documentation are made from.

A trainer that logs a new key adds it here. Keys are the same for every trainer; what only some have is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Metric:
    """One key, or a family of keys.

    Attributes:
        key: As logged; ``<reward>`` and ``<part>`` stand for names, ``*`` for the rest of a key.
        meaning: A sentence.
        title: Heading of its chart; empty: it has no chart of its own.
        unit: What its vertical axis counts.
        low, high: Range of the quantity, or None where it has no end.
    """

    key: str
    meaning: str
    title: str = ""
    unit: str = ""
    low: float | None = None
    high: float | None = None


METRICS: tuple[Metric, ...] = (
    Metric("rewards/<reward>/overall/mean", "Mean training reward over the samples of a step that could be judged."),
    Metric("rewards/<reward>/overall/std", "Standard deviation of the reward over the samples of a step.",
           "Spread of the reward", "deviation", 0),
    Metric("rewards/<reward>/overall/count", "How many samples could be judged.", unit="samples", low=0),
    Metric("rewards/<reward>/<part>/mean", "Mean of a part: a criterion of HarmonicEval, an element type of TIFA (over "
           "questions), a component of a combined reward."),
    Metric("rewards/<reward>/<part>/count", "How many judgments are behind a part's mean.", unit="judgments", low=0),
    Metric("rewards/<reward>/<part>/weight", "HarmonicEval: share of a criterion in the overall score. The surer the "
           "judge is of its rating, the larger.", unit="weight", low=0, high=1),
    Metric("rewards/<reward>/<part>/deviation", "HarmonicEval: how unsure the judge is of its rating.",
           unit="deviation", low=0),
    Metric("rewards/<reward>/rating_mass", "HarmonicEval: probability that the judge put on the rating scale at all.",
           "Rating mass", "probability", 0, 1),
    Metric("rewards/<reward>/abstained", "Samples that could not be judged. They take no part in the training and are "
           "never scored 0.", "Abstentions", "samples", 0),
    Metric("rewards/<reward>/unmatched", "TIFA: answers that match no choice. They count as wrong.",
           unit="answers", low=0),
    Metric("rewards/<reward>/surplus", "TIFA by the oracle of the shapes world: share of pictures that show an object "
           "which the prompt does not name, or one more than it says.", unit="share", low=0, high=1),
    Metric("eval/rewards/*", "The same on held-out prompts, sampled from the same noise at each evaluation; "
           "standard_error is over prompts."),
    Metric("eval/audit/*", "A second judge, or the exact oracle of the shapes world, on the held-out prompts. It never "
           "trains."),
    Metric("audit/gap", "Reward minus audit on the same samples. A gap that grows tells of a policy that games its "
           "judge."),
    Metric("audit/*", "The second judge on training samples."),
    Metric("train/reward", "TRL: the weighted sum of the rewards, which is what is optimised."),
    Metric("train/reward_std", "TRL: spread of that sum within a group.", unit="deviation", low=0),
    Metric("policy/kl", "How far the policy has moved from where it began: a token in GRPO, a whole text in RLOO and "
           "PPO, a denoising step in DDPO.", "KL to the base model", "nats"),
    Metric("policy/approx_kl", "How far one step's updates move the policy: half the mean squared log-ratio.",
           "Approximate KL of the update", "nats", 0),
    Metric("policy/ratio", "Importance ratio: probability of a sample under the new policy over that under the one "
           "that drew it.", "Importance ratio", "ratio", 0),
    Metric("policy/ratio_before_update", "The importance ratio before the first update on new samples: exactly 1.",
           unit="ratio", low=0),
    Metric("policy/ratio_farthest", "The largest distance of an importance ratio from 1.", unit="distance", low=0),
    Metric("policy/clip_fraction", "Share of importance ratios outside the clip range. Near 0 steps are timid, near 1 "
           "most gradients are cut.", "Clip fraction", "share", 0, 1),
    Metric("policy/clip_fraction_*", "The same for ratios below the range, and above it.", unit="share", low=0, high=1),
    Metric("policy/distance_to_old", "DiffusionNFT: mean squared distance of the new prediction from the old policy's.",
           "Distance to the old policy", "squared distance", 0),
    Metric("policy/distance_to_average", "AWM: mean squared distance of the new prediction from the averaged policy's.",
           unit="squared distance", low=0),
    Metric("policy/old_decay", "DiffusionNFT: how much of itself the old policy keeps.", unit="share", low=0, high=1),
    Metric("policy/prediction_norm", "Mean square of the network's prediction; it tells of a network that runs away.",
           unit="square", low=0),
    Metric("policy/sampling_mismatch", "Largest difference of a recomputed log-probability from the recorded one: "
           "rounding only.", unit="nats", low=0),
    Metric("policy/entropy", "Entropy of the policy's next-token distribution; towards 0 it has made up its mind.",
           "Entropy of the next token", "nats", 0),
    Metric("samples/failure_rate", "Share of samples that could not be judged.", "Samples not judged", "share", 0, 1),
    Metric("samples/broken_pictures", "Black or non-finite pictures.", unit="pictures", low=0),
    Metric("train/zero_std_groups", "Share of prompts whose samples all score the same: they have no advantage and "
           "teach nothing.", "Groups without spread", "share", 0, 1),
    Metric("train/loss", "The policy's loss. It need not fall.", "Loss", "loss"),
    Metric("train/soft_reward", "Reward gradient: the reward whose gradient is taken, as probabilities.",
           "Soft reward", "score"),
    Metric("train/steps_with_gradient", "Reward gradient: denoising steps that the gradient goes through.",
           unit="steps", low=0),
    Metric("train/score_spread", "PPO: largest minus smallest score of the texts of a step; at 0 nothing is learned.",
           "Spread of the scores", "score", 0),
    Metric("train/value_loss", "PPO: the value head's loss.", "Value loss", "loss", 0),
    Metric("train/value_clip_fraction", "PPO: share of values outside the clip range.", unit="share", low=0, high=1),
    Metric("train/explained_variance", "PPO: share of the returns' variance that the value head foresees.",
           "Explained variance", "share", None, 1),
    Metric("train/value_mean", "PPO: mean value over tokens."),
    Metric("train/return_mean", "PPO: mean return over tokens."),
    Metric("train/grad_norm", "Gradient norm before clipping.", "Gradient norm", "norm", 0),
    Metric("train/learning_rate", "Set by the schedule.", "Learning rate", "rate", 0),
    Metric("train/advantage_deviation", "Spread of the advantages.", unit="deviation", low=0),
    Metric("train/pairs", "Samples times denoising steps trained on.", unit="pairs", low=0),
    Metric("train/optimizer_steps", "Optimiser steps made.", unit="steps", low=0),
    Metric("train/skipped_steps", "Optimiser steps left out, because their gradients were not finite.",
           "Skipped steps", "steps", 0),
    Metric("samples/length", "Mean length of the texts.", "Length of the texts", "tokens", 0),
    Metric("samples/length_*", "Shortest and longest text.", unit="tokens", low=0),
    Metric("samples/cut_off", "Share of texts that ended at the length limit instead of by themselves.",
           "Texts cut off", "share", 0, 1),
    Metric("train/tokens", "Tokens seen so far.", unit="tokens", low=0),
    Metric("epoch", "Passes over the training data."),
    Metric("time/sample", "Seconds spent drawing (or writing), by the host's clock.", unit="seconds", low=0),
    Metric("time/judge", "Seconds spent judging, audits included; beside the drawing where a thread does it.",
           unit="seconds", low=0),
    Metric("time/wait", "Seconds in which nothing was drawn any more and scores were still to come.",
           unit="seconds", low=0),
    Metric("time/train", "Seconds spent on updates.", unit="seconds", low=0),
    Metric("time/*", "Seconds spent.", unit="seconds", low=0),
)  # fmt: skip
"""In the order of the documentation; the charts follow it."""


def describe(key: str) -> Metric | None:
    """The entry that a logged key belongs to: the first whose pattern fits, or None.

    Example:
        >>> describe("rewards/TIFA/color/count").key, describe("eval/audit/gap").key, describe("a/b")
        ('rewards/<reward>/<part>/count', 'eval/audit/*', None)
    """
    return next((metric for metric, pattern in _patterns() if pattern.fullmatch(key)), None)


@cache
def _patterns() -> list[tuple[Metric, re.Pattern[str]]]:
    holes = {re.escape("<reward>"): "[^/]+", re.escape("<part>"): ".+", re.escape("*"): ".+"}

    def pattern(key: str) -> re.Pattern[str]:
        text = re.escape(key)
        for hole, meaning in holes.items():
            text = text.replace(hole, meaning)
        return re.compile(text)

    return [(metric, pattern(metric.key)) for metric in METRICS]
