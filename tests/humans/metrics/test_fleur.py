"""FLEUR's two digits: the formula by hand, and three architectures against a plain reading of the model."""

import math

import pytest
import torch

from rewards.humans.metrics.base import TextItem
from rewards.humans.metrics.fleur import DIGITS, FLEUR, fleur_score
from rewards.judges.base import Judge, Ratings, UnsupportedAbility
from rewards.judges.decoders.rating_tokens import continuation
from rewards.judges.loading import load_judge
from tests import tiny_models


def row(**digits):
    table = torch.zeros(1, 10)
    for name, value in digits.items():
        table[0, int(name.removeprefix("d"))] = value
    return table


def test_the_formula_by_hand():
    zero, one = torch.tensor([[0.9, 0.05]]), torch.tensor([[0.3, 0.6]])
    # 0.7 * 0.8 + 0.2 * 0.7, and the second decimal 0.05 * 0.6 + 0.02 * 0.3; nothing is renormalised.
    first, second = row(d8=0.7, d7=0.2), row(d5=0.6, d2=0.3)
    assert fleur_score(zero, first, second).item() == pytest.approx(0.56 + 0.14 + 0.03 + 0.006)
    # A judge that stops after one decimal puts little on digits: only the first sum.
    assert fleur_score(zero, first, row(d5=0.3)).item() == pytest.approx(0.7)
    # It writes 1.0: the digit before the point decides.
    assert fleur_score(one, first, second).item() == pytest.approx(0.9 * 0.3 + 0.6)


class Writes(Judge):
    """Writes the number that a text holds, quite surely."""

    name = "writes"

    def rate(self, images, prompts, ratings=("0", "1")):
        lead = {"silent": [0.0, 0.0], "1.0": [0.0, 0.8]}
        table = torch.tensor([lead.get(prompt.split()[-1], [0.8, 0.0]) for prompt in prompts])
        return Ratings(table, table.sum(1), (None,) * len(prompts))

    def rate_after(self, images, prompts, said, ratings):
        table = torch.zeros(len(prompts), 10)
        for n, (prompt, begun) in enumerate(zip(prompts, said, strict=True)):
            number = prompt.split()[0]
            if number.startswith(begun) and len(number) > len(begun):
                table[n, int(number[len(begun)])] = 0.9
        return Ratings(table, table.sum(1), (None,) * len(prompts))


def test_the_second_digit_is_read_after_the_likeliest_first_and_silence_abstains():
    metric = FLEUR(Writes(), "{text}")
    scores = metric([TextItem(None, text) for text in ("0.85", "0.3", "1.0", "0.5 silent")]).overall
    assert scores[:3].tolist() == pytest.approx([0.9 * 0.8 + 0.9 * 0.05, 0.9 * 0.3, 0.8]) and math.isnan(scores[3])


def test_a_judge_without_the_ability_is_refused_before_it_is_asked():
    with pytest.raises(UnsupportedAbility, match="cannot go on from words"):
        FLEUR(type("Rater", (Judge,), {"rate": Writes.rate, "name": "rater"})())


@pytest.mark.parametrize("kind", ["llava_llama_tokenizer", "qwen2_5_vl", "idefics3"])
def test_digits_are_those_of_the_model_itself(kind, tmp_path):
    judge = load_judge(tiny_models.save(kind, tmp_path / kind))
    pictures, prompts = [tiny_models.picture(n) for n in range(3)], ["rate: a dog", "rate: two cats", "rate: 0.85"]
    said = ["0.", "0.", "0.7"]
    found = judge.rate_after(pictures, prompts, said, DIGITS)
    for n, prompt in enumerate(prompts):
        text = judge.prompting.render(prompt)
        inputs = judge.processor(text=[text], images=[pictures[n]], return_tensors="pt", add_special_tokens=False)
        begun = continuation(judge.tokenizer, judge.prompting.tail, said[n])
        if judge.tokenizer.bos_token_id is not None and not judge.prompting.begins_with_bos:
            inputs = judge.processor(text=[text], images=[pictures[n]], return_tensors="pt")
        ids = torch.cat([inputs["input_ids"], torch.tensor([begun])], dim=1)
        mask = torch.ones_like(ids)
        rest = {k: v for k, v in inputs.items() if k not in ("input_ids", "attention_mask", "mm_token_type_ids")}
        if "mm_token_type_ids" in inputs:
            types = inputs["mm_token_type_ids"]
            rest["mm_token_type_ids"] = torch.cat([types, torch.zeros(1, len(begun), dtype=types.dtype)], dim=1)
        with torch.no_grad():
            logits = judge.model(input_ids=ids, attention_mask=mask, **rest).logits[0, -1]
        expected = logits.float().softmax(-1)[[judge.tokenizer.convert_tokens_to_ids(digit) for digit in DIGITS]]
        assert found.probabilities[n].tolist() == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("kind", ["llava_llama_tokenizer", "qwen2_5_vl"])
def test_a_real_architecture_gives_scores_by_the_formula(kind, tmp_path):
    judge = load_judge(tiny_models.save(kind, tmp_path / kind))
    pictures, prompts = [tiny_models.picture(n) for n in range(2)], ["rate: a dog", "rate: two cats"]
    items = [TextItem(picture, prompt) for picture, prompt in zip(pictures, prompts, strict=True)]
    found = FLEUR(judge, "{text}", min_rating_mass=0.0)(items).overall
    first = judge.rate_after(pictures, prompts, ["0.", "0."], DIGITS).probabilities
    said = [f"0.{digit}" for digit in first.argmax(-1).tolist()]
    second = judge.rate_after(pictures, prompts, said, DIGITS).probabilities
    expected = fleur_score(judge.rate(pictures, prompts, ("0", "1")).probabilities, first, second)
    assert found.tolist() == pytest.approx(expected.tolist(), abs=1e-6) and (found >= 0).all() and (found <= 1).all()


def test_a_tokenizer_that_joins_digits_is_refused(tmp_path):
    judge = load_judge(tiny_models.save("llava", tmp_path / "llava"))
    with pytest.raises(UnsupportedAbility, match=r"'85' after '0\.' is not a single token"):
        judge.rate_after([tiny_models.picture(0)], ["rate"], ["0."], ["85"])
