"""Soft-TIFA, its means, questions without choices, "none of these" and dependencies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import fmean, geometric_mean
from typing import Any

import pytest
import torch
from PIL import Image

from rewards.errors import InputError
from rewards.judges.base import Judge, UnsupportedAbility
from rewards.judges.loading import load_judge
from rewards.shapes.oracle import Oracle
from rewards.tifa.matching import AnswerMatcher
from rewards.tifa.questions.question import Question
from rewards.tifa.reward import TIFA
from rewards.tifa.store.store import QuestionStore
from rewards.tifa.surface_forms import surface_forms
from tests import tiny_models
from tests.judges.decoders.test_mass import summed, whole_vocabulary
from tests.judges.decoders.test_shared_prefix import counted

Ask = Callable[..., Question]
EXACT = AnswerMatcher(sentence_model=None)
RED = Image.new("RGB", (8, 8), (200, 10, 10))


class Masses(Judge):
    """Gives the masses of a table (prompt -> mass)."""

    name = "masses"

    def __init__(self, table: dict[str, float]) -> None:
        self.table = table
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def mass(self, images: Sequence[Any], prompts: Sequence[str], forms: Sequence[Sequence[str]]) -> torch.Tensor:
        self.asked += [(prompt, tuple(spelled)) for prompt, spelled in zip(prompts, forms, strict=True)]
        return torch.tensor([self.table[prompt] for prompt in prompts])


def test_surface_forms_are_those_of_the_released_script() -> None:
    for word, digit in (("one", "1"), ("seven", "7"), ("ten", "10")):
        released = {word, word.capitalize(), f" {word}", f" {word.capitalize()}", digit, f" {digit}"}
        assert set(surface_forms(word)) == released and len(surface_forms(word)) == 6
    assert set(surface_forms("Yes")) == {"Yes", "yes", " yes", " Yes"}
    assert {"3", "three", "Three", " three"} < set(surface_forms("3"))


def test_masses_become_scores(store: QuestionStore, ask: Ask) -> None:
    store.add([ask("is it red?", (), "Yes"), ask("how many?", (), "two", element_type="count")])
    judge = Masses({"is it red? Answer in one word.": 0.9, "how many? Answer in one word.": 0.4})
    tifa = TIFA(judge, store, soft="mass")
    scores = tifa.score([RED], ["s_1"])
    assert scores.overall.tolist() == pytest.approx([0.65])
    assert [(row.score, row.right, row.how) for row in scores.answers] == [
        (pytest.approx(0.9), True, "mass"), (pytest.approx(0.4), False, "mass"),
    ]  # fmt: skip
    assert judge.asked[1] == ("how many? Answer in one word.", surface_forms("two"))
    assert dict(zip(scores.part_names, scores.parts[0].tolist())) == pytest.approx({"color": 0.9, "count": 0.4})
    for aggregate, expected in (("geometric", 0.6), ("all", 0.0)):
        assert TIFA(judge, store, soft="mass", aggregate=aggregate).score([RED], ["s_1"]).overall.tolist() == (
            pytest.approx([expected])
        )
    hard = TIFA(judge, store, soft="mass", aggregate="geometric").for_evaluation()
    assert hard.score([RED], ["s_1"]).overall.tolist() == [0.5] and hard.identity()["soft"] is False
    assert tifa.identity()["aggregate"] == "arithmetic" and tifa.identity()["soft"] == "mass"


def test_a_question_that_could_not_be_answered_abstains(store: QuestionStore, ask: Ask) -> None:
    store.add([ask("a?", (), "yes"), ask("b?", (), "yes")])
    judge = Masses({"a? Answer in one word.": 0.0, "b? Answer in one word.": math.nan})
    for aggregate in ("arithmetic", "geometric", "all"):
        scores = TIFA(judge, store, soft="mass", aggregate=aggregate).score([RED], ["s_1"])
        assert scores.overall.isnan().all() and scores.reasons == ["the judge could not answer 'b?'"]


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl", "idefics3"])
def test_soft_tifa_equals_the_whole_vocabulary(kind: str, store: QuestionStore, ask: Ask, tmp_path) -> None:
    judge = load_judge(tiny_models.save(kind, tmp_path / kind))
    store.add([ask("Is it red?", (), "Yes"), ask("How many circle?", (), "two"), ask("How many square?", (), "one")])
    image = tiny_models.picture(3, (60, 44))
    expected = [
        summed(judge, whole_vocabulary(judge, image, f"{text} Answer in one word."), list(surface_forms(gold)))
        for text, gold in (("Is it red?", "Yes"), ("How many circle?", "two"), ("How many square?", "one"))
    ]
    scores = TIFA(judge, store, soft="mass").score([image], ["s_1"])
    assert [row.score for row in scores.answers] == pytest.approx(expected, abs=1e-6)
    assert scores.overall.item() == pytest.approx(fmean(expected), abs=1e-6)
    geometric = TIFA(judge, store, soft="mass", aggregate="geometric").score([image], ["s_1"])
    assert geometric.overall.item() == pytest.approx(geometric_mean(expected), abs=1e-6)
    vision, language = counted(judge, lambda: TIFA(judge, store, soft="mass").score([image], ["s_1"]))
    assert len(vision) == len(language) == 1  # one picture, one prefix for all of its questions


def test_soft_tifa_of_an_answerer_is_the_probability_of_the_whole_answer(
    store: QuestionStore, ask: Ask, tmp_path
) -> None:
    """BLIP by its own forward pass over the whole vocabulary, float64: the answer's words, then the end."""
    judge = load_judge(tiny_models.save("blip", tmp_path / "blip"))
    store.add([ask("is it red?", (), "Yes"), ask("how many circle?", (), "two")])
    image = tiny_models.picture(3, (60, 44))
    expected = [
        sum(whole_answer(judge, image, text, spelled) for spelled in spellings)
        for text, spellings in (("is it red?", ["yes"]), ("how many circle?", ["two", "2"]))
    ]
    scores = TIFA(judge, store, soft="mass").score([image], ["s_1"])
    assert [row.score for row in scores.answers] == pytest.approx(expected, abs=1e-6) and min(expected) > 0


