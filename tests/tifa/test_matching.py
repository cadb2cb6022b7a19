import pickle
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rewards.errors import InputError
from rewards.tifa.matching import AnswerMatcher, is_closed, match_exactly
from rewards.tifa.numbers import NUMBER_WORDS


@pytest.mark.parametrize(
    ("answer", "choices", "index"),
    [
        ("yes ", ["yes", "no"], 0),
        ("Yes, there is.", ["no", "yes"], 1),
        ("no", ["yes", "no"], 1),
        ("no dogs", ["yes", "no"], 1),
        ("three", ["1", "2", "3", "4"], 2),
        ("a dog", ["cat", "dog"], 1),
        ("The beach.", ["park", "beach"], 1),
        ("red", ["Red.", "red"], 1),  # as written before normalised
        ("dog", ["a dog", "the dog"], 0),  # the first of equal ones
        ("", ["yes", "no"], None),
        ("maybe", ["yes", "no"], None),
        ("0", ["1", "2"], None),
    ],
)
def test_exact_matches(answer: str, choices: list[str], index: int | None) -> None:
    assert match_exactly(answer, choices).index == index


NUMBERS = ["1", "2", "3"]
YES_NO = ["yes", "no"]


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        ("three dogs", NUMBERS, "3"),
        ("There are three.", NUMBERS, "3"),
        ("3.0", NUMBERS, "3"),
        ("about three", NUMBERS, "3"),
        ("3 (three)", NUMBERS, "3"),
        ("two dogs, and they are brown", NUMBERS, "2"),
        ("a couple of dogs", NUMBERS, "2"),
        ("three dogs", ["one", "two", "three", "many"], "three"),
        ("no dogs", ["0", "1"], "0"),
        ("None", ["zero", "one"], "zero"),
        ("two", ["1 dog", "2 dogs"], "2 dogs"),
        ("a dozen", ["6", "12"], "12"),
        ("two dozen eggs", ["12", "24"], "24"),
        ("half a dozen", ["6", "12"], "6"),
        ("one hundred", ["10", "100"], "100"),
        ("minus five", ["5", "-5"], "-5"),
        ("\u22125", ["5", "-5"], "-5"),
        ("yeah", YES_NO, "yes"),
        ("Yep!", YES_NO, "yes"),
        ("Nope, it is red.", YES_NO, "no"),
        ("The answer is yes.", YES_NO, "yes"),
        ("yes, there is no dog", YES_NO, "yes"),
        ("yeah", ["yes", "no", "cannot tell"], "yes"),
        ("yes\u200b", YES_NO, "yes"),
        ("\ufeffred", ["blue", "red"], "red"),
        ("03", NUMBERS, "3"),
        ("-0", ["0", "1", "2"], "0"),
        ("minus zero", ["0", "1"], "0"),
        ("none", ["0", "1", "2"], "0"),
        ("- 3", ["-3", "3"], "-3"),
        ("\u2212three", ["-3", "3"], "-3"),
        ("twenty-one dogs", ["20", "21"], "21"),
        ("there is one dog", NUMBERS, "1"),
        ("one of them", NUMBERS, "1"),
        ("I see only one", NUMBERS, "1"),
        ("two, and the second is brown", NUMBERS, "2"),
        ("A-", ["A", "A-", "B"], "A-"),
        ("a\u2212", ["A+", "A", "A-"], "A-"),
        ("C++", ["C", "C++"], "C++"),
        ("2\u00b2", ["22", "2^2"], "2^2"),
        ("\u2462", NUMBERS, "3"),
        ("of course", YES_NO, "yes"),
        ("Sure!", YES_NO, "yes"),
        ("Sure, there is a dog.", YES_NO, "yes"),
        ("Of course not.", YES_NO, "no"),
        ("certainly not", YES_NO, "no"),
        ("Of course, yes.", YES_NO, "yes"),
        ("not at all", YES_NO, "no"),
        ("no, it is not", YES_NO, "no"),
        ("No, it is red.", YES_NO, "no"),
        ("yes it is", YES_NO, "yes"),
        ("no no no", YES_NO, "no"),
        ("not true", YES_NO, "no"),
    ],
)
@pytest.mark.parametrize("sentences", [False, True])
def test_answers_that_say_a_choice_in_other_words(
    answer: str, choices: list[str], expected: str, sentences: bool, matcher: AnswerMatcher
) -> None:
    match = (matcher if sentences else AnswerMatcher(sentence_model=None)).match([answer], [choices])[0]
    assert match.index is not None and choices[match.index] == expected and match.how == "exact"


