"""What a finished run says of itself: before and after on held-out prompts, and beside guidance."""

from __future__ import annotations

import math

from rewards.runs import summary as runs
from rewards.runs.files import Json, Row
from rewards.tables import text_table
from rewards.trainers.diffusion.loop import DiffusionTrainer


def summarize(trainer: DiffusionTrainer, baselines: list[dict[str, Json]]) -> dict[str, Json]:
    """The summary of a finished run, from its files (so that a resumed run has the whole of it).

    Returns:
        What :func:`rewards.runs.summary.summarize` gives (`reward` and `audits`: name -> part -> before, after, gain
        and its interval), with `output_dir`, `epochs`, `best_epoch` (whose weights are in `best/`) and `baselines`.
    """
    result = runs.summarize(trainer.evaluation_log.ends())
    return result | {
        "output_dir": trainer.args.output_dir,
        "epochs": trainer.step,
        "best_epoch": trainer.best.step,
        "baselines": baselines,
    }


def baseline(trainer: DiffusionTrainer, scale: float) -> dict[str, Json]:
    """The base and the trained model at another guidance scale, on the same prompts and noise."""
    row: dict[str, Json] = {"guidance_scale": scale}
    for name, base in (("base", True), ("trained", False)):
        evaluation = trainer.evaluate(guidance_scale=scale, base_model=base)
        row[name] = evaluation.metrics[f"eval/rewards/{trainer.eval_reward.__name__}/overall/mean"]
        if trainer.audit is not None:
            row[f"{name}_audit"] = evaluation.metrics[f"eval/audit/{trainer.audit.__name__}/overall/mean"]
    return row


def summary_table(result: Row) -> str:
    """The summary as a table for people, with the results beside other guidance."""
    lines = [f"{result['epochs']} epochs, {result.get('seconds', 0):.0f} s", runs.format_summary(result)]
    rows = [
        (f"guidance {row['guidance_scale']:g}, {judge}", _cell(row[f"base{key}"]), _cell(row[f"trained{key}"]))
        for row in result["baselines"]
        for key, judge in (("", "reward"), ("_audit", "audit"))
        if f"base{key}" in row
    ]
    if rows:
        lines += ["", text_table(("", "base model", "trained"), rows)]
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.3f}"
