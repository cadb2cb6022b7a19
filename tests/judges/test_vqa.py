import pytest
import torch

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


@pytest.mark.parametrize("kind", ["blip", "vilt"])
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
        assert torch.allclose(scores[row], judge.choose([image], [question], [offered])[0], atol=1e-5)
        for at, choice in enumerate(offered):
            assert scores[row][at].item() == pytest.approx(
                judge.choose([image], [question], [[choice]])[0].item(), abs=1e-5
            )


def test_blip_equals_transformers_own_generate_one_at_a_time(tiny_judge):
    judge = tiny_judge("blip")
    images, questions = rows()
    for image, question in zip(images, questions):
        inputs = judge.processor(images=image, text=question, return_tensors="pt")
        with torch.no_grad():
            ids = judge.model.generate(**inputs, max_new_tokens=20, do_sample=False)
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


@pytest.mark.parametrize("kind", ["blip", "vilt", "llava"])
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
    assert tiny_judge("blip").answer([tiny_models.picture()], ["how many circle " * 500])[0] is not None
    assert tiny_judge("vilt").answer([tiny_models.picture(0, (48, 48))], ["how many circle " * 500])[0] is not None
