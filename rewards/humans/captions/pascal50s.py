"""PASCAL-50S (Vedantam et al. 2015): which of two sentences is closer to a third, 48 votes a pair, 4,000 pairs.

From the published MATLAB files: `pair_pascal.mat` with `new_input` (picture, sentence b, sentence c), `new_data` (who
wrote each: 1-5 machines, 6 a human, 7 a human about another picture) and `category` (1 HC, 2 HI, 3 HM, 4 MM); and
`consensus_pascal.mat` with `triplets` (reference a, b, c, vote: 1 for b, -1 for c).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy.io

from rewards.errors import InputError
from rewards.humans.captions.records import CaptionPair, Reading

CATEGORIES = {1: "HC", 2: "HI", 3: "HM", 4: "MM"}


def read_pascal50s(pairs: str | Path, consensus: str | Path) -> Reading[CaptionPair]:
    """Read both files; the preference is the majority of the votes, 0 where they tie.

    Args:
        pairs: pair_pascal.mat.
        consensus: consensus_pascal.mat.

    Raises:
        InputError: not a MATLAB file, a missing variable, a number of votes that is not the same for every pair, a vote
            on other sentences than the pair's, a vote other than 1 and -1, or a category that contradicts the authors.
    """
    pair_file, vote_file = _load(pairs, ("new_input", "new_data", "category")), _load(consensus, ("triplets",))
    rows, triplets = pair_file["new_input"].ravel(), vote_file["triplets"].ravel()
    authors, categories = pair_file["new_data"], pair_file["category"].ravel()
    if not len(rows) or len(authors) != len(rows) or len(categories) != len(rows):
        raise InputError(f"{pairs}: {len(rows)} pairs, {len(authors)} rows of authors, {len(categories)} categories")
    votes_each, rest = divmod(len(triplets), len(rows))
    if rest or not votes_each:
        raise InputError(f"{consensus}: {len(triplets)} votes cannot be shared out over {len(rows)} pairs")
    records, tied = [], 0
    for n, row in enumerate(rows):
        where = f"{pairs}, pair {n}"
        image, a, b = (_text(cell, where) for cell in _cells(row, 3, where))
        category = CATEGORIES.get(int(categories[n]))
        if category is None or category != _category(authors[n]):
            raise InputError(f"{where}: category {categories[n]} does not fit its authors {list(authors[n])}")
        references, balance = _votes(triplets[n * votes_each : (n + 1) * votes_each], a, b, f"{consensus}, pair {n}")
        tied += balance == 0
        records.append(CaptionPair(image, a, b, int(np.sign(balance)), category, references))
    notes = [f"{tied} pairs with a tied vote, which count one half whatever the metric says"] if tied else []
    return Reading(records, notes)


def _votes(triplets: np.ndarray, a: str, b: str, where: str) -> tuple[tuple[str, ...], int]:
    """References and votes for a minus votes for b; b and c may stand in either order in a triplet."""
    references, balance = [], 0
    for triplet in triplets:
        reference, first, second, vote = _cells(triplet, 4, where)
        references.append(_text(reference, where))
        sentences = _text(first, where), _text(second, where)
        if sorted(sentences) != sorted((a, b)):
            raise InputError(f"{where}: a vote is about {sentences}; the pair is {(a, b)}")
        value = float(np.asarray(_unwrap(vote)))
        if value not in (1.0, -1.0):
            raise InputError(f"{where}: a vote is {value}; 1 or -1 is needed")
        chosen = sentences[0] if value == 1.0 else sentences[1]
        balance += 1 if chosen == a else -1
    return tuple(references), balance


def _category(authors: np.ndarray) -> str | None:
    machines = sum(int(author) <= 5 for author in authors)
    if machines:
        return "HM" if machines == 1 else "MM"
    return {12: "HC", 13: "HI"}.get(sum(int(author) for author in authors))


def _load(path: str | Path, names: tuple[str, ...]) -> dict[str, np.ndarray]:
    try:
        # Opened here, because loadmat looks for a file of another name when this one is missing.
        with Path(path).open("rb") as file:
            content = scipy.io.loadmat(file)
    except (ValueError, TypeError, NotImplementedError) as error:
        raise InputError(f"{path} is not a MATLAB file that can be read: {error}") from error
    if missing := [name for name in names if name not in content]:
        raise InputError(f"{path} has no variable {', '.join(missing)}")
    return content


def _cells(row: object, count: int, where: str) -> list[object]:
    # A MATLAB struct arrives as a numpy record, a cell as an array of objects.
    cells = list(row.item()) if isinstance(row, np.void) else list(np.asarray(row, dtype=object).ravel())
    if len(cells) != count:
        raise InputError(f"{where}: has {len(cells)} fields; {count} are needed")
    return cells


def _unwrap(value: object) -> object:
    """MATLAB cells and strings arrive as arrays in arrays: take the only element until none is left."""
    while isinstance(value, np.ndarray | np.void) and np.size(value) == 1 and len(np.shape(value) or (1,)) >= 1:
        inner = value.ravel()[0] if isinstance(value, np.ndarray) else value[0]
        if inner is value:
            break
        value = inner
    return value


def _text(value: object, where: str) -> str:
    value = _unwrap(value)
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{where}: {value!r} is not a sentence")
    return value.strip()
