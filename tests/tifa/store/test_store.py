import copy
import json
import os
import pickle
import random
import sqlite3
import tempfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rewards.errors import InputError
from rewards.tifa.questions.question import Question, question_from_row, question_to_row, read_questions
from rewards.tifa.store.store import Added, Note, QuestionStore, StoreError

Ask = Callable[..., Question]


def test_official_sample_round_trips(store: QuestionStore, tifa_data: Path) -> None:
    source = tifa_data / "sample_question_answers.json"
    questions = read_questions(source)
    assert store.add(questions) == Added(new=19)
    assert [question_to_row(question) for question in store] == json.loads(source.read_text())
    assert store.add(questions) == Added(known=19) and len(store) == 19


def test_interleaved_rows_keep_their_order(store: QuestionStore, ask: Ask) -> None:
    questions = [ask(f"q{number}", id=id, prompt=id) for number in range(3) for id in ("b", "a")]
    store.add(questions[:4])
    store.add(questions)
    assert list(store) == questions and [question.text for question in store.get("a")] == ["q0", "q1", "q2"]


def test_found_by_id_and_by_prompt_whatever_the_blanks(store: QuestionStore, ask: Ask) -> None:
    first, second = ask(prompt="a red  circle\n"), ask("what color?", ("red", "blue"), "red", prompt="a red circle")
    store.add([first, second])
    assert store.get("s_1") == store.get("a red circle") == store.get("  a\tred circle") == (first, second)


