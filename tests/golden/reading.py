"""From the files of a run to values named by meaning: the one place that knows the names on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

Values = dict[str, Any]

UPDATE_KEYS = {
    "loss": ("train/loss", "loss"),
    "gradient_norm": ("train/grad_norm", "grad_norm"),
    "learning_rate": ("train/learning_rate", "learning_rate"),
    "ratio_mean": ("policy/ratio",),
    "ratio_before_first_update": ("policy/ratio_before_update",),
    "ratio_largest_change": ("policy/ratio_farthest",),
    "clip_fraction": ("policy/clip_fraction",),
    "approximate_kl": ("policy/approx_kl",),
    "kl_to_base": ("policy/kl",),
    "advantage_deviation": ("train/advantage_deviation",),
    "zero_deviation_groups": ("train/zero_std_groups", "frac_reward_zero_std"),
    "pairs": ("train/pairs",),
    "optimizer_steps": ("train/optimizer_steps",),
    "failure_rate": ("samples/failure_rate",),
    "broken_pictures": ("samples/broken_pictures",),
    "sum_of_rewards_mean": ("train/reward", "reward"),
    "sum_of_rewards_deviation": ("train/reward_std", "reward_std"),
    "entropy": ("policy/entropy", "entropy"),
    "tokens_seen": ("train/tokens", "num_tokens"),
    "length_mean": ("samples/length", "completions/mean_length"),
    "length_largest": ("samples/length_largest", "completions/max_length"),
    "cut_off_share": ("samples/cut_off", "completions/clipped_ratio"),
    "value_loss": ("train/value_loss", "ppo/value_loss"),
    "value_clip_fraction": ("train/value_clip_fraction", "ppo/value_clip_fraction"),
}
"""What a number of an update means -> its keys in `metrics.jsonl`, whichever the trainer writes."""


CRITERIA = ("correctness", "completeness", "clarity", "fluency", "conciseness")


def read_run(folder: Path) -> Values:
    """The values of a training run of any trainer.

    Returns:
        `training`: an entry a step with `reward` and `audit` (part -> mean, count, ...), `gap` and `update`;
        `evaluations`: likewise, with the score of every prompt by `reward` and `audit`; `samples`; `summary`;
        `adapter`: norms of the trained weights.
    """
    metrics = lines_of(folder / "metrics.jsonl")
    evaluated = [row for row in metrics if any(key.startswith("eval/") for key in row)]
    trained = [row for row in metrics if row not in evaluated]
    scored = _by_step(lines_of(folder / "evaluations.jsonl"))
    return {
        "training": [_step(row) | {"update": _update(row)} for row in trained],
        "evaluations": [_step(row, "eval/") | _by_prompt(of) for row, of in zip(evaluated, scored, strict=True)],
        # Of a model that writes the first two; which texts the judge overrates most follows from the evaluations.
        "samples": [_sample(folder, row) for row in lines_of(folder / "samples.jsonl") if row.get("index", 0) < 2],
        "summary": _summary(json.loads((folder / "summary.json").read_text("utf-8"))),
        "adapter": _norms(next((folder / "adapter").glob("*.safetensors"))),
    }


def read_ranking(folder: Path) -> Values:
    """The values of a job of reranking: `ranked` items, best first, problems, and `gain` by number of candidates.

    Pairs for DPO and rows for SFT are named by their texts.
    """
    values: Values = {
        "ranked": [_ranked(row) for row in lines_of(folder / "ranked.jsonl")],
        "problem_lines": [row.get("line") for row in lines_of(folder / "problems.jsonl")],
        "counts": json.loads((folder / "summary.json").read_text("utf-8")),
    }
    if (folder / "gain.json").exists():
        values["gain"] = json.loads((folder / "gain.json").read_text("utf-8"))
    for name in ("pairs", "sft"):
        if (folder / f"{name}.parquet").exists():
            values[name] = _chosen_texts(folder / f"{name}.parquet")
    return values


def read_scores(path: Path) -> list[Values]:
    """The records of a scored file, in order: of HarmonicEval by criterion, of TIFA by question."""
    return [_record(row) for row in lines_of(path)]


def read_benchmark(path: Path) -> Values:
    """The official result, and the numbers that it leaves out."""
    result = json.loads(path.read_text("utf-8"))
    numbers = result.pop("summary")
    numbers["abstained"] = [row["id"] for row in numbers["abstained"]]
    for name in ("reward", "version", "questions_fingerprint"):  # identities, not values
        del numbers[name]
    return {"official": result, "numbers": numbers}


def lines_of(path: Path) -> list[Values]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def _step(row: Mapping[str, Any], prefix: str = "") -> Values:
    """`<prefix>rewards/<name>/...` and `<prefix>audit/<name>/...` by part; there is one reward and one audit."""
    values: Values = {"step": row["step"], "reward": {}, "audit": {}}
    for key, value in row.items():
        branch, _, rest = key.removeprefix(prefix).partition("/")
        if not key.startswith(prefix) or branch not in ("rewards", "audit"):
            continue
        if rest == "gap":
            values["gap"] = value
        elif not rest.endswith("/gap"):
            _, _, part = rest.partition("/")
            values["reward" if branch == "rewards" else "audit"][part] = value
    return values


def _update(row: Mapping[str, Any]) -> Values:
    return {name: row[key] for name, keys in UPDATE_KEYS.items() for key in keys if key in row}


def _by_prompt(row: Mapping[str, Any]) -> Values:
    """Every held-out prompt's scores: pictures have one score each, texts one a part."""
    if "scores" in row:
        return {"reward_by_prompt": {"overall": row["scores"]}, "audit_by_prompt": {"overall": row["audit"]}}
    reward, audit = row["rewards"].values()
    return {"texts": row["texts"], "reward_by_prompt": reward, "audit_by_prompt": audit}


