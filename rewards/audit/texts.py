"""Audit of a reward of texts: true texts against their false and their empty neighbours."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from PIL import Image

from rewards.audit.edits import KINDS, false_texts, vocabulary_of
from rewards.audit.findings import Findings
from rewards.audit.gains import GAINS
from rewards.audit.variants import TrueText, Variant, judge_variants
from rewards.images import to_pil
from rewards.reward import Reward
from rewards.runs.files import Json


def audit_texts(
    reward: Reward,
    rows: Sequence[TrueText],
    *,
    second: Reward | None = None,
    edits: Callable[[str], Mapping[str, Sequence[str]]] | None = None,
    per_kind: int = 1,
    seed: int = 0,
    batch_size: int = 256,
) -> Findings:
    """Score every true text, and what a policy could write in its place.

    Args:
        reward: of texts about pictures.
        rows: true texts; two at least, of different pictures.
        second: a judge who knows better, or the truth: texts that it does not score lower take no part.
        edits: further false texts of a true one, by kind: those of a language model, say.
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
    spoken = vocabulary_of(row.text for row in rows)

    def make(row: int) -> list[Variant]:
        own, draw = rows[row], draw_of(rows[row], seed)
        other = stranger(rows, row, draw).text
        found: list[Variant] = []
        false = {kind: false_texts(own.text, kind, spoken) for kind in KINDS}
        for kind, texts in (false | dict(edits(own.text) if edits else {})).items():
            chosen = draw.sample(list(texts), min(per_kind, len(texts)))
            found += [Variant("false detail", kind, own.image, text) for text in chosen]
        found += [Variant("empty gain", kind, own.image, gain(own.text, other)) for kind, gain in GAINS.items()]
        # A second judge that knows the truth without looking at pictures cannot tell of these.
        size = to_pil(own.image).size
        found.append(Variant("unseen picture", "blank", blank(size), own.text, certain=True))
        found.append(Variant("unseen picture", "noise", noise(size, draw), own.text, certain=True))
        return found

    settings: dict[str, Json] = {"kind": "texts", "per_kind": per_kind, "seed": seed}
    return judge_variants(reward, rows, make, settings, second, batch_size)


def draw_of(row: TrueText, seed: int) -> random.Random:
    """The choices of a row: they depend on its text and the seed, not on the other rows."""
    return random.Random(zlib.crc32(f"{seed}\n{row.text}".encode()))


def stranger(rows: Sequence[TrueText], row: int, draw: random.Random) -> TrueText:
    """A row with another text."""
    others = [other for other in rows if other.text != rows[row].text] or [rows[row - 1]]
    return others[draw.randrange(len(others))]


def blank(size: tuple[int, int]) -> Image.Image:
    """A gray picture: no text is true of it."""
    return Image.new("RGB", size, (127, 127, 127))


def noise(size: tuple[int, int], draw: random.Random) -> Image.Image:
    """A picture of noise."""
    values = np.random.default_rng(draw.randrange(2**32)).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    return Image.fromarray(values)
