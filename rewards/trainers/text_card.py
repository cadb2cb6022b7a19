"""The model card beside a trained adapter: what it learned from, what it gained, how to load it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

import rewards
from rewards.errors import InputError


def failure_rate(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """Share of training texts that a reward could not judge, from the lines of `metrics.jsonl`.

    Returns:
        None if nothing was logged.

    Example:
        >>> failure_rate([{"rewards/J/abstained": 1, "rewards/J/overall/count": 3}], "J")
        0.25
    """
    abstained = judged = 0.0
    for row in rows:
        abstained += row.get(f"rewards/{name}/abstained") or 0
        judged += row.get(f"rewards/{name}/overall/count") or 0
    return abstained / (abstained + judged) if abstained + judged else None


def check_same_reward(old: Mapping[str, Any], new: Mapping[str, Any], folder: Path) -> None:
    """A resumed run must go on with the reward that it began with.

    Raises:
        InputError: names what differs.
    """
    before, now = _settled(old), _settled(new)
    changed = sorted(key for key in {*before, *now} if before.get(key) != now.get(key))
    if changed:
        what = ", ".join(f"{key} {before.get(key)!r} -> {now.get(key)!r}" for key in changed)
        raise InputError(f"cannot resume {folder}: the reward has changed ({what}); start another output_dir")


def _settled(identity: Mapping[str, Any]) -> dict[str, Any]:
    # Of a judge, its name and revision: the rest tells how it was run so far, which another machine may do otherwise.
    judge = identity.get("judge") or {}
    return {**identity, "judge": (judge.get("name"), judge.get("revision"))}


def write_model_card(
    folder: Path, algorithm: str, base_model: str, identity: Mapping[str, Any], summary_table: str, failed: float | None
) -> None:
    """Write `README.md` in the Hub's form beside the adapter.

    Args:
        folder: where the adapter is.
        algorithm: name of the method.
        base_model: the policy's checkpoint.
        identity: of the reward (judge, revision, prompt hash, weights).
        summary_table: the held-out results as text.
        failed: share of training texts that could not be judged.
    """
    adapter = (folder / "adapter_config.json").exists()
    header = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "image-text-to-text",
        "base_model": base_model,
        "tags": [algorithm.lower(), "reinforcement-learning", "harmoniceval", *(["lora"] if adapter else [])],
    }
    load = (
        f'model = AutoModelForImageTextToText.from_pretrained("{base_model}")\n'
        f'model = PeftModel.from_pretrained(model, "{folder.name}")'
        if adapter
        else f'model = AutoModelForImageTextToText.from_pretrained("{folder.name}")'
    )
    share = "unknown" if failed is None else f"{failed:.2%}"
    lines = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n",
        f"# {folder.parent.name}\n",
        f"Trained with {algorithm} on HarmonicEval, by rewards {rewards.__version__}.\n",
        f"## Use\n\n```python\n{load}\n```\n",
        f"## Reward\n\n```yaml\n{yaml.safe_dump(dict(identity), sort_keys=False, allow_unicode=True)}```\n",
        f"Texts that could not be judged, and took no part in the training: {share}.\n",
        f"## Held-out prompts, same noise before and after\n\n```\n{summary_table}\n```\n",
        "## Training\n\nAll settings are in `config.yaml`. A judge is not a person: read texts, and look at a judge "
        "that did not train, before trusting a gain.\n",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
