"""TIFA's human study (TIFA §5.1, table 2): 800 pictures, two ratings from 1 to 5 each, and the scores of ten metrics.

The table's column "Spearman's rho" is Pearson's r: the official notebook calls `np.corrcoef` on the raw values. Here
every variant is computed and named, the pictures of one prompt are resampled together, and the agreement of the two
annotators gives the ceiling that no metric can be asked to exceed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rewards.errors import InputError
from rewards.humans.statistics.agreement import Agreement, agreement
from rewards.runs.files import finite_or_none, read_json

# In the order of the paper's table 2; keys are those of the official file.
METRICS = {
    "bleu": "BLEU-4",
    "rouge": "ROUGE-L",
    "meteor": "METEOR",
    "spice": "SPICE",
    "clipscore_vitb32": "CLIPScore (ViT-B/32)",
    "tifa_vilt": "TIFA (ViLT)",
    "tifa_ofa-large": "TIFA (OFA-large)",
    "tifa_git-large": "TIFA (GIT-large)",
    "tifa_blip2-flant5xl": "TIFA (BLIP-2 FlanT5-XL)",
    "tifa_mplug-large": "TIFA (mPLUG-large)",
}
RATINGS = range(1, 6)
PAPER_NOTE = "TIFA table 2 prints Pearson's r under the heading \"Spearman's rho\" (official notebook: np.corrcoef)."


@dataclass(frozen=True)
class StudyItem:
    """One picture of the study: who drew it, from which prompt, how two people rated it, and the metrics' scores."""

    id: str
    prompt_id: str
    prompt: str
    generator: str
    ratings: tuple[int, ...]
    scores: dict[str, float] = field(compare=False)

    @property
    def human(self) -> float:
        """Mean rating, 1 to 5."""
        return sum(self.ratings) / len(self.ratings)

    @property
    def source(self) -> str:
        """Where the prompt comes from: coco, drawbench, partiprompt or paintskill."""
        return self.prompt_id.rsplit("_", 1)[0]


def read_tifa_study(path: str | Path) -> list[StudyItem]:
    """Read `human_annotations_with_scores.json` and check every row.

    Args:
        path: the official file: an object whose keys are `<text_id>_<generator>`.

    Returns:
        One StudyItem a picture, in file order.

    Raises:
        InputError: the file is not JSON, or a row lacks a field, has ratings outside 1..5, a `human_avg` that is not
            their mean, a metric that is not a finite number, or other metrics than the first row; the message names
            the row and the reason. OSError when the file cannot be read.
    """
    rows = read_json(path)
    if not isinstance(rows, dict) or not rows:
        raise InputError(f"{path} holds no rows; an object with one entry a picture is needed")
    items = [_item(path, key, row) for key, row in rows.items()]
    for item in items:
        if item.scores.keys() != items[0].scores.keys():
            odd = sorted(item.scores.keys() ^ items[0].scores.keys())
            raise InputError(f"{path}, row {item.id!r}: has other metrics than the first row ({', '.join(odd)})")
    if not items[0].scores:
        raise InputError(f"{path}, row {items[0].id!r}: has no metric besides the human scores")
    return items


_FIELDS = ("text_id", "image_path", "text", "human_scores", "human_avg")


def _item(path: str | Path, key: str, row: object) -> StudyItem:
    def refuse(reason: str) -> InputError:
        return InputError(f"{path}, row {key!r}: {reason}")

    if not isinstance(row, dict):
        raise refuse(f"is {type(row).__name__}; an object is needed")
    if missing := [name for name in _FIELDS if name not in row]:
        raise refuse(f"lacks {', '.join(missing)}")
    prompt_id, ratings = str(row["text_id"]), row["human_scores"]
    if not key.startswith(prompt_id + "_"):
        raise refuse(f"the key does not begin with its text_id {prompt_id!r}")
    if not isinstance(ratings, list) or not ratings or any(_not_rating(rating) for rating in ratings):
        raise refuse(f"human_scores is {ratings!r}; a list of whole numbers from 1 to 5 is needed")
    mean = sum(ratings) / len(ratings)
    if not _is_number(row["human_avg"]) or abs(row["human_avg"] - mean) > 1e-6:
        raise refuse(f"human_avg is {row['human_avg']!r} and the mean of human_scores is {mean}")
    scores = {name: value for name, value in row.items() if name not in _FIELDS}
    for name, value in scores.items():
        if not _is_number(value):
            raise refuse(f"{name} is {value!r}; a finite number is needed")
    return StudyItem(key, prompt_id, str(row["text"]), key.removeprefix(prompt_id + "_"), tuple(ratings), scores)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _not_rating(value: object) -> bool:
    return not _is_number(value) or value not in RATINGS