@pytest.mark.parametrize(
    ("answer", "choices"),
    [
        ("-5", ["5", "6"]),
        (".5", ["5", "6"]),
        ("50%", ["50", "60"]),
        ("1/2", ["1", "2"]),
        ("two or three", NUMBERS),
        ("three dogs and two cats", NUMBERS),
        ("more than two", NUMBERS),
        ("at least two", NUMBERS),
        ("two and a half", NUMBERS),
        ("three or more", NUMBERS),
        ("not two", NUMBERS),
        ("no one", NUMBERS),
        ("this one", NUMBERS),
        ("the third", NUMBERS),
        ("four dogs", NUMBERS),
        ("A-", ["A", "B", "C"]),
        ("A\u2013", ["A", "B", "C"]),
        ("A*", ["A", "B"]),
        ("- 3", NUMBERS),
        ("-three", NUMBERS),
        ("it is the third one", NUMBERS),
        ("the red one", NUMBERS),
        ("the one on the left", NUMBERS),
        ("half of 3", NUMBERS),
        ("half past three", NUMBERS),
        ("two thirds", NUMBERS),
        ("one quarter", NUMBERS),
        ("twice three", NUMBERS),
        ("the first of two", NUMBERS),
        ("none of the three", NUMBERS),
        ("there aren't three", NUMBERS),
        ("I do not see two dogs", NUMBERS),
        ("not a single dog", NUMBERS),
        ("three-year-old", NUMBERS),
        ("a three-year-old boy", NUMBERS),
        ("3-legged stool", NUMBERS),
        ("three\u2010piece suit", NUMBERS),
        ("3 at most", NUMBERS),
        ("a minimum of 3", NUMBERS),
        ("> 3", NUMBERS),
        ("3 +", NUMBERS),
        ("2\u00b2", ["2", "22", "4"]),
        ("10\u207b\u00b3", ["10", "103", "10-3"]),
        ("2\u00bd", ["2", "21"]),
        ("5\u2030", ["5", "6"]),
        ("no", ["0", "1", "2"]),
        ("no doubt", ["0", "1", "2"]),
        ("nothing but dogs", ["0", "1"]),
        ("no doubt", YES_NO),
        ("no question", YES_NO),
        ("no one knows", YES_NO),
        ("not no", YES_NO),
        ("not false", YES_NO),
        ("yes it is not", YES_NO),
        ("Yes, it isn't.", YES_NO),
        ("yes but no", YES_NO),
        ("no, it is", YES_NO),
        ("no maybe", YES_NO),
        ("yes, perhaps", YES_NO),
        ("no image provided", YES_NO),
        ("not necessarily", YES_NO),
        ("not only red", YES_NO),
        ("true or false", YES_NO),
        ("never mind", YES_NO),
        ("not a no", YES_NO),
        ("yes, it's not", YES_NO),
        ("no, I can't tell", YES_NO),
        ("yes, never", YES_NO),
        ("a couple dozen", ["2", "12"]),
        ("3 x 3", NUMBERS),
        ("3\u066a", NUMBERS),
        ("absolutely beautiful", YES_NO),
        ("yes or no", YES_NO),
        ("Yes/No", YES_NO),
        ("no, yes", YES_NO),
        ("yes and no", YES_NO),
        ("no idea", YES_NO),
        ("not sure", YES_NO),
        ("not visible", YES_NO),
        ("\u200b", YES_NO),
    ],
)
@pytest.mark.parametrize("sentences", [False, True])
def test_answers_that_say_no_choice_or_several(
    answer: str, choices: list[str], sentences: bool, matcher: AnswerMatcher
) -> None:
    match = (matcher if sentences else AnswerMatcher(sentence_model=None)).match([answer], [choices])[0]
    assert match.index is None and match.how == "unmatched"


