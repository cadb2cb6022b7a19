"""What stands against a true text: variants, and how a reward judges each beside the truth of its row."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from rewards.audit.findings import CONTROL, Example, Finding, Findings
from rewards.calling import score_guarded
from rewards.errors import InputError
from rewards.images import content_hash, to_pil
from rewards.reward import Reward
from rewards.runs.files import Json
from rewards.runs.identity import content_hash as hash_of_json
from rewards.scores import Scores


@dataclass(frozen=True)
class TrueText:
    """A picture with a text that is true of it: what was written about it, or the prompt that it shows.

    Attributes:
        image: anything that :func:`rewards.images.to_pil` takes.
        text: what is true of it.
        cluster: what belongs together in the intervals (several texts of one picture); default: the text.
        columns: further values that a reward may need (`question`, `scene`, columns of a data set).
    """

    image: object
    text: str
    cluster: Hashable = None
    columns: Mapping[str, object] = field(default_factory=dict)

    @property
    def group(self) -> Hashable:
        """What is drawn together in the intervals."""
        return self.text if self.cluster is None else self.cluster


@dataclass(frozen=True)
class Variant:
    """A picture with a text that should score lower than the truth of its row.

    Attributes:
        family: `false detail`, `empty gain`, `unseen picture`, or `control`, which should not score lower.
        kind: such as `background` or `repeated`.
        image, text: what is judged.
        certain: whether it is worse for sure, so that no second judge is asked.
    """

    family: str
    kind: str
    image: object
    text: str
    certain: bool = False


class _Sample(NamedTuple):
    """A picture with a text that is judged, and the row whose further columns it takes."""

    row: int
    image: object
    text: str


class _Place(NamedTuple):
    """Where a variant stands: its row, its number among the row's variants, and its place among all samples."""

    row: int
    number: int
    at: int
    certain: bool


def judge_variants(
    reward: Reward,
    rows: Sequence[TrueText],
    make: Callable[[int], Sequence[Variant]],
    settings: Mapping[str, Json],
    second: Reward | None = None,
    batch_size: int = 256,
) -> Findings:
    """Score every truth and every variant of its row.

    Args:
        reward: what is audited.
        rows: true texts; two at least, of different pictures.
        make: the variants of a row by its number; the same ones whenever it is called.
        settings: what the variants depend on beside the rows, for the record.
        second: a judge who knows better, or the truth: a variant that it does not score lower takes no part, nor
            one that it cannot judge.
        batch_size: how many are handed to the reward at a time.

    Returns:
        A finding for each kind.

    Raises:
        InputError: fewer than two rows, or a judge that could judge nothing.
    """
    if len(rows) < 2:
        raise InputError(f"an audit compares pictures with each other: got {len(rows)} rows, at least 2 are needed")
    judges = [reward] if second is None else [reward, second]
    scored: list[list[Scores]] = [[] for _ in judges]
    truths: list[int] = []
    kinds: dict[tuple[str, str], list[_Place]] = {}
    pending: list[_Sample] = []
    count = 0
    for row, own in enumerate(rows):
        truths.append(count)
        pending.append(_Sample(row, own.image, own.text))
        variants = make(row)
        for number, variant in enumerate(variants):
            place = _Place(row, number, count + 1 + number, variant.certain)
            kinds.setdefault((variant.family, variant.kind), []).append(place)
            pending.append(_Sample(row, variant.image, variant.text))
        count += 1 + len(variants)
        if len(pending) >= batch_size or row == len(rows) - 1:
            for judge, found in zip(judges, scored, strict=True):
                found.append(_score(judge, rows, pending))
            pending = []
    tables = [Scores.concatenate(found) for found in scored]
    for judge, table in zip(judges, tables, strict=True):
        if table.abstained.all():  # which must not read as "nothing is accepted"
            raise InputError(f"{judge.__name__} could judge nothing: {table.reasons[0]}")
    values = np.concatenate([tables[0].overall.double().numpy()[:, None], tables[0].parts.double().numpy()], axis=1)
    other = None if second is None else tables[1].overall.double().numpy()
    findings = []
    for (family, kind), places in kinds.items():
        at = np.array([place.at for place in places])
        before = np.array([truths[place.row] for place in places])
        worse = np.ones(len(at), dtype=np.bool_)
        if other is not None and family != CONTROL:
            worse = np.array([place.certain for place in places]) | (other[at] < other[before])
        finding = Finding(
            family, kind, np.array([place.row for place in places]), [rows[place.row].group for place in places],
            values[before], values[at], worse, tables[0].part_names,
        )  # fmt: skip
        examples = [
            _example(rows[places[n].row], make(places[n].row)[places[n].number], float(finding.drops[n, 0]))
            for n in finding.worst()
        ]
        findings.append(finding.with_examples(examples))
    data: dict[str, Json] = {"rows": hash_of_json([_key(row) for row in rows]), **settings}
    return Findings(
        reward.__name__,
        reward.identity(),
        None if second is None else second.identity(),
        data,
        len(rows),
        findings,
        int(tables[0].abstained.sum()),
    )


def columns_of(rows: Sequence[TrueText]) -> dict[str, list[object]]:
    """The further columns of rows as rewards take them; a `question` is what the text answers (`inputs`)."""
    names = dict.fromkeys(name for row in rows for name in row.columns)
    columns = {name: [row.columns.get(name) for row in rows] for name in names}
    return columns | ({"inputs": columns["question"]} if "question" in columns else {})


def _score(judge: Reward, rows: Sequence[TrueText], pending: Sequence[_Sample]) -> Scores:
    columns = columns_of([rows[sample.row] for sample in pending])
    images, texts = [sample.image for sample in pending], [sample.text for sample in pending]
    scores = score_guarded(judge, images, texts, **columns)
    # Answers to every question of every variant are more than anybody reads.
    return Scores(scores.overall.cpu(), scores.reasons, scores.part_names, scores.parts, scores.counts)


def _example(own: TrueText, variant: Variant, drop: float) -> Example:
    return Example(own.text, variant.text, to_pil(own.image), to_pil(variant.image), drop)


def _key(row: TrueText) -> list[Json]:
    return [row.text, str(row.group), content_hash(row.image)]
