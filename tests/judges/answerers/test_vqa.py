import pytest
import torch
from transformers import GitForCausalLM

from tests import tiny_models

QUESTIONS = [
    "how many circle",
    "what color is the square on the white background",
    "yes",
    "is it red or blue or white or correct",
]
CHOICES = [["1", "2", "3"], ["red", "a blue circle", "white"], ["yes", "no"], ["red"]]


def rows():
    pictures = [
        tiny_models.picture(seed, size) for seed, size in [(0, (48, 40)), (1, (90, 60)), (0, (48, 40)), (2, (32, 32))]
    ]
    return pictures, QUESTIONS


ANSWERERS = ["blip", "vilt", "git", "blip2_opt", "blip2_t5"]


@pytest.mark.parametrize("kind", ANSWERERS)
def test_batched_answers_equal_single_answers(tiny_judge, kind):
    judge = tiny_judge(kind)
    images, questions = rows()
    images, questions, choices = images * 4, questions * 4, CHOICES * 4
    images = [images[0]] * 8 + images[8:]  # several questions of different lengths on one picture
    together = judge.answer(images, questions)
    alone = [judge.answer([image], [question])[0] for image, question in zip(images, questions)]
    assert together == alone
    scores = judge.choose(images, questions, choices)
    for row, (image, question, offered) in enumerate(zip(images, questions, choices)):
        assert torch.allclose(scores[row], judge.choose([image], [question], [offered])[0], atol=5e-5)
        for at, choice in enumerate(offered if row < 4 else []):
            assert scores[row][at].item() == pytest.approx(
                judge.choose([image], [question], [[choice]])[0].item(), abs=5e-5
            )


def test_blip_equals_transformers_own_generate_one_at_a_time(tiny_judge):
    judge = tiny_judge("blip")
    images, questions = rows()
    for image, question in zip(images, questions):
        inputs = judge.processor(images=image, text=question, return_tensors="pt")
        with torch.no_grad():
            ids = judge.model.generate(**inputs, max_length=50, do_sample=False)
        assert judge.answer([image], [question]) == [judge.tokenizer.decode(ids[0], skip_special_tokens=True).strip()]


def test_blip_choice_is_the_models_own_loss(tiny_judge):
    judge = tiny_judge("blip")
    image, question, choice = tiny_models.picture(3), "how many circle", "a blue square"
    inputs = judge.processor(images=image, text=question, return_tensors="pt")
    ids = judge.tokenizer(choice, return_tensors="pt")["input_ids"]
    ids[:, 0] = judge.model.decoder_start_token_id
    with torch.no_grad():
        seen = judge.model.vision_model(pixel_values=inputs["pixel_values"]).last_hidden_state
        states = judge.model.text_encoder(input_ids=inputs["input_ids"], encoder_hidden_states=seen).last_hidden_state
        log_probs = judge.model.text_decoder(input_ids=ids, encoder_hidden_states=states).logits[0].log_softmax(-1)
    expected = sum(log_probs[at, token].item() for at, token in enumerate(ids[0, 1:].tolist()))
    assert judge.choose([image], [question], [[choice]])[0].item() == pytest.approx(expected, abs=1e-4)


def test_vilt_never_chooses_what_it_cannot_say(tiny_judge):
    scores = tiny_judge("vilt").choose([tiny_models.picture()], ["is it red"], [["Yes ", "purple"]])[0]
    assert torch.isfinite(scores[0])
    assert scores[1] == -torch.inf


@pytest.mark.parametrize("kind", [*ANSWERERS, "llava"])
def test_an_unreadable_picture_abstains_and_leaves_its_neighbours(tiny_judge, kind):
    judge = tiny_judge(kind)
    good = tiny_models.picture(0, (48, 48))
    images, questions = [good, b"broken", good], QUESTIONS[:3]
    answers = judge.answer(images, questions)
    assert answers[1] is None
    assert [answers[0], answers[2]] == judge.answer([good, good], [questions[0], questions[2]])
    scores = judge.choose(images, questions, CHOICES[:3])
    assert scores[1].isnan().all()
    assert torch.isfinite(scores[0]).all()


def test_a_question_longer_than_the_model_is_cut(tiny_judge):
    for kind in ANSWERERS:
        assert tiny_judge(kind).answer([tiny_models.picture(0, (48, 48))], ["how many circle " * 500])[0] is not None


def test_git_equals_the_official_scorers_way(tiny_judge):
    """One question at a time through `generate`, with the picture encoded anew, as tifascore/vqa_models.py does it."""
    judge = tiny_judge("git")
    images, questions = rows()
    reference = GitForCausalLM.from_pretrained(judge.name).eval()
    for image, question in zip(images, questions):
        pixels = judge.processor(images=image, return_tensors="pt")["pixel_values"]
        ids = [judge.tokenizer.cls_token_id, *judge.tokenizer(question, add_special_tokens=False)["input_ids"]]
        new = reference.generate(pixel_values=pixels, input_ids=torch.tensor([ids]), max_length=50, do_sample=False)
        expected = judge.tokenizer.decode(new[0, len(ids) :], skip_special_tokens=True).strip()
        assert judge.answer([image], [question]) == [expected]


