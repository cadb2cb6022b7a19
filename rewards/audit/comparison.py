"""Two audits of the same pairs, beside each other: two judges, or one in two settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rewards.errors import InputError
from rewards.runs.files import Row, read_json
from rewards.runs.intervals import Floats, mean_interval
from rewards.tables import Table


def compare_audits(first: Path, second: Path) -> Table:
    """Accepted shares of two audits and their difference, in paired form.

    Args:
        first, second: JSON that `rewards audit text` or `picture` wrote with `--out`.

    Returns:
        A row a kind: both shares over the pairs that both judged, and the second's less the first's with its
        clustered 95% interval.

    Raises:
        InputError: a file that is no audit, or audits of other rows, seeds or kinds.
    """
    records = [_read(path) for path in (first, second)]
    for name in sorted({*records[0]["data"], *records[1]["data"]}):
        values = [record["data"].get(name) for record in records]
        if values[0] != values[1]:
            raise InputError(f"{first} and {second} are audits of other pairs: {name} is {values[0]} and {values[1]}")
    by_kind = [{(f["family"], f["kind"]): f for f in record["findings"]} for record in records]
    if apart := sorted(kind for _, kind in by_kind[0].keys() ^ by_kind[1].keys()):
        raise InputError(f"only one of {first} and {second} holds the kind {apart[0]!r}: audit both anew")
    rows = [(_row(found, by_kind[1][key], f"{first}, {second}"), key) for key, found in by_kind[0].items()]
    note = f"A: {first} ({records[0]['reward']}), B: {second} ({records[1]['reward']}); pairs that both judged"
    header = ["kind", "family", "pairs", "A accepts", "B accepts", "B - A [95%]"]
    return Table("Accepted shares of two audits", header, [[key[1], key[0], *cells] for cells, key in rows], note)


def _read(path: Path) -> Row:
    record = read_json(path)
    if not isinstance(record, dict) or not {"data", "findings", "reward"} <= set(record):
        raise InputError(f"{path} is no audit: the JSON of `rewards audit text --out` or `picture --out` is needed")
    return record


def _row(first: Row, second: Row, where: str) -> list[str]:
    a, b = _accepted(first["drops"]), _accepted(second["drops"])
    if len(a) != len(b) or first["clusters"] != second["clusters"]:
        raise InputError(f"{where}: the pairs of kind {first['kind']!r} differ: audit both anew")
    both = np.isfinite(a) & np.isfinite(b)
    if not both.any():
        return ["0", "", "", ""]
    change = mean_interval(np.where(both, b - a, np.nan), first["clusters"])
    interval = f"{change.value:+.1%} [{change.low:+.1%}, {change.high:+.1%}]"
    return [f"{both.sum()}", f"{a[both].mean():.1%}", f"{b[both].mean():.1%}", interval]


def _accepted(drops: Sequence[float | None]) -> Floats:
    """1 where the variant was accepted, 0 where not, NaN where it was not judged."""
    return np.array([math.nan if drop is None else float(drop <= 0) for drop in drops])
