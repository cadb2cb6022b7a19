"""DSG's file: propositions with their questions, categories and dependencies (Cho et al. 2024, arXiv 2310.18235).

A question's element type is `<broad>.<detailed>`, such as "attribute.color", so that scores are kept for both. Its
answer is yes; what else a row holds stays in `extra["dsg"]`, a list, since several propositions of a prompt may ask the
same question (39 prompts of DSG-1k): it is asked once, and depends on the parents of all of them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rewards.runs.csv_files import csv_rows
from rewards.runs.files import write_whole
from rewards.tifa.dependencies import NO_PARENT, parse_dependency
from rewards.tifa.questions.question import Question

COLUMNS = (
    "item_id", "text", "keywords", "proposition_id", "dependency", "category_broad", "category_detailed", "tuple",
    "question_natural_language",
)  # fmt: skip
"""The columns of the released `dsg-1k-anns.csv`."""

EXTRA = "dsg"
_KEPT = ("keywords", "proposition_id", "dependency", "category_broad", "category_detailed", "tuple")
_NO_DETAIL = ("", "-")
_YES_NO = ("yes", "no")


@dataclass
class DSGFile:
    """What was read.

    Attributes:
        questions: The questions.
        problems: Rows that cannot be used, as "file, line: why".
        warnings: Dependencies that cannot be used, and repeated questions; the rows themselves are used.
    """

    questions: list[Question] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def read_dsg(path: str | Path) -> DSGFile:
    """Read the released CSV, or a file of its form.

    Ten rows of DSG-1k hold a dependency such as "5, right". The released loader then drops all dependencies of that
    prompt; here 5 counts, and the row is reported.

    Raises:
        InputError: Not a CSV with DSG's columns, or one in which a quote is not closed.

    Example:
        >>> found = read_dsg("dsg-1k-anns.csv")  # doctest: +SKIP
        >>> found.questions[1].depends_on, found.questions[1].element_type  # doctest: +SKIP
        (('Is there a rubix cube?',), 'attribute.color')
    """
    items: dict[str, list[tuple[str, dict[str, str]]]] = {}
    for line, row in csv_rows(path, COLUMNS, whole=False):
        items.setdefault(row["item_id"], []).append((f"{path}, line {line}", row))
    found = DSGFile()
    for rows in items.values():
        read_item(rows, found)
    return found


def read_item(rows: Sequence[tuple[str, Mapping[str, str]]], found: DSGFile) -> None:
    """Add the questions of one prompt, and what is wrong with its rows, to `found`.

    Args:
        rows: Where a row stands, and its cells by :data:`COLUMNS`.
        found: What was read so far.
    """
    texts: dict[str, str] = {}
    usable = []
    for where, row in rows:
        number = row["proposition_id"].strip()
        if not row["question_natural_language"].strip():
            found.problems.append(f"{where}: {row['item_id']}: proposition {number} has no question")
        elif number in texts:
            found.problems.append(f"{where}: {row['item_id']}: there is a proposition {number} already")
        else:
            texts[number] = row["question_natural_language"].strip()
            usable.append((where, row))
    merged: dict[str, Question] = {}
    for where, row in usable:
        text = row["question_natural_language"].strip()
        parents = tuple(parent for parent in _parents(where, row, texts, found) if parent != text)
        kept = {name: row[name] for name in _KEPT}
        if text in merged:
            found.warnings.append(f"{where}: {row['item_id']}: {text!r} is asked already; it counts once")
            known = merged[text]
            parents = tuple(dict.fromkeys((*known.depends_on, *parents)))
            merged[text] = _question(row, text, parents, [*known.extra[EXTRA], kept], known.element_type)
            continue
        merged[text] = _question(row, text, parents, [kept], _element_type(row))
    found.questions.extend(merged.values())


def _question(
    row: Mapping[str, str], text: str, parents: tuple[str, ...], kept: list[dict[str, str]], element_type: str
) -> Question:
    return Question(
        text, _YES_NO, "yes", row["keywords"].strip(), element_type, row["text"].strip(), row["item_id"],
        extra={EXTRA: kept}, depends_on=parents,
    )  # fmt: skip


def _parents(where: str, row: Mapping[str, str], texts: Mapping[str, str], found: DSGFile) -> list[str]:
    """Texts of the questions that a row depends on; what cannot be used is reported."""
    parsed = parse_dependency(row["dependency"])
    unknown = [str(number) for number in parsed.parents if str(number) not in texts]
    for bad, why in ((parsed.unreadable, "is no number"), (unknown, "is no proposition of this prompt")):
        for part in bad:
            found.warnings.append(f"{where}: {row['item_id']}: dependency {row['dependency']!r}: {part!r} {why}")
    return [texts[str(number)] for number in parsed.parents if str(number) in texts]


def _element_type(row: Mapping[str, str]) -> str:
    broad, detailed = row["category_broad"].strip(), row["category_detailed"].strip()
    return broad if detailed in _NO_DETAIL else f"{broad}.{detailed}"


def write_dsg(path: str | Path, questions: Iterable[Question]) -> None:
    """Write questions in DSG's form: a row a proposition, each prompt's in the order of their numbers.

    Questions that came from such a file get their own cells back; others are numbered, and their parents with them.
    """
    items: dict[str | int, list[Question]] = {}
    for question in questions:
        items.setdefault(question.id, []).append(question)
    rows = [row for asked in items.values() for row in _rows(asked)]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())


def _rows(questions: Sequence[Question]) -> list[dict[str, str]]:
    numbers = {question.text: str(position) for position, question in enumerate(questions, start=1)}
    rows = []
    for question in questions:
        broad, _, detailed = question.element_type.partition(".")
        made = {
            "keywords": question.element,
            "proposition_id": numbers[question.text],
            "dependency": ",".join(numbers[text] for text in question.depends_on if text in numbers) or NO_PARENT,
            "category_broad": broad,
            "category_detailed": detailed or "-",
            "tuple": f"{broad}{f' - {detailed}' if detailed else ''} ({question.element})",
        }
        for cells in question.extra.get(EXTRA) or [made]:
            rows.append(
                {"item_id": str(question.id), "text": question.prompt, **cells}
                | {"question_natural_language": question.text}
            )
    return sorted(rows, key=lambda row: int(row["proposition_id"]))
