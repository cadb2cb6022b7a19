"""Audit of a reward of texts: true texts against their false and their empty neighbours."""

from __future__ import annotations

import random
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image

from rewards.audit.edits import KINDS, Vocabulary, false_texts, vocabulary_of
from rewards.audit.findings import Finding, Findings
from rewards.audit.gains import GAINS
from rewards.calling import score_guarded
from rewards.errors import InputError
from rewards.images import to_pil
from rewards.reward import Reward
from rewards.scores import Scores


@dataclass(frozen=True)
class TrueText:
    """A picture with a true text about it.

    Attributes:
        image: anything that :func:`rewards.images.to_pil` takes.
        text: what is true of it.
        cluster: what belongs together in the intervals (several texts of one picture); default: the text.
        question: for rewards that need one.
    """

    image: object
    text: str
    cluster: Hashable = None
    question: str | None = None


@dataclass(frozen=True)
class _Variant:
    """One text of the audit, and the row whose truth it is measured against."""

    row: int
    family: str
    kind: str
    text: str
    image: object


def audit_texts(
    reward: Reward, rows: Sequence[TrueText], *, per_kind: int = 1, seed: int = 0, batch_size: int = 256
) -> Findings:
    """Score every true text, and what a policy could write in its place.

    Args:
        reward: of texts about pictures.
        rows: true texts; two at least, of different pictures.
        per_kind: false texts of one kind a row.
        seed: chooses among the places where a detail can be changed, and whose text is another picture's.
        batch_size: texts handed to the reward at a time.

    Returns:
        A finding for each kind: how often the variant is accepted (scores at least as high as the truth), and by how
        much the score falls, overall and by part. Ties count as accepted: a reward that cannot tell does not forbid.

    Raises:
        InputError: fewer than two rows.

    Example:
        >>> audit_texts(reward, [TrueText("dog.jpg", "A brown dog."), TrueText("cat.jpg", "A cat.")])  # doctest: +SKIP
    """
    if len(rows) < 2:
        raise InputError(f"an audit compares pictures with each other: got {len(rows)} rows, at least 2 are needed")
    spoken = vocabulary_of(row.text for row in rows)
    variants = [variant for row in range(len(rows)) for variant in _variants(rows, row, spoken, per_kind, seed)]
    scores = _score(reward, rows, variants, batch_size)
    truth = {variant.row: at for at, variant in enumerate(variants) if variant.family == "truth"}
    grouped: dict[tuple[str, str], list[int]] = {}
    for at, variant in enumerate(variants):
        if variant.family != "truth":
            grouped.setdefault((variant.family, variant.kind), []).append(at)
    findings = [
        _finding(family, kind, places, truth, variants, scores, rows) for (family, kind), places in grouped.items()
    ]
    return Findings(reward.__name__, reward.identity(), len(rows), findings, int(scores.abstained.sum()))


def _variants(rows: Sequence[TrueText], row: int, spoken: Vocabulary, per_kind: int, seed: int) -> list[_Variant]:
    """The true text of a row and everything that stands against it."""
    own = rows[row]
    draw = random.Random(zlib.crc32(f"{seed}\n{own.text}".encode()))
    strangers = [other for other in rows if other.text != own.text] or [rows[row - 1]]
    other = strangers[draw.randrange(len(strangers))].text
    found = [_Variant(row, "truth", "truth", own.text, own.image)]
    for kind in KINDS:
        edits = false_texts(own.text, kind, spoken)
        chosen = draw.sample(edits, min(per_kind, len(edits)))
        found += [_Variant(row, "false detail", kind, text, own.image) for text in chosen]
    found += [_Variant(row, "empty gain", kind, gain(own.text, other), own.image) for kind, gain in GAINS.items()]
    blank, noise = _unseen(own.image, draw)
    found.append(_Variant(row, "unseen picture", "blank", own.text, blank))
    found.append(_Variant(row, "unseen picture", "noise", own.text, noise))
    return found


def _unseen(image: object, draw: random.Random) -> tuple[Image.Image, Image.Image]:
    """A gray picture and one of noise, in the size of a picture: no text is true of them."""
    width, height = to_pil(image).size
    noise = np.random.default_rng(draw.randrange(2**32)).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.new("RGB", (width, height), (127, 127, 127)), Image.fromarray(noise)


def _score(reward: Reward, rows: Sequence[TrueText], variants: Sequence[_Variant], batch_size: int) -> Scores:
    batches = []
    for start in range(0, len(variants), batch_size):
        batch = variants[start : start + batch_size]
        questions = [rows[variant.row].question for variant in batch]
        columns = {"inputs": questions} if any(question is not None for question in questions) else {}
        batches.append(
            score_guarded(reward, [variant.image for variant in batch], [variant.text for variant in batch], **columns)
        )
    return Scores.concatenate(batches)


def _finding(
    family: str,
    kind: str,
    places: Sequence[int],
    truth: Mapping[int, int],
    variants: Sequence[_Variant],
    scores: Scores,
    rows: Sequence[TrueText],
) -> Finding:
    table = np.concatenate([scores.overall.double().numpy()[:, None], scores.parts.double().numpy()], axis=1)
    before = table[[truth[variants[at].row] for at in places]]
    after = table[list(places)]
    judged = np.isfinite(before[:, 0]) & np.isfinite(after[:, 0])
    kept = [at for at, fine in zip(places, judged, strict=True) if fine]
    drops = before[judged] - after[judged]
    worst = sorted(range(len(kept)), key=lambda place: drops[place, 0])[:3]
    return Finding(
        family=family,
        kind=kind,
        drops=drops[:, 0].tolist(),
        clusters=[rows[variants[at].row].cluster or rows[variants[at].row].text for at in kept],
        parts={
            name: float(np.nanmean(drops[:, column + 1])) if len(kept) else float("nan")
            for column, name in enumerate(scores.part_names)
        },
        examples=[(rows[variants[kept[p]].row].text, variants[kept[p]].text, float(drops[p, 0])) for p in worst],
    )
