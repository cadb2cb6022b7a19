"""A policy without training: what the reward leads to when nothing but the reward is asked, within a budget.

Texts: hill climbing over edits, and the best of some samples. Pictures: the gradient of a reward that has one, within a
bounded change of every pixel.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from rewards.audit.edits import KINDS, Vocabulary, false_texts, vocabulary_of
from rewards.audit.findings import Findings
from rewards.audit.gains import GAINS
from rewards.audit.texts import draw_of, stranger
from rewards.audit.variants import TrueText, Variant, columns_of, judge_variants
from rewards.calling import score_guarded
from rewards.errors import InputError
from rewards.images import to_pil
from rewards.reward import Reward
from rewards.runs.intervals import Estimate, mean_interval
from rewards.tables import Table

PROPOSALS = 16
"""Edits of a text that are judged before one is taken."""
Sampler = Callable[[int], Sequence[str]]
"""A number -> one sample for each row; another number, other samples."""


def search_texts(
    reward: Reward,
    rows: Sequence[TrueText],
    *,
    sampler: Sampler | None = None,
    second: Reward | None = None,
    budget: int = 200,
    seed: int = 0,
) -> Findings:
    """The best text for every row that hill climbing over edits finds, and the best of the sampler's.

    Args:
        reward: what is climbed.
        rows: true texts, from which the climbing starts; two at least.
        sampler: a model that writes, for best-of-n.
        second: a judge who knows better, or the truth: what it does not score lower than the truth is no finding.
        budget: texts that the reward may be asked about, a row and a method.
        seed: of the edits.

    Returns:
        One finding a method; its examples are what was found.

    Raises:
        InputError: fewer than two rows.
    """
    found = {"hill climbing": _climbed(reward, rows, budget, seed)}
    if sampler is not None:
        samples = [sampler(number) for number in range(budget)]
        found[f"best of {budget}"] = _best(reward, rows, samples)

    def make(row: int) -> list[Variant]:
        return [Variant("search", kind, rows[row].image, texts[row]) for kind, texts in found.items()]

    return judge_variants(reward, rows, make, {"kind": "search", "budget": budget, "seed": seed}, second)


def _climbed(reward: Reward, rows: Sequence[TrueText], budget: int, seed: int) -> list[str]:
    """The text other than the truth that the reward likes best among those on the way."""
    spoken = vocabulary_of(row.text for row in rows)
    draws = [draw_of(row, seed) for row in rows]
    standing = [row.text for row in rows]
    level = _overall(reward, rows, standing)
    best = [(-np.inf, "")] * len(rows)
    for _ in range(max(1, budget // PROPOSALS)):
        proposed = [
            [_neighbour(rows, row, standing[row], spoken, draws[row]) for _ in range(PROPOSALS)]
            for row in range(len(rows))
        ]
        flat = [text for texts in proposed for text in texts]
        scores = _overall(reward, [row for row in rows for _ in range(PROPOSALS)], flat).reshape(len(rows), PROPOSALS)
        for row, texts in enumerate(proposed):
            for text, score in zip(texts, scores[row], strict=True):
                if text != rows[row].text and score > best[row][0]:
                    best[row] = (score, text)
            top = int(np.argmax(scores[row]))
            if scores[row][top] >= level[row]:
                standing[row], level[row] = texts[top], scores[row][top]
    return [text for _, text in best]


def _neighbour(rows: Sequence[TrueText], row: int, text: str, spoken: Vocabulary, draw: random.Random) -> str:
    """One edit of a text: a false detail, an empty gain, or a word less, twice, or elsewhere."""
    for _ in range(8):
        move = draw.choice(("detail", "detail", "detail", "gain", "drop", "double", "move"))
        words = text.split()
        if move == "detail" and (edits := false_texts(text, draw.choice(list(KINDS)), spoken)):
            return draw.choice(edits)
        if move == "gain":
            return draw.choice(list(GAINS.values()))(text, stranger(rows, row, draw).text)
        if move in ("drop", "double", "move") and len(words) > 1:
            place = draw.randrange(len(words))
            word = words[place]
            if move != "double":
                del words[place]
            if move != "drop":
                words.insert(draw.randrange(len(words) + 1), word)
            return " ".join(words)
    return text


def _best(reward: Reward, rows: Sequence[TrueText], samples: Sequence[Sequence[str]]) -> list[str]:
    scores = np.stack([_overall(reward, rows, texts) for texts in samples])
    return [samples[int(np.argmax(scores[:, row]))][row] for row in range(len(rows))]


def _overall(reward: Reward, rows: Sequence[TrueText], texts: Sequence[str]) -> np.ndarray:
    """Scores, -inf where there is none: nothing is found in what cannot be judged."""
    values = []
    for start in range(0, len(rows), 256):
        part = rows[start : start + 256]
        scores = score_guarded(reward, [row.image for row in part], texts[start : start + 256], **columns_of(part))
        values.append(scores.overall.double().cpu().numpy())
    return np.nan_to_num(np.concatenate(values), nan=-np.inf)


@dataclass(frozen=True)
class Reached:
    """Where the gradient led within a bound.

    Attributes:
        bound: largest change of a value, of 255.
        way: `plain`, `smooth`, `jitter` or both.
        before, after, truth: mean score of the wrong pictures, of the same changed, and of the true ones.
        second: rise of the second judge's score, where one was asked.
    """

    bound: int
    way: str
    before: float
    after: Estimate
    truth: float
    second: Estimate | None


def search_pictures(
    reward: Reward,
    rows: Sequence[TrueText],
    *,
    second: Reward | None = None,
    bounds: Sequence[int] = (2, 4, 8, 16),
    steps: int = 20,
    seed: int = 0,
) -> list[Reached]:
    """How much reward lies in how small a change of another prompt's picture.

    Every picture is changed along the sign of the reward's gradient (projected gradient ascent, Madry et al. 2018),
    and judged as 8-bit values without the gradient. `smooth`: the change is blurred; `jitter`: the reward is asked
    about shifted, noisy copies, so that only what survives them is found.

    Args:
        reward: with a gradient to the pixels (soft TIFA where the judge has one).
        rows: prompts with pictures of one size.
        second: a judge that the gradient does not come from.
        bounds: largest change of a pixel's value, of 255.
        steps: of the ascent.
        seed: of other prompts' pictures and jitter.

    Raises:
        InputError: a reward without a gradient, fewer than two rows, pictures of several sizes.
    """
    if (problem := reward.gradient_problem) is not None:
        raise InputError(problem)
    if len(rows) < 2:
        raise InputError(f"other prompts' pictures are needed: got {len(rows)} rows, at least 2 are needed")
    start = _stacked([stranger(rows, row, draw_of(rows[row], seed)) for row in range(len(rows))])
    texts = [row.text for row in rows]
    groups = [row.group for row in rows]
    truth, before = float(_score(reward, _stacked(rows), texts).mean()), _score(reward, start, texts)
    known = None if second is None else _score(second, start, texts)
    found = []
    for bound in bounds:
        for way in ("plain", "smooth", "jitter", "smooth and jitter"):
            changed = _ascended(reward, start, texts, bound / 255, steps, "smooth" in way, "jitter" in way, seed)
            after = mean_interval(_score(reward, changed, texts), groups)
            rise = None if second is None else mean_interval(_score(second, changed, texts) - known, groups)
            found.append(Reached(bound, way, float(np.nanmean(before)), after, truth, rise))
    return found


def reached_table(found: Sequence[Reached]) -> Table:
    """A row a bound and way."""
    rows = []
    for one in found:
        after = f"{one.after.value:.3f} [{one.after.low:.3f}, {one.after.high:.3f}]"
        risen = "" if one.second is None else f"{one.second.value:+.3f} [{one.second.low:+.3f}, {one.second.high:+.3f}]"
        rows.append([f"{one.bound} of 255", one.way, f"{one.before:.3f}", after, f"{one.truth:.3f}", risen])
    header = ["change", "way", "before", "after [95%]", "true picture", "second judge [95%]"]
    return Table("Reward of another prompt's picture, changed along the gradient", header, rows)


def _ascended(
    reward: Reward, start: Tensor, texts: Sequence[str], bound: float, steps: int, smooth: bool, jitter: bool, seed: int
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    change = torch.zeros_like(start)
    for _ in range(steps):
        change.requires_grad_(True)
        shown = (start + (_blurred(change) if smooth else change)).clamp(0, 1)
        if jitter:
            reach = max(1, start.shape[-1] // 16)
            shift = torch.randint(-reach, reach + 1, (2,), generator=generator).tolist()
            noise = torch.randn(start.shape, generator=generator) * bound / 2
            shown = (shown.roll(shift, (2, 3)) + noise).clamp(0, 1)
        score = reward.score_with_grad(shown, texts).overall.nansum()
        (gradient,) = torch.autograd.grad(score, change)
        change = (change.detach() + 2.5 * bound / steps * gradient.sign()).clamp(-bound, bound)
    shown = (start + (_blurred(change) if smooth else change)).clamp(0, 1)
    return (shown * 255).round().detach() / 255


def _blurred(change: Tensor) -> Tensor:
    """A mean over 5 x 5 pixels: no value grows."""
    return avg_pool2d(change, 5, stride=1, padding=2, count_include_pad=False)


def _score(reward: Reward, pictures: Tensor, texts: Sequence[str]) -> np.ndarray:
    return score_guarded(reward, list(pictures), texts).overall.double().cpu().numpy()


def _stacked(rows: Sequence[TrueText]) -> Tensor:
    pictures = [torch.from_numpy(np.array(to_pil(row.image))).permute(2, 0, 1).float() / 255 for row in rows]
    if len(sizes := {tuple(picture.shape) for picture in pictures}) > 1:
        raise InputError(f"pictures of one size are needed to search by gradient; these have {len(sizes)} sizes")
    return torch.stack(pictures)
