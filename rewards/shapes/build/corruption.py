"""Wrong on purpose: scenes with replaced attributes, and captions with the faults that the five criteria are about."""

from __future__ import annotations

import random
from dataclasses import replace

from rewards.shapes.language import FILLERS, NUMBERS, PLURALS, RELATIONS, Phrase, describe, vary
from rewards.shapes.scenes import BACKGROUNDS, COLORS, SHAPES, Scene
from rewards.shapes.vocabulary import WORDS

_COLORS = list(COLORS)


def corrupt_scene(scene: Scene, rng: random.Random) -> Scene:
    """Replace one or two of: a group's colour, its shape, its number, the background."""
    for what in rng.sample(["color", "shape", "count", "background", "color", "shape"], 1 if rng.random() < 0.5 else 2):
        groups = scene.groups()
        key = rng.choice(list(groups))
        members = groups[key]
        if what == "color":
            color = rng.choice([c for c in COLORS if c != key[0]])
            scene = replace(scene, shapes=tuple(replace(s, color=color) if s in members else s for s in scene.shapes))
        elif what == "shape":
            kind = rng.choice([k for k in SHAPES if k != key[1]])
            scene = replace(scene, shapes=tuple(replace(s, shape=kind) if s in members else s for s in scene.shapes))
        elif what == "background":
            scene = replace(scene, background=rng.choice([b for b in BACKGROUNDS if b != scene.background]))
        elif len(scene.shapes) == 1 or (len(scene.shapes) < 3 and rng.random() < 0.5):
            scene = replace(scene, shapes=(*scene.shapes, replace(members[0])))
        else:
            scene = replace(scene, shapes=tuple(s for s in scene.shapes if s is not members[0]))
    return scene


def flawed_caption(scene: Scene, rng: random.Random) -> str:
    """What an imperfect writer might say: right or wrong, whole or partial, terse or wordy, fluent or garbled."""
    said = vary(describe(corrupt_scene(scene, rng) if rng.random() < 0.45 else scene), rng)
    if said.relation and rng.random() < 0.25:
        said = replace(said, relation=rng.choice([r for r in RELATIONS if r != said.relation]))
    phrases = list(said.phrases)
    if len(phrases) > 1 and rng.random() < 0.2:  # omit
        del phrases[rng.randrange(len(phrases))]
    if rng.random() < 0.12:  # invent
        phrases.insert(
            rng.randrange(len(phrases) + 1), Phrase(rng.choice((1, 1, 2, 3)), rng.choice(_COLORS), rng.choice(SHAPES))
        )
    words = [_vague(p, rng) if rng.random() < 0.12 else str(p) for p in phrases]
    if rng.random() < 0.15:  # repeat
        words.insert(rng.randrange(len(words) + 1), rng.choice(words))
    joint = [said.relation or "and", *["and"] * len(words)]
    text = words[0] + "".join(f" {j} {w}" for j, w in zip(joint, words[1:]))
    if said.background:
        text += f" on a {said.background} background"
        if rng.random() < 0.06:
            text += f" on a {said.background} background"
    if rng.random() < 0.15:
        text = f"{' '.join(rng.choice(FILLERS[:3]))} {text}"
    if rng.random() < 0.08:
        text = f"{text} {' '.join(rng.choice(FILLERS[4:]))}"
    if rng.random() < 0.3:
        text = garble(text, rng)
    return text


def lazy_caption(text: str, rng: random.Random) -> str:
    """What a policy writes that has stopped looking at the picture: a text made from another one.

    One background for all pictures, two backgrounds, nothing but a background, itself twice, one thing over and over,
    a list of anything, only filler, one word, a part.
    """
    words = text.split()
    body = text.split(" on a ")[0]
    ground = rng.choice(("black", "black", *BACKGROUNDS))
    anything = [str(Phrase(rng.choice((1, 1, 2, 3)), rng.choice(_COLORS), rng.choice(SHAPES))) for _ in range(4)]
    return rng.choice(
        (
            f"{body} on a {ground} background",
            f"{body} on a {ground} background",
            f"{body} on a {ground} background on a {rng.choice(list(BACKGROUNDS))} background",
            f"{rng.choice(('on a', 'a', ''))} {ground} background".strip(),
            f"{text} and {text}",
            " and ".join([rng.choice((anything[0], body))] * rng.choice((2, 3, 4))),
            " and ".join(anything[: rng.choice((2, 3, 4))]),
            " ".join([*rng.choice(FILLERS), *rng.choice(([], words))]),
            " ".join([rng.choice(WORDS)] * rng.choice((1, 1, 3, 8))),
            " ".join(words[: rng.randrange(len(words) + 1)]),
        )
    )


def _vague(phrase: Phrase, rng: random.Random) -> str:
    plural = phrase.count != 1
    noun = rng.choice(("things", "objects") if plural else ("thing", "object"))
    determiner = rng.choice((NUMBERS[phrase.count or 0], "some")) if plural else "a"
    shape = f"{phrase.shape}s" if plural else f"{phrase.shape}"
    return rng.choice((f"{determiner} {noun}", f"{determiner} {phrase.color} {noun}", f"{determiner} {shape}"))


def garble(text: str, rng: random.Random) -> str:
    """One to four breaks of grammar: a word dropped, doubled, swapped with the next, out of place, or the wrong
    number.
    """
    words = text.split()
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        i = rng.randrange(len(words))
        kind = rng.randrange(6)
        if kind == 0 and len(words) > 2:
            del words[i]
        elif kind == 1:
            words.insert(i, words[i])
        elif kind == 2 and i + 1 < len(words):
            words[i], words[i + 1] = words[i + 1], words[i]
        elif kind == 3:
            words.insert(i, rng.choice(WORDS))
        elif kind == 4:
            swap = PLURALS | {v: k for k, v in PLURALS.items()}
            words = [swap.get(w, w) if j == i or rng.random() < 0.3 else w for j, w in enumerate(words)]
        else:
            words.append(rng.choice(("and", "a", "on", *_COLORS)))
    return " ".join(words)
