import pytest
import torch

from rewards.errors import InputError
from rewards.judges.base import Judge, UnsupportedAbility
from rewards.judges.cache import CachedJudge
from rewards.judges.decoders.first_tokens import first_tokens
from tests import tiny_models

YES = ["Yes", "yes", " yes", " Yes"]
TWO = ["two", "Two", " two", " Two", "2", " 2"]


def whole_vocabulary(judge, image, prompt: str) -> torch.Tensor:
    """The reference: probabilities `(V,)` after the processor's own full prompt, float64."""
    turn = [{"role": "user", "content": [{"type": "image", "image": image}, {"type": "text", "text": prompt}]}]
    inputs = judge.processor.apply_chat_template(
        turn, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
    )
    with torch.no_grad():
        return judge.model(**inputs).logits[0, -1].double().softmax(-1)


def summed(judge, probabilities: torch.Tensor, forms: list[str]) -> float:
    tokenizer = judge.processor.tokenizer
    ids = {tokenizer(form, add_special_tokens=False)["input_ids"][0] for form in forms}
    return float(sum(probabilities[token] for token in ids if tokenizer.decode([token]).strip()))


@pytest.mark.parametrize("kind", ["llava", "qwen2_5_vl", "qwen3_vl", "idefics3"])
def test_mass_is_that_of_the_whole_vocabulary(tiny_judge, kind):
    judge = tiny_judge(kind)
    image, other = tiny_models.picture(5, (60, 44)), tiny_models.picture(6)
    rows = [
        (image, "Is it red? Answer in one word.", YES),
        (image, "How many circle? Answer in one word.", TWO),
        (image, "How many circle? Answer in one word.", YES),  # the same prompt, another answer
        (other, "How many circle? Answer in one word.", TWO),
    ]
    found = judge.mass([row[0] for row in rows], [row[1] for row in rows], [row[2] for row in rows])
    expected = [summed(judge, whole_vocabulary(judge, picture, prompt), forms) for picture, prompt, forms in rows]
    assert found.dtype == torch.float32 and found.tolist() == pytest.approx(expected, abs=1e-6)
    assert len(set(expected)) == 4 and min(expected) > 0 and max(expected) < 1


def test_a_shared_first_token_counts_once(tiny_judge):
    tokenizer = tiny_judge("llava").processor.tokenizer
    first = {form: tokenizer(form, add_special_tokens=False)["input_ids"][0] for form in ("yes", "yesterday")}
    assert len(set(first.values())) == 1
    assert first_tokens(tokenizer, ["yes", "yesterday", "yes"]) == [first["yes"]]


def test_what_begins_with_no_token_of_its_own_is_refused(tiny_judge):
    with pytest.raises(UnsupportedAbility, match="begins with a token of its own"):
        tiny_judge("llava").mass([tiny_models.picture(0)], ["a"], [["", " "]])


def test_a_picture_that_cannot_be_read_has_no_mass(tiny_judge):
    found = tiny_judge("qwen2_5_vl").mass([b"nothing", tiny_models.picture(0)], ["a", "a"], [YES, YES])
    assert found.isnan().tolist() == [True, False]
    with pytest.raises(InputError, match="2 questions but 1 lists"):
        tiny_judge("qwen2_5_vl").mass([tiny_models.picture(0)] * 2, ["a", "a"], [YES])


def test_answerers_take_the_whole_answer_in_any_spelling(tiny_judge):
    for kind in ("blip", "vilt"):
        judge = tiny_judge(kind)
        image = tiny_models.picture(0)
        chosen = judge.choose([image], ["is it red"], [["yes"]])[0].exp()
        assert judge.mass([image], ["is it red"], [YES]).tolist() == pytest.approx(chosen.tolist(), rel=1e-5)
        assert judge.one_word == "{question}"


def test_a_judge_that_cannot_tell_says_so():
    with pytest.raises(UnsupportedAbility, match="how probable an answer is"):
        Judge().mass([], [], [])


def test_masses_are_remembered(tiny_judge, tmp_path):
    judge = tiny_judge("llava")
    cached = CachedJudge(judge, tmp_path / "j.sqlite")
    first = cached.mass([tiny_models.picture(0)] * 2, ["a", "a"], [YES, TWO])
    assert cached.mass([tiny_models.picture(0)] * 2, ["a", "a"], [YES, TWO]).tolist() == first.tolist()
    assert (cached.hits, cached.misses) == (2, 2) and first[0] != first[1]
    assert cached.mass([b"nothing"], ["a"], [YES]).isnan().all()
