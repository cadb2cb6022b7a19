"""Which rows make which item, and which items make which shard: a SQLite file, so that memory stays flat.

The index is made anew at every start from the source alone; it holds no results.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from rewards.errors import RewardsError
from rewards.jobs.sources import Source

_SCHEMA = """
-- A key is JSON: 5 and "5" are two keys.
CREATE TABLE items (seq INTEGER PRIMARY KEY, key TEXT UNIQUE, line INTEGER NOT NULL);
CREATE TABLE rows (seq INTEGER NOT NULL, position INTEGER NOT NULL, line INTEGER NOT NULL);
CREATE TABLE problems (seq INTEGER NOT NULL, line INTEGER NOT NULL, reason TEXT NOT NULL);
"""
_BATCH = 5_000


class IndexedItem(NamedTuple):
    """An item's number, its key (None without one), and its rows as (position, line)."""

    seq: int
    key: str | int | None
    rows: list[tuple[int, int]]


class Index:
    """The index of a source.

    Args:
        path: the SQLite file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def build(self, source: Source, *, key: str | None, grouped: bool) -> int:
        """Scan the source.

        Args:
            source: what is scanned.
            key: the column that names items, which a row may lack without grouping. None: every row is an item, and
                is not looked into.
            grouped: rows with the same key make one item (wherever they stand); otherwise a second row with the same
                key is a problem.

        Returns:
            The number of items.

        Raises:
            InputError: a source that cannot be read.
            RewardsError: the index cannot be written, e.g. for lack of space.
        """
        fresh = self.path.with_suffix(".new")
        fresh.unlink(missing_ok=True)
        try:
            with closing(sqlite3.connect(fresh)) as connection:
                connection.execute("PRAGMA journal_mode = OFF")
                connection.execute("PRAGMA synchronous = OFF")
                connection.executescript(_SCHEMA)
                count = _fill(connection, source, key, grouped)
                connection.execute("CREATE INDEX rows_by_item ON rows (seq)")
                connection.execute("CREATE INDEX problems_by_item ON problems (seq)")
                connection.commit()
            fresh.replace(self.path)
        except sqlite3.Error as error:
            raise RewardsError(f"{self.path}: the index cannot be written: {error}") from error
        finally:
            fresh.unlink(missing_ok=True)
        return count

    def items(self, start: int, stop: int) -> Iterator[IndexedItem]:
        """Items `start` to `stop - 1` with their rows."""
        with closing(self._open()) as connection:
            found = connection.execute(
                "SELECT seq, key, position, rows.line FROM items JOIN rows USING (seq) WHERE seq >= ? AND seq < ? "
                "ORDER BY seq, rows.rowid",
                (start, stop),
            )
            current: IndexedItem | None = None
            for seq, key, position, line in found:
                if current is None or current.seq != seq:
                    if current is not None:
                        yield current
                    current = IndexedItem(seq, None if key is None else json.loads(key), [])
                current.rows.append((position, line))
            if current is not None:
                yield current

    def problems(self, start: int, stop: int) -> list[tuple[int, str]]:
        """(line, reason) of unusable rows met in the scan before item `stop`, from item `start` on."""
        with closing(self._open()) as connection:
            query = "SELECT line, reason FROM problems WHERE seq >= ? AND seq < ? ORDER BY line"
            return [(int(line), str(reason)) for line, reason in connection.execute(query, (start, stop))]

    def _open(self) -> sqlite3.Connection:
        # Read-only and without locks: workers on other machines read it over a shared file system.
        return sqlite3.connect(f"file:{self.path}?mode=ro&immutable=1", uri=True)


def _fill(connection: sqlite3.Connection, source: Source, key: str | None, grouped: bool) -> int:
    count = 0
    rows: list[tuple[int, int, int]] = []
    for scanned in source.scan(key, required=grouped):
        if scanned.problem is not None:
            connection.execute("INSERT INTO problems VALUES (?, ?, ?)", (count, scanned.line, scanned.problem))
            continue
        seq = count
        stored = None if scanned.key is None else json.dumps(scanned.key)
        if stored is not None:
            known = connection.execute("SELECT seq, line FROM items WHERE key = ?", (stored,)).fetchone()
            if known is not None and not grouped:
                reason = f"duplicate: {key} {scanned.key!r} is also on line {known[1]}"
                connection.execute("INSERT INTO problems VALUES (?, ?, ?)", (count, scanned.line, reason))
                continue
            seq = known[0] if known is not None else count
        if seq == count:
            connection.execute("INSERT INTO items VALUES (?, ?, ?)", (count, stored, scanned.line))
            count += 1
        rows.append((seq, scanned.position, scanned.line))
        if len(rows) >= _BATCH:
            connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
            rows = []
    connection.executemany("INSERT INTO rows VALUES (?, ?, ?)", rows)
    return count
