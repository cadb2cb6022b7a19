"""Pictures, texts and questions that the frozen runs judge: drawn from the shapes world with fixed seeds."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from PIL import Image

from rewards.shapes.build.corruption import corrupt_scene, flawed_caption
from rewards.shapes.datasets import INSTRUCTION, sample_scenes, scene_to_json
from rewards.shapes.language import describe
from rewards.shapes.prompts import question_store
from rewards.shapes.questions import questions_for
from rewards.shapes.render import render
from rewards.shapes.scenes import Scene
from rewards.tifa.questions.question import Question, question_to_row

STRANGE = "is there a purple triangle in it?"
"""A question whose choices the judge never says: its free-form answers match none of them."""


def write_inputs(folder: Path) -> None:
    """Write everything below into `folder`.

    - `texts.jsonl`: 40 pictures with 6 texts each, and rows with a problem; with the drawn scene, for the audit.
    - `rated.jsonl`: 32 pictures with one text each, some of which cannot be rated.
    - `pictures.jsonl`: 30 prompts with 4 pictures each; `judged.jsonl`: 32 pictures with their prompt.
    - `questions.sqlite`: the questions of all these prompts.
    - `official.json`, `official_pictures.json`: 12 prompts in the official format, one or two pictures each.
    """
    (folder / "pictures").mkdir(parents=True)
    rng = random.Random("golden")
    _write_texts(folder, rng)
    prompts = _write_pictures(folder, rng)
    store = question_store(folder / "questions.sqlite", prompts)
    store.add([Question(STRANGE, ("certainly", "never"), "never", "triangle", "other", prompts[0], prompts[0])])
    store.close()
    _write_official(folder, rng)


def _write_texts(folder: Path, rng: random.Random) -> None:
    ranked, rated = [], []
    for n, scene in enumerate(sample_scenes("test", 40, seed=11)):
        image = _save(folder, f"t{n}", render(scene))
        texts: list[str | None] = [flawed_caption(scene, rng) for _ in range(4)]
        texts += [texts[0], str(describe(scene))]  # a repeated one shares its rank's score
        if n == 3:
            texts[1] = None
        if n == 4:
            texts[2] = ""
        row = {"id": f"t{n}", "image": image, "prompt": INSTRUCTION, "scene": scene_to_json(scene)}
        ranked.append({**row, "candidates": texts})
        if n < 32:
            rated.append({"id": f"r{n}", "image": image, "text": texts[n % 4]})
    ranked.append({**ranked[0], "id": "no picture", "image": "pictures/missing.png"})
    ranked.append({**ranked[1], "id": "one text", "candidates": ["a red circle"]})
    rated[5]["image"] = "pictures/missing.png"
    rated[6]["text"] = None
    _write_lines(folder / "texts.jsonl", ranked)
    _write_lines(folder / "rated.jsonl", rated)


def _write_pictures(folder: Path, rng: random.Random) -> list[str]:
    ranked, judged, prompts = [], [], []
    for n, scene in enumerate(sample_scenes("test", 30, seed=12)):
        prompt = str(describe(scene))
        prompts.append(prompt)
        drawn = [render(scene), *(render(_changed(scene, rng)) for _ in range(2)), _mixed(scene, rng)]
        if n == 2:
            drawn[1] = Image.new("RGB", drawn[1].size)  # black throughout: it abstains
        rng.shuffle(drawn)
        names = [_save(folder, f"p{n}-{k}", picture) for k, picture in enumerate(drawn)]
        ranked.append({"id": f"p{n}", "prompt": prompt, "candidates": names})
        judged += [{"id": f"{n}-{k}", "image": name, "prompt": prompt} for k, name in enumerate(names) if n < 8]
    judged[4]["image"] = "pictures/missing.png"
    _write_lines(folder / "pictures.jsonl", ranked)
    _write_lines(folder / "judged.jsonl", judged)
    return prompts


def _write_official(folder: Path, rng: random.Random) -> None:
    questions: list[dict[str, Any]] = []
    named: dict[str, str | list[str]] = {}
    for n, scene in enumerate(sample_scenes("validation", 12, seed=13)):
        id = f"{('coco', 'drawbench', 'partiprompt')[n % 3]}_{n}"
        found = [replace(question, id=id) for question in questions_for(str(describe(scene)))]
        questions += [question_to_row(question) for question in found]
        names = [_save(folder, f"o{n}-0", render(_changed(scene, rng)))]
        if n % 4 == 0:
            names.append(_save(folder, f"o{n}-1", render(scene)))
        named[id] = names if len(names) > 1 else names[0]
    questions.append(dict(questions[0]))  # a repeated question counts once
    (folder / "official.json").write_text(json.dumps(questions), encoding="utf-8")
    (folder / "official_pictures.json").write_text(json.dumps(named), encoding="utf-8")


def _changed(scene: Scene, rng: random.Random) -> Scene:
    return corrupt_scene(scene, rng) if rng.random() < 0.8 else scene


def _mixed(scene: Scene, rng: random.Random) -> Image.Image:
    """Two scenes laid over each other: a picture that the judge is unsure of."""
    return Image.blend(render(scene), render(corrupt_scene(scene, rng)), 0.5)


def _save(folder: Path, name: str, picture: Image.Image) -> str:
    picture.save(folder / "pictures" / f"{name}.png")
    return f"pictures/{name}.png"


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