def whole_answer(judge: Any, image: Image.Image, question: str, answer: str) -> float:
    inputs = judge.processor(images=image, text=question, return_tensors="pt")
    said = judge.processor.tokenizer(answer, add_special_tokens=False)["input_ids"]
    model = judge.model
    with torch.no_grad():
        seen = model.vision_model(inputs["pixel_values"])[0]
        read = model.text_encoder(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], encoder_hidden_states=seen
        )[0]
        told = torch.tensor([[model.decoder_start_token_id, *said]])
        logits = model.text_decoder(
            input_ids=told, encoder_hidden_states=read, encoder_attention_mask=inputs["attention_mask"]
        ).logits[0]
    logs = logits.double().log_softmax(-1)
    wanted = [*said, judge.processor.tokenizer.sep_token_id]
    return math.exp(sum(float(logs[at, token]) for at, token in enumerate(wanted)))


@pytest.mark.parametrize(
    ("answer", "options"),
    [
        ("Yes", ("Yes", "No")),
        ("no", ("yes", "no")),
        ("two", tuple("zero one two three four five six seven eight nine ten".split())),
        ("2", tuple(map(str, range(11)))),
        ("12", (*map(str, range(11)), "12")),
    ],
)
def test_options_of_questions_without_choices(answer: str, options: tuple[str, ...], ask: Ask) -> None:
    question = ask("q?", (), answer)
    assert question.options == options and question.options[question.answer_index] == answer


def test_questions_without_choices_are_answered_freely_and_by_likelihood(
    store: QuestionStore, ask: Ask, recorded
) -> None:
    store.add([ask("is it red?", (), "Yes"), ask("how many?", (), "three"), ask("how few?", (), "two")])
    said = recorded({"is it red?": "yeah", "how many?": "3 dogs", "how few?": "one"})
    scores = TIFA(said, store, matcher=EXACT).score([RED], ["s_1"])
    assert [(row.choice, row.right) for row in scores.answers] == [("Yes", True), ("three", True), ("one", False)]
    chosen = recorded({"is it red?": "Yes", "how many?": "three", "how few?": "ten"})
    assert [row.right for row in TIFA(chosen, store, answer="choices").score([RED], ["s_1"]).answers] == [
        True, True, False,
    ]  # fmt: skip


def test_only_yes_no_and_numbers_can_do_without_choices(ask: Ask) -> None:
    with pytest.raises(InputError, match=r"'what color\?' has no choices.*its answer is 'red'"):
        ask("what color?", (), "red")


def test_none_of_these_is_offered_where_more_than_yes_or_no_is_asked(store: QuestionStore, ask: Ask, recorded) -> None:
    store.add([ask("is it red?"), ask("what color?", ("red", "blue"), "red")])
    judge = recorded({"is it red?": "yes", "what color?": "none of these"})
    plain = TIFA(judge, store, answer="choices").score([RED], ["s_1"])
    assert [row.choice for row in plain.answers] == ["yes", "blue"]  # 1 and 2 of the weights: forced
    tifa = TIFA(judge, store, answer="choices", none_of_these=True)
    scores = tifa.score([RED], ["s_1"])
    assert [(row.choice, row.right) for row in scores.answers] == [("yes", True), ("none of these", False)]
    soft = TIFA(judge, store, soft=True, none_of_these=True).score([RED], ["s_1"])
    assert soft.answers[1].score == pytest.approx(1 / (1 + 2 + 30))
    free = TIFA(judge, store, matcher=EXACT, none_of_these=True).score([RED], ["s_1"])
    assert [(row.choice, row.how) for row in free.answers] == [("yes", "exact"), ("none of these", "exact")]
    assert tifa.identity()["none_of_these"] is True
    store.add([ask("what shape?", ("None of these.", "circle"), "circle")])
    with pytest.raises(InputError, match="offers 'none of these' already"):
        tifa.score([RED], ["s_1"])


