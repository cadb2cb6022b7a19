"""One writer at a time, its copying of the log included; readers never wait."""

import os
import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock

from rewards import databases
from rewards.tifa.questions.question import Question
from rewards.tifa.store.store import QuestionStore, StoreError

QUESTION = Question("is it red?", ("yes", "no"), "yes", "red", "color", "a red circle", "s_1")
OTHER = Question("is it blue?", ("yes", "no"), "no", "red", "color", "a red circle", "s_1")


def test_a_store_is_written_under_its_lock_and_read_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "WAIT_SECONDS", 0.05)
    store = QuestionStore(tmp_path / "questions.sqlite")
    store.add([QUESTION])
    with FileLock(tmp_path / "questions.sqlite-lock"):  # as another process that copies the log
        with pytest.raises(StoreError, match="locked"):
            store.add([OTHER])
        assert QuestionStore(tmp_path / "questions.sqlite").get("s_1") == (QUESTION,)
    assert store.add([OTHER]).new == 1


def test_a_link_to_the_file_has_the_same_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "WAIT_SECONDS", 0.05)
    QuestionStore(tmp_path / "questions.sqlite").close()
    (tmp_path / "link").symlink_to(tmp_path / "questions.sqlite")
    with FileLock(tmp_path / "questions.sqlite-lock"), pytest.raises(StoreError, match="locked"):
        QuestionStore(tmp_path / "link").add([QUESTION])


def test_an_error_undoes_the_whole_and_frees_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    connection = databases.connect(path)
    databases.use_write_ahead_log(connection)
    with databases.writing(connection, path):
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    with pytest.raises(ZeroDivisionError), databases.writing(connection, path):
        connection.execute("INSERT INTO numbers VALUES (1)")
        1 / 0  # noqa: B018
    with databases.writing(connection, path):
        connection.execute("INSERT INTO numbers VALUES (2)")
    assert connection.execute("SELECT number FROM numbers").fetchall() == [(2,)]


def test_a_fork_waits_for_the_transaction_of_another_thread(tmp_path: Path) -> None:
    path = tmp_path / "numbers.sqlite"
    numbers = databases.Database(path, lambda: databases.connect(path))
    with numbers.write() as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    begun = threading.Event()

    def add_slowly() -> None:
        with numbers.write() as connection:
            begun.set()
            for number in range(10):
                connection.execute("INSERT INTO numbers VALUES (?)", (number,))
                time.sleep(0.01)

    thread = threading.Thread(target=add_slowly)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        with numbers.use() as connection:
            os._exit(0 if connection.execute("SELECT count(*) FROM numbers").fetchone() == (10,) else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    with numbers.use() as connection:
        assert connection.execute("SELECT count(*) FROM numbers").fetchone() == (10,)