@pytest.mark.parametrize("kind", ["blip2_opt", "blip2_t5"])
def test_blip2_equals_transformers_own_generate(tiny_judge, kind):
    judge = tiny_judge(kind)
    images, questions = rows()
    for image, question in zip(images, questions):
        prompt = f"Answer the question. Question: {question} Answer:"
        inputs = judge.processor(images=image, text=prompt, return_tensors="pt")
        with torch.no_grad():
            ids = judge.model.generate(**inputs, max_new_tokens=49, do_sample=False)
        new = ids[0] if kind == "blip2_t5" else ids[0, inputs["input_ids"].shape[1] :]
        assert judge.answer([image], [question]) == [judge.tokenizer.decode(new, skip_special_tokens=True).strip()]


@pytest.mark.parametrize("kind", ["blip2_opt", "blip2_t5"])
def test_blip2_choices_are_the_models_own_likelihood(tiny_judge, kind):
    judge = tiny_judge(kind)
    image, question, choice = tiny_models.picture(1), "how many circle", "a blue square"
    inputs = judge.processor(
        images=image, text=f"Answer the question. Question: {question} Answer:", return_tensors="pt"
    )
    said = judge.tokenizer(" " + choice if kind == "blip2_opt" else choice, add_special_tokens=False)["input_ids"] + [1]
    with torch.no_grad():
        if kind == "blip2_t5":
            logits = judge.model(**inputs, decoder_input_ids=torch.tensor([[0, *said[:-1]]])).logits[0]
        else:
            inputs["input_ids"] = torch.cat([inputs["input_ids"], torch.tensor([said])], dim=1)
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            logits = judge.model(**inputs).logits[0, -len(said) - 1 : -1]
    expected = logits.log_softmax(-1)[torch.arange(len(said)), torch.tensor(said)].sum().item()
    assert judge.choose([image], [question], [[choice]])[0].item() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", ["blip", "git", "blip2_t5"])
def test_vision_runs_once_a_picture_in_one_batch(tiny_judge, kind):
    judge = tiny_judge(kind)
    encoder = judge._encoder.encoder if kind == "git" else judge.model.vision_model
    sizes = []
    handle = encoder.register_forward_hook(lambda module, args, output: sizes.append(len(output.last_hidden_state)))
    judge.answer([tiny_models.picture(seed % 3) for seed in range(12)], QUESTIONS * 3)
    handle.remove()
    assert sizes == [3]


def test_blip_projects_a_pictures_keys_and_values_once(tiny_judge):
    judge = tiny_judge("blip")
    layer = judge.model.text_encoder.encoder.layer[0].crossattention.self
    sizes = []
    handle = layer.attention.key.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    judge.answer([tiny_models.picture(seed % 2) for seed in range(8)], QUESTIONS * 2)
    assert sizes == [2]
    judge.answer([tiny_models.picture(int(seed > 4)) for seed in range(8)], QUESTIONS * 2)  # five and three questions
    handle.remove()
    assert sizes == [2, 1, 1]


def test_running_out_of_memory_halves_the_batch_for_good(tiny_judge):
    judge = tiny_judge("blip", rows_a_batch=16)
    images, questions = [tiny_models.picture(seed % 2) for seed in range(8)], QUESTIONS * 2
    expected = judge.answer(images, questions)

    def small_device(module, args, kwargs):
        if len(kwargs["input_ids"]) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")

    handle = judge.model.text_encoder.register_forward_pre_hook(small_device, with_kwargs=True)
    assert judge.answer(images, questions) == expected
    handle.remove()
    assert judge.rows_a_batch == 2


def test_a_picture_is_encoded_once_whatever_the_batch_holds(tiny_judge):
    """Batches end where a picture ends: 50 questions a picture do not cut every second picture in two."""
    judge = tiny_judge("blip", rows_a_batch=64)
    pictures = [tiny_models.picture(seed, (48, 48)) for seed in range(4)]
    images = [picture for picture in pictures for _ in range(50)]
    seen = []
    handle = judge.model.vision_model.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["pixel_values"])), with_kwargs=True
    )
    scores = judge.choose(images, ["how many"] * 200, [["1", "2"]] * 200)
    handle.remove()
    assert seen == [1, 1, 1, 1]
    assert torch.allclose(scores[0], judge.choose(images[:1], ["how many"], [["1", "2"]])[0], atol=1e-4)
