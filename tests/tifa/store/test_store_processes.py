"""Many processes on one store: nothing lost, nothing twice, and a kill leaves the file whole."""

import multiprocessing
import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest

from rewards.tifa.questions.question import Question
from rewards.tifa.store.store import Added, QuestionStore, StoreError

WRITERS = 4
PROMPTS = 2000  # for each writer, with five questions each: 10,000
BATCH = 20


def _questions(writer: int, prompt: int) -> list[Question]:
    return [
        Question(f"q{number}?", ("yes", "no"), "yes", "e", "object", f"prompt {writer} {prompt}", f"{writer}_{prompt}")
        for number in range(5)
    ]


def _write(path: Path, writer: int, acknowledged: str) -> None:
    store = QuestionStore(path)
    with open(acknowledged, "a", encoding="ascii") as log:
        for start in range(0, PROMPTS, BATCH):
            prompts = range(start, start + BATCH)
            # Every writer also adds a question that all of them have.
            shared = Question(f"s{start}?", ("a", "b"), "a", "e", "other", "shared", "shared")
            store.add([q for prompt in prompts for q in _questions(writer, prompt)] + [shared], {"writer": writer})
            log.write(f"{start}\n")
            log.flush()
            if writer == 0 and start == PROMPTS // 3 // BATCH * BATCH:
                # The victim dies a moment later, wherever it then is; a parent that watches can come too late.
                threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGKILL)).start()


def _read(path: Path, stop: object, failures: object) -> None:
    store = QuestionStore(path)
    last = 0
    while not stop.is_set():
        count = len(store)
        for _, text in store.prompts()[-3:]:
            found = store.get(text)
            if text != "shared" and len(found) != 5:  # batches appear whole
                failures.put(f"{text}: {len(found)}")
        if count < last:
            failures.put(f"{count} questions after {last}")
        last = count


def test_four_writers_two_readers_and_a_kill(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    path = tmp_path / "questions.sqlite"
    QuestionStore(path)
    logs = [str(tmp_path / f"log_{writer}") for writer in range(WRITERS)]
    writers = [context.Process(target=_write, args=(path, writer, logs[writer])) for writer in range(WRITERS)]
    stop, failures = context.Event(), context.Queue()
    readers = [context.Process(target=_read, args=(path, stop, failures)) for _ in range(2)]
    for process in [*writers, *readers]:
        process.start()
    for process in writers:
        process.join(120)
    stop.set()
    for process in readers:
        process.join(30)
        assert process.exitcode == 0
    assert failures.empty()
    assert [process.exitcode for process in writers] == [-signal.SIGKILL, 0, 0, 0]

    assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    store = QuestionStore(path)
    for writer in range(1, WRITERS):
        for prompt in range(PROMPTS):
            assert store.get(f"{writer}_{prompt}") == tuple(_questions(writer, prompt))
    # What the killed one was told is stored, is stored; at most one more batch is, whole.
    confirmed = len(_lines(logs[0])) * BATCH
    mine = [id for id, _ in store.prompts() if str(id).startswith("0_")]
    assert 0 < confirmed < PROMPTS and len(mine) in (confirmed, confirmed + BATCH)
    assert all(store.get(id) == tuple(_questions(0, int(str(id)[2:]))) for id in mine)
    assert len(store.get("shared")) == PROMPTS // BATCH
    assert len(store) == 5 * ((WRITERS - 1) * PROMPTS + len(mine)) + PROMPTS // BATCH
    # Started again, the killed one adds what is missing and nothing else.
    rest = [question for prompt in range(PROMPTS) for question in _questions(0, prompt)]
    assert store.add(rest) == Added(new=5 * (PROMPTS - len(mine)), known=5 * len(mine))


def _create_and_add(path: Path, number: int, start: object) -> None:
    start.wait()
    QuestionStore(path).add(_questions(number, 0))


def test_many_processes_may_make_the_file_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for attempt in range(5):
        path, start = tmp_path / f"{attempt}.sqlite", context.Event()
        processes = [context.Process(target=_create_and_add, args=(path, number, start)) for number in range(6)]
        for process in processes:
            process.start()
        start.set()
        for process in processes:
            process.join(60)
        assert [process.exitcode for process in processes] == [0] * 6
        assert len(QuestionStore(path)) == 30


def _add_in_a_child(path: Path, child: int, opened: object, go: object) -> None:
    store = QuestionStore(path)
    store.add(_questions(child, 0))
    opened.set()
    go.wait()
    store.add([question for prompt in range(1, 200) for question in _questions(child, prompt)])


def test_what_forked_children_add_stays_when_the_parent_closes(tmp_path: Path) -> None:
    # SQLite takes no lock in a child for a file that the parent had open: the parent would delete the children's log.
    context = multiprocessing.get_context("fork")
    store = QuestionStore(tmp_path / "questions.sqlite")
    store.add(_questions(9, 0))
    opened, go = [context.Event() for _ in range(2)], context.Event()
    children = [context.Process(target=_add_in_a_child, args=(store.path, n, opened[n], go)) for n in range(2)]
    for child in children:
        child.start()
    assert all(event.wait(60) for event in opened)
    assert len(store) == 15
    store.close()
    go.set()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0, 0]
    assert len(store) == 5 * (1 + 2 * 200)


def test_a_store_that_is_dropped_is_closed(tmp_path: Path) -> None:
    QuestionStore(tmp_path / "questions.sqlite").add(_questions(0, 0))
    assert not (tmp_path / "questions.sqlite-wal").exists()  # SQLite's last connection takes its log along


def test_a_walk_through_a_store_that_forks_says_so(tmp_path: Path) -> None:
    store = QuestionStore(tmp_path / "questions.sqlite")
    store.add([question for prompt in range(200) for question in _questions(0, prompt)])
    walk = iter(store)
    next(walk)
    child = os.fork()
    if child == 0:
        os._exit(0 if len(list(store)) == 1000 else 1)
    assert os.waitpid(child, 0)[1] == 0
    with pytest.raises(StoreError, match="forked"):
        list(walk)
    assert len(list(store)) == 1000


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if os.path.exists(path) else []
