"""Instances of the four tasks, with three candidates of graded quality, true ratings and the best of three.

The best of three follows a published rule in the place of annotators: the candidate with the largest weighted mean of
its true ratings, where the criteria that the paper expects to matter in a task (HarmonicEval §3.1) weigh twice: REG
completeness, VQA and VDU correctness and conciseness, IC correctness and completeness. Instances in which the best two
candidates are closer than 0.25 are drawn again, so that there is a best one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image

from rewards.humans.mmhe.records import CRITERIA, Candidate, Instance
from rewards.humans.shapes_study.answers import answer_truth
from rewards.humans.shapes_study.documents import document_truth, draw_document, flawed_reading, sample_document
from rewards.shapes.build.corruption import flawed_caption
from rewards.shapes.language import Phrase, describe, vary
from rewards.shapes.render import render
from rewards.shapes.scenes import Scene, Shape, sample_scene
from rewards.shapes.truth import caption_truth

DOUBLE = {
    "referring": ("completeness",),
    "vqa": ("correctness", "conciseness"),
    "document": ("correctness", "conciseness"),
    "captioning": ("correctness", "completeness"),
}
MARGIN = 0.25
TRIES = 200

Drawn = tuple[Image.Image, str | None, tuple[float, ...] | None, list[tuple[str, dict[str, float]]], list[str]]


def overall_truth(task: str, truth: dict[str, float]) -> float:
    """The rule of the best of three: a weighted mean of the true ratings, 1 to 5.

    Example:
        >>> overall_truth("referring", {**dict.fromkeys(CRITERIA, 1.0), "completeness": 4.0})
        2.0
    """
    weights = {name: 2.0 if name in DOUBLE[task] else 1.0 for name in CRITERIA}
    return sum(weights[name] * truth[name] for name in CRITERIA) / sum(weights.values())


def study_instances(
    folder: Path, per_task: int, seed: int = 0, tasks: Sequence[str] = ("referring", "vqa", "document", "captioning")
) -> list[Instance]:
    """Draw instances and save their pictures.

    Args:
        folder: gets `images/`.
        per_task: instances of each of the four tasks; the paper has 100.
        seed: of the draw.
        tasks: which tasks; each is drawn by itself.

    Returns:
        Instances with one "annotator", the truth. `Candidate.ratings` are real numbers here, not whole ones.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    instances = []
    for task in tasks:
        draw = _TASKS[task]
        rng = random.Random(f"{task}/{seed}")
        for n in range(per_task):
            picture, question, box, texts, references = _with_a_best(task, draw, rng)
            path = folder / "images" / f"{task}-{n:03d}.png"
            picture.save(path)
            overall = [overall_truth(task, truth) for _, truth in texts]
            candidates = tuple(
                Candidate(text, {name: (truth[name],) for name in CRITERIA})  # type: ignore[misc]
                for text, truth in texts
            )
            best = overall.index(max(overall))
            name = f"{task}-{n:03d}"
            instances.append(Instance(name, task, str(path), candidates, (best,), question, box, tuple(references)))
    return instances


def _with_a_best(task: str, draw: Callable[[random.Random], Drawn], rng: random.Random) -> Drawn:
    for _ in range(TRIES):
        drawn = draw(rng)
        first, second, _ = sorted((overall_truth(task, truth) for _, truth in drawn[3]), reverse=True)
        if first - second >= MARGIN and len({text for text, _ in drawn[3]}) == 3:
            return drawn
    raise RuntimeError(f"no instance of {task} with a best candidate in {TRIES} draws")


def _captioning(rng: random.Random) -> Drawn:
    scene = sample_scene(rng)
    texts = [flawed_caption(scene, rng) for _ in range(3)]
    full = describe(scene)
    return render(scene), None, None, [(t, caption_truth(scene, t)) for t in texts], [str(full), str(vary(full, rng))]


def _vqa(rng: random.Random) -> Drawn:
    scene = sample_scene(rng)
    phrases = list(describe(scene).phrases)
    asked = rng.choice(phrases)
    others = [phrase for phrase in phrases if phrase != asked]
    question = f"what is in the picture next to {others[0]} ?" if others else "what is in the picture ?"
    view = _only(scene, asked)
    # An answer about the asked group, at times of the whole picture: true, and more than was asked for.
    texts = [flawed_caption(scene if others and rng.random() < 0.25 else view, rng) for _ in range(3)]
    rated = [(text, answer_truth(scene, asked, text, only_asked=False)) for text in texts]
    return render(scene), question, None, rated, [str(asked)]


def _referring(rng: random.Random) -> Drawn:
    scene = sample_scene(rng)
    alone = [shapes[0] for shapes in scene.groups().values() if len(shapes) == 1]
    while not alone:
        scene = sample_scene(rng)
        alone = [shapes[0] for shapes in scene.groups().values() if len(shapes) == 1]
    target = rng.choice(alone)
    asked = Phrase(1, target.color, target.shape)
    others = [shape for shape in scene.shapes if shape != target]
    views = [
        Scene((rng.choice(others),), scene.background) if others and rng.random() < 0.2 else _only(scene, asked)
        for _ in range(3)
    ]
    texts = [flawed_caption(view, rng) for view in views]
    rated = [(text, answer_truth(scene, asked, text, only_asked=True)) for text in texts]
    return render(scene), None, _box(target), rated, [str(asked)]


def _document(rng: random.Random) -> Drawn:
    lines = sample_document(rng)
    asked = rng.randrange(len(lines))
    texts = [flawed_reading(lines, asked, rng, faults) for faults in rng.sample((0, 1, 1, 2, 3), 3)]
    rated = [(text, document_truth(lines, asked, text)) for text in texts]
    return draw_document(lines), f"What does line {asked + 1} say?", None, rated, [" ".join(lines[asked])]


def _only(scene: Scene, asked: Phrase) -> Scene:
    kept = tuple(shape for shape in scene.shapes if (shape.color, shape.shape) == (asked.color, asked.shape))
    return replace(scene, shapes=kept)


def _box(shape: Shape) -> tuple[float, ...]:
    reach = shape.radius + 1
    return (shape.x - reach, shape.y - reach, shape.x + reach, shape.y + reach)


_TASKS: dict[str, Callable[[random.Random], Drawn]] = {
    "referring": _referring,
    "vqa": _vqa,
    "document": _document,
    "captioning": _captioning,
}
