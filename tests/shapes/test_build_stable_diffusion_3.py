"""What the pipeline with flow matching is put together from, before it is trained."""

import logging

import torch
from diffusers import StableDiffusionPipeline

from rewards.shapes.build.stable_diffusion import right_answers
from rewards.shapes.build.stable_diffusion_3 import new_pipeline
from rewards.shapes.datasets import sample_scenes
from rewards.shapes.language import describe
from rewards.shapes.render import render_array
from rewards.trainers.diffusion.run import PACKAGED

TEXT = ["two red circles left of a blue square", ""]


def test_texts_are_encoded_as_in_the_shipped_stable_diffusion(caplog):
    shipped = StableDiffusionPipeline.from_pretrained(PACKAGED["shapes"])
    ids = shipped.tokenizer(TEXT, padding="max_length", max_length=16, return_tensors="pt").input_ids
    with torch.no_grad(), caplog.at_level(logging.WARNING):
        expected = shipped.text_encoder(ids, output_hidden_states=True)
        embeds, _, pooled, _ = new_pipeline(shipped).encode_prompt(
            TEXT, None, None, do_classifier_free_guidance=False, max_sequence_length=1
        )
    assert embeds.shape == (2, 17, 192) and pooled.shape == (2, 192)
    for half in (slice(0, 96), slice(96, 192)):
        assert torch.equal(embeds[:, :16, half], expected.hidden_states[-1])
        assert torch.equal(pooled[:, half], expected.pooler_output)
    assert not embeds[:, 16:].any()  # T5 is silent
    assert not [record for record in caplog.records if "truncated" in record.getMessage()]


def test_the_oracle_finds_a_drawn_scene_right():
    scenes = [scene for scene in sample_scenes("test", 40, seed=3) if len(describe(scene).phrases) <= 2]
    prompts = [str(describe(scene)) for scene in scenes]
    mean, kinds = right_answers(render_array(scenes), prompts)
    assert mean > 0.98 and {"color", "counting", "object", "shape"} <= kinds.keys()
    assert right_answers(render_array(scenes[::-1]), prompts)[0] < 0.7