def test_a_letter_is_no_article() -> None:
    exact = AnswerMatcher(sentence_model=None)
    assert exact.match(["vitamin"], [["Vitamin A", "Vitamin B"]])[0].index is None
    assert exact.match(["vitamin a"], [["Vitamin A", "Vitamin B"]])[0].index == 0


@given(
    number=st.integers(0, 12),
    frame=st.sampled_from(["{}", "{}.", "There are {}.", "{} dogs", "I see {} of them", "a picture of {} cats"]),
    written=st.sampled_from(["digits", "word", "decimal"]),
    hidden=st.sampled_from(["", "\u200b", "\u00ad", "\ufeff"]),
)
def test_a_stated_number_matches_itself_and_no_other(number: int, frame: str, written: str, hidden: str) -> None:
    word = [*NUMBER_WORDS][number]
    answer = frame.format({"digits": str(number), "word": word, "decimal": f"{number}.0"}[written]) + hidden
    choices = [str(value) for value in range(13)]
    assert match_exactly(answer, choices).index == number
    assert match_exactly(answer, [choice for choice in choices if choice != str(number)]).index is None


@pytest.mark.parametrize(
    ("answer", "choices", "expected"),
    [
        ("sofa", ["couch", "bed", "table"], "couch"),
        ("puppy", ["cat", "dog", "bird"], "dog"),
        ("grey", ["black", "gray"], "gray"),
        ("wood", ["metal", "wooden"], "wooden"),
    ],
)
def test_near_answers_match_by_meaning(answer: str, choices: list[str], expected: str, matcher: AnswerMatcher) -> None:
    match = matcher.match([answer], [choices])[0]
    assert match.how == "sentence" and choices[match.index or 0] == expected
    assert match.similarity is not None and 0.5 <= match.similarity <= 1


@pytest.mark.parametrize(
    ("answer", "choices"),
    [
        ("", ["yes", "no"]),
        ("  ", ["red", "blue"]),
        ("0", ["1", "2", "3"]),
        ("five", ["1", "2", "3", "4"]),
        ("no", ["red", "blue"]),
        ("unknown", ["red", "blue", "green"]),
        ("pizza", ["bicycle", "car", "bus"]),
        ("sure thing", ["yes", "no"]),
    ],
)
def test_what_matches_nothing_is_unmatched(answer: str, choices: list[str], matcher: AnswerMatcher) -> None:
    match = matcher.match([answer], [choices])[0]
    assert match.index is None and match.how == "unmatched"


def test_ties_go_to_the_first_choice_whatever_the_batch(matcher: AnswerMatcher) -> None:
    for filler in ([], ["some much longer answer than the others have"], ["kitten"]):
        fresh = AnswerMatcher(matcher.sentence_model)
        fresh._model = matcher._model  # the same weights; only the cache is new
        matches = fresh.match(["puppy", *filler], [["dog", "DOG", "Dog"], *([["x y", "z"]] * len(filler))])
        assert matches[0].index == 0


def test_a_choice_that_is_nearer_by_little_is_no_tie(matcher: AnswerMatcher) -> None:
    close = AnswerMatcher(matcher.sentence_model, threshold=-1.0)
    close._model = matcher._model
    choices = ["horse", "red", "grey", "white"]  # cosines 0.32631 and 0.32639 for the first and the third
    assert close.match(["picture picture picture"], [choices])[0].index == 2


def test_every_text_is_embedded_once(minilm: str) -> None:
    fresh = AnswerMatcher(minilm)
    fresh.match(["sofa"], [["couch", "bed"]])
    encoded: list[str] = []
    original = fresh._model.encode
    fresh._model.encode = lambda texts, **options: encoded.extend(texts) or original(texts, **options)
    fresh.match(["sofa", "settee", "sofa"], [["couch", "bed"]] * 3)
    assert encoded == ["settee"]


def test_the_model_is_not_loaded_before_it_is_needed(minilm: str) -> None:
    lazy = AnswerMatcher(minilm)
    lazy.match(["yes", "3", "0", ""], [["yes", "no"], ["3"], ["1"], ["red"]])
    assert lazy._model is None


def test_paper_mode_asks_sbert_for_every_open_answer(minilm: str) -> None:
    paper = AnswerMatcher(minilm, mode="paper")
    open_answer, closed = paper.match(["a dog", "yes"], [["cat", "dog"], ["yes", "no"]])
    assert open_answer.how == "sentence" and open_answer.index == 1
    assert closed.how == "exact" and closed.index == 0