@pytest.mark.parametrize("other", ["a red circle.", "A red circle", "a red circles", "aredcircle", "a “red” circle"])
def test_every_other_difference_is_another_prompt(other: str, store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    with pytest.raises(InputError, match="no questions for"):
        store.get(other)


def test_int_and_str_ids_are_two_ids(store: QuestionStore, ask: Ask) -> None:
    number, text = ask(id=5, prompt="five"), ask(id="5", prompt="5 as text")
    store.add([number, text])
    assert store.get(5) == (number,) and store.get("5") == (text,)


@pytest.mark.parametrize(("stored", "asked"), [(7, "7"), ("7", 7), ("7", " 7")])
def test_an_id_is_found_in_the_other_type_where_its_own_is_missing(
    stored: str | int, asked: str | int, store, ask: Ask
) -> None:
    store.add([ask(id=stored, prompt="7")])
    assert store.get(asked)[0].id == stored


def test_an_id_comes_before_a_prompt_of_the_same_text(store: QuestionStore, ask: Ask) -> None:
    store.add([ask(id="x", prompt="y"), ask(id="y", prompt="x")])
    assert store.get("x")[0].prompt == "y"


def test_captions_that_repeat_under_two_ids(store: QuestionStore, ask: Ask) -> None:
    a1, a2 = ask("q1", id="a"), ask("q2", id="a")
    b1, b3 = ask("q1", ("no", "yes"), id="b"), ask("q3", id="b")
    store.add([a1, a2, b1, b3])
    assert store.get("b") == (b1, b3)
    assert store.get(a1.prompt) == (a1, a2, b3)  # no question twice
    assert store.prepare(["a", "b", a1.prompt]) == [(a1, a2), (b1, b3), (a1, a2, b3)]


def test_all_official_prompts_are_prepared(store: QuestionStore, ask: Ask, tifa_data: Path) -> None:
    inputs = json.loads((tifa_data / "tifa_v1.0_text_inputs.json").read_text())
    store.add(
        ask(f"question {number} of {row['id']}?", id=row["id"], prompt=row["caption"])
        for row in inputs
        for number in range(2)
    )
    assert len(inputs) == 4081 and len(store) == 2 * 4081
    by_id = store.prepare([row["id"] for row in inputs])
    assert [[question.id for question in questions] for questions in by_id] == [[row["id"]] * 2 for row in inputs]
    by_caption = store.prepare([row["caption"] for row in inputs])
    repeated = {
        "The Big Ben clock tower towering over the city of London.",
        "A man holding a tennis racquet on a tennis court.",
    }
    for row, questions in zip(inputs, by_caption):
        assert len(questions) == (4 if row["caption"].strip() in repeated else 2)
        assert {question.prompt for question in questions} == {row["caption"]}


def test_missing_prompts_are_named_and_counted(store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    with pytest.raises(InputError, match=r"no questions for 'p', 'q', 'r' and 1 more"):
        store.prepare(["p", "s_1", "q", "r", "s", "p"])


def test_prepare_sees_what_another_process_added(store: QuestionStore, ask: Ask) -> None:
    store.add([ask("q1")])
    assert len(store.prepare(["s_1"])[0]) == 1
    QuestionStore(store.path).add([ask("q2")])
    assert len(store.prepare(["s_1"])[0]) == 2
    store.add([ask("q3")])
    assert len(store.prepare(["s_1"])[0]) == 3


def test_a_repeated_question_is_stored_once(store: QuestionStore, ask: Ask) -> None:
    assert store.add([ask(), ask(" is it  red? "), ask()]) == Added(new=1, known=2)
    assert store.get("s_1") == (ask(),)


def test_a_contradicting_question_is_refused_or_left_out_whole(store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    other = ask(choices=("no", "yes"), element="other")
    with pytest.raises(
        InputError, match="id 's_1' already has the question 'is it red\\?' with choices \\['yes', 'no'\\]"
    ):
        store.add([ask("new question?"), other])
    assert len(store) == 1  # all or none
    assert store.add([other], on_conflict="keep") == Added(kept=1)
    assert store.get("s_1") == (ask(),)


def test_an_id_belongs_to_one_prompt(store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    with pytest.raises(InputError, match="id 's_1' belongs to the prompt 'a red circle'; got 'a blue circle'"):
        store.add([ask(prompt="a blue circle")])


def test_provenance_is_kept_for_each_question(store: QuestionStore, ask: Ask) -> None:
    store.add([ask("q1")], {"source": "generation", "model": "m", "revision": "r"})
    store.add([ask("q2")], {"source": "import"})
    made = store.provenance(ask("q1"))
    assert (made["source"], made["model"], made["revision"]) == ("generation", "m", "r")
    assert made["date"].endswith("+00:00") and made["version"]
    assert store.provenance(ask("q2"))["source"] == "import"
    with pytest.raises(InputError, match="is not in"):
        store.provenance(ask("q3"))


def test_dropped_questions_stay_in_the_file(store: QuestionStore, ask: Ask) -> None:
    store.add([ask("q1"), ask("q2")])
    store.record_checks([(ask("q1"), {"free_form": "red"}, False)])
    assert [question.text for question in store.get("s_1")] == ["q2"] and len(store) == 1
    assert [question.text for question in store.get("s_1", dropped=True)] == ["q1", "q2"]
    assert [(q.text, kept, checks) for q, kept, checks in store.everything()] == [
        ("q1", False, {"free_form": "red"}), ("q2", True, None),
    ]  # fmt: skip
    assert store.provenance(ask("q1"))["filter"] == {"free_form": "red"}
    store.record_checks([(ask("q2"), {}, False)])
    with pytest.raises(InputError, match="no questions"):
        store.get("s_1")


def test_fingerprint_follows_what_is_asked_and_nothing_else(tmp_path: Path, ask: Ask) -> None:
    one, two = QuestionStore(tmp_path / "1.sqlite"), QuestionStore(tmp_path / "2.sqlite")
    questions = [ask("q1"), ask("q2"), ask("q1", id="b", prompt="b")]
    one.add(questions, {"source": "x"})
    two.add(questions[::-1], {"source": "y"})
    before = one.fingerprint()
    assert before == two.fingerprint() and len(before) == 32
    assert one.fingerprint(["s_1"]) != before
    two.add([ask("q3", id="c", prompt="c")])
    assert two.fingerprint() != before and two.fingerprint(["s_1", "b"]) == before
    two.record_checks([(questions[0], {}, False)])
    assert two.fingerprint(["s_1", "b"]) != before


@pytest.mark.parametrize(
    "change", [{"answer": "no"}, {"choices": ("no", "yes")}, {"element_type": "shape"}, {"text": "Q"}, {"id": 1}]
)
def test_any_change_of_a_question_changes_the_fingerprint(change: dict, tmp_path: Path, ask: Ask) -> None:
    one, two = QuestionStore(tmp_path / "1.sqlite"), QuestionStore(tmp_path / "2.sqlite")
    one.add([ask()])
    two.add([replace(ask(), **change)])
    assert one.fingerprint() != two.fingerprint()


def test_merge_takes_everything_and_nothing_twice(tmp_path: Path, ask: Ask) -> None:
    one, two = QuestionStore(tmp_path / "1.sqlite"), QuestionStore(tmp_path / "2.sqlite")
    one.add([ask("q1")], {"source": "first"})
    two.add([ask("q1"), ask("q2", id="b", prompt="b")], {"source": "second"})
    two.record_checks([(ask("q2", id="b"), {"free_form": "x"}, False)])
    two.add([], notes=[Note("c", "nothing here", {"questions": 0})])
    assert one.merge(two) == Added(new=1, known=1)
    assert one.provenance(ask("q1"))["source"] == "first"
    assert one.provenance(ask("q2", id="b")) == two.provenance(ask("q2", id="b"))
    assert [(kept, checks) for _, kept, checks in one.everything()] == [(True, None), (False, {"free_form": "x"})]
    assert list(one.notes()) == [("c", "nothing here", {"questions": 0})]
    assert one.merge(two) == Added(known=2)
    with pytest.raises(InputError, match="into itself"):
        one.merge(QuestionStore(tmp_path / "1.sqlite"))


def test_notes_and_meta(store: QuestionStore) -> None:
    store.add([], notes=[Note("x", "a  b", {"n": 1})])
    store.add([], notes=[Note("x", "a b", {"n": 2})])
    assert store.worked_on() == {"x": "a  b"}
    store.set_meta("filter", {"mode": "paper"})
    assert list(store.notes()) == [("x", "a  b", {"n": 2})] and store.prompts() == [("x", "a  b")]
    assert store.meta("filter") == {"mode": "paper"} and store.meta("nothing") is None


def test_copies_threads_and_forks_share_the_file(store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    for other in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert other.get("s_1") == (ask(),)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.extend(store.prepare(["s_1"])))
    thread.start()
    thread.join()
    assert found == [(ask(),)]
    child = os.fork()
    if child == 0:
        os._exit(0 if store.add([ask("from the child")]) == Added(new=1) and len(store) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0 and len(store) == 2


def test_files_that_are_no_question_store(tmp_path: Path) -> None:
    (tmp_path / "text.sqlite").write_text("not a database, but long enough to look like one " * 10)
    with pytest.raises(InputError, match="not an SQLite file"):
        QuestionStore(tmp_path / "text.sqlite")
    sqlite3.connect(tmp_path / "other.sqlite").execute("CREATE TABLE t (x)").connection.close()
    with pytest.raises(InputError, match="of another program"):
        QuestionStore(tmp_path / "other.sqlite")
    with pytest.raises(InputError, match="does not exist"):
        QuestionStore(tmp_path / "missing.sqlite", create=False)
    assert not (tmp_path / "missing.sqlite").exists()
    later = QuestionStore(tmp_path / "later.sqlite")
    with later._database.use() as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(InputError, match="later version"):
        QuestionStore(tmp_path / "later.sqlite")


def test_a_damaged_or_full_file_is_one_clear_error(store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    with store._database.use() as connection:
        connection.execute("PRAGMA max_page_count = 1")  # what SQLite does when the disk is full
    with pytest.raises(StoreError, match=r"questions\.sqlite: database or disk is full"):
        store.add(ask(f"q{number}" * 50) for number in range(1000))
    assert len(store) == 1


def test_element_types_are_read_again_when_the_file_changes(store: QuestionStore, ask: Ask) -> None:
    store.add([ask()])
    assert store.element_types() == store.element_types() == ("color",)
    QuestionStore(store.path).add([ask("q2", element_type="shape")])
    assert store.element_types() == ("color", "shape")
    store.record_checks([(ask(), {}, False)])
    assert store.element_types() == ("shape",)


def test_a_store_in_memory_is_refused() -> None:
    with pytest.raises(InputError, match="a question store is a file"):
        QuestionStore(":memory:")


def test_texts_that_no_file_can_hold(store: QuestionStore, ask: Ask) -> None:
    with pytest.raises(InputError, match="half a character"):
        store.add([ask("is it \ud800?")])
    with pytest.raises(InputError, match="is too large"):
        store.add([ask(id=2**70)])
    assert len(store) == 0


def test_prompts_must_be_a_list_of_texts(store: QuestionStore) -> None:
    with pytest.raises(InputError, match="one string"):
        store.prepare("a red circle")
    with pytest.raises(InputError, match="got float"):
        store.get(1.5)  # type: ignore[arg-type]


TEXT = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12).filter(str.strip)
ASCII = st.text(max_size=5).filter(str.isascii)
VALUES = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | ASCII
ROWS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1) | TEXT,
        "caption": st.sampled_from(["a dog", " a  dog\n", "“two” dogs", "x"]),
        "question": TEXT,
        "choices": st.lists(TEXT | st.integers(0, 9), min_size=1, max_size=5),
    },
    optional={
        "element": st.none() | ASCII, "element_type": TEXT, "other": VALUES | st.lists(VALUES), "prompt": VALUES,
    },
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(ROWS, max_size=6), st.randoms(use_true_random=False))
def test_any_rows_come_back_as_they_were(rows: list[dict], rng: random.Random) -> None:
    rows = [{**row, "answer": rng.choice(row["choices"])} for row in rows]
    seen: dict[object, str] = {}
    unique = []
    for row in rows:  # one id has one prompt, and a question once
        key = (row["id"], " ".join(row["question"].split()))
        prompt = " ".join(row["caption"].split())
        if seen.setdefault(row["id"], prompt) == prompt and key not in seen:
            seen[key] = prompt
            unique.append(row)
    with tempfile.TemporaryDirectory() as folder:
        store = QuestionStore(Path(folder) / "q.sqlite")
        assert store.add(map(question_from_row, unique)).new == len(unique)
        written = [question_to_row(question) for question in store]
        store.close()
    assert json.dumps(written, sort_keys=True) == json.dumps(unique, sort_keys=True)


def test_a_store_of_version_1_gets_its_dependencies_when_it_is_opened(tmp_path: Path, ask: Ask) -> None:
    path = tmp_path / "old.sqlite"
    QuestionStore(path).add([ask("is it red?")])
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE questions DROP COLUMN depends_on")
        connection.execute("PRAGMA user_version = 1")
    connection.close()
    store = QuestionStore(path)
    assert [question.depends_on for question in store] == [()]
    store.add([ask("is it round?", depends_on=("is it red?",))])
    assert QuestionStore(path).get("s_1")[1].depends_on == ("is it red?",)
