"""Models of moderate proportions with random weights, for the judges' benchmarks: real classes, real processors,
offline."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import transformers as tf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HIDDEN, LAYERS = 512, 6
LLAMA_WORDS, QWEN_WORDS = 620, 4000
LLAMA_SPECIALS = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
QWEN_SPECIALS = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
    "<|video_pad|>",
]  # fmt: skip
CHAT = (
    "{% for m in messages %}USER: {% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}<image>\n{% else %}{{ c['text'] }}"
    "{% endif %}{% endfor %} {% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


COLOURS = "red blue grey black white brown tan gold".split()
PLACES = "hill lawn field road beach path snow yard".split()
SKIES = "clear dark low bright dull pale high red".split()
CAPTIONS = [
    f"A {colour} dog runs over the {place} and the sky is {sky}, with a person who looks at it from far away"
    for colour, place, sky in zip(COLOURS, PLACES, SKIES)
]


def tokenizer(specials: list[str], vocab_size: int, **options: Any) -> tf.PreTrainedTokenizerFast:
    """A byte-level BPE that has learnt the words of HarmonicEval's prompts and of the captions.

    The sizes below are chosen so that a prompt has about as many tokens as in the real vocabularies, and not fewer:
    see "Tokens" in judges_results.md for the counts beside those of Qwen's and of Mistral's (like Llama's)
    vocabularies.
    """
    prompts = files("rewards.harmonic") / "prompts"
    corpus = [file.read_text("utf-8") for task in prompts.iterdir() if task.is_dir() for file in task.iterdir()]
    corpus += [*CAPTIONS, "USER: ASSISTANT: user assistant"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([*corpus, "from 1 to 5: 1 2 3 4 5"] * 5, trainer)
    return tf.PreTrainedTokenizerFast(tokenizer_object=bpe, padding_side="left", **options)


def language_model(words: Any, **extra: Any) -> dict[str, Any]:
    """The proportions of the decoder: 6 layers, hidden 512, grouped queries."""
    return {
        "vocab_size": len(words), "hidden_size": HIDDEN, "intermediate_size": 1408, "num_hidden_layers": LAYERS,
        "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 8192, "pad_token_id": 0, **extra,
    }  # fmt: skip


def llava(image_tokens: int) -> tuple[Any, Any]:
    """LLaVA: 576 image tokens from a CLIP at 336 pixels, with 4.5% of the parameters, as in LLaVA-1.5-7B."""
    words = tokenizer(
        LLAMA_SPECIALS, LLAMA_WORDS, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    side = round(image_tokens**0.5) * 14
    processor = tf.LlavaProcessor(
        image_processor=tf.CLIPImageProcessor(size={"shortest_edge": side}, crop_size={"height": side, "width": side}),
        tokenizer=words, patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        image_token="<image>", chat_template=CHAT,
    )  # fmt: skip
    vision = tf.CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=side,
        patch_size=14,
    )
    config = tf.LlavaConfig(  # type: ignore[call-arg]
        vision_config=vision, text_config=tf.LlamaConfig(**language_model(words, bos_token_id=1, eos_token_id=2)),
        image_token_id=words.convert_tokens_to_ids("<image>"), vision_feature_layer=-2,
        vision_feature_select_strategy="default",
    )  # fmt: skip
    return tf.LlavaForConditionalGeneration(config), processor


def qwen2_5_vl(image_tokens: int) -> tuple[Any, Any]:
    """Qwen2.5-VL: a quarter as many image tokens as patches, a vision tower with 9% of the parameters, as in the 7B."""
    words = tokenizer(
        QWEN_SPECIALS, QWEN_WORDS, pad_token="<|endoftext|>", eos_token="<|im_end|>",
        extra_special_tokens={"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    )  # fmt: skip
    pixels = image_tokens * 28 * 28
    image_processor = tf.Qwen2VLImageProcessor(
        size={"shortest_edge": pixels, "longest_edge": pixels}, patch_size=14, merge_size=2, temporal_patch_size=2
    )
    processor = tf.Qwen2_5_VLProcessor(
        image_processor=image_processor,
        tokenizer=words,
        video_processor=tf.Qwen2VLVideoProcessor(),
        chat_template=CHATML,
    )
    rope = {"rope_type": "default", "mrope_section": [8, 12, 12], "rope_theta": 10000.0}
    names = {
        "image": "<|image_pad|>",
        "video": "<|video_pad|>",
        "vision_start": "<|vision_start|>",
        "vision_end": "<|vision_end|>",
    }
    ids: dict[str, Any] = {f"{name}_token_id": words.convert_tokens_to_ids(token) for name, token in names.items()}
    vision = {
        "depth": 6, "hidden_size": 160, "intermediate_size": 432, "num_heads": 4, "out_hidden_size": HIDDEN,
        "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "window_size": 112,
        "fullatt_block_indexes": [2, 5],
    }  # fmt: skip
    text = language_model(words, rope_parameters=rope, bos_token_id=0, eos_token_id=2)
    config = tf.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
    return tf.Qwen2_5_VLForConditionalGeneration(config), processor


def save(kind: str, image_tokens: int, folder: Path) -> str:
    """Build a model (`llava` or `qwen2_5_vl`), sharpen its random weights so that its ratings differ, and save it."""
    torch.manual_seed(0)
    model, processor = {"llava": llava, "qwen2_5_vl": qwen2_5_vl}[kind](image_tokens)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(2)
    path = folder / f"{kind}-{image_tokens}"
    model.eval().save_pretrained(path)
    processor.save_pretrained(path)
    return str(path)