# Raw scores of a, b (needs a), c (needs b), d (needs a and b) -> what is left of them.
TABLE = [
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((0, 1, 1, 1), (0, 0, 1, 0)),  # c counts by b's own answer: no transitive closure
    ((1, 0, 1, 1), (1, 0, 0, 0)),
    ((1, 1, 0, 1), (1, 1, 0, 1)),
    ((0, 0, 0, 1), (0, 0, 0, 0)),
]


@pytest.mark.parametrize(("raw", "left"), TABLE)
@pytest.mark.parametrize("dependencies", ["hard", "soft"])
def test_dependencies_lower_exactly_what_they_should(
    raw: tuple[int, ...], left: tuple[int, ...], dependencies: str, store: QuestionStore, ask: Ask, recorded
) -> None:
    add_family(store, ask)
    judge = recorded({f"{name}?": "yes" if right else "no" for name, right in zip("abcd", raw)})
    scores = TIFA(judge, store, matcher=EXACT, dependencies=dependencies).score([RED], ["s_1"])
    assert tuple(row.score for row in scores.answers) == left
    assert tuple(row.right for row in scores.answers) == tuple(map(bool, raw))
    assert scores.overall.item() == pytest.approx(sum(left) / 4)
    assert TIFA(judge, store, matcher=EXACT).score([RED], ["s_1"]).overall.item() == pytest.approx(sum(raw) / 4)


@pytest.mark.parametrize("dependencies", ["hard", "soft"])
def test_a_parent_that_was_not_answered_leaves_its_children_open(
    dependencies: str, store: QuestionStore, ask: Ask, recorded
) -> None:
    add_family(store, ask)
    judge = recorded({"a?": None, "b?": "yes", "c?": "yes", "d?": "yes"})
    scores = TIFA(judge, store, matcher=EXACT, dependencies=dependencies).score([RED], ["s_1"])
    assert [math.isnan(row.score) for row in scores.answers] == [True, True, False, True]
    assert scores.answers[2].score == 1  # c needs b, whose own answer is right
    assert scores.overall.isnan().all() and scores.reasons == ["the judge could not answer 'a?'"]


def add_family(store: QuestionStore, ask: Ask) -> None:
    store.add([
        ask("a?", element_type="entity.whole"),
        ask("b?", element_type="attribute.color", depends_on=("a?",)),
        ask("c?", element_type="attribute.shape", depends_on=("b?",)),
        ask("d?", element_type="global", depends_on=("a?", "b?", "not asked?")),
    ])  # fmt: skip


def test_soft_scores_are_multiplied(store: QuestionStore, ask: Ask) -> None:
    add_family(store, ask)
    judge = Masses({f"{name}? Answer in one word.": mass for name, mass in zip("abcd", (0.5, 0.8, 1.0, 0.9))})
    scores = TIFA(judge, store, soft="mass", dependencies="soft").score([RED], ["s_1"])
    assert [row.score for row in scores.answers] == pytest.approx([0.5, 0.4, 0.8, 0.36])
    info = scores.metrics("DSG")
    assert info["rewards/DSG/attribute/mean"] == pytest.approx(0.6) and info["rewards/DSG/attribute/count"] == 2
    assert info["rewards/DSG/attribute.color/mean"] == pytest.approx(0.4)
    assert scores.by_element_type()["attribute"] == (pytest.approx(0.6), 2)


def test_dependencies_stay_in_the_store_and_its_fingerprint(store: QuestionStore, ask: Ask, tmp_path) -> None:
    add_family(store, ask)
    assert [question.depends_on for question in store.get("s_1")] == [
        (), ("a?",), ("b?",), ("a?", "b?", "not asked?"),
    ]  # fmt: skip
    other = QuestionStore(tmp_path / "other.sqlite")
    other.add([ask(f"{name}?", element_type=q.element_type) for name, q in zip("abcd", store)])
    assert other.fingerprint() != store.fingerprint()
    third = QuestionStore(tmp_path / "third.sqlite")
    third.merge(store)
    assert third.fingerprint() == store.fingerprint()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"soft": "much"}, "soft is 'much'"),
        ({"answer": "loud"}, "answer is 'loud'"),
        ({"soft": "mass", "answer": "choices"}, "leave out answer"),
        ({"soft": "mass", "none_of_these": True}, "offers none"),
        ({"aggregate": "median"}, "'arithmetic', 'geometric', 'all'"),
        ({"dependencies": "loose"}, "'none', 'hard', 'soft'"),
    ],
)
def test_bad_options(options: dict[str, Any], reason: str, store: QuestionStore, recorded) -> None:
    with pytest.raises(InputError, match=reason):
        TIFA(recorded({}), store, matcher=EXACT, **options)


def test_a_judge_without_the_ability_is_refused_at_once(store: QuestionStore, recorded) -> None:
    for judge in (recorded({}), Oracle()):  # the oracle answers, in words that have no probability
        with pytest.raises(UnsupportedAbility, match=r"how probable an answer is among all; load a .* model$"):
            TIFA(judge, store, soft="mass")
