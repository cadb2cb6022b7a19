"""What a finished run says of itself: before and after on held-out prompts, by reward and audit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from rewards.runs.metrics import read_metrics
from rewards.runs.paired_gain import paired_gain
from rewards.trainers.diffusion.evaluation import Evaluation, summary
from rewards.trainers.diffusion.loop import DiffusionTrainer
from rewards.trainers.diffusion.settings import DiffusionRunConfig


def baseline(trainer: DiffusionTrainer, scale: float) -> dict[str, Any]:
    """The base and the trained model at another guidance scale, on the same prompts and noise."""
    row: dict[str, Any] = {"guidance_scale": scale}
    for name, base in (("base", True), ("trained", False)):
        evaluation: Evaluation = trainer.evaluate(guidance_scale=scale, base_model=base)
        row[name] = summary(evaluation.scores)["overall/mean"]
        if evaluation.audit is not None:
            row[f"{name}_audit"] = summary(evaluation.audit)["overall/mean"]
    return row


def summarize(config: DiffusionRunConfig, trainer: DiffusionTrainer, baselines: list[dict[str, Any]]) -> dict[str, Any]:
    """The summary of a finished run, from its files (so that a resumed run has the whole of it)."""
    result: dict[str, Any] = {
        "output_dir": config.output_dir,
        "epochs": trainer.step,
        "eval_prompts": config.num_eval_prompts,
        "reward": None,
        "audit": None,
        "baselines": baselines,
    }
    evaluations = trainer.evaluation_log.read()
    if len(evaluations) < 2:
        return result
    (_, before, audit_before), (_, after, audit_after) = evaluations[0], evaluations[-1]
    rows = [row for row in read_metrics(config.output_dir) if any(key.startswith("eval/") for key in row)]
    ends = rows[0], rows[-1]
    name = trainer.eval_reward.__name__
    result["reward"] = _compare(before, after, ends, f"eval/rewards/{name}/")
    if trainer.audit is not None and audit_before is not None and audit_after is not None:
        result["audit"] = _compare(audit_before, audit_after, ends, f"eval/audit/{trainer.audit.__name__}/")
    return result


def _compare(
    before: np.ndarray, after: np.ndarray, ends: tuple[Mapping[str, Any], Mapping[str, Any]], prefix: str
) -> dict[str, Any]:
    names = sorted(
        key.removeprefix(prefix).removesuffix("/mean")
        for key in ends[0]
        if key.startswith(prefix) and key.endswith("/mean") and "/overall/" not in key
    )
    types = {
        name: {
            "before": ends[0][f"{prefix}{name}/mean"],
            "after": ends[1].get(f"{prefix}{name}/mean"),
            "count": ends[0].get(f"{prefix}{name}/count"),
        }
        for name in names
    }
    change = paired_gain(before, after)
    gain = [None if math.isnan(value) else value for value in (change.mean, change.low, change.high)]
    means = (summary(before)["overall/mean"], summary(after)["overall/mean"])
    return {"before": means[0], "after": means[1], "gain": gain, "by_element_type": types}


def summary_table(result: Mapping[str, Any]) -> str:
    """The summary as a plain-text table for a terminal: before, after, gain and 95% interval, by element type."""
    lines = [f"{result['epochs']} epochs, {result['eval_prompts']} held-out prompts, {result.get('seconds', 0):.0f} s"]
    lines.append(f"{'':24}{'before':>9}{'after':>9}{'gain':>9}  95% interval")
    for title in ("reward", "audit"):
        part = result[title]
        if part is None:
            continue
        mean, low, high = part["gain"]
        interval = "" if low is None else f"[{low:+.3f}, {high:+.3f}]"
        lines.append(f"{title:24}{_cell(part['before'])}{_cell(part['after'])}{_cell(mean, '+')}  {interval}")
        for name, row in part["by_element_type"].items():
            change = None if None in (row["before"], row["after"]) else row["after"] - row["before"]
            lines.append(f"  {name:22}{_cell(row['before'])}{_cell(row['after'])}{_cell(change, '+')}")
    for row in result["baselines"]:
        name = f"guidance {row['guidance_scale']:g}"
        lines.append(f"{name:24}{_cell(row['base'])}{_cell(row['trained'])}  (base and trained model)")
    return "\n".join(lines)


def _cell(value: float | None, sign: str = "") -> str:
    return f"{'-':>9}" if value is None or math.isnan(value) else f"{value:>{sign}9.3f}"
