"""The model card beside a trained adapter: what it learned from, what it gained, how to load it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rewards._version import __version__
from rewards.errors import InputError
from rewards.runs.card import base_model, commands


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


@dataclass
class CardFacts:
    """What a model card tells.

    Attributes:
        algorithm: Name of the method.
        base_model: The policy's checkpoint.
        revision: Of the checkpoint, or None.
        identity: Of the reward (judge, revision, prompt hash, weights).
        summary_table: The held-out results as text.
        failed: Share of training texts that could not be judged, or None.
        processes: How many trained.
    """

    algorithm: str
    base_model: str
    revision: str | None
    identity: Mapping[str, Any]
    summary_table: str
    failed: float | None
    processes: int = 1


def write_model_card(folder: Path, facts: CardFacts) -> None:
    """Write `README.md` in the Hub's form beside the adapter in `folder`."""
    adapter = (folder / "adapter_config.json").exists()
    base, setup, expression = base_model(facts.base_model)
    if facts.revision is not None:
        expression += f', revision="{facts.revision}"'
    tags = [facts.algorithm.lower(), "reinforcement-learning", "harmoniceval", *(["lora"] if adapter else [])]
    header = {
        "library_name": "peft" if adapter else "transformers",
        "pipeline_tag": "image-text-to-text",
        "base_model": base,
        "tags": tags,
    }
    load = ["from transformers import AutoModelForImageTextToText"]
    if adapter:
        load = ["from peft import PeftModel", *load, *setup]
        load += [f"model = AutoModelForImageTextToText.from_pretrained({expression})"]
        load += [f'model = PeftModel.from_pretrained(model, "{folder.name}")']
    else:
        load += [f'model = AutoModelForImageTextToText.from_pretrained("{folder.name}")']
    code = "\n".join(load)
    share = "unknown" if facts.failed is None else f"{facts.failed:.2%}"
    lines = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n",
        f"# {folder.parent.name}\n",
        f"Trained with {facts.algorithm} on HarmonicEval, by rewards {__version__}.\n",
        f"## Use\n\n```python\n{code}\n```\n",
        f"## Reward\n\n```yaml\n{yaml.safe_dump(dict(facts.identity), sort_keys=False, allow_unicode=True)}```\n",
        f"Texts that could not be judged, and took no part in the training: {share}.\n",
        f"## Held-out prompts, same noise before and after\n\n```\n{facts.summary_table}\n```\n",
        commands(folder.parent, facts.processes),
        "## Training\n\nAll settings are in `config.yaml`. A judge is not a person: read texts, and look at a judge "
        "that did not train, before trusting a gain.\n",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")
