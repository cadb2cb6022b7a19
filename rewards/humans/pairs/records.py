"""VL-RewardBench's file (Li et al. 2024): a request about a picture, two responses, and people's ranking of them.

A JSON list, or an object a line, with `id`, `query`, `response` (two texts), `image` (a file name) and `human_ranking`:
the rank of each response, 0 the better one ([0, 1]: the first is better). In the released file the better response is
nearly always the first (1,245 of 1,250), so that a judge must be asked in both orders.

The three groups follow the source of the pair, which its id names: `hallucination` (POVID, RLAIF-V, RLHF-V),
`reasoning` (MathVerse, MMMU-Pro) and `general` (WildVision, VLFeedback). Ids repeat; a pair is known by its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewards.errors import InputError
from rewards.humans.files import text
from rewards.runs.files import numbered_lines, read_json

GROUPS = {
    "hallucination": ("hallucination_pair", "RLAIF", "RLHF"),
    "reasoning": ("mathverse", "mmmu"),
}
GENERAL = "general"


@dataclass(frozen=True)
class ResponsePair:
    """A request about a picture with two responses; `better` is the index (0 or 1) of the one that people prefer."""

    id: str
    group: str
    image: str
    query: str
    responses: tuple[str, str]
    better: int


def read_pairs(path: str | Path, images: str | Path = ".") -> list[ResponsePair]:
    """Read and check every pair.

    Args:
        path: `.json` (a list) or `.jsonl`.
        images: folder of the pictures.

    Raises:
        InputError: another form, a missing field, not two responses, or a ranking that is not [0, 1] or [1, 0]; with
            the entry. No pairs.
    """
    pairs = []
    for where, row in _rows(path):
        responses, ranking = row.get("response"), row.get("human_ranking")
        if not isinstance(responses, list) or len(responses) != 2 or not all(isinstance(r, str) for r in responses):
            raise InputError(f"{where}: response is no list of two texts")
        if ranking not in ([0, 1], [1, 0]):
            raise InputError(f"{where}: human_ranking is {ranking!r}; [0, 1] or [1, 0] is needed")
        id_ = str(row.get("id", where))
        picture = str(Path(images) / text(row, "image", where))
        query = text(row, "query", where)
        pairs.append(ResponsePair(id_, group_of(id_), picture, query, (responses[0], responses[1]), ranking.index(0)))
    if not pairs:
        raise InputError(f"{path} holds no pairs")
    return pairs


def group_of(id_: str) -> str:
    """The group of a pair, from its id.

    Example:
        >>> group_of("mathverse_2279-1"), group_of("RLAIF-V-7"), group_of("wildvision-battle-3")
        ('reasoning', 'hallucination', 'general')
    """
    for group, parts in GROUPS.items():
        if any(part.lower() in id_.lower() for part in parts):
            return group
    return GENERAL


def describe_pairs(pairs: Sequence[ResponsePair]) -> str:
    """How many pairs there are, by group, and how often the first response is the better one."""
    counts = Counter(pair.group for pair in pairs)
    groups = ", ".join(f"{count} {group}" for group, count in counts.most_common())
    first = sum(pair.better == 0 for pair in pairs)
    return f"{len(pairs)} pairs ({groups}); the first response is the better one in {first}"


def _rows(path: str | Path) -> Iterator[tuple[str, dict[str, object]]]:
    if Path(path).suffix == ".jsonl":
        yield from ((f"{path}, line {line}", row) for line, row in numbered_lines(path))
        return
    content = read_json(path)
    if not isinstance(content, list):
        raise InputError(f"{path} is {type(content).__name__}; a list of pairs is needed")
    for n, row in enumerate(content):
        if not isinstance(row, dict):
            raise InputError(f"{path}, entry {n}: is {type(row).__name__}; an object is needed")
        yield f"{path}, entry {n}", row