@dataclass(frozen=True)
class Ceiling:
    """How well two annotators agree, and the most that a metric can reach.

    Attributes:
        between_annotators: one rating against the other.
        reliability_one, reliability_mean: of a single rating and of the mean of the two (Spearman-Brown).
        ceiling_pearson: of a perfect metric with the mean rating.
    """

    between_annotators: Agreement
    reliability_one: float
    reliability_mean: float
    ceiling_pearson: float

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**vars(self), "between_annotators": self.between_annotators.as_dict()}


@dataclass(frozen=True)
class StudyReport:
    """Agreement of every metric with people: on all pictures, by generator and by source, with the ceiling."""

    overall: dict[str, Agreement]
    by_generator: dict[str, dict[str, Agreement]]
    by_source: dict[str, dict[str, Agreement]]
    ceiling: Ceiling | None
    prompts: int

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON. Correlations are fractions; None where undefined."""

        def plain(table: dict[str, Agreement]) -> dict[str, object]:
            return {name: result.as_dict() for name, result in table.items()}

        return finite_or_none(
            {
                "note": PAPER_NOTE,
                "prompts": self.prompts,
                "metrics": plain(self.overall),
                "by_generator": {name: plain(table) for name, table in self.by_generator.items()},
                "by_source": {name: plain(table) for name, table in self.by_source.items()},
                "inter_annotator": self.ceiling.as_dict() if self.ceiling is not None else {},
            }
        )


def study_report(items: list[StudyItem], *, resamples: int = 2000, seed: int = 0) -> StudyReport:
    """Compare each metric in the file with the mean human rating; intervals are clustered by prompt.

    Args:
        items: from :func:`read_tifa_study`.
        resamples, seed: of the clustered bootstrap.
    """
    names = [name for name in METRICS if name in items[0].scores]
    names += [name for name in items[0].scores if name not in METRICS]

    def table(chosen: list[StudyItem]) -> dict[str, Agreement]:
        human, groups = [item.human for item in chosen], [item.prompt_id for item in chosen]
        return {
            name: agreement([item.scores[name] for item in chosen], human, groups, resamples=resamples, seed=seed)
            for name in names
        }

    def split(key: str) -> dict[str, dict[str, Agreement]]:
        labels = sorted({getattr(item, key) for item in items})
        return {label: table([item for item in items if getattr(item, key) == label]) for label in labels}

    return StudyReport(
        overall=table(items),
        by_generator=split("generator"),
        by_source=split("source"),
        ceiling=annotator_ceiling(items, resamples=resamples, seed=seed),
        prompts=len({item.prompt_id for item in items}),
    )


def annotator_ceiling(items: list[StudyItem], *, resamples: int = 2000, seed: int = 0) -> Ceiling | None:
    """How well two annotators agree with each other, and what follows for a metric.

    The file does not say which annotator gave which rating, so that each pair enters in both orders; the result does
    not depend on the order in the file. By classical test theory a mean of k ratings whose single-rating reliability
    is r has reliability k r / (1 + (k - 1) r) (Spearman-Brown), and a perfect metric correlates with that mean at most
    by its square root.

    Returns:
        None unless every picture has exactly two ratings.
    """
    if any(len(item.ratings) != 2 for item in items):
        return None
    first, second = np.array([item.ratings for item in items], dtype=float).T
    groups = [item.prompt_id for item in items] * 2
    both = agreement(
        np.concatenate([first, second]), np.concatenate([second, first]), groups, resamples=resamples, seed=seed
    )
    single = both["pearson"].value
    mean = 2 * single / (1 + single)
    return Ceiling(both, single, mean, math.sqrt(max(mean, 0.0)))