def test_without_a_model_only_equal_answers_match() -> None:
    matches = AnswerMatcher(sentence_model=None).match(["sofa", "couch"], [["couch", "bed"]] * 2)
    assert [match.index for match in matches] == [None, 0]


def test_a_pickled_matcher_matches_the_same(matcher: AnswerMatcher) -> None:
    copy = pickle.loads(pickle.dumps(matcher))
    assert copy.identity() == matcher.identity() and copy._model is None
    assert copy.match(["sofa"], [["bed", "couch"]])[0].index == 1


@pytest.mark.parametrize("changed", ["model.safetensors", "config.json", "1_Pooling/config.json", "modules.json"])
def test_a_folder_of_sentence_weights_is_known_by_what_it_holds(tmp_path: Path, changed: str) -> None:
    (tmp_path / "1_Pooling").mkdir()
    for name in ("model.safetensors", "config.json", "1_Pooling/config.json", "modules.json"):
        (tmp_path / name).write_text("{}")
    before = AnswerMatcher(str(tmp_path)).identity()
    assert AnswerMatcher(str(tmp_path)).identity() == before
    (tmp_path / changed).write_text("[]")
    assert AnswerMatcher(str(tmp_path)).identity() != before


def test_a_model_that_is_not_there_is_one_clear_error() -> None:
    with pytest.raises(InputError, match=r"'no/such-model' cannot be loaded .*sentence_model=None"):
        AnswerMatcher("no/such-model").match(["sofa"], [["couch"]])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"mode": "fast"}, "'code', 'paper', 'official'"),
        ({"mode": "official", "threshold": 0.5}, "has none"),
        ({"mode": "official", "sentence_model": None}, "needs"),
        ({"threshold": 2}, "cosine"),
        ({"mode": "paper", "sentence_model": None}, "needs"),
    ],
)
def test_bad_settings(options: dict, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        AnswerMatcher(**options)


def test_rows_without_choices_and_uneven_lists_are_named() -> None:
    matcher = AnswerMatcher(sentence_model=None)
    with pytest.raises(InputError, match=r"row 1 .*no choices"):
        matcher.match(["a", "b"], [["a"], []])
    with pytest.raises(InputError, match="2 answers but 1"):
        matcher.match(["a", "b"], [["a"]])


def test_closed_answers() -> None:
    assert [is_closed(text) for text in ("Yes!", "two", "", "3.5", "red", "no dog")] == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]


def released(answer: str, choices: list[str], folder: str) -> str:
    """`tifascore`'s rule, from its description: equal letter by letter, else the nearest by mean-pooled SBERT."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def embedded(texts: list[str]) -> torch.Tensor:
        batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**batch).last_hidden_state
        mean = (hidden * batch["attention_mask"][..., None]).sum(1) / batch["attention_mask"].sum(1, keepdim=True)
        return mean / mean.norm(dim=1, keepdim=True)

    return answer if answer in choices else choices[int((embedded(choices) @ embedded([answer]).T).argmax())]


def test_official_mode_is_the_released_rule_with_its_faults(minilm: str) -> None:
    official = AnswerMatcher(minilm, mode="official")
    rows = [
        ("yes", ["yes", "no"]), ("Yes", ["yes", "no"]), ("", ["yes", "no"]), ("0", ["1", "2", "3"]),
        ("three", ["1", "2", "3", "4"]), ("unknown", ["red", "blue"]), ("puppy", ["dog", "DOG", "Dog"]),
        ("maybe", ["yes", "no"]), ("red", ["Red.", "red"]), ("two dogs", ["1", "2", "3"]),
    ]  # fmt: skip
    matches = official.match([answer for answer, _ in rows], [choices for _, choices in rows])
    found = [choices[match.index or 0] for match, (_, choices) in zip(matches, rows, strict=True)]
    assert found == [released(answer, choices, minilm) for answer, choices in rows]
    assert found[2] == "no" and found[3] == "1"  # the faults that the default mode does not have
    assert all(match.how != "unmatched" for match in matches)
    assert official.identity().items() >= {"sentence_model": minilm, "threshold": None, "mode": "official"}.items()
