"""The tables of the question store, and how its file is opened."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from rewards import databases
from rewards.errors import InputError

VERSION = 3
APPLICATION_ID = 0x54494641
"""SQLite's mark of the kind of file ("TIFA"): another program's database is refused, not written into."""

TABLES = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
-- How many questions were ever added: a question's position, so that an export has the order of the import.
CREATE TABLE IF NOT EXISTS counter (next INTEGER NOT NULL);
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
-- Of the questions that are asked: JSON of element type -> count, and the sum of their hashes (totals.py).
CREATE TABLE IF NOT EXISTS totals (types TEXT, hashes TEXT);
INSERT INTO totals SELECT '{}', '0' WHERE NOT EXISTS (SELECT 1 FROM totals);
CREATE TABLE IF NOT EXISTS provenance (number INTEGER PRIMARY KEY, data TEXT NOT NULL UNIQUE);
-- An id has no declared type: 5 and '5' are two ids.
CREATE TABLE IF NOT EXISTS prompts (number INTEGER PRIMARY KEY, id NOT NULL UNIQUE, text TEXT NOT NULL, key TEXT NOT
NULL,
    note TEXT);
CREATE INDEX IF NOT EXISTS prompts_by_key ON prompts (key);
-- Clustered by prompt: all questions of a prompt lie on one page, so that a look-up reads one page.
CREATE TABLE IF NOT EXISTS questions (
    prompt INTEGER NOT NULL REFERENCES prompts (number), key BLOB NOT NULL, position INTEGER NOT NULL,
    text TEXT NOT NULL, choices TEXT NOT NULL, answer TEXT NOT NULL, element_type TEXT NOT NULL, element TEXT NOT NULL,
    written_prompt TEXT, extra TEXT, depends_on TEXT, checks TEXT, kept INTEGER NOT NULL DEFAULT 1,
    origin INTEGER NOT NULL REFERENCES provenance (number),
    PRIMARY KEY (prompt, key)) WITHOUT ROWID;
"""

_COLUMNS = (
    "q.prompt, q.key, position, q.text, choices, answer, element_type, element, extra, depends_on, checks, kept, "
    "origin, p.id, coalesce(written_prompt, p.text) AS own_prompt"
)
SELECT = f"SELECT {_COLUMNS} FROM prompts p CROSS JOIN questions q ON q.prompt = p.number"
ORDER = "ORDER BY p.number, position"
SELECT_ALL = f"{SELECT} ORDER BY position"
LOOK_UP = {"id": f"{SELECT} WHERE p.id = ? {ORDER}", "prompt": f"{SELECT} WHERE p.key = ? {ORDER}"}
WORKED_ON = """
SELECT id, text FROM prompts p WHERE note IS NOT NULL OR EXISTS (SELECT 1 FROM questions q WHERE q.prompt = p.number)
"""
INSERT = """
INSERT INTO questions (prompt, key, position, text, choices, answer, element_type, element, written_prompt, extra,
depends_on, origin) VALUES (?, ?, (SELECT next FROM counter), ?, ?, ?, ?, ?,
    nullif(?, (SELECT text FROM prompts WHERE number = ?1)), ?, ?, ?)
"""


def open_store(path: Path, create: bool) -> sqlite3.Connection:
    """Open a question store; made where absent and `create`, read only where its folder cannot be written.

    Raises:
        InputError: No such file, not a question store, or one of a later version.
        sqlite3.Error: The file is damaged or stays locked.
    """
    fresh = not path.exists() or path.stat().st_size == 0
    if fresh and not create:
        raise InputError(f"question store {path} does not exist")
    if not fresh and not os.access(path.parent, os.W_OK):
        return _open_read_only(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = databases.connect(path)
    try:
        connection.row_factory = sqlite3.Row
        _check_kind(connection, path)
        databases.use_write_ahead_log(connection)
        if create and _user_version(connection) == 0:
            _make_tables(connection, path)
        if _user_version(connection) < VERSION:
            _upgrade(connection, path)
        return connection
    except sqlite3.DatabaseError as error:
        connection.close()
        if "not a database" in str(error):
            raise InputError(f"{path} is not a question store (not an SQLite file)") from error
        raise
    except BaseException:
        connection.close()
        raise


def _open_read_only(path: Path) -> sqlite3.Connection:
    # A log beside the file is needed to read it; where there is none, SQLite must be told not to make one.
    mode = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, isolation_level=None)
    connection.row_factory = sqlite3.Row
    _check_kind(connection, path)
    if _user_version(connection) < VERSION:
        raise InputError(f"{path} is of an earlier version; open it once where it can be written")
    return connection


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN")  # one view of the file, which another process may be making just now
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    connection.execute("COMMIT")
    if application != APPLICATION_ID and tables:
        raise InputError(f"{path} is an SQLite file of another program, not a question store")
    if _user_version(connection) > VERSION:
        raise InputError(f"{path} was written by a later version of rewards; upgrade readable-rewards")


def _user_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _make_tables(connection: sqlite3.Connection, path: Path) -> None:
    with databases.writing(connection, path):
        for statement in TABLES.split(";"):
            if statement.strip():
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """From version 1, which had no dependencies between questions, and version 2, which had no totals."""
    with databases.writing(connection, path):
        version = _user_version(connection)  # read anew: another process may have been faster
        if version == 1:
            connection.execute("ALTER TABLE questions ADD COLUMN depends_on TEXT")
        if 1 <= version < VERSION:
            connection.execute("CREATE TABLE IF NOT EXISTS totals (types TEXT, hashes TEXT)")
            connection.execute("DELETE FROM totals")
            connection.execute("INSERT INTO totals VALUES (NULL, NULL)")  # counted when first asked for
            connection.execute(f"PRAGMA user_version = {VERSION}")
