"""What is known of all questions of a store without reading them: element types and fingerprint.

Kept in one row of the file and changed in the transaction that changes the questions, so that both cost the same
whether there are ten questions or a million.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable

from rewards.tifa.questions.question import Question
from rewards.tifa.store import rows

_MODULUS = 2**128


class Totals:
    """Counts of the questions that are asked, or changes of them.

    Attributes:
        types: element type -> questions.
        hashes: sum of the questions' hashes: it does not depend on their order, and a question can be taken out again.
    """

    def __init__(self, questions: Iterable[Question] = ()) -> None:
        self.types: Counter[str] = Counter()
        self.hashes = 0
        for question in questions:
            self.count(question)

    def count(self, question: Question, times: int = 1) -> None:
        """Add a question, or with `times` -1 take it out."""
        self.types[question.element_type] += times
        self.hashes = (self.hashes + times * rows.question_hash(question)) % _MODULUS

    @property
    def element_types(self) -> tuple[str, ...]:
        """The types that occur, sorted."""
        return tuple(sorted(name for name, count in self.types.items() if count > 0))

    @property
    def fingerprint(self) -> str:
        """32 hexadecimal digits."""
        return f"{self.hashes:032x}"


def read_totals(connection: sqlite3.Connection) -> Totals | None:
    """The totals of a file; None where nobody has counted yet (a file of an earlier version)."""
    types, hashes = connection.execute("SELECT types, hashes FROM totals").fetchone()
    if types is None:
        return None
    totals = Totals()
    totals.types.update(json.loads(types))
    totals.hashes = int(hashes, 16)
    return totals


def write_totals(connection: sqlite3.Connection, totals: Totals) -> None:
    """Replace the totals of a file, inside a transaction."""
    types = rows.dump({name: count for name, count in sorted(totals.types.items()) if count})
    connection.execute("UPDATE totals SET types = ?, hashes = ?", (types, f"{totals.hashes:x}"))


def change_totals(connection: sqlite3.Connection, changes: Totals) -> None:
    """Add changes to the totals of a file, inside the transaction that made them."""
    totals = read_totals(connection)
    if totals is None:
        return
    totals.types.update(changes.types)
    totals.hashes = (totals.hashes + changes.hashes) % _MODULUS
    write_totals(connection, totals)
