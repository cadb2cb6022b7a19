import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewards.tifa.normalization import collapse_blanks, normalize_answer
from rewards.tifa.numbers import NUMBER_WORDS, is_number


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
        ("100", "one hundred"),
        ("205", "Two hundred and five"),
        ("1234", "one thousand two hundred thirty-four"),
        ("2000000", "two million"),
        ("12", "a dozen"),
        ("6 eggs", "half a dozen eggs"),
        ("3", "3.00"),
        ("-5", "minus five"),
        ("-5", "\u22125"),
        ("5", "+5"),
        ("0.5", ".5"),
        ("yes", "yes\u200b"),
        ("coop", "co\u00adop"),
        ("3", "\u0663"),
        ("50%", "50 percent"),
        ("black & white", "black and white"),
        ("1/2", "\u00bd"),
        ("man in a hat", "the man in the hat"),
        ("sitting on a bench", "sitting on bench"),
        ("03", "3"),
        ("-0.0", "0"),
        ("007", "7"),
        ("00.50", "0.5"),
        ("- 3", "-3"),
        ("-three", "-3"),
        ("m\u00b2", "m^2"),
        ("H\u2082O", "H2O"),
        ("2\u00bd", "2 1/2"),
        ("dog - brown", "dog brown"),
    ],
)
def test_equal_after_normalization(left: str, right: str) -> None:
    assert normalize_answer(left) == normalize_answer(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [("2", "3"), ("2.5", "25"), ("red", "blue"), ("", "?"), ("a", "the"), ("0", "no"), ("c", "c+"), ("é", "e"),
     ("-5", "5"), (".5", "5"), ("50%", "50"), ("c#", "c"), ("vitamin", "Vitamin A"), ("hepatitis A", "hepatitis"),
     ("A-frame", "frame"), ("12 hundred", "12 100"), ("1/2", "12"),
     ("A-", "A"), ("O-", "O"), ("2\u00b2", "22"), ("x\u00b2", "x2"), ("- 3", "3"), ("2\u00bd", "21/2"),
     ("5\u2032", "5")],
)  # fmt: skip
def test_different_after_normalization(left: str, right: str) -> None:
    assert normalize_answer(left) != normalize_answer(right)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("three o'clock", "3 oclock"),
        ("no one", "no 1"),
        ("twenty twenty", "20 20"),
        ("nineteen eighty four", "19 84"),
        ("two dozen", "24"),
        ("3 million", "3000000"),
        ("hundred", "100"),
        ("one two three", "1 2 3"),
        ("two hundred five thousand and six", "205006"),
        ("a hundred and one dalmatians", "101 dalmatians"),
    ],
)
def test_number_words(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


@given(st.text())
def test_only_what_cannot_be_seen_becomes_empty(text: str) -> None:
    unseen = ("Cf", "Cc", "Zs", "Zl", "Zp")
    seen = [c for c in text if unicodedata.category(c) not in unseen and not 0xFE00 <= ord(c) <= 0xFE0F]
    assert bool(normalize_answer(text)) == bool(seen)


@given(st.text(alphabet="aethn owtyr-.,'21 3", max_size=30))
def test_normalizing_twice_changes_nothing(text: str) -> None:
    once = normalize_answer(text)
    assert normalize_answer(once) == once


@given(st.integers(1, 999_999))
def test_number_words_are_their_digits(number: int) -> None:
    assert normalize_answer(spelled(number)) == str(number)


def spelled(number: int) -> str:
    """A number in words, the usual way."""
    words = {value: word for word, value in NUMBER_WORDS.items()}
    if number >= 1000:
        rest = number % 1000
        return f"{spelled(number // 1000)} thousand" + (f" {spelled(rest)}" if rest else "")
    if number >= 100:
        rest = number % 100
        return f"{words[number // 100]} hundred" + (f" and {spelled(rest)}" if rest else "")
    if number in words:
        return words[number]
    return f"{words[number - number % 10]}-{words[number % 10]}"


@given(st.text())
def test_collapse_blanks_sees_only_white_space(text: str) -> None:
    assert collapse_blanks(text).replace(" ", "") == "".join(text.split())


def test_is_number() -> None:
    assert [is_number(text) for text in ("3", "2.5", "-3", "3 dogs", "", "x", "3.")] == [
        True, True, True, False, False, False, False
    ]  # fmt: skip
