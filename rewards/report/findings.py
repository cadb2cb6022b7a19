"""What a run's held-out outputs say beside their means: is the gain real, what is said, and what is still not learned.

Everything here is plain values; :mod:`rewards.report.story` writes them down.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rewards.runs.evaluations import Evaluation, HeldOutSample, Judgment
from rewards.runs.summary import Gain


def verdict(judge: str, gain: Gain, audit: str, audit_gain: Gain, gap: Gain) -> str:
    """One plain sentence: how much of the judge's gain the audit confirms.

    Args:
        judge, audit: Names.
        gain, audit_gain: Changes of the overall scores.
        gap: Growth of judge minus audit.

    Example:
        >>> found = [Gain(0, 0, gain, gain - 0.2, gain + 0.2, 8, 8) for gain in (0.6, 0.1, 0.5)]
        >>> verdict("TIFA", found[0], "oracle", found[1], found[2]).splitlines()[0][:66]
        'The judge (TIFA) gained +0.600 [+0.400, +0.800], the audit (oracle'
    """
    change = "grew" if gap.low > 0 else "changed"
    told = (
        f"The judge ({judge}) gained {signed(gain)}, the audit ({audit}) {signed(audit_gain)}; the gap between them "
        f"{change} by {signed(gap)}."
    )
    if not gap.low > 0 and not gain.low > 0:
        return f"{told} Whether the judge's score rose at all is not clear."
    if not gap.low > 0:
        return f"{told} That is no clear sign of a policy that games its judge."
    if not audit_gain.low > 0:
        return f"{told} The audit confirms no gain: the policy games its judge."
    share = gap.gain / gain.gain if gain.gain > 0 else math.nan
    part = f"About {share:.0%} of the gain is" if 0 < share < 1 else "Part of the gain is"
    return f"{told} {part} in the eyes of the judge only."


def signed(gain: Gain) -> str:
    """A change with its interval, as `+0.100 [-0.100, +0.300]`."""
    interval = f" [{gain.low:+.3f}, {gain.high:+.3f}]" if math.isfinite(gain.low) else ""
    return f"{gain.gain:+.3f}{interval}"


def judgment(sample: HeldOutSample, audit: str | None) -> Judgment:
    """By the training reward, or by an audit; an abstention where it judged nothing."""
    return sample.judgment if audit is None else sample.audits.get(audit, Judgment(None))


def overrated(evaluation: Evaluation, audit: str) -> list[HeldOutSample]:
    """The samples that the judge scores above the audit, the widest apart first."""
    apart = []
    for sample in evaluation.samples:
        ours, theirs = sample.judgment.overall, judgment(sample, audit).overall
        if ours is not None and theirs is not None and ours > theirs:
            apart.append((ours - theirs, sample))
    return [sample for _, sample in sorted(apart, key=lambda row: -row[0])]


def ranked(evaluation: Evaluation, audit: str | None = None, part: str = "overall") -> list[HeldOutSample]:
    """Samples by a score of the judge or of an audit, the lowest first; those without are left out."""
    scored = [(judgment(sample, audit).values().get(part), sample) for sample in evaluation.samples]
    known = [(value, sample) for value, sample in scored if value is not None]
    return [sample for _, sample in sorted(known, key=lambda row: row[0])]


def part_means(evaluation: Evaluation, audit: str | None = None) -> dict[str, float]:
    """Mean of each part over the samples that have it, the lowest first."""
    values: dict[str, list[float]] = {}
    for found in evaluation.judgments(audit):
        for part, value in found.parts.items():
            if value is not None:
                values.setdefault(part, []).append(value)
    return dict(sorted(((part, float(np.mean(of))) for part, of in values.items()), key=lambda row: row[1]))


def surplus(evaluation: Evaluation, audit: str | None = None) -> tuple[float, float] | None:
    """Objects that nobody asked for, where a judge counts them (`surplus` in its details): the share of pictures that
    show one, and how many they are in all."""
    counts = [found.details.get("surplus") for found in evaluation.judgments(audit)]
    known = [count for count in counts if isinstance(count, (int, float))]
    return (sum(count > 0 for count in known) / len(known), float(sum(known))) if known else None


@dataclass(frozen=True)
class Saying:
    """What a model that writes says over a whole evaluation.

    Attributes:
        count: Texts.
        length: Words a text.
        entropy: Of the words, in bits: 0 when one word is all that is ever said.
        texts: How often each text is said.
        words: In how many texts each word stands.
    """

    count: int
    length: float
    entropy: float
    texts: Counter[str]
    words: Counter[str]


def saying(evaluation: Evaluation) -> Saying | None:
    """Statistics of the texts of an evaluation; None for a model that draws.

    Example:
        >>> samples = [HeldOutSample(i, "?", Judgment(None), text=text) for i, text in enumerate(("a dog", "a cat"))]
        >>> found = saying(Evaluation(0, "R", samples))
        >>> found.words["a"], found.length, found.entropy
        (2, 2.0, 1.5)
    """
    texts = [sample.text for sample in evaluation.samples if sample.text is not None]
    if not texts:
        return None
    split = [text.lower().split() for text in texts]
    said = Counter(word for words in split for word in words)
    shares = np.array(list(said.values())) / max(1, said.total())
    entropy = float((shares * -np.log2(shares)).sum())
    words = Counter(word for words in split for word in set(words))
    return Saying(len(texts), said.total() / len(texts), entropy, Counter(texts), words)


def changed_words(before: Saying, after: Saying, limit: int) -> list[tuple[str, int, int]]:
    """Words whose number of texts changed most: the word, texts before, texts after."""
    words = sorted({*before.words, *after.words}, key=lambda w: (-abs(after.words[w] - before.words[w]), w))
    rows = [(word, before.words[word], after.words[word]) for word in words[:limit]]
    return [row for row in rows if row[1] != row[2]]


def spread_out(rows: Sequence[HeldOutSample], limit: int) -> list[HeldOutSample]:
    """At most `limit` of the rows, evenly over all of them."""
    return [rows[index * len(rows) // limit] for index in range(limit)] if len(rows) > limit else list(rows)
