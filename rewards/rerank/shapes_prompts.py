"""Held-out prompts of the shapes world as files, for generating candidates offline."""

from __future__ import annotations

from pathlib import Path

from rewards.runs.files import write_lines
from rewards.shapes.datasets import INSTRUCTION, sample_scenes, scene_to_json
from rewards.shapes.prompts import generator_prompts, question_store
from rewards.shapes.render import render


def write_shapes_prompts(path: Path, kind: str, count: int, seed: int) -> None:
    """Write test prompts, none of which the shipped models were trained on.

    Args:
        path: JSON lines. For texts: pictures (beside it) with the scene that was drawn, from which the truth about a
            text is known. For pictures: captions, with their questions in `questions.sqlite` beside it.
        kind: "texts" or "pictures".
        count: prompts.
        seed: of the draw.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = []
    if kind == "pictures":
        prompts = generator_prompts("test", count, seed)
        question_store(path.parent / "questions.sqlite", prompts).close()
        rows = [{"id": f"shapes-{n}", "prompt": prompt} for n, prompt in enumerate(prompts)]
    else:
        (path.parent / "scenes").mkdir(exist_ok=True)
        for n, scene in enumerate(sample_scenes("test", count, seed)):
            render(scene).save(path.parent / "scenes" / f"{n:04d}.png")
            image, truth = f"scenes/{n:04d}.png", scene_to_json(scene)
            rows.append({"id": f"shapes-{n}", "image": image, "prompt": INSTRUCTION, "scene": truth})
    write_lines(path, rows)
