"""Element types and fingerprint are kept in the file, and always those of the questions that are asked."""

import random
import sqlite3
import time

import pytest

from rewards.tifa.questions.question import Question
from rewards.tifa.store.rows import question_hash
from rewards.tifa.store.store import QuestionStore


def question(number, kind="object", prompt=None):
    prompt = prompt or f"prompt {number % 7}"
    return Question(f"is it {number}?", ("yes", "no"), "yes", "it", kind, prompt, f"id-{prompt}")


def by_reading(store):
    asked = list(store)
    types = tuple(sorted({question.element_type for question in asked}))
    return types, f"{sum(map(question_hash, asked)) % 2**128:032x}"


def kept_in_file(store):
    return store.element_types(), store.fingerprint()


def test_totals_are_those_of_the_questions_after_any_sequence_of_changes(tmp_path):
    rng = random.Random(0)
    store, other = QuestionStore(tmp_path / "a.sqlite"), QuestionStore(tmp_path / "b.sqlite")
    assert kept_in_file(store) == by_reading(store) == ((), "0" * 32)
    kinds = ["object", "color", "counting", "spatial"]
    for step in range(60):
        numbers = rng.sample(range(40), 4)
        new = [question(number, kinds[number % 4]) for number in numbers]
        if step % 5 == 0:
            other.add(new, on_conflict="keep")
            other.record_checks((q, {}, rng.random() < 0.5) for q in new)
        elif step % 7 == 0:
            store.merge(other, on_conflict="keep")
        elif step % 3 == 0:
            store.record_checks((q, {"step": step}, rng.random() < 0.5) for q in new)
        else:
            store.add(new, on_conflict="keep")
        assert kept_in_file(store) == by_reading(store), step
    assert len(store.element_types()) == 4
    store.record_checks((q, {}, False) for q in list(store) if q.element_type == "color")
    assert "color" not in store.element_types() and kept_in_file(store) == by_reading(store)


def test_a_failed_addition_changes_nothing(tmp_path):
    store = QuestionStore(tmp_path / "a.sqlite")
    store.add([question(1)])
    before = kept_in_file(store)
    other_answer = Question("is it 1?", ("yes", "no"), "no", "it", "object", "prompt 1", "id-prompt 1")
    with pytest.raises(ValueError, match="already has the question"):
        store.add([question(2), other_answer])
    assert kept_in_file(store) == before == by_reading(store)


def test_a_file_of_an_earlier_version_is_counted_once(tmp_path):
    store = QuestionStore(tmp_path / "a.sqlite")
    store.add([question(1), question(2, "color")])
    expected = by_reading(store)
    store.close()
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    connection.executescript("DROP TABLE totals; PRAGMA user_version = 2")
    connection.close()
    store = QuestionStore(tmp_path / "a.sqlite")
    store.add([question(3)])
    assert kept_in_file(store) == by_reading(store) != expected
    assert kept_in_file(QuestionStore(tmp_path / "a.sqlite")) == by_reading(store)


def test_asking_costs_no_more_with_many_questions(tmp_path):
    store = QuestionStore(tmp_path / "a.sqlite")
    store.add(question(number, prompt=f"prompt {number}") for number in range(20_000))
    start = time.perf_counter()
    for _ in range(20):
        kept_in_file(store)
    assert time.perf_counter() - start < 0.2  # one look at all questions takes longer