def _by_step(rows: Sequence[Values]) -> list[Values]:
    """Evaluations of a row a sample, as one entry a step."""
    steps: dict[int, list[Values]] = {}
    for row in rows:
        steps.setdefault(row["step"], []).append(row)
    return [_written(of) if "text" in of[0] else _drawn(of) for of in steps.values()]


def _drawn(rows: Sequence[Values]) -> Values:
    """Pictures: a list of scores a prompt."""
    scores: dict[int, list[Any]] = {}
    audit: dict[int, list[Any]] = {}
    for row in rows:
        scores.setdefault(row["index"], []).append(row["overall"])
        (audited,) = row["audits"].values()
        audit.setdefault(row["index"], []).append(audited["overall"])
    return {"scores": list(scores.values()), "audit": list(audit.values())}


def _written(rows: Sequence[Values]) -> Values:
    """Texts: a list of scores a part."""
    judges = {"reward": rows, **{name: [row["audits"][name] for row in rows] for name in rows[0]["audits"]}}
    parts = {
        name: {part: [row["parts"].get(part) for row in of] for part in of[0]["parts"]} for name, of in judges.items()
    }
    rewards = {name: {"overall": [row["overall"] for row in of], **parts[name]} for name, of in judges.items()}
    return {"texts": [row["text"] for row in rows], "rewards": rewards}


def _sample(folder: Path, row: Mapping[str, Any]) -> Values:
    values = {name: row[name] for name in ("step", "phase", "prompt", "score", "parts")}
    if "text" in row:
        return values | {"text": row["text"]}
    answers = [
        [detail["question"], detail["free_form"] if detail["choice"] is None else detail["choice"], detail["right"]]
        for detail in row["details"]
    ]
    return values | {"answers": answers, "picture_mean": _mean_colour(folder / row["image"])}


def _summary(summary: Mapping[str, Any]) -> Values:
    """Held-out scores before and after, by part, with the paired interval of the overall score (texts: of all)."""
    (reward,), (audit,) = summary["reward"].values(), summary["audits"].values()
    if "epochs" not in summary:
        return {"steps": summary["steps"], "reward": reward, "audit": audit}
    values: Values = {"epochs": summary["epochs"], "other_guidance": summary["baselines"]}
    return values | {"reward": {"overall": reward["overall"]}, "audit": {"overall": audit["overall"]}}


def _norms(path: Path) -> Values:
    """What distinguishes two adapters: size, sum, norm of all weights, and the norm of every tenth tensor by name."""
    tensors = load_file(path)
    flat = np.concatenate([tensors[name].ravel() for name in sorted(tensors)]).astype(np.float64)
    tenth = [float(np.linalg.norm(tensors[name].astype(np.float64))) for name in sorted(tensors)[::10]]
    return {
        "tensors": len(tensors),
        "weights": flat.size,
        "norm": float(np.linalg.norm(flat)),
        "sum": float(flat.sum()),
        "largest": float(np.abs(flat).max()),
        "norms_of_every_tenth": tenth,
    }


def _ranked(row: Mapping[str, Any]) -> Values:
    values: Values = {"id": row["id"], "order": [], "overall": [], "parts": [], "margin": row["margin"]}
    for entry in row["candidates"]:
        values["order"].append(entry["index"])
        values["overall"].append(entry["overall"])
        values["parts"].append(entry["parts"])
    if "audit" in row["candidates"][0]:
        values["audit"] = [entry["audit"]["overall"] for entry in row["candidates"]]
    return values


def _chosen_texts(path: Path) -> list[Any]:
    import pyarrow.parquet

    def text(value: Any) -> Any:
        return value[-1]["content"] if isinstance(value, list) else value

    names = ("chosen", "rejected", "chosen_score", "rejected_score", "completion")
    rows = pyarrow.parquet.read_table(path).to_pylist()
    return [{name: text(row[name]) for name in names if name in row} for row in rows]


def _record(row: Mapping[str, Any]) -> Values:
    values: Values = {"id": row["id"], "overall": row["overall"], "abstained": row["abstained"] is not None}
    names = ("sigma", "weights", "rating_mass", "probabilities")
    if row["failed"]:  # never given to the reward: the recording has nothing of each criterion, and no answers
        nothing = dict.fromkeys(CRITERIA)
        unsaid = {criterion: [None] * 5 for criterion in CRITERIA}
        return values | dict.fromkeys(("criteria", *names), nothing) | {"probabilities": unsaid, "answers": []}
    if "answers" in row:
        fields = ("question", "free_form", "choice", "how", "right", "score")
        return values | {"answers": [[answer[name] for name in fields] for answer in row["answers"]]}
    return values | {"criteria": row["parts"] or dict.fromkeys(row["sigma"])} | {name: row[name] for name in names}


def _mean_colour(path: Path) -> Sequence[float]:
    return (np.asarray(Image.open(path).convert("RGB"), np.float64) / 255).mean(axis=(0, 1)).tolist()
