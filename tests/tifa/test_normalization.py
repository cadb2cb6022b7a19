import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.tifa.normalization import collapse_blanks, is_number, normalize_answer


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("yes", "Yes."),
        ("yes", " yes "),
        ("3", "three"),
        ("21", "twenty-one"),
        ("21", "Twenty One"),
        ("20", "twenty"),
        ("dog", "a dog"),
        ("beach", "The  beach!"),
        ("man's hat", "man’s hat"),
        ("mans hat", "man's hat"),
        ("t-shirt", "T shirt"),
        ("1,000", "1000"),
        ("ﬁsh", "fish"),
        ("2.5", "2.5."),
        ("\u201cpro milk\u201d", "pro milk"),
    ],
)
def test_equal_after_normalization(left: str, right: str) -> None:
    assert normalize_answer(left) == normalize_answer(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [("2", "3"), ("2.5", "25"), ("red", "blue"), ("", "?"), ("a", "the"), ("0", "no"), ("c", "c+"), ("é", "e")],
)
def test_different_after_normalization(left: str, right: str) -> None:
    assert normalize_answer(left) != normalize_answer(right)


@pytest.mark.parametrize(
    ("text", "expected"), [("three o'clock", "3 oclock"), ("no one", "no 1"), ("twenty twenty", "20 20")]
)
def test_number_words(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


@given(st.text())
def test_only_blanks_become_empty(text: str) -> None:
    assert (normalize_answer(text) == "") == (text.strip() == "")


@given(st.text(alphabet="aethn owtyr-.,'21 3", max_size=30))
def test_normalizing_twice_changes_nothing(text: str) -> None:
    once = normalize_answer(text)
    assert normalize_answer(once) == once


@given(st.text())
def test_collapse_blanks_sees_only_white_space(text: str) -> None:
    assert collapse_blanks(text).replace(" ", "") == "".join(text.split())


def test_is_number() -> None:
    assert [is_number(text) for text in ("3", "2.5", "3 dogs", "", "x")] == [True, True, False, False, False]
